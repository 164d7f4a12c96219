"""What several processes let through together, against what is stated of them: pure arithmetic.

The bound of policy `schedule`: in any interval of T seconds at most 1.01 x quota x T, a burst, and the largest request
of each process that lives within it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.figures import Event

_GRID_SECONDS: Final = 0.1

Life = tuple[float, float]
"""When a process that relays began, and when it ended."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What is stated.

    Args:
        quota: bytes/s.
        burst_seconds: how much of it may come at once.
        request_bytes: of the largest request or response.
    """

    quota: float
    burst_seconds: float
    request_bytes: int
    factor: float = 1.01


@dataclass(frozen=True, slots=True)
class Worst:
    """The interval that is nearest to the bound, or farthest above it.

    Attributes:
        excess: bytes above the bound; negative if no interval is above it.
        began: of the interval, seconds.
        ended: of the interval.
    """

    excess: float
    began: float
    ended: float


def worst(
    events: Sequence[Event],
    lives: Sequence[Life],
    bound: Bound,
    since: float = -float("inf"),
    until: float = float("inf"),
) -> Worst:
    """Look at every interval that begins and ends with an event; of them at those that end from `since` to `until`.

    An interval's processes are those that have begun by its end, less those that have ended before its beginning; so
    one pass over the events is enough.

    >>> bound = Bound(quota=100.0, burst_seconds=1.0, request_bytes=10, factor=1.0)
    >>> worst([(0.0, 110), (1.0, 100)], [(0.0, 9.0)], bound)
    Worst(excess=0.0, began=0.0, ended=0.0)
    >>> worst([(0.0, 110), (1.0, 150)], [(0.0, 9.0)], bound)
    Worst(excess=50.0, began=0.0, ended=1.0)
    """
    began = sorted(life[0] for life in lives)
    ended = sorted(life[1] for life in lives)
    rate = bound.factor * bound.quota
    found = Worst(-float("inf"), 0.0, 0.0)
    passed = 0
    best, best_at = -float("inf"), 0.0
    for at, size in sorted(events):
        gone = bound.request_bytes * bisect_left(ended, at)
        start = rate * at + gone - passed
        if start > best:
            best, best_at = start, at
        passed += size
        come = bound.request_bytes * bisect_right(began, at)
        excess = passed - rate * at - come + best - bound.burst_seconds * bound.quota
        if excess > found.excess and since <= at < until:
            found = Worst(excess, best_at, at)
    return found


def rate(events: Sequence[Event], began: float, ended: float) -> float:
    """Return the bytes/s between two times.

    >>> rate([(0.5, 100), (1.5, 100), (2.5, 100)], 1.0, 3.0)
    100.0
    """
    return sum(size for at, size in events if began <= at < ended) / (ended - began)


def below(events: Sequence[Event], least: float, began: float, ended: float, *, window: float = 2.0) -> float:
    """Return for how many seconds the rate was below `least` bytes/s, where a rate is the mean over `window` seconds.

    >>> steady = [(at / 100, 1) for at in range(1000)]
    >>> below(steady, 97.0, 2.0, 8.0)
    0.0
    """
    ordered = sorted(events)
    times = [at for at, _ in ordered]
    sums = [0]
    for _, size in ordered:
        sums.append(sums[-1] + size)
    count = 0
    steps = round((ended - began) / _GRID_SECONDS)
    for step in range(steps):
        at = began + step * _GRID_SECONDS
        first, last = bisect_left(times, at - window / 2), bisect_left(times, at + window / 2)
        count += sums[last] - sums[first] < least * window
    return count * _GRID_SECONDS
