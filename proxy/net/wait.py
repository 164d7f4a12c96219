"""The wait of a connection that reads no requests: for a mute, a hold, too many owed responses, or its end.

During the wait the client's input stays in its socket; its close is still detected (`proxy.net.rdhup`). A connection
has at most one wait at a time.
"""

import asyncio
from typing import Final, Protocol

from proxy.clock import now_ms
from proxy.net.shared import Shared

MUTED: Final = "muted"  # KIP-219: until a time
HELD: Final = "held"  # a request before its slot: until a time
FULL: Final = "full"  # until responses have arrived
REFUSED: Final = "refused"  # until all owed responses are sent; then the connection ends


class Waiting(Protocol):
    """A connection that waits."""

    def client_gone(self, reset: bool) -> None:
        """Handle the client's close during the wait; `reset`: whether it reads no more responses either."""

    def resume(self) -> None:
        """Continue, since the wait's time is over."""


class Wait:
    """The wait of one connection.

    Args:
        descriptor: the descriptor of the client's socket.
        owner: called when the client closes during the wait, and at its end.

    Attributes:
        kind: MUTED, HELD, FULL or REFUSED; "" without a wait.
        held_ms, muted_ms: the sums of the holds and of the mutes that have ended.
    """

    __slots__ = (
        "_descriptor",
        "_held_bytes",
        "_owner",
        "_shared",
        "_since_ms",
        "_timer",
        "_until_ms",
        "held_ms",
        "kind",
        "muted_ms",
    )

    def __init__(self, shared: Shared, descriptor: int, owner: Waiting) -> None:
        self._shared = shared
        self._descriptor = descriptor
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self._since_ms = self._until_ms = 0
        self._held_bytes = 0
        self.held_ms = self.muted_ms = 0
        self.kind = ""

    def begin(self, kind: str, now: int, until_ms: int = 0, held_bytes: int = 0) -> None:
        """Begin a wait until a time; 0: until `end` is called.

        Args:
            held_bytes: the bytes of a held request that were already read.
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
        self._shared.hangups.watch(self._descriptor, self._owner.client_gone)
        if until_ms:
            self._timer = self._shared.loop.call_later((until_ms - now) / 1000, self._time_is_over)

    def end(self) -> None:
        """End the wait; no effect without one."""
        if not self.kind:
            return
        stats = self._shared.stats
        if self.kind == HELD:
            stats.held -= 1
            held_ms = now_ms() - self._since_ms
            self.held_ms += held_ms
            stats.held_ms_total += held_ms
            stats.held_bytes -= self._held_bytes
        elif self.kind == MUTED:
            stats.muted -= 1
            self.muted_ms += now_ms() - self._since_ms
        self.kind = ""
        self._shared.hangups.unwatch(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def running_ms(self, kind: str, now: int) -> int:
        """Return how long the present wait has lasted, if it is of this kind; else 0."""
        return max(0, now - self._since_ms) if self.kind == kind else 0

    def until_ms(self) -> int:
        """Return when the present hold or mute ends; 0 without one."""
        return self._until_ms if self.kind in (HELD, MUTED) else 0

    def _time_is_over(self) -> None:
        self._timer = None
        now = now_ms()
        if now < self._until_ms:  # the loop's timers are coarser than this clock: never early
            self._timer = self._shared.loop.call_later((self._until_ms - now) / 1000, self._time_is_over)
        else:
            self._owner.resume()
