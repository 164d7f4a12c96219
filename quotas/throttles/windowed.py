"""The rate of a counter over about the quota's windows, for metrics and admin pages.

Two earlier counts are stored, half of the windows' length apart; a newer one replaces the older one. So the rate covers
at least the last half of the windows and at most all of them. Requests cost nothing here. Decisions do not use this
rate (`limiters.rate`, `limiters.schedule`).
"""

from quotas.throttles.counters import ThrottleCounters

__all__ = ["WindowedCounters"]

_UNKNOWN_MS = -1
_ELAPSED_MS_MIN = 1000  # a counter younger than a second is divided by a second


class WindowedCounters(ThrottleCounters):
    """A throttle's counters, and the rate of one more counter, which the owner keeps.

    >>> seen = WindowedCounters()
    >>> seen.begin(0)
    >>> for second in range(1, 19):  # 5 a second at first, then 2
    ...     seen.mark(5 * second if second < 8 else 40 + 2 * (second - 8), second * 1000, windows_ms=11_000)
    >>> seen.per_second(40 + 2 * 10, 18_000)  # since the mark at 12 s
    2.0
    """

    __slots__ = ("_first_mark", "_first_mark_ms", "_second_mark", "_second_mark_ms")

    def __init__(self) -> None:
        super().__init__()
        self._first_mark = self._second_mark = 0
        self._first_mark_ms = self._second_mark_ms = _UNKNOWN_MS

    def begin(self, now_ms: int) -> None:
        """Start with a count of 0 at this time; later calls have no effect."""
        if self._first_mark_ms == _UNKNOWN_MS:
            self._first_mark_ms = self._second_mark_ms = now_ms

    def mark(self, count: int, now_ms: int, windows_ms: int) -> None:
        """Store the count, if it is time to. Call it about once a second.

        Args:
            count: the current count.
            now_ms: monotonic.
            windows_ms: the length of all windows of the quota together.
        """
        if 2 * (now_ms - self._second_mark_ms) >= windows_ms and self._second_mark_ms != _UNKNOWN_MS:
            self._first_mark_ms, self._first_mark = self._second_mark_ms, self._second_mark
            self._second_mark_ms, self._second_mark = now_ms, count

    def per_second(self, count: int, now_ms: int) -> float:
        """Return the growth per second from the older stored count to `count`; never below 0."""
        if self._first_mark_ms == _UNKNOWN_MS:
            return 0.0
        return max(count - self._first_mark, 0) * 1000.0 / max(now_ms - self._first_mark_ms, _ELAPSED_MS_MIN)
