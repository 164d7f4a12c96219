"""How fast a count grew over the quota's windows, for metrics and people: what is decided is `rate` and `schedule`.

Two earlier counts are remembered, the second a half of the windows after the first, and the first is replaced by the
second: so the rate is over the last half of the windows to all of them. Nothing is done per request. It knows no clock.
"""

__all__ = ["Windowed"]

_UNKNOWN_MS = -1
_ELAPSED_MS_MIN = 1000  # what began just now has no rate of a thousand times as much


class Windowed:
    """A count's growth; the count itself is its owner's.

    >>> seen = Windowed()
    >>> seen.begin(0)
    >>> for second in range(1, 19):  # 5 a second at first, then 2
    ...     seen.mark(5 * second if second < 8 else 40 + 2 * (second - 8), second * 1000, windows_ms=11_000)
    >>> seen.per_second(40 + 2 * 10, 18_000)  # since the mark at 12 s
    2.0
    """

    __slots__ = ("_later", "_later_ms", "_since", "_since_ms")

    def __init__(self) -> None:
        self._since = self._later = 0
        self._since_ms = self._later_ms = _UNKNOWN_MS

    def begin(self, now_ms: int) -> None:
        """The count is 0 now; only the first call counts."""
        if self._since_ms == _UNKNOWN_MS:
            self._since_ms = self._later_ms = now_ms

    def mark(self, count: int, now_ms: int, windows_ms: int) -> None:
        """Remember the count. Call it about once a second.

        Args:
            count: by now.
            now_ms: monotonic.
            windows_ms: how long all windows of the quota are together.
        """
        if 2 * (now_ms - self._later_ms) >= windows_ms and self._later_ms != _UNKNOWN_MS:
            self._since_ms, self._since = self._later_ms, self._later
            self._later_ms, self._later = now_ms, count

    def per_second(self, count: int, now_ms: int) -> float:
        """The growth a second; of what began less than a second ago, in a second. Never below 0."""
        if self._since_ms == _UNKNOWN_MS:
            return 0.0
        return max(count - self._since, 0) * 1000.0 / max(now_ms - self._since_ms, _ELAPSED_MS_MIN)
