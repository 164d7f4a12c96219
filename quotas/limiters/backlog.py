"""The backlog of a budget that is only observed: the bytes that clients would have left to send with enforcement.

The clients are taken to keep their rate although they are throttled (an *open loop*). In real time, the quota lets a
part of their bytes pass; the rest is the backlog.
"""

from typing import Protocol

from quotas.limiters.rate import NEVER_MS, SampledRate

__all__ = ["Backlog", "PacedBacklog", "SampledBacklog"]


class Backlog(Protocol):
    """The backlog of one budget."""

    def add(self, size: int, limit: float, now_ms: int) -> None:
        """Add bytes that were sent; `limit` is in bytes/s."""

    def bytes(self, limit: float, now_ms: int) -> float:
        """Return the backlog in bytes; `limit` is in bytes/s."""


class SampledBacklog:
    """The backlog of a limit over Kafka's sampled windows.

    >>> backlog = SampledBacklog(11, 1000)
    >>> backlog.add(12_000, 1_000, 0)
    >>> backlog.bytes(1_000, 0), backlog.bytes(1_000, 11_000)  # the windows hold 10 s
    (2000.0, 0.0)
    """

    __slots__ = ("_left", "_passed")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._left = 0
        self._passed = SampledRate(samples, sample_ms)

    def add(self, size: int, limit: float, now_ms: int) -> None:
        """Add bytes that were sent."""
        self._left += size
        passing = min(self._left, max(0, self._passed.left(limit, now_ms)))
        if passing:
            self._passed.record(passing, now_ms)
            self._left -= passing

    def bytes(self, limit: float, now_ms: int) -> float:
        """Return the bytes that are left."""
        self.add(0, limit, now_ms)
        return float(self._left)


class PacedBacklog:
    """The backlog of a virtual schedule with a burst.

    >>> backlog = PacedBacklog(burst_ms=2000)
    >>> backlog.add(5_000, 1_000, 0)
    >>> backlog.bytes(1_000, 0), backlog.bytes(1_000, 1_000), backlog.bytes(1_000, 9_000)
    (3000.0, 2000.0, 0.0)
    """

    __slots__ = ("_burst_ms", "_level", "_level_ms")

    def __init__(self, burst_ms: int) -> None:
        self._burst_ms = burst_ms
        self._level = 0.0  # bytes beyond the rate; below 0: what is left of the burst
        self._level_ms = NEVER_MS

    def add(self, size: int, limit: float, now_ms: int) -> None:
        """Add bytes that were sent."""
        paid = limit * (now_ms - self._level_ms) / 1000
        self._level = max(self._level - paid, -limit * self._burst_ms / 1000) + size
        self._level_ms = now_ms

    def bytes(self, limit: float, now_ms: int) -> float:
        """Return the bytes that are left."""
        return max(0.0, self._level - limit * (now_ms - self._level_ms) / 1000)
