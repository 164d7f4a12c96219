"""Checks that a connection makes progress: bytes move now and then, and a request under way has a minimum rate."""

from typing import Final

from proxy.config import LimitOptions

_BYTES_PER_SECOND_MIN: Final = 1024  # over limits.frame_seconds, no real network is this slow


class Progress:
    """The state of one connection at the previous sweeps.

    Attributes:
        active_ms: when bytes last moved, known to within one sweep.

    >>> progress = Progress(0)
    >>> progress.idle(60_000, 500, LimitOptions()), progress.idle(661_000, 500, LimitOptions())
    (False, True)
    """

    __slots__ = ("_bytes", "_under_way", "active_ms")

    def __init__(self, now: int) -> None:
        self.active_ms = now
        self._bytes = 0
        self._under_way: tuple[int, int] | None = None  # the partly read frame: since when, bytes then

    def idle(self, now: int, moved: int, limits: LimitOptions) -> bool:
        """Whether no bytes have moved for `limits.idle_seconds`; `moved` is the sum of all bytes ever."""
        if moved != self._bytes:
            self.active_ms, self._bytes = now, moved
            return False
        return now - self.active_ms > limits.idle_seconds * 1000

    def between_frames(self) -> None:
        """Note that no request is under way, or that it does not wait for its client."""
        self._under_way = None

    def slow_ms(self, now: int, arrived: int, limits: LimitOptions) -> int:
        """Return how long the request under way has been too slow, in ms; 0 unless that is longer than permitted.

        Args:
            arrived: bytes from the client so far, with unread ones.
        """
        if self._under_way is None:
            self._under_way = (now, arrived)
            return 0
        since_ms, before = self._under_way
        elapsed_ms = now - since_ms
        if elapsed_ms <= limits.frame_seconds * 1000:
            return 0
        if arrived - before < elapsed_ms * _BYTES_PER_SECOND_MIN / 1000:
            return elapsed_ms
        self._under_way = (now, arrived)  # earlier progress does not count for the next period
        return 0
