"""Sessions that were answered locally: what is kept, what ends them, and the limits."""

from typing import Final

import pytest

from protocol.errors import WireError
from protocol.messages import fetch, fetch_session
from protocol.messages.fetch_session import IDLE_MS, SessionTable

VERSION: Final = 11
# Length, key, version, correlation id, client id "c".
BODY: Final = 15


def request(epoch: int, topics: str = "00000000", forgotten: str = "00000000", session: int = 7) -> bytes:
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


def answered(table: SessionTable, frame: bytes, broker: str = "b", now_ms: int = 0) -> int:
    fields = fetch.read_request(frame, BODY, len(frame), VERSION)
    assert fields is not None
    return table.answer_locally(broker, fields, frame, BODY, VERSION, now_ms)


def forwarded(table: SessionTable, frame: bytes, broker: str = "b", version: int = VERSION) -> bytes | None:
    fields = fetch.read_request(frame, BODY, len(frame), VERSION)
    assert fields is not None
    return table.forward(broker, fields, frame, BODY, version, 0)


def test_session_that_was_never_answered_locally_is_not_touched() -> None:
    table = SessionTable(10)
    assert not table.shifted
    assert not table.knows("b", 7)
    assert forwarded(table, request(5)) is None


def test_answer_has_the_sessions_own_id_and_the_broker_gets_its_epoch() -> None:
    table = SessionTable(10)
    assert answered(table, request(5)) == 7
    assert table.knows("b", 7)
    assert table.shifted
    assert forwarded(table, request(6)) == request(5)
    # The client stays one ahead for as long as the session lives.
    assert forwarded(table, request(7)) == request(6)
    assert answered(table, request(8)) == 7
    assert forwarded(table, request(9)) == request(7)


def test_changes_are_made_good_by_the_next_request() -> None:
    table = SessionTable(10)
    answered(table, request(5, named(10)))
    assert forwarded(table, request(6)) == request(5, named(10))
    assert forwarded(table, request(7)) == request(6), "and only once"


def test_later_update_of_a_partition_replaces_the_earlier() -> None:
    table = SessionTable(10)
    answered(table, request(5, named(10)))
    assert forwarded(table, request(6, named(20))) == request(5, named(20))


def test_partition_forgotten_and_added_again_is_an_update() -> None:
    table = SessionTable(10)
    answered(table, request(5, forgotten=dropped()))
    assert forwarded(table, request(6, named(20))) == request(5, named(20))


def test_partition_added_and_forgotten_is_forgotten() -> None:
    table = SessionTable(10)
    answered(table, request(5, named(10)))
    assert forwarded(table, request(6, forgotten=dropped())) == request(5, forgotten=dropped())


def test_epochs_wrap_from_the_largest_to_one() -> None:
    table = SessionTable(10)
    answered(table, request(fetch_session.EPOCH_MAX))
    assert forwarded(table, request(1)) == request(fetch_session.EPOCH_MAX)
    assert forwarded(table, request(2)) == request(1)


@pytest.mark.parametrize("epoch", [fetch.INITIAL_EPOCH, fetch.FINAL_EPOCH])
def test_end_of_a_session_is_forwarded_untouched(epoch: int) -> None:
    table = SessionTable(10)
    answered(table, request(5, named(10)))
    assert forwarded(table, request(epoch)) is None
    assert not table.knows("b", 7)


def test_only_the_broker_may_answer_the_end_of_a_session() -> None:
    fields = fetch.read_request(request(fetch.FINAL_EPOCH), BODY, 1000, VERSION)
    assert fields is not None
    assert fetch_session.must_forward(fields)
    sessionless = fetch.read_request(request(fetch.FINAL_EPOCH, session=0), BODY, 1000, VERSION)
    assert sessionless is not None
    assert not fetch_session.must_forward(sessionless)


@pytest.mark.parametrize(("epoch", "session"), [(fetch.INITIAL_EPOCH, 0), (fetch.FINAL_EPOCH, 0), (5, 0)])
def test_request_without_a_session_is_answered_without_one(epoch: int, session: int) -> None:
    table = SessionTable(10)
    assert answered(table, request(epoch, named(10), session=session)) == 0
    assert not table.shifted


def test_new_full_request_that_is_answered_locally_ends_the_old_session() -> None:
    table = SessionTable(10)
    answered(table, request(5))
    assert answered(table, request(fetch.INITIAL_EPOCH)) == 0
    assert not table.knows("b", 7)


def test_session_the_broker_refused_is_dropped() -> None:
    table = SessionTable(10)
    answered(table, request(5))
    table.broker_error("b", 7)
    table.broker_error("b", 8)
    assert not table.shifted


def test_same_id_at_another_broker_is_another_session() -> None:
    table = SessionTable(10)
    answered(table, request(5), broker="a")
    assert not table.knows("b", 7)
    assert forwarded(table, request(6), broker="b") is None


def test_full_table_ends_new_sessions_and_keeps_the_old() -> None:
    table = SessionTable(1)
    assert answered(table, request(5)) == 7
    assert answered(table, request(5, session=8)) == 0
    assert answered(table, request(6)) == 7
    assert len(table) == 1


def test_full_table_gives_up_the_session_that_was_idle_longest() -> None:
    table = SessionTable(2)
    answered(table, request(5, session=8), now_ms=0)
    answered(table, request(5, session=9), now_ms=1)
    answered(table, request(6, session=8), now_ms=2)
    assert answered(table, request(5), now_ms=IDLE_MS) == 0, "the oldest was used 1 ms too late"
    assert answered(table, request(5), now_ms=IDLE_MS + 1) == 7
    assert table.knows("b", 8)
    assert not table.knows("b", 9)


def test_more_changes_than_are_kept_end_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "CHANGES_MAX", 2)
    table = SessionTable(10)
    assert answered(table, request(5, named(1, partition=1))) == 7
    assert answered(table, request(6, named(1, partition=2))) == 7
    assert answered(table, request(7, named(2, partition=2))) == 7, "an update needs no more room"
    assert answered(table, request(8, named(1, partition=3))) == 0
    assert not table.knows("b", 7)
    # What it held is free again.
    assert answered(table, request(5, named(1, partition=1), session=8)) == 8
    assert answered(table, request(6, named(1, partition=2), session=8)) == 8


def test_forwarded_changes_free_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "CHANGES_MAX", 1)
    table = SessionTable(10)
    for epoch in range(5, 15, 2):
        assert answered(table, request(epoch, named(epoch))) == 7
        assert forwarded(table, request(epoch + 1)) is not None


def test_version_that_changes_midway_starts_the_session_anew() -> None:
    table = SessionTable(10)
    answered(table, request(5, named(10)))
    # Untouched, with the client's epoch: the broker refuses it, and the client sends a full request.
    assert forwarded(table, request(6), version=10) is None
    assert not table.shifted


def test_malformed_request_leaves_its_session_as_it_was() -> None:
    table = SessionTable(10)
    answered(table, request(5, named(10)))
    with pytest.raises(WireError):
        answered(table, request(6, "00000001 ffff"))
    with pytest.raises(WireError):
        forwarded(table, request(6, "00000001 ffff"))
    assert forwarded(table, request(6)) == request(5, named(10))
