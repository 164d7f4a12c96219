"""proxy.topics.records: what a mark covers, and which genuine records are repeated."""

import pytest

from proxy.topics.records import LATE_US, MARK_BYTES, Record, Seal, Stamps

SECRET = b"s" * 32
SEAL = Seal(SECRET, "quota", "quotas")
ID = bytes(range(16))
SIGNED = SEAL.sign(Record(b"key", b"value"), 1_000, ID)


def test_mark_is_a_stamp_and_a_signature() -> None:
    assert MARK_BYTES == 8 + 32 == len(SIGNED.mark)
    assert SIGNED.mark[:8] == (1_000).to_bytes(8)
    assert (SIGNED.key, SIGNED.value) == (b"key", b"value")
    assert SEAL.stamp_of(SIGNED, ID) == 1_000
    assert SEAL.stamp_of(SIGNED._replace(offset=7), ID) == 1_000  # the offset is the broker's


@pytest.mark.parametrize(
    "forged",
    [
        SIGNED._replace(key=b"other"),
        SIGNED._replace(key=None),
        SIGNED._replace(value=b"other"),
        SIGNED._replace(value=None),
        SIGNED._replace(value=b""),
        SIGNED._replace(key=b"keyv", value=b"alue"),
        SIGNED._replace(mark=(1_001).to_bytes(8) + SIGNED.mark[8:]),
        SIGNED._replace(mark=SIGNED.mark[:-1]),
        SIGNED._replace(mark=SIGNED.mark + b"x"),
        SIGNED._replace(mark=b""),
        SIGNED._replace(mark=bytes(MARK_BYTES)),
    ],
)
def test_every_part_is_covered(forged: Record) -> None:
    assert SEAL.stamp_of(forged, ID) is None


@pytest.mark.parametrize(
    ("other", "topic_id"),
    [
        (Seal(b"t" * 32, "quota", "quotas"), ID),
        (Seal(SECRET, "journal", "quotas"), ID),
        (Seal(SECRET, "quota", "other"), ID),
        (SEAL, ID[::-1]),  # deleted and created again
    ],
)
def test_record_of_another_topic_use_or_fleet_is_not_valid(other: Seal, topic_id: bytes) -> None:
    assert other.stamp_of(SIGNED, topic_id) is None


def test_removal_can_be_signed() -> None:
    removed = SEAL.sign(Record(b"key", None), 5, ID)
    assert SEAL.stamp_of(removed, ID) == 5


def test_stamps_grow_whatever_the_clock_says() -> None:
    """Of two members whose clocks differ by an hour, the later alteration has the greater stamp."""
    ahead, behind = Stamps(), Stamps()
    first = ahead.next(3_600_000_000)
    assert behind.accepts(b"k", first)
    assert behind.next(0) == 3_600_000_001
    assert ahead.accepts(b"k", first)
    assert ahead.accepts(b"k", 3_600_000_001)
    assert ahead.next(1) == 3_600_000_002


def test_records_signed_together_have_stamps_of_their_own() -> None:
    records = Stamps().sign([Record(b"k", b"1"), Record(b"k", b"2")], SEAL, ID, 10)
    assert [SEAL.stamp_of(record, ID) for record in records] == [10, 11]


def test_of_one_key_only_greater_stamps_count() -> None:
    stamps = Stamps()
    assert stamps.accepts(b"k", 100)
    assert not stamps.accepts(b"k", 100)
    assert not stamps.accepts(b"k", 99)
    assert stamps.accepts(b"other", 50)
    assert stamps.accepts(b"k", 101)


def test_late_writer_counts_up_to_the_allowance() -> None:
    stamps = Stamps()
    assert stamps.accepts(b"k", 1 + LATE_US)
    assert stamps.accepts(b"late", 1)
    assert not stamps.accepts(b"later", 0)


def test_journal_has_no_allowance() -> None:
    stamps = Stamps(late_us=0)
    assert stamps.accepts(b"k", 5)
    assert not stamps.accepts(b"other", 5)
    assert not stamps.accepts(b"other", 4)
    assert stamps.accepts(b"other", 6)
    assert not stamps.of_keys


def test_reading_again_accepts_again_and_still_writes_greater_stamps() -> None:
    stamps = Stamps()
    assert stamps.accepts(b"k", 100)
    stamps.begin()
    assert stamps.accepts(b"k", 100)
    assert stamps.next(0) == 101


def test_stamps_of_single_keys_are_kept_for_the_allowance_only() -> None:
    """A record a second for 10,000 s: those of 300 s are kept, and at most 1,024 before the next look."""
    stamps = Stamps()
    most = 0
    for second in range(10_000):
        assert stamps.accepts(b"%d" % second, second * 1_000_000)
        most = max(most, len(stamps.of_keys))
    assert most <= 1_024
    assert not stamps.accepts(b"0", 0)
    assert not stamps.accepts(b"9999", 9_999_000_000)
