"""From what reached consumers and what passed the relay to the figures and bars of `tests.bench.goodput`."""

import pytest

from tests.bench.accuracy.relay import FETCH, Counted
from tests.bench.goodput import Figures, judge, outcome, parse_options

OPTIONS = parse_options(["--quota", "1000", "--seconds", "20"])


def passed(at: float, size: int) -> tuple[int, Counted]:
    return 0, Counted(at, at, "a", FETCH, size)


def test_records_are_a_part_of_the_quota_and_of_what_passed() -> None:
    # From 100 s on a response of 1,000 bytes in each second, of which 800 are records; and empty ones.
    seconds = range(100, 121)
    responses = [passed(at, 1_000) for at in seconds] + [passed(at, 50) for at in seconds]
    found = judge(("schedule", "16 KiB", 1), [(at, 800) for at in seconds], responses, OPTIONS, 3)
    assert found.goodput == pytest.approx(0.8)
    assert found.passed == pytest.approx(1.0)
    assert (found.largest, found.fetches, found.errors) == (1.0, 1.0, 3)


def test_bars_are_of_full_batches_under_schedule() -> None:
    runs = [
        Figures("schedule", "16 KiB", 1, 0.99, 1.0, 2.0, 1.0, 0),
        Figures("schedule", "256 KiB", 5, 0.97, 1.0, 2.2, 1.0, 0),
        Figures("schedule", "1 to 31 KiB", 5, 0.5, 1.0, 9.0, 1.0, 0),
        Figures("kip13", "16 KiB", 5, 0.5, 1.0, 9.0, 1.0, 0),
    ]
    assert [(bar.measured, bar.passed) for bar in outcome(runs, OPTIONS).bars] == [(0.97, False), (2.2, True)]


def test_run_without_bytes_is_no_result() -> None:
    with pytest.raises(ValueError, match="no byte passed"):
        judge(("schedule", "16 KiB", 1), [], [], OPTIONS, 0)
