"""Sluice's own topics, groups and transactional ids are refused to clients; in every API and version, and only they.

Requests and responses are written after Kafka's own message definitions.
"""

import re
import struct
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest

from protocol import api
from protocol.api import API_NAMES, MAX_VERSION, flexible
from protocol.primitives import count_bytes, string_bytes
from proxy.channel.own import NEWEST, TREATMENTS, OwnNames, Treatment, own_names
from tests.support.frames import frame, produce_to, request
from tests.support.kafka_definitions import body, needs_jar, versions_of
from tests.support.playbook import Drop, Ends, Insert, More, Pass, Passthrough, Playbook, playbook
from tests.support.streams_frames import Part, joined, joining
from tests.unit.protocol.kafka_frames import RESPONSES, decoded

ROOT: Final = Path(__file__).parents[4]
TOPIC, GROUP, FENCE = "__sluice-quotas", "__sluice", "__sluice-reassignments"
OWN: Final = {"topicName": TOPIC, "groupId": GROUP, "transactionalId": FENCE, "resource": TOPIC}
OTHERS: Final = {"topicName": "t-t-t-t", "groupId": "group", "transactionalId": "fence", "resource": "t-t"}
CODES: Final = {"topicName": 29, "groupId": 30, "transactionalId": 53, "resource": 29}
ITEMS: Final = sorted(key for key, place in TREATMENTS.items() if place is Treatment.ITEMS)
WHOLE: Final = sorted(key for key, place in TREATMENTS.items() if place is Treatment.WHOLE)


def test_document_places_each_api_as_the_table_does() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = text.split("| requests | what happens if they name")[1].split("\n\n")[0].splitlines()[2:-1]
    said = [
        set(re.findall(r"[A-Z][A-Za-z]+[a-z]", re.sub(r"\(.*?\)", "", row.split(" | ")[0]))) for row in rows
    ]
    places = [Treatment.PRODUCE, Treatment.ITEMS, Treatment.WHOLE, Treatment.CREATES]
    places += [Treatment.READS, Treatment.CLOSED, Treatment.ACLS]
    assert said == [{API_NAMES[key] for key, one in TREATMENTS.items() if one is place} for place in places]


class Told:
    """What was told of refusals."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str, str]] = []

    def __call__(self, user: str, address: str, client_id: str, name: str) -> None:
        self.lines.append((user, address, client_id, name))


def names(told: Told | None = None) -> OwnNames:
    found = own_names(frozenset((TOPIC, GROUP)), frozenset((GROUP,)), frozenset((FENCE,)), told or Told())
    assert found is not None
    return found


def talking(told: Told | None = None, *, gateway: bool = False, produced: float | None = None) -> Playbook:
    return playbook(
        gateway=gateway, producer_default=produced, own=names(told), user="mallory", address="10.0.0.9"
    )


def passed(talk: Playbook, asked: bytes, sizes: Sequence[int]) -> bytes:
    """What goes on of these bytes, shown in pieces of these sizes, over and over."""
    sent, left, start = b"", 0, 0
    for size in cycle(sizes):
        piece = asked[start : start + size]
        start += len(piece)
        skipped, piece = piece[:left], piece[left:]
        if skipped:
            talk.passthrough("client", 0, len(skipped))
        sent, left = sent + skipped, left - len(skipped)
        for order in talk.orders("client", 0, piece) if piece else ():
            if isinstance(order, Pass):
                sent += order.data
            elif isinstance(order, Passthrough):
                left = order.count
        if start == len(asked):
            return sent
    raise AssertionError("sizes are empty")


def usable(key: int) -> list[int]:
    newest = NEWEST.get(key, MAX_VERSION[key])
    return [version for version in versions_of(key) if version <= newest]


def response(key: int, version: int, fields: bytes, correlation_id: int = 1) -> bytes:
    tags = b"\0" if flexible(key, version) and key != api.API_VERSIONS else b""
    return frame(struct.pack(">i", correlation_id) + tags + fields)


GROUPS: Final = {15, 42, 69, 77, 89, 90}
RESOURCES: Final = {32, 33, 44}


def kind_of(key: int) -> str:
    """The kind of name by which an item of this API is refused."""
    if key in GROUPS:
        return "groupId"
    return "resource" if key in RESOURCES else "transactionalId" if key == 65 else "topicName"


def first(path: str) -> bool:
    """Whether this is in the first element of a message's own array."""
    return path.split("/")[2:3] == ["0"]


def chooser(key: int, ours: str) -> Callable[[str, str], str]:
    """Names the first item `ours`, and everything else as others do."""
    wanted = kind_of(key)
    return lambda kind, path: ours if kind == wanted and first(path) else OTHERS[kind]


def by_kind(text: dict[str, str]) -> Callable[[str, str], str]:
    """Names by their kind, wherever they are."""
    return lambda kind, _: text[kind]


def stand_in(name: str) -> str:
    return "#" + name[1:]


@needs_jar
@pytest.mark.parametrize("key", ITEMS)
def test_items_of_ours_are_refused_and_the_others_carried_out(key: int) -> None:
    name = OWN[kind_of(key)]
    for version in usable(key):
        told = Told()
        talk = talking(told)
        ours, theirs = chooser(key, name), chooser(key, stand_in(name))
        asked = request(key, version, body(key, "request", version, ours))
        passed = request(key, version, body(key, "request", version, theirs))
        # The broker does not know the stand-in (3), and carries the other one out (0).
        unknown = body(key, "response", version, theirs, lambda path: 3 * first(path))
        refused = body(key, "response", version, ours, lambda path: CODES[kind_of(key)] * first(path))
        talk.client(0, asked, Pass(passed))
        talk.broker(1, response(key, version, unknown), Pass(response(key, version, refused)))
        assert talk.stats.own_refusals == {API_NAMES[key]: 1}, (key, version)
        assert told.lines == [("mallory", "10.0.0.9", "a", API_NAMES[key])]
        talk.client(2, asked[:-1], More(len(asked)))
        talk.client(3, asked[-1:], Pass(passed))
        talk.broker(4, response(key, version, unknown)[:-1], More(len(response(key, version, unknown))))
        talk.broker(5, response(key, version, unknown)[-1:], Pass(response(key, version, refused)))


@needs_jar
@pytest.mark.parametrize("key", [*ITEMS, *WHOLE])
def test_what_is_not_ours_passes_untouched(key: int) -> None:
    for version in usable(key):
        for mention in ("", "-later"):  # a longer name has ours in it
            talk = talking()
            text = {kind: f"{OWN[kind]}{mention}" if mention else name for kind, name in OTHERS.items()}
            said_of = by_kind(text)
            asked = request(key, version, body(key, "request", version, said_of))
            said = response(key, version, body(key, "response", version, said_of))
            talk.asks(0, asked)
            talk.responds(1, said)
            assert not talk.stats.own_refusals


@needs_jar
@pytest.mark.parametrize("key", WHOLE)
def test_requests_of_our_group_and_transactional_id_get_a_local_response(key: int) -> None:
    for version in usable(key):
        if key == api.ADD_PARTITIONS_TO_TXN and version >= 4:
            continue
        kinds = {"groupId": 30, "transactionalId": 53}
        for kind, code in kinds.items():
            asked = request(key, version, body(key, "request", version, by_kind(OTHERS | {kind: OWN[kind]})))
            talk = talking()
            if OWN[kind].encode() not in asked:
                continue
            talk.client(0, asked[:-1], More(len(asked)))
            orders = talk.orders("client", 0, asked[-1:])
            assert orders == [Drop(len(asked))], (key, version, kind, orders)
            (inserted,) = talk.orders("broker", 1, b"")
            assert isinstance(inserted, Insert)
            if key in RESPONSES and version <= RESPONSES[key].max_version:
                refused = decoded(RESPONSES[key], version, inserted.data)
                assert codes(refused) == {code}, (key, version, refused)
            assert talk.stats.own_refusals == {API_NAMES[key]: 1}
            assert talk.stats.requests[key] == 1


@pytest.mark.parametrize("more", [0, 500])  # a long one is read in a thread
def test_topology_that_has_brokers_create_our_topics_is_refused(more: int) -> None:
    others = {f"{number}-{'n' * 40}": 1 for number in range(more)}
    for part in (Part(repartition={TOPIC: 1} | others), Part(changelogs=[*others, TOPIC])):
        talk = talking()
        asked = joining(part)
        talk.client(0, asked, Drop(len(asked)))
        assert talk.inserted("broker", 1)[4:15] == joined(error=29)[4:15]
        assert talk.stats.own_refusals == {"StreamsGroupHeartbeat": 1}
        reading = joining(Part(sources=[TOPIC], changelogs=list(others)), correlation_id=2)
        talk.client(1, reading, Pass(reading))
        talk.responds(1, joined(2))


def codes(message: object) -> set[int]:
    """Every error code in a message."""
    found = re.findall(r"error_code=(-?\d+)", str(message))
    return {int(code) for code in found}


@needs_jar
def test_partitions_of_a_transaction_are_refused_one_by_one() -> None:
    key = api.ADD_PARTITIONS_TO_TXN
    for version in usable(key):
        ours, theirs = (by_kind(OTHERS | {"topicName": name}) for name in (TOPIC, stand_in(TOPIC)))
        talk = talking()
        asked = request(key, version, body(key, "request", version, ours))
        talk.client(0, asked, Pass(asked.replace(TOPIC.encode(), stand_in(TOPIC).encode())))
        said = response(key, version, body(key, "response", version, theirs, lambda _: 3))
        (told,) = talk.orders("broker", 1, said)
        assert isinstance(told, Pass)
        assert len(told.data) == len(said)
        assert told.data.count(b"\0\x1d") == (4 if version < 4 else 8)


def produced(version: int, topics: list[str], *, acks: int = -1, fence: str | None = None) -> bytes:
    """A Produce of one partition a topic, with 3,000 bytes of records each."""
    return produce_to(version, {topic: [3000] for topic in topics}, acks=acks, transactional_id=fence)


def acknowledged(version: int, topics: dict[str, int]) -> bytes:
    """A response to it: the error of each topic's partition."""
    compact = version >= 9
    fields = count_bytes(len(topics), compact)
    for topic, code in topics.items():
        fields += string_bytes(topic, compact) + count_bytes(1, compact) + struct.pack(">ihq", 0, code, -1)
        fields += bytes(8) * (version >= 2) + bytes(8) * (version >= 5)
        if version >= 8:
            fields += count_bytes(0, compact) + string_bytes(None, compact)
        fields += b"\0\0" * compact
    return response(api.PRODUCE, version, fields + bytes(4) * (version >= 1) + b"\0" * compact)


VERSIONS: Final = range(13)
BATCHES: Final = [[TOPIC], [TOPIC, "t"], ["t", TOPIC], ["t", TOPIC, "u", GROUP], ["t", "u"], ["t"]]


@pytest.mark.parametrize("batch", BATCHES, ids=" ".join)
@pytest.mark.parametrize("gateway", [False, True])
def test_records_for_our_topics_are_refused_and_the_others_written(batch: list[str], gateway: bool) -> None:
    ours = {topic for topic in batch if topic in (TOPIC, GROUP)}
    stands_for = {topic: stand_in(topic) if topic in ours else topic for topic in batch}
    for version in VERSIONS:
        asked = produced(version, batch)
        said = {stands_for[topic]: 3 * (topic in ours) for topic in batch}
        told = {topic: 29 * (topic in ours) for topic in batch}
        for size in (len(asked), 7, 50):
            talk = talking(gateway=gateway, produced=1e9)
            assert passed(talk, asked, [size]) == produced(version, list(stands_for.values())), (
                version,
                size,
            )
            talk.broker(1, acknowledged(version, said), Pass(acknowledged(version, told)))
            assert talk.stats.own_refusals == ({"Produce": 1} if ours else {})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_produce_that_cannot_be_refused_ends_the_connection(version: int) -> None:
    for asked in (
        produced(version, [TOPIC], acks=0),
        *([produced(version, ["t"], fence=FENCE)] if version >= 3 else []),
    ):
        talk = talking()
        talk.client(0, asked, Ends("own_names"))
        assert talk.stats.own_refusals == {"Produce": 1}
    talk = talking()
    assert talk.orders("client", 0, produced(version, ["t", TOPIC], acks=0))[-1] == Ends("own_names")


def test_a_name_with_a_longer_length_than_it_needs_is_seen() -> None:
    name = TOPIC.encode()
    for length in (bytes((len(name) + 1 | 0x80, 0)), bytes((len(name) + 1 | 0x80, 0x80, 0))):
        asked = produced(12, [TOPIC]).replace(bytes((len(name) + 1,)) + name, length + name)
        asked = struct.pack(">i", len(asked) - 4) + asked[4:]
        (order,) = talking().orders("client", 0, asked)
        assert isinstance(order, Pass)
        assert name not in order.data


@pytest.mark.parametrize(
    ("key", "version"), [(api.PRODUCE, 13), (api.DELETE_TOPICS, 6), (15, 7), (99, 0), (44, -1), (3, 14)]
)
def test_versions_that_name_by_id_or_are_unknown_end_the_connection(key: int, version: int) -> None:
    talk = talking()
    asked = request(key, version, bytes(60))
    (end,) = talk.orders("client", 0, asked)
    assert isinstance(end, Ends)
    assert end.cause in ("unsupported_version", "unknown_api")


def test_versions_by_id_are_not_offered() -> None:
    keys = [(0, 0, 13), (20, 0, 6), (1, 4, 18)]
    fields = b"\0\0\4" + b"".join(struct.pack(">hhh", *row) + b"\0" for row in keys) + bytes(5)
    talk = talking()
    talk.asks(0, request(api.API_VERSIONS, 3, b"\2x\2y\0"))
    said = frame(b"\0\0\0\1" + fields)
    offered = said.replace(struct.pack(">hhh", 0, 0, 13), struct.pack(">hhh", 0, 0, 12))
    offered = offered.replace(struct.pack(">hhh", 20, 0, 6), struct.pack(">hhh", 20, 0, 5))
    talk.broker(1, said, Insert(offered), Drop(len(said)))


@needs_jar
def test_metadata_of_ours_creates_nothing() -> None:
    for version in usable(api.METADATA):
        talk = talking()
        asked = request(
            api.METADATA, version, body(3, "request", version, lambda _, path: TOPIC if first(path) else "t")
        )
        if version < 4:
            talk.client(0, asked, Ends("own_names"))
            continue
        (passed,) = talk.orders("client", 0, asked)
        assert isinstance(passed, Pass)
        (changed,) = [at for at, (a, b) in enumerate(zip(asked, passed.data, strict=True)) if a != b]
        assert (asked[changed], passed.data[changed]) == (1, 0)
        assert not talk.stats.own_refusals


@pytest.mark.parametrize("key", [5, 56, 73, 87])
def test_requests_between_brokers_must_not_name_ours(key: int) -> None:
    talking().client(0, request(key, 0, b"..." + TOPIC.encode()), Ends("own_names"))
    talking().asks(0, request(key, 0, b"...t"))
    talking().client(0, request(api.ENVELOPE, 0, b"x"), Ends("own_names"))


def test_nothing_configured_guards_nothing() -> None:
    assert own_names(frozenset()) is None
    playbook(gateway=False).asks(0, produced(12, [TOPIC]))


def test_stand_ins_differ_and_are_no_names_of_ours() -> None:
    own = own_names(frozenset(("ab", "cb")), frozenset(("#b", "äb")))
    assert own is not None
    assert len(set(own.stand_ins.values())) == 4
    assert not set(own.stand_ins.values()) & set(own.stand_ins)
    assert all(len(name) == len(other) for name, other in own.stand_ins.items())


def test_a_flood_of_our_names_ends_the_connection() -> None:
    compact = bytes((len(GROUP) + 1,)) + GROUP.encode()
    asked = request(15, 5, count_bytes(1001, True) + compact * 1001 + b"\0\0")
    talking().client(0, asked, Ends("malformed"))
