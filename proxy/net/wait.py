"""What keeps a connection from reading requests, one thing at a time: a mute, a hold, too many answers owed, an end.

Nothing is read meanwhile, so that what the client sends waits in its own socket; that it has closed is noticed all the
same (`proxy.net.rdhup`). What the wait is for is the connection's business.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.net.shared import Shared, now_ms

__all__ = ["FULL", "HELD", "MUTED", "REFUSED", "Wait"]

MUTED: Final = "muted"  # KIP-219: until a time
HELD: Final = "held"  # a request before its slot: until a time
FULL: Final = "full"  # until answers have come
REFUSED: Final = "refused"  # until all that is owed is answered, and then it ends


class Wait:
    """The wait of one connection.

    Args:
        descriptor: of the client's socket.
        gone: called when the client closes meanwhile; with True where it has reset the connection.
        over: called when the wait's time has come.

    Attributes:
        kind: MUTED, HELD, FULL or REFUSED; "" where nothing is waited for.
    """

    __slots__ = (
        "_descriptor",
        "_gone",
        "_held_bytes",
        "_over",
        "_shared",
        "_since_ms",
        "_timer",
        "_until_ms",
        "kind",
    )

    def __init__(
        self, shared: Shared, descriptor: int, gone: Callable[[bool], None], over: Callable[[], None]
    ) -> None:
        self._shared = shared
        self._descriptor = descriptor
        self._gone = gone
        self._over = over
        self._timer: asyncio.TimerHandle | None = None
        self._since_ms = self._until_ms = 0
        self._held_bytes = 0
        self.kind = ""

    def begin(self, kind: str, now: int, until_ms: int = 0, held_bytes: int = 0) -> None:
        """Wait until a time; 0: until `end` is called.

        Args:
            held_bytes: of a held request, those that were read already.
        """
        self.kind = kind
        stats = self._shared.stats
        if kind == HELD:
            self._held_bytes = held_bytes
            stats.held += 1
            stats.held_bytes += held_bytes
        elif kind == MUTED:
            stats.muted += 1
        self._since_ms = now
        self._until_ms = until_ms
        self._shared.hangups.watch(self._descriptor, self._gone)
        if until_ms:
            self._timer = self._shared.loop.call_later((until_ms - now) / 1000, self._time_is_over)

    def end(self) -> None:
        """Wait no longer; harmless where nothing is waited for."""
        if not self.kind:
            return
        stats = self._shared.stats
        if self.kind == HELD:
            stats.held -= 1
            stats.held_ms_total += now_ms() - self._since_ms
            stats.held_bytes -= self._held_bytes
        elif self.kind == MUTED:
            stats.muted -= 1
        self.kind = ""
        self._shared.hangups.unwatch(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_over(self) -> None:
        self._timer = None
        now = now_ms()
        if now < self._until_ms:  # a loop's timers are coarser than ours: never early
            self._timer = self._shared.loop.call_later((self._until_ms - now) / 1000, self._time_is_over)
        else:
            self._over()
