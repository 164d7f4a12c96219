"""The arithmetic of the benchmarks: medians, percentiles, rates per second, fairness. Pure; no clock, no IO.

It does not know what was measured: `sections` and `accuracy` bring the numbers.
"""

import random
from collections.abc import Iterable, Sequence
from math import floor
from statistics import median as _median
from typing import Final

Event = tuple[float, int]
"""When (seconds), how many bytes."""

_RESAMPLES: Final = 2000
_SEED: Final = 20  # a constant: the same figures give the same interval


def median(values: Iterable[float]) -> float:
    """Return the middle of `values`.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    return float(_median(values))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of values that are already sorted.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.0
    >>> percentile([1.0, 2.0, 3.0, 4.0], 99.9)
    4.0
    """
    if not ordered:
        raise ValueError("no values to take a percentile of")
    rank = -(-percent * len(ordered) // 100)  # the ceiling of percent/100 * n
    return ordered[max(0, min(len(ordered) - 1, int(rank) - 1))]


def bootstrap_interval(values: Sequence[float], percent: float = 95.0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median of `values`.

    >>> bootstrap_interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    >>> low, high = bootstrap_interval([0.9, 1.0, 1.1] * 5)
    >>> 0.9 <= low <= 1.0 <= high <= 1.1
    True
    """
    chance = random.Random(_SEED)
    medians = sorted(median(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    outside = (100.0 - percent) / 2
    return percentile(medians, outside), percentile(medians, 100.0 - outside)


def jain_index(shares: Sequence[float]) -> float:
    """Return Jain's fairness index: 1.0 when all shares are equal, 1/n when one has everything.

    >>> jain_index([5.0, 5.0])
    1.0
    >>> jain_index([1.0, 0.0])
    0.5
    """
    squares = sum(share * share for share in shares)
    if not squares:
        return 0.0
    return sum(shares) ** 2 / (len(shares) * squares)


def within_first(events: Sequence[Event], began: float, seconds: float = 1.0) -> int:
    """Return the bytes of the events in the first `seconds` after `began`.

    >>> within_first([(0.1, 5), (0.9, 5), (1.1, 7)], began=0.0)
    10
    """
    return sum(size for at, size in events if at - began < seconds)


def per_second(events: Sequence[Event], began: float, seconds: int) -> list[int]:
    """Return the bytes of each whole second after `began`.

    >>> per_second([(-0.5, 8), (0.5, 1), (0.7, 1), (2.0, 4)], began=0.0, seconds=3)
    [2, 0, 4]
    """
    bins = [0] * seconds
    for at, size in events:
        index = floor(at - began)
        if 0 <= index < seconds:
            bins[index] += size
    return bins


def largest_second(events: Sequence[Event]) -> int:
    """Return the most bytes in any span of one second, wherever it begins.

    >>> largest_second([(0.9, 4), (1.1, 4), (3.0, 5)])
    8
    """
    ordered = sorted(events)
    most = inside = first = 0
    for at, size in ordered:
        inside += size
        while ordered[first][0] <= at - 1.0:
            inside -= ordered[first][1]
            first += 1
        most = max(most, inside)
    return most


def steady_rate(events: Sequence[Event], start: float, end: float, slide: float = 1.0) -> float:
    """Return the bytes per second from `start` to `end`, free of the edges' luck.

    A plain count of 1 MB requests in 30 s at 2 MB/s is off by up to one request at each edge: 1.7 %. So this is the
    mean of the count over every window of `end - start - slide` seconds whose start slides over `slide` seconds: an
    event near an edge counts by the share of those windows that contain it.

    >>> round(steady_rate([(at / 2, 1000) for at in range(100)], 15.2, 45.2), 3)
    2000.0
    """
    width = end - start - slide
    if width <= 0:
        raise ValueError(f"{end - start} s is no longer than the {slide} s it is to slide by")
    total = 0.0
    for at, size in events:
        # Windows begin at u in [start, start + slide] and contain `at` when u <= at < u + width.
        share = (min(at, start + slide) - max(at - width, start)) / slide
        total += size * max(0.0, share)
    return total / width
