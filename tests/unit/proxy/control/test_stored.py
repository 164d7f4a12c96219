"""What is stored keeps its format: lines of the release before msgspec are read, and what is written it can read.

That release read with `json.loads`, and looked at the fields by name.
"""

import json
import zlib
from pathlib import Path

import pytest

from proxy.config import Address
from proxy.control.cluster import MapFile
from proxy.control.enforcement import EnforcementFile, Switched
from proxy.control.quotas.topic_store import NAME, Place, Snapshot
from proxy.control.reassign.journal import (
    Ended,
    EndedTotals,
    Entry,
    PendingRequest,
    Record,
    Term,
    read_line,
    write_line,
)
from proxy.events.kinds import By
from proxy.system.stats import Stats
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.records import Author, Setting, event_of, key_of, read_key, read_setting, value_of
from quotas.reassignment.step import Step

ID = "0123456789abcdef0123456789abcdef"
STEP = Step("orders", 3, (1, 2, 4), (4,), (), None, (1, 2, 3), 1)
BACK = Step("orders", 3, (1, 2, 3), (), (4,), 1, (1, 2, 3, 4), 4)
PROCESS = "gw-1:17:aabbccdd"
STEP_JSON = (
    b'{"topic":"orders","partition":3,"replicas":[1,2,4],"adds":[4],"drops":[],"elects":null,'
    b'"current":[1,2,3],"leader":1}'
)
ENTRY_JSON = b'"kind":"entry","topic":"orders","partition":3,"topic_id":"0123456789abcdef0123456789abcdef"'
LINES = [
    (
        b'5fd1ebd9 7 {%s,"original":[1,2,3],"target":null,"cancelled":false,"asked":null,"step":null,'
        b'"unsure":false}' % ENTRY_JSON,
        Entry("orders", 3, ID, (1, 2, 3)),
    ),
    (
        b'1677fd55 8 {%s,"original":[1,2,3],"target":null,"cancelled":false,"asked":{"target":[1,2,4],'
        b'"cancels":false,"step":%s,"by":"gw-1:17:aabbccdd/4"},"step":null,"unsure":false}'
        % (ENTRY_JSON, STEP_JSON),
        Entry("orders", 3, ID, (1, 2, 3), asked=PendingRequest((1, 2, 4), False, STEP, f"{PROCESS}/4")),
    ),
    (
        b'7637a944 9 {%s,"original":[1,2,3],"target":[1,2,4],"cancelled":false,"asked":null,"step":%s,'
        b'"unsure":false}' % (ENTRY_JSON, STEP_JSON),
        Entry("orders", 3, ID, (1, 2, 3), (1, 2, 4), step=STEP),
    ),
    (
        b'621306f7 10 {%s,"original":[1,2,3],"target":[1,2,3],"cancelled":true,"asked":null,"step":'
        b'{"topic":"orders","partition":3,"replicas":[1,2,3],"adds":[],"drops":[4],"elects":1,"current":[1,2,3,4],"leader":4},'
        b'"unsure":true}' % ENTRY_JSON,
        Entry("orders", 3, ID, (1, 2, 3), (1, 2, 3), cancelled=True, step=BACK, unsure=True),
    ),
    (
        b'9ad7b1fb 11 {"kind":"ended","topic":"orders","partition":3,"how":"done","size":1048576}',
        Ended("orders", 3, "done", 1048576),
    ),
    (b'c75c52ce 13 {"kind":"term","number":4,"executor":"gw-1:17:aabbccdd","over":null}', Term(4, PROCESS)),
    (
        b'b5fb15f3 14 {"kind":"term","number":4,"executor":"gw-\\u00e9:17:aabbccdd","over":[3,1,4,2048]}',
        Term(4, "gw-\u00e9:17:aabbccdd", EndedTotals(3, 1, 4, 2048)),
    ),
]


@pytest.mark.parametrize(("line", "record"), LINES)
def test_journal_lines(line: bytes, record: Record) -> None:
    sequence, found = read_line(line)
    assert found == record
    written = write_line(sequence, record)[:-1]
    checksum, _, text = written.partition(b" ")
    assert int(checksum, 16) == zlib.crc32(text)
    assert json.loads(text.partition(b" ")[2]) == json.loads(line.split(b" ", 2)[2])


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (b'12 {"kind":"ended","topic":"orders","partition":4,"how":"gone"}', Ended("orders", 4, "gone")),
        (b'12 {"kind":"term","number":3,"executor":"me"}', Term(3, "me")),
    ],
)
def test_journal_lines_without_sizes(text: bytes, record: Record) -> None:
    assert read_line(b"%08x %s" % (zlib.crc32(text), text)) == (12, record)


AUTHOR = Author("ann", "10.0.0.4:51000", "2026-01-31T12:00:00.000Z")
SAID = b'"by":"ann","from":"10.0.0.4:51000"'
AT = b'"at":"2026-01-31T12:00:00.000Z"'


@pytest.mark.parametrize(
    ("entity", "limit", "key", "value", "number"),
    [
        (
            Entity("ann"),
            "producer_byte_rate",
            b'{"entity":[["user","ann"]],"limit":"producer_byte_rate"}',
            2e6,
            b"2000000",
        ),
        (
            Entity('\u00e9"x\x1f', DEFAULT),
            "request_percentage",
            b'{"entity":[["user","\xc3\xa9\\"x\\u001f"],["client-id",null]],"limit":"request_percentage"}',
            12.5,
            b"12.5",
        ),
        (
            Entity(ip="10.0.0.1"),
            "connection_creation_rate",
            b'{"entity":[["ip","10.0.0.1"]],"limit":"connection_creation_rate"}',
            3.0,
            b"3",
        ),
    ],
)
def test_quota_records(entity: Entity, limit: str, key: bytes, value: float, number: bytes) -> None:
    assert key_of(entity, limit) == key, "compaction compares bytes"
    assert read_key(key) == (entity, limit)
    stored = b'{"v":1,"value":%s,%s,%s}' % (number, SAID, AT)
    assert value_of(value, AUTHOR) == stored
    assert read_setting(entity, limit, stored) == Setting(value, AUTHOR)
    parts = key[1 : key.index(b',"limit"')]
    event = b'{"v":1,%s,%s,%s,"limit":"%s","old":null,"new":%s}' % (AT, SAID, parts, limit.encode(), number)
    assert event_of(entity, limit, None, value, AUTHOR) == event


SNAPSHOT = (
    b'{"v":1,"topic":"__sluice-quotas","topic_id":"00ff","offset":1234,"signed":true}\n'
    b'[[["user","\xc3\xa9"],["client-id",null]],{"producer_byte_rate":2000000.0}]\n'
    b'{"entities":1,"sha256":"%s"}\n'
)
PLACE = Place("__sluice-quotas", "00ff", 1234, signed=True)


def test_snapshot_of_a_quota_topic(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(
        SNAPSHOT % b"e02768c1a26f3a6f4b7746caafc5f7601758bd4c438b94b35351665855a71da8"
    )
    snapshot = Snapshot(tmp_path)
    found = snapshot.read("__sluice-quotas")
    assert found is not None
    place, definitions = found
    assert (place, dict(definitions.entries())) == (
        PLACE,
        {Entity("\u00e9", DEFAULT): {"producer_byte_rate": 2e6}},
    )
    snapshot.write(place, definitions.entries())
    head, entity, tail = map(json.loads, (tmp_path / NAME).read_bytes().splitlines())
    assert head == {"v": 1, "topic": "__sluice-quotas", "topic_id": "00ff", "offset": 1234, "signed": True}
    assert entity == [[["user", "\u00e9"], ["client-id", None]], {"producer_byte_rate": 2e6}]
    assert tail.keys() == {"entities", "sha256"}


def test_broker_map(tmp_path: Path) -> None:
    (tmp_path / "brokers.json").write_text('{"1": ["10.0.0.1", 9092], "2": ["broker-2", 9093]}')
    file = MapFile(tmp_path, Stats())
    found = file.read()
    assert found == {1: Address("10.0.0.1", 9092), 2: Address("broker-2", 9093)}
    assert file.write(found)
    assert json.loads((tmp_path / "brokers.json").read_bytes()) == {
        "1": ["10.0.0.1", 9092],
        "2": ["broker-2", 9093],
    }


def test_switch_of_enforcement(tmp_path: Path) -> None:
    file = EnforcementFile(tmp_path)
    stored = {
        "enforcing": False,
        "at": 1769860800.5,
        "by": "ann",
        "from": "10.0.0.4",
        "reason": "an incident",
    }
    file.path.write_text(json.dumps(stored))
    found = file.read()
    assert found == Switched(False, 1769860800.5, By("ann", "10.0.0.4"), "an incident")
    file.write(found)
    assert json.loads(file.path.read_bytes()) == stored
