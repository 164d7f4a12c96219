"""Made-up batches are valid: kafka-python judges them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from offline.replay import messages
from offline.replay.messages import BATCH_BYTES_MIN, RECORDS_MAX, Batches, batch

NOW_MS = 1_800_000_000_000


@settings(deadline=None)
@given(st.integers(0, 20_000), st.integers(-1, 200))
def test_batch_is_valid_and_of_the_size_wanted(size: int, records: int) -> None:
    made = batch(size, records, NOW_MS)
    assert max(size, BATCH_BYTES_MIN) - 1 <= len(made) <= max(size, BATCH_BYTES_MIN)
    parsed = MemoryRecords(made).next_batch()
    assert parsed.validate_crc()
    found = list(parsed)
    assert 1 <= len(found) <= max(1, min(records, RECORDS_MAX))
    assert found[0].timestamp == NOW_MS
    # A topic that is compacted refuses a null key.
    assert {record.key for record in found} == {b""}


@pytest.mark.parametrize("size", [1_000_000, 10_000_000])
def test_large_batch_is_exact_enough(size: int) -> None:
    assert 0 <= size - len(batch(size, 1, NOW_MS)) <= 1


def test_records_are_as_many_as_recorded() -> None:
    assert len(list(MemoryRecords(batch(5000, 7, NOW_MS)).next_batch())) == 7


def test_batches_at_hand_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "KEPT_BYTES_MAX", 2500)
    batches = Batches()
    first = batches.batch(1000, 1, NOW_MS)
    batches.batch(1001, 1, NOW_MS)
    assert batches.batch(1000, 1, NOW_MS) is first
    batches.batch(1002, 1, NOW_MS)  # in the place of 1001
    assert batches.bytes == 1000 + 1002
    assert batches.batch(1000, 1, NOW_MS) is first
    assert len(batches.batch(5000, 1, NOW_MS)) == 5000
    assert batches.bytes == 0
