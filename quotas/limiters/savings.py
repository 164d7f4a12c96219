"""What a class without an entry has to save before a large request of it may pass (`definitions.classes`).

A schedule lets one request of any size pass, and has it paid for afterwards. Names below a default are without a bound,
and one request of each of them would be any number of times the capacity. So in a class of a capacity that no entry
names, the part of a Produce that the burst does not cover is

    advanced   by the class of new names, while it has room: it has the advance back when the request is paid for; or
    saved      from the moment when the request waits: what time pays for while the burst is full

What is saved is for the first request in the queue; time alone pays for one that the burst covers. A request of which
others know only that it was announced keeps no place from them (`announced`). A part of what they send is then saved
for it: otherwise it would never pass beside a connection that always sends.

Many names may save for as long as their requests are held. All of them together spend it at the rate of the capacity,
one after the other, and not at one moment. They are in no order: the next one is the first that asks again when the one
before it is paid for, and each asks every POLL_MS_MIN (`schedule`). While all together save at less than the rate of
the capacity, as where promised rates shrink, none waits for long.

A class so gets what it was promised, and gets it before a large request passes, not after it. What is saved is lost
when the request has not come back for a while. It counts as used: a class that saves does not lend its rate.
"""

from typing import Final, Protocol

from quotas.limiters.limiter import Lendable

# What is saved is kept for so long after the time at which its request was to ask again: a client that was refused, or
# whose connection has ended, sends again within a second (retry.backoff.max.ms, reconnect.backoff.max.ms).
KEPT_MS: Final = 2000
# For a request that keeps no place from others, one byte is saved for so many of theirs: a fifth of the rate, as much
# as false announcements may cost (`announced`). It is not lost, if the request does not come.
ASIDE_SHARE: Final = 4


class Advances(Protocol):
    """The class of new names, as far as others use it: it pays first for what they have not paid for (the engine)."""

    def advance(self, limiter: Lendable, part: int, size: int, now_ms: int) -> bool:
        """Pay `part` of a request of `size` bytes that a limiter is to pass; have it back when the limiter has paid.

        Returns False if there is no room; then nothing was paid.
        """

    def spend(self, limiter: Lendable, part: int, now_ms: int) -> float:
        """Let `part` bytes pass that a limiter has saved, and return 0; or return in how many ms they may.

        All such limiters together use what they have saved at the rate of the capacity. With 0 bytes it is only asked.
        """

    def charge(self, limiter: Lendable, part: int, now_ms: int) -> None:
        """Pay `part` of the bytes that a limiter has counted, whether there is room or not."""


class Savings:
    """What the limiter of one class has saved for a request that waits.

    Attributes:
        advances: what may pay first.
        bytes: saved so far.
        tried: whether the class has once had a Fetch response beyond its burst.

    >>> savings = Savings(None)
    >>> savings.wait(1000, due_ms=500, now_ms=0)
    >>> savings.add(paid_ms=100, rate=2.0, now_ms=400)  # 300 ms; before, the burst was not full
    >>> savings.bytes
    600.0
    >>> savings.add(paid_ms=100, rate=2.0, now_ms=2501)  # it has not come back
    >>> savings.bytes
    0.0
    """

    __slots__ = ("_aside", "_since_ms", "_until_ms", "_waits", "advances", "bytes", "tried")

    def __init__(self, advances: Advances | None) -> None:
        self.advances = advances
        self.bytes = 0.0
        self.tried = False
        self._aside = 0  # up to so many bytes are saved of what others send
        self._since_ms = 0
        self._until_ms = -1  # nothing is saved
        self._waits = False  # whether a request waits, or was refused a moment ago

    def wait(self, size: int, due_ms: int, now_ms: int, *, doubtful: bool = False) -> None:
        """Save for a request of `size` bytes that is to ask again at `due_ms`.

        Args:
            doubtful: whether it keeps no place from others.
        """
        if not self._waits:
            self._since_ms = now_ms
        self._waits = True
        self._aside = size if doubtful else 0
        self._until_ms = max(self._until_ms, due_ms + KEPT_MS)
        self.bytes = min(self.bytes, float(size))

    def put_aside(self, size: int, now_ms: int) -> int:
        """Save a part of a request of `size` bytes that passes while another one waits; returns how much."""
        if not self._waits or now_ms > self._until_ms:
            return 0
        part = max(0, min(size // ASIDE_SHARE, self._aside - int(self.bytes)))
        self.bytes += part
        return part

    def add(self, paid_ms: float, rate: float, now_ms: int) -> None:
        """Save what has been paid for since the last call, at the rate in bytes per ms, while the burst was full.

        Args:
            paid_ms: the schedule's time: until then, the burst was being filled.
        """
        if self._until_ms < 0:
            return
        if self._waits:
            until_ms = min(now_ms, self._until_ms)
            self.bytes += max(0.0, until_ms - max(paid_ms, self._since_ms)) * rate
            self._since_ms = max(self._since_ms, until_ms)
        if now_ms > self._until_ms:
            self.bytes, self._until_ms, self._waits = 0.0, -1, False

    def spend(self, size: int) -> None:
        """Use so much for a request that passes. The rest is kept for others that wait, or are about to come again;
        nothing is added until one asks.
        """
        self.bytes -= size
        self._waits = False

    def restore(self, size: int, now_ms: int) -> None:
        """Save again what was used for a request that did not arrive in time."""
        self._until_ms = max(self._until_ms, now_ms + KEPT_MS)
        self.bytes += size
