"""The arithmetic of the benchmarks, with its numbers written out."""

import doctest

import pytest

from tests.bench import figures


def test_figures_examples_hold() -> None:
    assert doctest.testmod(figures).failed == 0


def test_percentile_takes_the_nearest_rank() -> None:
    ordered = [float(value) for value in range(1, 1001)]
    assert figures.percentile(ordered, 50) == 500.0
    assert figures.percentile(ordered, 99) == 990.0  # 99 % of 1000 is the 990th
    assert figures.percentile(ordered, 99.9) == 999.0
    assert figures.percentile(ordered, 100) == 1000.0


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        figures.percentile([], 50)


def test_jain_index_of_nothing_is_zero() -> None:
    assert figures.jain_index([0.0, 0.0]) == 0.0


def test_jain_index_of_four_and_five_requests() -> None:
    # 10 connections with 4 MB and 10 with 5: 90² / (20 · (10·16 + 10·25)) = 8100 / 8200
    assert figures.jain_index([4.0] * 10 + [5.0] * 10) == pytest.approx(8100 / 8200)


def test_largest_second_spans_whole_seconds_wherever_they_begin() -> None:
    assert figures.largest_second([(0.0, 3), (0.99, 3), (1.0, 3)]) == 6  # a second does not hold its own end
    assert figures.largest_second([]) == 0


def test_steady_rate_does_not_depend_on_where_the_requests_fall() -> None:
    # 1 MB each 0.5 s is 2 MB/s, whatever the phase; a plain count of 30 s would be 59 or 61 requests.
    for phase in (0.0, 0.1, 0.25, 0.499):
        events = [(phase + index / 2, 1_000_000) for index in range(100)]
        assert figures.steady_rate(events, 15.0, 45.0) == pytest.approx(2_000_000)


def test_steady_rate_of_bursts_counts_the_silence() -> None:
    # 20 MB each 10 s: 2 MB/s on average; within 29 s windows sliding over 1 s fall three bursts in most, two in few.
    events = [(float(at), 20_000_000) for at in range(0, 60, 10)]
    assert figures.steady_rate(events, 15.0, 45.0) == pytest.approx(60_000_000 / 29)


def test_steady_rate_needs_time_to_slide_in() -> None:
    with pytest.raises(ValueError, match="no longer"):
        figures.steady_rate([], 1.0, 2.0)
