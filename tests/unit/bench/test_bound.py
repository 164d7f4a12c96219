"""What processes let through, against the bound: the one pass must find what looking at every interval finds."""

import random

import pytest

from tests.bench.fleet.bound import Bound, below, worst

BOUND = Bound(quota=1000.0, burst_seconds=1.0, request_bytes=50)


def by_hand(events: list[tuple[float, int]], lives: list[tuple[float, float]]) -> float:
    """Every interval, one after the other."""
    found = -float("inf")
    for first in range(len(events)):
        for last in range(first, len(events)):
            began, ended = events[first][0], events[last][0]
            passed = sum(size for _, size in events[first : last + 1])
            within = sum(life[0] <= ended and life[1] >= began for life in lives)
            allowed = 1010.0 * (ended - began) + 1000.0 + 50 * within
            found = max(found, passed - allowed)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_worst_interval_is_that_of_all_intervals(seed: int) -> None:
    chance = random.Random(seed)
    events = sorted((chance.uniform(0, 20), chance.randint(1, 400)) for _ in range(60))
    lives = [(began := chance.uniform(-5, 20), began + chance.uniform(0.1, 10)) for _ in range(6)]
    assert worst(events, lives, BOUND).excess == pytest.approx(by_hand(events, lives))


def test_worst_interval_may_begin_before_the_span_that_it_ends_in() -> None:
    events = [(0.0, 3000), (5.0, 3000), (30.0, 1)]
    found = worst(events, [(0.0, 99.0)], BOUND, since=4.0, until=6.0)
    # 6000 in 5 s: 5050, the burst of 1000, and 50 of the one process are 6100 and more than that; but 3000 at once are
    # 1950 above 1000 + 50.
    assert (found.began, found.ended, found.excess) == (5.0, 5.0, 1950.0)


def test_process_that_ended_before_an_interval_adds_nothing_to_it() -> None:
    lives = [(0.0, 1.0), (2.0, 3.0)]
    assert worst([(2.5, 1100)], lives, BOUND).excess == 50.0
    assert worst([(0.5, 1), (2.5, 1100)], lives, BOUND).excess == 50.0


def test_rate_is_below_while_nothing_passes() -> None:
    steady = [(at / 100, 10) for at in range(2000)]
    gap = [(at, size) for at, size in steady if not 8.0 <= at < 11.0]
    assert below(steady, 970.0, 2.0, 18.0) == 0.0
    # A window of 2 s: from 7 s, when it reaches the gap by more than 3 %, to 12 s.
    assert below(gap, 970.0, 2.0, 18.0) == pytest.approx(4.9, abs=0.15)
