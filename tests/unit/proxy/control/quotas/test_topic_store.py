"""proxy.control.quotas.topic_store: the order of the topic is the order here, and nothing in the topic does harm."""

import json
from pathlib import Path

import pytest

from proxy.config import QuotaSettings
from proxy.control.quotas.store import Client, StoreError
from proxy.control.quotas.topic_store import Place, Snapshot, SnapshotError, TopicStore
from proxy.topics.records import AppendError, Portion, Problem, Record
from quotas.definitions.alterations import Alteration
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, BucketKey, Entity
from quotas.definitions.records import Author, key_of, value_of
from tests.support.quota_log import TOPIC_ID, FakeLog, told_by

RATE = "producer_byte_rate"
OTHER = "consumer_byte_rate"
ANN = Entity("ann")
ADMIN = Client("admin", "10.0.0.4:51000")
AUTHOR = Author("", "", "")


class Events:
    """The audit topic."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, records: list[Record]) -> None:
        self.records += records


def rate(entity: Entity, value: float | None, limit: str = RATE) -> Record:
    return Record(key_of(entity, limit), None if value is None else value_of(value, AUTHOR))


def in_topic(log: FakeLog, given: str = "", *, snapshot: Snapshot | None = None) -> TopicStore:
    return TopicStore(QuotaSettings(store="topic"), log, given, snapshot=snapshot)


def opened(*records: Record, given: str = "", events: Events | None = None) -> tuple[TopicStore, FakeLog]:
    """A store that has read a topic with these records to its end."""
    log = FakeLog()
    store = TopicStore(QuotaSettings(store="topic"), log, given, events)
    log.deliver(begins=True, complete=False)
    log.deliver(*records)
    store.drain()
    return store, log


def asked(entity: str, *ops: tuple[str, float | None]) -> Alteration:
    return [("user", entity)], ops


def alter(store: TopicStore, *alterations: Alteration, validate_only: bool = False) -> list[str]:
    outcome = store.alter(alterations, ADMIN, validate_only=validate_only)
    return [problem for _, problem in outcome.results]


def test_topic_is_in_force_once_it_is_read_to_its_end() -> None:
    log = FakeLog()
    store = in_topic(log)
    log.deliver(rate(ANN, 5), begins=True, complete=False)
    store.drain()
    assert (store.ready, len(store.definitions)) == (False, 0)
    log.deliver(rate(ANN, 6))
    assert store.drain()
    assert (store.ready, store.definitions.values(ANN)) == (True, {RATE: 6.0})
    assert not store.drain()


def test_last_record_of_a_limit_counts_and_a_tombstone_removes_it() -> None:
    store, _ = opened(rate(ANN, 5), rate(ANN, 7, OTHER), rate(ANN, 9), rate(ANN, None, OTHER))
    assert store.definitions.values(ANN) == {RATE: 9.0}


def test_alteration_is_one_batch_with_its_author_and_in_force_when_it_was_read_back() -> None:
    store, log = opened(rate(ANN, 5))
    noted: list[tuple[Entity, Author]] = []
    store.noted = lambda entity, author: noted.append((entity, author))
    assert alter(store, asked("ann", (RATE, None), (OTHER, 7.0)), asked("bob", (RATE, 8.0))) == ["", ""]
    assert {(entity, author[:2]) for entity, author in noted} == {(ANN, ADMIN), (Entity("bob"), ADMIN)}
    (batch,) = log.appended
    assert [record.key for record in batch] == [
        key_of(ANN, RATE),
        key_of(ANN, OTHER),
        key_of(Entity("bob"), RATE),
    ]
    assert batch[0].value is None
    assert batch[1].value is not None
    value = json.loads(batch[1].value)
    assert (value["v"], value["value"], value["by"], value["from"]) == (1, 7, "admin", "10.0.0.4:51000")
    assert value["at"].endswith("Z")
    assert store.definitions.values(ANN) == {OTHER: 7.0}


def test_what_changes_nothing_here_is_written_too() -> None:
    """Another process may have changed it a moment ago; the topic decides."""
    store, log = opened(rate(ANN, 5))
    log.deliver(rate(ANN, 6))  # comes first
    assert alter(store, asked("ann", (RATE, 5.0))) == [""]
    assert store.definitions.values(ANN) == {RATE: 5.0}
    assert len(log.appended) == 1


def test_terms_that_others_wrote_do_not_keep_an_entity_from_another_change() -> None:
    ann = Entity(user="ann")
    store, _ = opened(rate(ann, 5.0), rate(ann, 4.0, f"{RATE}_ceiling"), rate(ann, 2.0, "weight"))
    store.read(QuotaSettings(store="topic", policy="kip13"))  # which allows no such terms
    assert store.definitions.values(ann)["weight"] == 2
    assert alter(store, ([("user", "ann")], [("request_percentage", 50.0)])) == [""]
    refused = alter(store, ([("user", "ann")], [("weight", 3.0)]))
    assert "needs quotas.policy" in refused[0]


def test_concurrent_changes_of_different_limits_both_stay() -> None:
    store, log = opened()
    alter(store, asked("ann", (RATE, 5.0)))
    log.deliver(rate(ANN, 7, OTHER))  # of another process, which has not seen the first
    assert store.drain()
    assert store.definitions.values(ANN) == {RATE: 5.0, OTHER: 7.0}


def test_concurrent_members_of_a_group_both_stay_and_a_name_in_two_groups_is_of_one_everywhere() -> None:
    web, ops = (Entity(client_id="web-*", group=name) for name in ("web", "ops"))
    store, log = opened(rate(Entity(group="web"), 5), rate(Entity(group="ops"), 6))
    member = [("client-id", "web-*"), ("group", "web")], [("member", 1.0)]
    assert alter(store, member) == [""]
    log.deliver(rate(Entity("svc", group="web"), 1, "member"), rate(ops, 1, "member"))  # of another process
    assert store.drain()
    assert store.definitions.limit(RATE, "svc", "x") == (5, BucketKey(None, None, "web"))
    assert store.definitions.limit(RATE, "", "web-1") == (6, BucketKey(None, None, "ops"))
    assert log.appended[0][0].key == (b'{"entity":[["client-id","web-*"],["group","web"]],"limit":"member"}')
    assert alter(store, (member[0], [("member", None)])) == [""]
    assert web not in store.definitions


def test_entry_with_times_is_a_record_and_holds_at_once() -> None:
    store, log = opened(rate(ANN, 5))
    times = [("user", "ann"), ("when", "from=2000-01-01T00:00:00Z")]
    assert alter(store, (times, [(RATE, 9.0)])) == [""]
    assert store.definitions.limit(RATE, "ann", "a")[0] == 9
    assert store.definitions.values(ANN) == {RATE: 5.0}
    log.deliver(rate(Entity("ann", when="from=2000-01-01T00:00:00Z"), None))
    assert store.drain()
    assert store.definitions.limit(RATE, "ann", "a")[0] == 5


def test_validation_writes_nothing_and_a_wrong_entity_is_not_written() -> None:
    store, log = opened()
    asked_for = asked("ann", (RATE, -1.0)), asked("bob", (RATE, 8.0))
    assert [bool(problem) for problem in alter(store, *asked_for, validate_only=True)] == [True, False]
    assert (log.appended, len(store.definitions)) == ([], 0)
    assert [bool(problem) for problem in alter(store, *asked_for)] == [True, False]
    assert [record.key for record in log.appended[0]] == [key_of(Entity("bob"), RATE)]


def test_each_change_has_an_event_with_old_and_new() -> None:
    events = Events()
    store, _ = opened(rate(ANN, 5), events=events)
    alter(store, asked("ann", (RATE, 6.0), (OTHER, None)))
    (record,) = events.records
    assert record.value is not None
    found = json.loads(record.value)
    assert (found["entity"], found["limit"], found["old"], found["new"]) == ([["user", "ann"]], RATE, 5, 6)
    assert (found["by"], found["from"]) == ("admin", "10.0.0.4:51000")


def test_quotas_of_the_command_line_stay() -> None:
    given = '[[quota]]\nuser = "ann"\nproducer_byte_rate = 3\n'
    store, log = opened(rate(ANN, 5), given=given)
    assert store.definitions.values(ANN) == {RATE: 3.0}
    assert "command line" in alter(store, asked("ann", (RATE, 6.0)))[0]
    assert alter(store, asked("ann", (RATE, 3.0))) == [""]
    assert log.appended == []


def test_alteration_is_refused_with_the_reason_and_the_quotas_stay() -> None:
    store, log = opened(rate(ANN, 5))
    log.write_problem = Problem("denied", "an ACL denies Write")
    with pytest.raises(StoreError, match="an ACL denies Write; the quotas in force stay"):
        alter(store, asked("ann", (RATE, 6.0)))
    log.write_problem, log.error = None, AppendError("the topic is full")
    with pytest.raises(StoreError, match="the topic is full"):
        alter(store, asked("ann", (RATE, 6.0)))
    assert store.definitions.values(ANN) == {RATE: 5.0}


def test_alteration_before_the_topic_was_read_is_refused() -> None:
    store = in_topic(FakeLog())
    with pytest.raises(StoreError, match="not been read to their end"):
        alter(store, asked("ann", (RATE, 6.0)), validate_only=True)


def test_records_before_an_own_alteration_change_nothing_and_those_after_it_do() -> None:
    store, log = opened(rate(ANN, 5))
    log.mute = True
    log.deliver(rate(ANN, 7), rate(ANN, 8, OTHER))  # offsets 1 and 2, which are read later
    alter(store, asked("ann", (RATE, 6.0)))  # offset 3
    assert store.definitions.values(ANN) == {RATE: 6.0}  # it is acknowledged, and not read back
    first, second = rate(ANN, 7)._replace(offset=1), rate(ANN, 8, OTHER)._replace(offset=2)
    own, later = rate(ANN, 6)._replace(offset=3), rate(ANN, 9)._replace(offset=4)
    log.inbox.portions.append(Portion((first, second), 3, False, True, TOPIC_ID))
    store.drain()
    assert store.definitions.values(ANN) == {RATE: 6.0, OTHER: 8.0}
    log.inbox.portions.append(Portion((own, later), 5, False, True, TOPIC_ID))
    store.drain()
    assert store.definitions.values(ANN) == {RATE: 9.0, OTHER: 8.0}


def test_own_alteration_stays_when_the_topic_is_read_again_up_to_before_it() -> None:
    store, log = opened(rate(ANN, 5))
    log.mute = True
    alter(store, asked("ann", (RATE, 6.0)))  # offset 1
    first = rate(ANN, 5)._replace(offset=0)
    log.inbox.portions.append(Portion((first,), 1, True, True, TOPIC_ID))
    store.drain()
    assert store.definitions.values(ANN) == {RATE: 6.0}


def test_drain_takes_no_more_than_waits_when_it_begins() -> None:
    store, log = opened()
    for value in range(1, 10):
        log.deliver(rate(ANN, value))
    store.drain()
    assert store.definitions.values(ANN) == {RATE: 4.0}


def test_too_long_a_name_is_refused_before_anything_is_written() -> None:
    store, log = opened()
    with pytest.raises(StoreError, match="longer than"):
        alter(store, asked("\x01" * 32_000, (RATE, 5.0)))
    assert log.appended == []


def test_junk_is_skipped_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = opened(
        Record(None, b"x"),
        Record(b"junk", None),
        Record(key_of(ANN, RATE), b"not JSON"),
        Record(key_of(ANN, RATE), b"x" * 1_000_000),
        Record(key_of(Entity("bob"), RATE), b'{"v":2,"value":5}'),
        rate(ANN, 5),
    )
    assert store.definitions.values(ANN) == {RATE: 5.0}
    assert len(store.definitions) == 1
    assert dict(store.records) == {"key": 2, "value": 1, "size": 1, "version": 1, "applied": 1}
    assert store.unreadable == 1  # bob's; ann's has been written since
    assert caplog.messages == ["records of the topic skipped"]


def test_unreadable_record_leaves_the_limit_as_it_was() -> None:
    store, log = opened(rate(ANN, 5))
    log.deliver(Record(key_of(ANN, RATE), b'{"v":2,"value":9}'))
    assert not store.drain()
    assert (store.definitions.values(ANN), store.unreadable) == ({RATE: 5.0}, 1)
    log.deliver(rate(ANN, None))
    assert store.drain()
    assert (len(store.definitions), store.unreadable) == (0, 0)


def test_reading_again_from_the_beginning_replaces_what_is_in_force_at_its_end() -> None:
    bob = Entity("bob")
    store, log = opened(rate(ANN, 5), rate(bob, 6))
    log.end = 0
    log.deliver(rate(ANN, 7), begins=True, complete=False)
    assert not store.drain()
    assert store.definitions.values(bob) == {RATE: 6.0}
    log.deliver()
    assert store.drain()
    assert dict(store.definitions.entries()) == {ANN: {RATE: 7.0}}


def saved(directory: Path, *records: Record) -> Snapshot:
    snapshot, log = Snapshot(directory), FakeLog()
    store = in_topic(log, snapshot=snapshot)
    log.deliver(*records, begins=True)
    store.drain()
    store.save()
    assert store.snapshots["ok"] == 1
    return snapshot


def test_snapshot_is_in_force_where_the_topic_cannot_be_read(tmp_path: Path) -> None:
    log = FakeLog()
    store = in_topic(log, snapshot=saved(tmp_path, rate(ANN, 5)))
    assert not store.ready
    assert store.use_snapshot()
    assert (store.ready, store.definitions.values(ANN)) == (True, {RATE: 5.0})
    with pytest.raises(StoreError):
        alter(store, asked("ann", (RATE, 6.0)))
    log.deliver(rate(ANN, 6), begins=True)
    assert store.drain()
    assert store.definitions.values(ANN) == {RATE: 6.0}


def test_snapshot_of_another_topic_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog()
    log.topic_id = b"another topic id"
    store = in_topic(log, snapshot=saved(tmp_path, rate(ANN, 5)))
    assert not store.use_snapshot()
    assert not store.ready
    assert "another topic of this name" in caplog.text


def test_topic_that_ends_before_the_snapshot_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    snapshot = saved(tmp_path, rate(ANN, 5), rate(ANN, 6))
    log = FakeLog()
    store = in_topic(log, snapshot=snapshot)
    log.deliver(rate(ANN, 5), begins=True)
    store.drain()
    assert "brokers have lost records" in caplog.text
    assert store.definitions.values(ANN) == {RATE: 5.0}


def test_snapshot_is_written_when_something_has_changed_without_the_command_lines_quotas(
    tmp_path: Path,
) -> None:
    snapshot, log = Snapshot(tmp_path / "state"), FakeLog()
    store = in_topic(log, '[[quota]]\nuser = "bob"\nproducer_byte_rate = 3\n', snapshot=snapshot)
    store.save()
    log.deliver(rate(ANN, 5), begins=True)
    store.drain()
    store.save()
    store.save()
    assert dict(store.snapshots) == {"ok": 1}
    found = snapshot.read(log.topic)
    assert found is not None
    assert dict(found[1].entries()) == {ANN: {RATE: 5.0}}


def test_snapshot_that_cannot_be_written_costs_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    log = FakeLog()
    store = in_topic(log, snapshot=Snapshot(tmp_path / "file"))
    log.deliver(rate(ANN, 5), begins=True)
    store.drain()
    store.save()
    assert dict(store.snapshots) == {"failed": 1}
    assert "snapshot not written" in caplog.text


def test_changes_are_told_with_their_author_wherever_they_are_made() -> None:
    log = FakeLog()
    store = in_topic(log)
    found = told_by(store)
    log.deliver(rate(ANN, 5), begins=True)
    store.drain()
    assert found == []  # they are read for the first time
    alter(store, asked("ann", (RATE, 8.0)))
    alter(store, asked("ann", (RATE, 8.0)))
    alter(store, asked("ann", (RATE, None)))
    own = ("User:admin", "10.0.0.4", False)  # the audit log has its line
    assert found == [("user 'ann'", 5, 8, *own), ("user 'ann'", 8, None, *own)]
    found.clear()
    log.deliver(Record(key_of(ANN, RATE), value_of(9.0, Author("eve", "10.0.0.9:1", ""))))
    log.deliver(Record(key_of(ANN, RATE), None))
    log.deliver(Record(key_of(ANN, RATE), b'{"v":1,"value":4}'))
    store.drain()
    topic = ("topic __sluice-quotas", "", True)
    assert found == [
        ("user 'ann'", None, 9, "User:eve (claimed)", "10.0.0.9", True),
        ("user 'ann'", 9, None, *topic),
        ("user 'ann'", None, 4, *topic),
    ]


def test_topic_that_is_read_again_tells_what_differs() -> None:
    store, log = opened(rate(ANN, 5))
    found = told_by(store)
    log.deliver(rate(ANN, 6), begins=True)
    store.drain()
    assert found == [("user 'ann'", 5, 6, "topic __sluice-quotas", "", True)]


PLACE = Place("quotas", "00ff", 12)
QUOTAS = {
    Entity("ann"): {"producer_byte_rate": 5.0, "request_percentage": 12.5},
    Entity(DEFAULT, "\u2028\n"): {"consumer_byte_rate": 6.0},
    Entity(ip="::1"): {"connection_creation_rate": 7.0},
    Entity("u*", group="g"): {"member": 1.0},
    Entity(group="g", when="hours=sat"): {"weight": 2.5, "exempt": 1.0},
    Entity(capacity="broker"): {"producer_byte_rate": 8.0},
}


@pytest.mark.parametrize("quotas", [QUOTAS, {}])
def test_what_was_written_is_read(tmp_path: Path, quotas: dict[Entity, dict[str, float]]) -> None:
    snapshot = Snapshot(tmp_path)
    assert snapshot.read("quotas") is None
    snapshot.write(PLACE, Definitions(quotas).entries())
    found = snapshot.read("quotas")
    assert found is not None
    assert (found[0], dict(found[1].entries())) == (PLACE, quotas)
    with pytest.raises(SnapshotError, match="it is of topic quotas, not others"):
        snapshot.read("others")
    snapshot.path.unlink()
    snapshot.path.mkdir()
    with pytest.raises(SnapshotError):
        snapshot.read("quotas")


def test_every_cut_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path)
    snapshot.write(PLACE, Definitions(QUOTAS).entries())
    text = snapshot.path.read_bytes()
    for size in range(len(text) - 1):
        snapshot.path.write_bytes(text[:size])
        with pytest.raises(SnapshotError):
            snapshot.read("quotas")
    for place in range(len(text)):
        changed = bytearray(text)
        changed[place] ^= 1
        snapshot.path.write_bytes(changed)
        try:
            found = snapshot.read("quotas")
        except SnapshotError:
            continue
        assert found is not None
        assert dict(found[1].entries()) == QUOTAS  # white space at the end of the last line
