"""From what brokers had received of a reassignment, and how long records took, to the table, bars and the picture."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, islice
from pathlib import Path

import pytest

from tests.bench.capacity.day import DAY_SECONDS, SURGE, WEB, arrivals, rate
from tests.bench.capacity.reassignment import (
    ALONE,
    BROKERS,
    CAPACITY,
    CLASS,
    FALLEN,
    FLOOR,
    MB,
    MOVED,
    Day,
    Found,
    Lane,
    Surge,
    draw,
    fall,
    fixed,
    left,
    report,
)
from tests.support.growth import Growth, Sample

BEGAN = 1000.0
STEP = 0.02
PRODUCED = dict.fromkeys(BROKERS, round(2 * rate(FALLEN[0]) * (FALLEN[1] - FALLEN[0])))
STEADY = [(second / 100, 0.010) for second in range(6000)]


def unused(at: float) -> float:
    """What is left of the capacity at this second of the day."""
    return CAPACITY - 2 * rate(at)


def growth(speed: Callable[[float], float]) -> Growth:
    """What a broker has that receives so many bytes/s, until all is there."""
    times = [number * STEP for number in range(round(300 / STEP))]
    sizes = accumulate((speed(at) * STEP for at in times), initial=0.0)
    samples = []
    for at, size in zip(times, sizes, strict=False):
        samples.append(Sample(BEGAN + at, BEGAN + at, min(MOVED, int(size))))
        if size >= MOVED:
            break
    return Growth(samples)


def day(lane: Lane, speed: Callable[[float], float] | None = None, p99: float = 0.010) -> Day:
    """A day whose slowest two of a hundred records take so long."""
    taken = [(at, p99 if number % 50 == 0 else seconds) for number, (at, seconds) in enumerate(STEADY)]
    growths = {broker: growth(speed) for broker in BROKERS} if speed else {}
    return Day(lane, taken, 0, BEGAN, Surge(PRODUCED, 0.5), growths)


def found(speed: Callable[[float], float] = unused, p99: float = 0.010) -> Found:
    """A fixed rate of 1 MB/s is the best that keeps the p99."""
    lanes = [day(fixed(MB * 3 // 2), lambda _: MB * 3 / 2, 0.020), day(fixed(MB), lambda _: MB)]
    return Found(day(ALONE), day(CLASS, speed, p99), lanes)


def missed(results: Found) -> set[str]:
    return {bar.name for bar in report(results).bars if not bar.passed}


def test_class_that_uses_what_is_left_meets_every_bar() -> None:
    assert missed(found()) == set()
    assert found().best() == found().fixed[1]


def test_replication_that_falls_late_misses_a_bar() -> None:
    def late(seconds: float) -> Callable[[float], float]:
        return lambda at: unused(at - seconds if SURGE[0] <= at < SURGE[0] + seconds else at)

    # The first second that has no more than what is left begins when replication falls.
    assert fall(day(CLASS, late(0.9))) == pytest.approx(1.9, abs=0.11)
    assert missed(found(late(0.9))) == set()
    assert missed(found(late(1.5))) == {"class: from the surge until it has fallen"}


def test_replication_that_never_falls_misses_two_bars() -> None:
    assert missed(found(lambda at: unused(0.0 if SURGE[0] <= at < SURGE[1] else at))) == {
        "class: from the surge until it has fallen",
        "class: taken in by a broker from then on, against the capacity",
    }


def test_replication_that_rises_again_in_the_surge_misses_a_bar() -> None:
    # 2 MB/s more for a second of eight are 1/16 of the capacity.
    assert missed(found(lambda at: unused(at) + 2 * MB * (36 <= at < 37))) == {
        "class: taken in by a broker from then on, against the capacity"
    }


def test_busy_cores_miss_a_bar() -> None:
    results = found()
    results.alone = replace(results.alone, surge=Surge(PRODUCED, 0.9))

    assert missed(results) == {"cores busy in the surge"}


def test_second_below_the_floor_misses_a_bar() -> None:
    def paused(at: float) -> float:
        return FLOOR / 2 if 10 <= at < 12 else unused(at)

    assert missed(found(paused)) == {"class: least second and one batch, against the floor"}


def test_class_that_slows_producers_misses_a_bar_and_is_compared_with_a_rate_that_slows_them_as_much() -> (
    None
):
    slow = found(p99=0.020)

    assert slow.best() == slow.fixed[0]
    assert missed(slow) == {"class: p99, against no reassignment"}


def test_class_as_fast_as_the_fixed_rate_misses_a_bar() -> None:
    assert missed(found(lambda _: left())) == {"class: time, against the best fixed rate"}


def test_time_is_not_measured_if_no_fixed_rate_keeps_the_p99() -> None:
    results = Found(day(ALONE), day(CLASS, unused), [day(fixed(MB), lambda _: MB, 0.020)])

    (bar,) = [bar for bar in report(results).bars if not bar.passed]
    assert bar.verdict == "NOT MEASURED"


def test_record_that_was_not_acknowledged_misses_a_bar() -> None:
    results = found()
    results.fixed[0] = replace(results.fixed[0], missing=1)

    assert missed(results) == {"records that were not acknowledged"}


def test_picture_has_both_lanes_and_the_surge(tmp_path: Path) -> None:
    draw(found(), tmp_path / "moved.svg")

    text = (tmp_path / "moved.svg").read_text()
    assert "a class of the capacity" in text
    assert "1 MB/s: MB/s into a broker" in text
    assert text.count("surge") == 2


def test_records_are_due_at_the_same_times_in_every_run_and_follow_the_day() -> None:
    due = list(islice(arrivals(WEB, 0, len(BROKERS)), 4000))

    assert due == list(islice(arrivals(WEB, 0, len(BROKERS)), 4000))
    surge = sum(SURGE[0] <= at % DAY_SECONDS < SURGE[1] for at in due if at < DAY_SECONDS)
    night = sum(0 <= at < SURGE[1] - SURGE[0] for at in due)
    # By the hours: 1.05 MB/s in the surge, and about 0.08 after midnight.
    assert 9 < surge / night < 20
