"""Whether a connection still gets on: bytes move now and then, and a request that has begun comes at some pace."""

from typing import Final

from proxy.config import LimitOptions

__all__ = ["Progress"]

_BYTES_PER_SECOND_MIN: Final = 1024  # no network is as slow for limits.frame_seconds


class Progress:
    """What was seen of one connection at the sweeps so far.

    Attributes:
        active_ms: when bytes were last seen to have moved: to within one sweep.

    >>> progress = Progress(0)
    >>> progress.idle(60_000, 500, LimitOptions()), progress.idle(661_000, 500, LimitOptions())
    (False, True)
    """

    __slots__ = ("_bytes", "_under_way", "active_ms")

    def __init__(self, now: int) -> None:
        self.active_ms = now
        self._bytes = 0
        self._under_way: tuple[int, int] | None = None  # since when a request is mid-frame, and bytes then

    def idle(self, now: int, moved: int, limits: LimitOptions) -> bool:
        """Whether nothing has moved for `limits.idle_seconds`; `moved` is the sum of all bytes ever."""
        if moved != self._bytes:
            self.active_ms, self._bytes = now, moved
            return False
        return now - self.active_ms > limits.idle_seconds * 1000

    def between_frames(self) -> None:
        """No request is under way, or what is under way waits for something else than its client."""
        self._under_way = None

    def slow_ms(self, now: int, arrived: int, limits: LimitOptions) -> int:
        """For how long the request under way has hardly moved, if that is too long; else 0.

        Args:
            arrived: bytes from the client so far, with those that are not read yet.
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
        self._under_way = (now, arrived)  # what came fast before is no excuse for what follows
        return 0
