"""How long brokers take to respond, from probes: the mean, and percentiles of the last minute.

Times are counted in classes, each a quarter of a power of two wide, so a percentile is at most 19 % too high. At most
BROKERS_MAX brokers are kept; a client cannot name one.
"""

from collections.abc import Sequence
from typing import Final

from proxy.explain.windows import MINUTE, Windows

__all__ = ["Latencies", "percentile_ms"]

BROKERS_MAX: Final = 1000
_CLASSES: Final = 96  # of a quarter of a power of two: 16 us to 268 s
_FIRST_US: Final = 16


class Latencies:
    """The response times of all brokers, by id.

    >>> latencies = Latencies()
    >>> for took_ms in [1] * 98 + [80, 80]:
    ...     latencies.add(3, took_ms * 1_000_000, now_ms=0)
    >>> classes = latencies.classes(3, 0)
    >>> sum(classes), percentile_ms(classes, 0.5) < 1.2, percentile_ms(classes, 0.99) > 80
    (100.0, True, True)
    """

    def __init__(self) -> None:
        self._brokers: dict[int, Windows] = {}

    def add(self, broker: int, took_ns: int, now_ms: int) -> None:
        """Count one response."""
        found = self._brokers.get(broker)
        if found is None:
            if len(self._brokers) >= BROKERS_MAX:
                return
            found = self._brokers[broker] = Windows(_CLASSES, "f")
        found.add(_class_of(took_ns // 1000), 1.0, now_ms)

    def classes(self, broker: int, now_ms: int) -> list[float]:
        """Return how many responses of the last minute each class has."""
        return self._brokers[broker].sums(MINUTE, now_ms)

    def brokers(self) -> list[int]:
        """The brokers that have responded."""
        return sorted(self._brokers)


def percentile_ms(classes: Sequence[float], part: float) -> float:
    """Return the time that this part of the responses did not exceed, in ms; 0 without any."""
    left = part * sum(classes)
    if not left:
        return 0.0
    for index, count in enumerate(classes):
        left -= count
        if left <= 1e-6:
            return _upper_us(index) / 1000
    return _upper_us(_CLASSES - 1) / 1000


def _class_of(us: int) -> int:
    """Return the class of a time.

    >>> _class_of(0), _class_of(16), _class_of(32), _class_of(10**12)
    (0, 0, 4, 95)
    """
    if us <= _FIRST_US:
        return 0
    power = us.bit_length() - _FIRST_US.bit_length()
    quarter = ((us << 2) >> (us.bit_length() - 1)) & 3
    return min(_CLASSES - 1, 4 * power + quarter)


def _upper_us(index: int) -> float:
    """Return the upper bound of a class.

    >>> _upper_us(_class_of(20)) >= 20, _upper_us(_class_of(1000)) >= 1000
    (True, True)
    """
    power, quarter = divmod(index, 4)
    return float(_FIRST_US * 2**power * (5 + quarter) / 4)
