"""proxy.control.quotas.topic_store with a secret: only the fleet's own records count, and each once."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.config import QuotaSettings
from proxy.control.quotas.store import Client
from proxy.control.quotas.topic_store import LAST, SINCE, Snapshot, TopicStore
from proxy.topics.records import LATE_US, Portion, Record, Seal, Stamps
from quotas.definitions.alterations import Alteration
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author, key_of, value_of
from tests.support.quota_log import TOPIC_ID, FakeLog

RATE = "producer_byte_rate"
ANN, BOB = Entity("ann"), Entity("bob")
SEAL = Seal(b"s" * 32, "quota", "__sluice-quotas")
FORGER = Author("admin", "10.0.0.4:1", "2026-01-31T12:00:00.000Z")
NOW = 1_800_000_000_000_000  # microseconds since the epoch
SECOND = 1_000_000


def rate(entity: Entity, value: float | None) -> Record:
    return Record(key_of(entity, RATE), None if value is None else value_of(value, FORGER))


def signed(record: Record, stamp: int, topic_id: bytes = TOPIC_ID) -> Record:
    return SEAL.sign(record, stamp, topic_id)


SIGNED_SINCE = signed(Record(SINCE, b"{}"), 1)


def opened(
    *records: Record, snapshot: Snapshot | None = None, seal: Seal | None = SEAL
) -> tuple[TopicStore, FakeLog]:
    log = FakeLog()
    store = TopicStore(QuotaSettings(store="topic"), log, snapshot=snapshot, seal=seal)
    log.deliver(begins=True, complete=False)
    log.deliver(*records)
    drained(store, log)
    return store, log


def read_of(*records: Record) -> dict[Entity, Mapping[str, float]]:
    """The quotas of a process that starts, and reads a topic with these records."""
    return dict(opened(*records)[0].definitions.entries())


def drained(store: TopicStore, log: FakeLog) -> None:
    while log.inbox.portions:
        store.drain()


def asked(name: str, value: float | None) -> Alteration:
    return [("user", name)], ((RATE, value),)


def alter(store: TopicStore, name: str, value: float | None) -> None:
    (result,) = store.alter(
        [asked(name, value)], Client("admin", "10.0.0.4:51000"), validate_only=False
    ).results
    assert result[1] == ""


def topic(log: FakeLog) -> list[Record]:
    """Everything that was appended, in its order, as a process that starts reads it."""
    return [record for batch in log.appended for record in batch]


def test_forged_record_changes_nothing_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    store, log = opened(SIGNED_SINCE)
    alter(store, "ann", 5.0)
    log.deliver(
        rate(ANN, 1e12), rate(BOB, 1e12), rate(ANN, None), signed(rate(BOB, 1e12), NOW)._replace(key=b"x")
    )
    drained(store, log)
    assert dict(store.definitions.entries()) == {ANN: {RATE: 5.0}}
    assert store.records["unsigned"] == 4  # bob's is left out by the log already
    assert caplog.text.count("records of the topic skipped") == 1


def test_genuine_record_that_is_repeated_changes_nothing() -> None:
    store, log = opened(SIGNED_SINCE)
    alter(store, "ann", 9.0)
    alter(store, "ann", 5.0)
    alter(store, "bob", 7.0)
    alter(store, "bob", None)
    drained(store, log)
    first, removed = log.appended[0][0], log.appended[3][0]
    log.deliver(first, log.appended[2][0])
    drained(store, log)
    assert dict(store.definitions.entries()) == {ANN: {RATE: 5.0}}
    alter(store, "bob", 6.0)
    log.deliver(removed)
    drained(store, log)
    assert store.definitions.values(BOB) == {RATE: 6.0}
    assert store.records["replayed"] == 3


def test_old_record_is_known_as_repeated_after_compaction_too() -> None:
    """The limit was removed, and its tombstone is gone: only the last stamp of the topic says that it is old."""
    old = signed(rate(ANN, 9), NOW)
    last = signed(Record(LAST, b"{}"), NOW + LATE_US + 1)
    store, _ = opened(SIGNED_SINCE, last, old)
    assert dict(store.definitions.entries()) == {}
    assert store.records["replayed"] == 1
    # Within the allowance it cannot be told from that of a member that is late.
    assert ANN in read_of(SIGNED_SINCE, signed(Record(LAST, b"{}"), NOW + LATE_US), old)


def test_each_alteration_ends_with_the_greatest_stamp() -> None:
    store, log = opened(SIGNED_SINCE)
    alter(store, "ann", None)
    (batch,) = log.appended
    assert [record.key for record in batch] == [key_of(ANN, RATE), LAST]
    stamps = [SEAL.stamp_of(record, TOPIC_ID) for record in batch]
    assert stamps[0] is not None
    assert stamps[1] == stamps[0] + 1


def test_records_of_the_topic_that_was_deleted_are_void() -> None:
    other = b"another topic id"
    store, _ = opened(SIGNED_SINCE, signed(rate(ANN, 9), NOW, other))
    assert dict(store.definitions.entries()) == {}
    assert store.records["unsigned"] == 1


def test_acknowledged_alteration_of_a_member_whose_clock_is_behind_is_not_lost() -> None:
    """Another member's record with a stamp an hour ahead lies before this one's, which has not read it yet."""
    store, log = opened(SIGNED_SINCE)
    log.mute = True
    ahead = time.time_ns() // 1000 + 3_600 * SECOND
    others = signed(rate(ANN, 9), ahead)
    log.deliver(others)
    alter(store, "ann", 5.0)
    placed = [one._replace(offset=1 + at) for at, one in enumerate([others, *log.appended[0]])]
    log.inbox.portions.append(Portion(placed, 4, False, True, TOPIC_ID))
    drained(store, log)
    assert store.definitions.values(ANN) == {RATE: 5.0}
    store.keep()
    again = log.appended[1]
    assert again[0][:2] == log.appended[0][0][:2]  # with the same author
    assert SEAL.stamp_of(again[0], TOPIC_ID) == ahead + 1
    assert read_of(SIGNED_SINCE, others, *topic(log)) == {ANN: {RATE: 5.0}}


def test_unsigned_records_are_taken_over_once(caplog: pytest.LogCaptureFixture) -> None:
    old = [rate(ANN, 5), rate(BOB, 6), rate(BOB, 7)]
    store, log = opened(*old)
    assert dict(store.definitions.entries()) == {ANN: {RATE: 5.0}, BOB: {RATE: 7.0}}
    alter(store, "ann", 8.0)  # which takes over first
    drained(store, log)
    assert [record.key for record in log.appended[0]] == [key_of(ANN, RATE), key_of(BOB, RATE), SINCE, LAST]
    assert caplog.text.count("unsigned quotas taken over") == 1
    log.deliver(rate(ANN, 1e12))
    drained(store, log)
    assert dict(store.definitions.entries()) == {ANN: {RATE: 8.0}, BOB: {RATE: 7.0}}
    # Another process, which starts: before and behind SINCE there is what was forged.
    forged = [rate(Entity("eve"), 1e12), rate(ANN, 1e12)]
    assert read_of(*old, *forged, *topic(log), *forged) == {ANN: {RATE: 8.0}, BOB: {RATE: 7.0}}


def test_members_that_take_over_together_agree() -> None:
    """Each has read the unsigned records only; then both write, and one of them an alteration."""
    stores, logs = zip(*(opened(rate(ANN, 5), rate(BOB, 7)) for _ in range(2)), strict=True)
    alter(stores[0], "ann", 8.0)
    for log in logs:
        log.mute = True
    alter(stores[1], "bob", 9.0)
    written = [rate(ANN, 5), rate(BOB, 7), *topic(logs[0]), *topic(logs[1])]
    for order in (written, [*written[:2], *topic(logs[1]), *topic(logs[0])]):
        assert read_of(*order) == {ANN: {RATE: 8.0}, BOB: {RATE: 9.0}}


def test_killed_while_taking_over_another_one_does_it_again() -> None:
    """Half of the limits are signed, and SINCE is missing."""
    store, log = opened(rate(ANN, 5), rate(BOB, 7), signed(rate(ANN, 5), 1))
    alter(store, "carl", 1.0)
    assert [record.key for record in log.appended[0]] == [key_of(BOB, RATE), SINCE, LAST]
    assert len(store.definitions) == 3


def test_empty_topic_is_signed_from_its_first_record() -> None:
    store, log = opened()
    alter(store, "ann", 5.0)
    assert [[record.key for record in batch] for batch in log.appended] == [
        [SINCE, LAST],
        [key_of(ANN, RATE), LAST],
    ]


def saved(directory: Path, *records: Record, seal: Seal | None = SEAL) -> Snapshot:
    snapshot = Snapshot(directory)
    store, _ = opened(*records, snapshot=snapshot, seal=seal)
    store.save()
    assert store.snapshots["ok"] == 1
    return snapshot


def test_topic_that_lost_its_signed_records_gets_those_of_the_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted and created again with a forged record; and all signed records removed, and compacted."""
    for name, topic_id in (("again", b"another topic id"), ("same", TOPIC_ID)):
        caplog.clear()
        log = FakeLog()
        snapshot = saved(tmp_path / name, SIGNED_SINCE, signed(rate(ANN, 5), NOW))
        store = TopicStore(QuotaSettings(store="topic"), log, snapshot=snapshot, seal=SEAL)
        log.deliver(rate(BOB, 1e12), begins=True, topic_id=topic_id)
        store.drain()
        assert dict(store.definitions.entries()) == {ANN: {RATE: 5.0}}
        assert "has lost its signed records" in caplog.text
        alter(store, "carl", 1.0)
        assert [record.key for record in log.appended[0]] == [key_of(ANN, RATE), SINCE, LAST]


def test_snapshot_of_before_the_secret_does_not_prevent_taking_over(tmp_path: Path) -> None:
    snapshot = saved(tmp_path, rate(ANN, 5), seal=None)
    store, _ = opened(rate(ANN, 5), rate(BOB, 6), snapshot=snapshot)
    assert len(store.definitions) == 2


def test_value_in_force_is_written_over_what_hides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store, log = opened(SIGNED_SINCE, signed(rate(ANN, 5), NOW))
    log.deliver(rate(ANN, None), rate(Entity("junk"), 1), Record(SINCE, None))
    drained(store, log)
    store.keep()
    assert log.appended == []  # not at once, since other members may do it
    monkeypatch.setattr("time.monotonic", lambda: 1e9)
    store.keep()
    (batch,) = log.appended
    assert [record.key for record in batch] == [key_of(ANN, RATE), SINCE, LAST]
    assert batch[0].value is not None
    assert b'"value":5,' in batch[0].value
    assert store.restored == 2
    drained(store, log)
    assert read_of(*batch) == {ANN: {RATE: 5.0}}


def test_value_that_another_member_has_written_again_is_not_written_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, log = opened(SIGNED_SINCE, signed(rate(ANN, 5), NOW))
    log.deliver(rate(ANN, None), signed(rate(ANN, 5), NOW + 1))
    drained(store, log)
    monkeypatch.setattr("time.monotonic", lambda: 1e9)
    store.keep()
    assert log.appended == []


def test_author_of_a_signed_record_is_known_and_that_of_an_unsigned_one_a_claim() -> None:
    found: list[str] = []
    for seal in (SEAL, None):
        store = TopicStore(QuotaSettings(store="topic"), log := FakeLog(), seal=seal)
        store.noted = lambda _, author: found.append(author.principal)
        log.deliver(SIGNED_SINCE, signed(rate(ANN, 5), NOW), begins=True)
        store.drain()
    assert found == ["User:admin", "User:admin (claimed)"]


def test_process_without_the_secret_says_that_others_ignore_it(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = opened(SIGNED_SINCE, signed(Record(LAST, b"{}"), NOW), seal=None)
    assert caplog.messages == [
        "records of the topic are signed, and this process has no fleet.secret_file: others ignore its alterations"
    ]
    assert store.records["key"] == 0


def test_stamps_of_the_store_follow_those_that_were_read() -> None:
    future = NOW + 10**15  # thirty years ahead
    store, log = opened(SIGNED_SINCE, signed(rate(ANN, 5), future))
    alter(store, "ann", 6.0)
    assert SEAL.stamp_of(log.appended[0][0], TOPIC_ID) == future + 1
    assert Stamps().next(NOW) == NOW
