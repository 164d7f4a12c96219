"""From what brokers had received of a reassignment, and how long records took, to the table, bars and the picture."""

from collections.abc import Callable
from itertools import accumulate, islice
from pathlib import Path

from tests.bench.capacity.day import DAY_SECONDS, SURGE, WEB, arrivals, rate
from tests.bench.capacity.reassignment import (
    ALONE,
    BROKERS,
    CAPACITY,
    CLASS,
    FLOOR,
    MB,
    MOVED,
    Day,
    Found,
    Lane,
    draw,
    fall,
    fixed,
    left,
    report,
)
from tests.support.growth import Growth, Sample

BEGAN = 1000.0
STEP = 0.02
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
    return Day(lane, taken, 0, BEGAN, growths)


def found(speed: Callable[[float], float] = unused, p99: float = 0.010) -> Found:
    """A fixed rate of 2 MB/s is the best that keeps the p99."""
    lanes = [day(fixed(3 * MB), lambda _: 3 * MB, 0.020), day(fixed(2 * MB), lambda _: 2 * MB)]
    return Found(day(ALONE), day(CLASS, speed, p99), lanes)


def missed(results: Found) -> set[str]:
    return {bar.name for bar in report(results).bars if not bar.passed}


def test_class_that_uses_what_is_left_meets_every_bar() -> None:
    assert missed(found()) == set()
    assert found().best() == found().fixed[1]


def test_replication_that_falls_late_misses_a_bar() -> None:
    def late(seconds: float) -> Callable[[float], float]:
        return lambda at: unused(at - seconds if SURGE[0] <= at < SURGE[0] + seconds else at)

    # Windows of a second: the last one that is too full begins before replication falls.
    assert 0 < fall(day(CLASS, late(1.5))) < 1.6
    assert missed(found(late(1.9))) == set()
    assert missed(found(late(3.0))) == {"class: from the surge until it has fallen"}


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
    results = Found(day(ALONE), day(CLASS, unused), [day(fixed(3 * MB), lambda _: 3 * MB, 0.020)])

    (bar,) = [bar for bar in report(results).bars if not bar.passed]
    assert bar.verdict == "NOT MEASURED"


def test_record_that_was_not_acknowledged_misses_a_bar() -> None:
    results = found()
    results.fixed[0] = Day(results.fixed[0].lane, STEADY, 1, BEGAN, results.fixed[0].growths)

    assert missed(results) == {"records that were not acknowledged"}


def test_picture_has_both_lanes_and_the_surge(tmp_path: Path) -> None:
    draw(found(), tmp_path / "moved.svg")

    text = (tmp_path / "moved.svg").read_text()
    assert "a class of the capacity" in text
    assert "2 MB/s: MB/s into a broker" in text
    assert text.count("surge") == 2


def test_records_are_due_at_the_same_times_in_every_run_and_follow_the_day() -> None:
    due = list(islice(arrivals(WEB, 0, len(BROKERS)), 4000))

    assert due == list(islice(arrivals(WEB, 0, len(BROKERS)), 4000))
    surge = sum(SURGE[0] <= at % DAY_SECONDS < SURGE[1] for at in due if at < DAY_SECONDS)
    night = sum(0 <= at < SURGE[1] - SURGE[0] for at in due)
    # By the hours: 2.5 MB/s in the surge, and about 0.16 after midnight.
    assert 10 < surge / night < 25
