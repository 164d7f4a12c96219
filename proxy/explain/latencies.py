"""Brokers' response times, by requests and by time.

A broker that stands still for 5 s and handles thousands of requests in the next second is fast by requests: its p99 is
low. By time it is slow: five sixths of the time that requests were at it belong to the requests of 5 s. Both are
reported.

Times are counted in classes, each a quarter of a power of two wide, so a percentile is at most 19 % too high. A request
counts with its weight: one that was chosen with a probability of a sixteenth stands for sixteen. At most BROKERS_MAX
brokers are kept; a client cannot name one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxy.explain.windows import Windows

BROKERS_MAX: Final = 1000
CLASSES: Final = 96  # of a quarter of a power of two: 16 us to 268 s
_FIRST_US: Final = 16
_TIMED: Final = CLASSES  # the place of the number of requests that were timed, whatever their weight
_MS: Final = CLASSES + 1  # of their time
_NS_PER_MS: Final = 1_000_000


class Times(NamedTuple):
    """One broker's response times.

    Args:
        classes: the number of requests in each class.
        timed: the number of timed requests, without their weights.
        ms: the time of all requests together, in ms.
    """

    classes: list[float]
    timed: int
    ms: float


class Latencies:
    """The response times of all brokers, by id.

    >>> from proxy.explain.windows import MINUTE
    >>> latencies = Latencies()
    >>> for took_ms in [1] * 98 + [80, 80]:
    ...     latencies.add(3, took_ms * 1_000_000, now_ms=0)
    >>> found = latencies.times(3, MINUTE, 0)
    >>> found.timed, percentile_ms(found.classes, 0.5) < 1.2, percentile_ms(found.classes, 0.99) > 80, found.ms
    (100, True, True, 258.0)
    """

    def __init__(self) -> None:
        self._brokers: dict[int, Windows] = {}

    def add(self, broker: int, took_ns: int, now_ms: int, weight: float = 1.0) -> None:
        """Count one response."""
        found = self._brokers.get(broker)
        if found is None:
            if len(self._brokers) >= BROKERS_MAX:
                return
            found = self._brokers[broker] = Windows(CLASSES + 2, "f")
        found.add(class_of(took_ns // 1000), weight, now_ms)
        found.add(_TIMED, 1.0, now_ms)
        found.add(_MS, weight * took_ns / _NS_PER_MS, now_ms)

    def times(self, broker: int, window: int, now_ms: int) -> Times:
        """Return a broker's times over a window."""
        found = self._brokers.get(broker)
        if found is None:
            return Times([0.0] * CLASSES, 0, 0.0)
        sums = found.sums(window, now_ms)
        return Times(sums[:CLASSES], int(sums[_TIMED]), sums[_MS])

    def brokers(self) -> list[int]:
        """The brokers that have responded."""
        return sorted(self._brokers)


def percentile_ms(classes: Sequence[float], part: float) -> float:
    """Return the time that this part of the requests did not exceed, in ms; 0 without any."""
    left = part * sum(classes)
    if not left:
        return 0.0
    for index, count in enumerate(classes):
        left -= count
        if left <= 1e-6:
            return _upper_us(index) / 1000
    return _upper_us(CLASSES - 1) / 1000


def time_percentile_ms(classes: Sequence[float], part: float) -> float:
    """Return the percentile by time, in ms: this part of all requests' time belongs to requests no longer than that.

    >>> classes = [0.0] * CLASSES
    >>> classes[class_of(1_000)], classes[class_of(1_000_000)] = 1000, 2  # 1 s in all, and 2 s
    >>> percentile_ms(classes, 0.5) < 1.2, time_percentile_ms(classes, 0.5) > 1000
    (True, True)
    """
    return percentile_ms([count * _upper_us(index) for index, count in enumerate(classes)], part)


def slowest_ms(classes: Sequence[float]) -> float:
    """Return the time of the slowest request, in ms; 0 without any."""
    return max((_upper_us(index) / 1000 for index, count in enumerate(classes) if count), default=0.0)


def class_of(us: int) -> int:
    """Return the class of a time.

    >>> class_of(0), class_of(16), class_of(32), class_of(10**12)
    (0, 0, 4, 95)
    """
    if us <= _FIRST_US:
        return 0
    power = us.bit_length() - _FIRST_US.bit_length()
    quarter = ((us << 2) >> (us.bit_length() - 1)) & 3
    return min(CLASSES - 1, 4 * power + quarter)


def _upper_us(index: int) -> float:
    """Return the upper bound of a class.

    >>> _upper_us(class_of(20)) >= 20, _upper_us(class_of(1000)) >= 1000
    (True, True)
    """
    power, quarter = divmod(index, 4)
    return float(_FIRST_US * 2**power * (5 + quarter) / 4)
