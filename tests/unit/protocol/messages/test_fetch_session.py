"""Sessions whose Fetches got responses locally: what is kept, what ends them, and the limits."""

import tracemalloc
from typing import Final

import pytest

from protocol.errors import WireError
from protocol.messages import fetch, fetch_session
from protocol.messages.fetch_session import CHANGE_BYTES, IDLE_MS, SESSION_BYTES, SessionTable
from protocol.primitives import count_bytes

VERSION: Final = 11
# What `named` names: one letter, and an entry of 28 bytes.
NAMED_BYTES: Final = CHANGE_BYTES + 1 + 28
# Length, key, version, correlation id, client id "c".
BODY: Final = 15
NOTHING: Final = "00000000"


def request(epoch: int, topics: str = NOTHING, forgotten: str = NOTHING, session: int = 7) -> bytes:
    """Version 11; by default an incremental request that changes nothing."""
    scalars = f"ffffffff 000001f4 00000001 00000400 00 {session:08x} {epoch & 0xFFFFFFFF:08x}"
    raw = bytes.fromhex("0001 000b 00000009 0001 63" + scalars + topics + forgotten + "0000")
    return len(raw).to_bytes(4, "big") + raw


def named(offset: int, partition: int = 0) -> str:
    """Topic "t" with one partition."""
    entry = f"{partition:08x} ffffffff {offset:016x} ffffffffffffffff 00000064"
    return "00000001 0001 74 00000001" + entry


def dropped(partition: int = 0) -> str:
    return "00000001 0001 74 00000001" + f"{partition:08x}"


def tagged(size: int) -> tuple[bytes, int]:
    """Version 12: one partition whose tag section has so many bytes; and where the body begins."""
    entry = bytes(4 + 4 + 8 + 4 + 8 + 4) + b"\x01\x00" + count_bytes(size - 1, True) + bytes(size)
    topics = b"\x02" + b"\x02t" + b"\x02" + entry + b"\x00"
    scalars = bytes.fromhex("ffffffff 000001f4 00000001 00000400 00 00000007 00000005")
    raw = bytes.fromhex("0001 000c 00000009 0001 63 00") + scalars + topics + b"\x01" + b"\x01" + b"\x00"
    return len(raw).to_bytes(4, "big") + raw, BODY + 1


def worst(shape: str) -> tuple[str, str]:
    """The topics and the forgotten topics of a request that names 500 partitions, each of another topic."""
    width = 249 if shape == "long names" else 4
    names = [f"{number:04d}".encode().ljust(width, b"x").hex() for number in range(500)]
    head = f"{500:08x}"
    if shape == "forgotten":
        return NOTHING, head + "".join(f"{width:04x}{name} 00000001 {500:08x}" for name in names)
    return head + "".join(f"{width:04x}{name}" + named(1, 500)[17:] for name in names), NOTHING


def fields_of(frame: bytes, body: int = BODY, version: int = VERSION) -> fetch.FetchFields:
    fields = fetch.read_request(frame, body, len(frame), version)
    assert fields is not None
    return fields


def responded(
    table: SessionTable, frame: bytes, broker: str = "b", now_ms: int = 0, address: str = ""
) -> int:
    return table.respond_locally(broker, fields_of(frame), frame, BODY, VERSION, now_ms, address)


def forwarded(table: SessionTable, frame: bytes, broker: str = "b", version: int = VERSION) -> bytes | None:
    return table.forward(broker, fields_of(frame), frame, BODY, version, 0)


def test_session_that_was_never_responded_to_locally_is_not_touched() -> None:
    table = SessionTable(10)
    assert not table.has_shifted
    assert not table.is_shifted("b", 7)
    assert forwarded(table, request(5)) is None


def test_local_response_has_the_session_id_and_later_epochs_are_translated() -> None:
    table = SessionTable(10)
    assert responded(table, request(5)) == 7
    assert table.is_shifted("b", 7)
    assert table.has_shifted
    assert forwarded(table, request(6)) == request(5)
    # The client stays one ahead for as long as the session lives.
    assert forwarded(table, request(7)) == request(6)
    assert responded(table, request(8)) == 7
    assert forwarded(table, request(9)) == request(7)


@pytest.mark.parametrize(
    ("changes", "later", "sent"),
    [
        ((named(10), NOTHING), (NOTHING, NOTHING), (named(10), NOTHING)),
        ((named(10), NOTHING), (named(20), NOTHING), (named(20), NOTHING)),
        ((NOTHING, dropped()), (named(20), NOTHING), (named(20), NOTHING)),
        ((named(10), NOTHING), (NOTHING, dropped()), (NOTHING, dropped())),
    ],
    ids=[
        "once",
        "later update replaces",
        "forgotten and added is an update",
        "added and forgotten is forgotten",
    ],
)
def test_changes_of_a_locally_handled_fetch_reach_the_broker_once(
    changes: tuple[str, str], later: tuple[str, str], sent: tuple[str, str]
) -> None:
    table = SessionTable(10)
    responded(table, request(5, *changes))
    assert forwarded(table, request(6, *later)) == request(5, *sent)
    assert forwarded(table, request(7)) == request(6), "and only once"


def test_epochs_wrap_from_the_largest_to_one() -> None:
    table = SessionTable(10)
    responded(table, request(fetch_session.EPOCH_MAX))
    assert forwarded(table, request(1)) == request(fetch_session.EPOCH_MAX)
    assert forwarded(table, request(2)) == request(1)


@pytest.mark.parametrize("epoch", [fetch.INITIAL_EPOCH, fetch.FINAL_EPOCH])
def test_end_of_a_session_is_forwarded_untouched(epoch: int) -> None:
    table = SessionTable(10)
    responded(table, request(5, named(10)))
    assert forwarded(table, request(epoch)) is None
    assert not table.is_shifted("b", 7)


@pytest.mark.parametrize(("session", "forwards"), [(7, True), (0, False)])
def test_only_the_broker_may_respond_to_the_end_of_a_session(session: int, forwards: bool) -> None:
    assert fetch_session.must_forward(fields_of(request(fetch.FINAL_EPOCH, session=session))) is forwards


@pytest.mark.parametrize(("epoch", "session"), [(fetch.INITIAL_EPOCH, 0), (fetch.FINAL_EPOCH, 0), (5, 0)])
def test_request_without_a_session_gets_a_response_without_one(epoch: int, session: int) -> None:
    table = SessionTable(10)
    assert responded(table, request(epoch, named(10), session=session)) == 0
    assert not table.has_shifted


def test_new_full_request_that_gets_a_response_locally_ends_the_old_session() -> None:
    table = SessionTable(10)
    responded(table, request(5))
    assert responded(table, request(fetch.INITIAL_EPOCH)) == 0
    assert not table.is_shifted("b", 7)


def test_session_the_broker_refused_is_dropped() -> None:
    table = SessionTable(10)
    responded(table, request(5))
    table.drop("b", 7)
    table.drop("b", 8)
    assert not table.has_shifted


def test_same_id_at_another_broker_is_another_session() -> None:
    table = SessionTable(10)
    responded(table, request(5), broker="a")
    assert not table.is_shifted("b", 7)
    assert forwarded(table, request(6), broker="b") is None


def test_full_table_ends_new_sessions_and_keeps_the_old() -> None:
    table = SessionTable(1)
    assert responded(table, request(5)) == 7
    assert responded(table, request(5, session=8)) == 0
    assert responded(table, request(6)) == 7
    assert len(table) == 1


def test_full_table_gives_up_the_session_that_was_idle_longest() -> None:
    table = SessionTable(2)
    responded(table, request(5, session=8), now_ms=0)
    responded(table, request(5, session=9), now_ms=1)
    responded(table, request(6, session=8), now_ms=2)
    assert responded(table, request(5), now_ms=IDLE_MS) == 0, "the oldest was used 1 ms too late"
    assert responded(table, request(5), now_ms=IDLE_MS + 1) == 7
    assert table.is_shifted("b", 8)
    assert not table.is_shifted("b", 9)


def test_more_bytes_than_a_session_may_have_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "SESSION_BYTES_MAX", SESSION_BYTES + 2 * NAMED_BYTES)
    table = SessionTable(10)
    assert responded(table, request(5, named(1, partition=1))) == 7
    assert responded(table, request(6, named(1, partition=2))) == 7
    assert responded(table, request(7, named(2, partition=2))) == 7, "an update needs no more room"
    assert responded(table, request(8, named(1, partition=3))) == 0
    assert not table.is_shifted("b", 7)
    assert table.kept_bytes == 0


def test_table_counts_its_memory() -> None:
    table = SessionTable(10)
    responded(table, request(5, named(1)))
    assert table.kept_bytes == SESSION_BYTES + NAMED_BYTES
    responded(table, request(6, forgotten=dropped()))  # the name stays, the entry goes
    assert table.kept_bytes == SESSION_BYTES + CHANGE_BYTES + 1
    responded(table, request(7, named(2)))
    assert table.kept_bytes == SESSION_BYTES + NAMED_BYTES
    forwarded(table, request(8))
    assert table.kept_bytes == SESSION_BYTES
    table.drop("b", 7)
    assert table.kept_bytes == 0


def test_forwarded_changes_free_their_room() -> None:
    table = SessionTable(10, SESSION_BYTES + NAMED_BYTES)
    for epoch in range(5, 15, 2):
        assert responded(table, request(epoch, named(epoch))) == 7
        assert forwarded(table, request(epoch + 1)) is not None


def test_full_table_takes_from_the_address_that_keeps_most() -> None:
    table = SessionTable(10, 4 * SESSION_BYTES)
    for session in (1, 2, 3, 4):
        assert responded(table, request(5, session=session), address="192.0.2.1") == session
    assert responded(table, request(5, session=5), address="192.0.2.2") == 5
    assert [session for session in range(1, 6) if table.is_shifted("b", session)] == [2, 3, 4, 5]


def test_address_that_keeps_most_gets_no_more_of_a_full_table() -> None:
    table = SessionTable(10, 2 * SESSION_BYTES)
    assert responded(table, request(5, session=1), address="192.0.2.1") == 1
    assert responded(table, request(5, session=2), address="192.0.2.2") == 2
    assert responded(table, request(5, session=3), address="192.0.2.1") == 0
    assert (table.is_shifted("b", 1), table.is_shifted("b", 2)) == (True, True)


def test_sessions_that_are_idle_are_forgotten() -> None:
    table = SessionTable(10)
    responded(table, request(5, session=1), now_ms=0)
    responded(table, request(5, session=2), now_ms=1)
    assert table.expire(IDLE_MS - 1) == 0
    assert table.expire(IDLE_MS) == 1
    assert (table.is_shifted("b", 1), table.is_shifted("b", 2)) == (False, True)
    assert table.expire(IDLE_MS + 1) == 1
    assert table.kept_bytes == 0


def test_tags_that_no_consumer_sends_end_the_session() -> None:
    table = SessionTable(10)
    for size, kept in ((100, 7), (1000, 0), (200, 7)):
        frame, body = tagged(size)
        assert table.respond_locally("b", fields_of(frame, body, 12), frame, body, 12, 0) == kept


def test_topic_that_can_not_be_ends_the_session() -> None:
    table = SessionTable(10)
    topic = "00000001 0100" + 256 * "74" + named(1)[17:]
    assert responded(table, request(5, topic)) == 0


def test_request_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = request(5, named(1))
    monkeypatch.setattr(fetch_session, "REQUEST_BYTES_MAX", len(frame) - BODY)
    table = SessionTable(10)
    assert responded(table, frame) == 7
    monkeypatch.setattr(fetch_session, "REQUEST_BYTES_MAX", len(frame) - BODY - 1)
    monkeypatch.setattr(fetch_session, "full_topics", None)
    assert responded(table, frame) == 0
    assert table.kept_bytes == 0


@pytest.mark.parametrize("shape", ["short names", "long names", "forgotten"])
def test_worst_changes_take_no_more_memory_than_they_count(shape: str) -> None:
    table = SessionTable(1000)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for session in range(1, 21):
        assert responded(table, request(5, *worst(shape), session=session)) == session
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken <= table.kept_bytes
    assert taken > table.kept_bytes // 4, "the count is not far off either"


def test_version_that_changes_midway_starts_the_session_anew() -> None:
    table = SessionTable(10)
    responded(table, request(5, named(10)))
    # Untouched, with the client's epoch: the broker refuses it, and the client sends a full request.
    assert forwarded(table, request(6), version=10) is None
    assert not table.has_shifted


@pytest.mark.parametrize(("changes", "kept"), [(NOTHING, 7), (named(10), 0)], ids=["no changes", "changes"])
def test_version_that_changes_between_local_responses_ends_a_session_with_changes(
    changes: str, kept: int
) -> None:
    table = SessionTable(10)
    responded(table, request(5, changes))
    frame = request(6)
    assert table.respond_locally("b", fields_of(frame), frame, BODY, 10, 0) == kept


def test_malformed_request_leaves_its_session_as_it_was() -> None:
    table = SessionTable(10)
    responded(table, request(5, named(10)))
    with pytest.raises(WireError):
        responded(table, request(6, "00000001 ffff"))
    with pytest.raises(WireError):
        forwarded(table, request(6, "00000001 ffff"))
    assert forwarded(table, request(6)) == request(5, named(10))
