"""quotas.limiters.batches: which max_bytes ends with a whole batch."""

import pytest

from quotas.limiters.batches import record_first_batch, whole_batches
from quotas.limiters.limiter import Flow

KIB = 1024


def after(*sizes: int) -> Flow:
    """A channel whose responses began with batches of these sizes."""
    flow = Flow()
    for size in sizes:
        record_first_batch(flow, size)
    return flow


def test_unknown_first_batch_changes_nothing() -> None:
    flow = after(5_000, 0)
    assert (flow.batch_least, flow.batch_most) == (5_000, 5_000)


def test_sizes_kept_are_the_extremes_and_approach_later_sizes() -> None:
    flow = after(8_000, 16_000, 12_000)
    # A part of 8 of the difference: 8,000 + 8,000 / 8 = 9,000 and then + 3,000 / 8; 16,000 - 4,000 / 8.
    assert (flow.batch_least, flow.batch_most) == (9_375, 15_500)


@pytest.mark.parametrize(
    ("size", "max_bytes", "asks"),
    [
        (16 * KIB, 200_000, 196_608),  # twelve
        (16 * KIB, 49_152, 49_152),  # three exactly
        (16 * KIB, 32_767, 16_384),
        (256 * KIB, 1_000_000, 786_432),
        (256 * KIB, 262_144, 262_144),
        (256 * KIB, 50_000, 50_000),  # a first batch is whole in any case
        (256 * KIB, 1, 1),
    ],
)
def test_batches_of_one_size_are_counted(size: int, max_bytes: int, asks: int) -> None:
    assert whole_batches(after(size, size), max_bytes, max_bytes, late_ms=1) == asks


def test_one_size_is_within_one_part_of_64_and_the_largest_counts() -> None:
    assert (
        whole_batches(Flow(batch_least=63_000, batch_most=64_000), 300_000, 300_000, late_ms=1)
        == 4 * 64_000 + 1_000
    )
    assert whole_batches(Flow(batch_least=62_999, batch_most=64_000), 300_000, 300_000, late_ms=1) == 1


@pytest.mark.parametrize(
    ("share", "late_ms", "asks"),
    [
        (399_999, 1, 1),
        (400_000, 1, 50_000),  # 25 batches of 16,000 bytes in the middle
        (100_000, 40, 1),
        (100_000, 41, 50_000),  # at 100,000 bytes in 500 ms a batch takes 80 ms
    ],
)
def test_batches_of_different_sizes_come_one_by_one_if_few_fit_and_round_trips_are_short(
    share: int, late_ms: int, asks: int
) -> None:
    flow = Flow(batch_least=2_000, batch_most=30_000)
    assert whole_batches(flow, 50_000, share, late_ms) == asks


def test_small_batches_of_different_sizes_do_not_come_one_by_one() -> None:
    assert whole_batches(Flow(batch_least=100, batch_most=16_283), 50_000, 50_000, late_ms=1) == 50_000
    assert whole_batches(Flow(batch_least=100, batch_most=16_284), 50_000, 50_000, late_ms=1) == 1


def test_nothing_is_reduced_while_no_batch_is_known() -> None:
    assert whole_batches(Flow(), 50_000, 50_000, late_ms=1) == 50_000
