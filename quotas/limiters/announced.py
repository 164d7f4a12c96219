"""Produce requests that are charged before their bytes have arrived: the charge holds only while the bytes arrive.

A Produce is charged as a whole when its header is seen (decision 0001). A client may announce 100 MB under another
client's id and send nothing, which would block that identity until the charge is paid. Three rules prevent it:

- A charge holds for `ARRIVAL_MS`. Bytes that have not arrived by then are returned to the limiter, and charged again
  when they arrive, behind other waiting requests; so bytes that were paid for long ago cannot arrive all at once.
- A channel is trusted with twice the largest amount that it has announced and sent. Announced bytes beyond that are
  doubtful: no other channel is muted for them, and they take no place from others.
- After doubtful bytes that did not arrive, such requests pass one at a time, in order of arrival; under `schedule`,
  where a request under way delays all others, none passes for `_SUSPENSION_MS`. So a false announcement costs the real
  client at most a fifth of the time, or the attacker a sixteenth of the announced bytes.

Each channel has at most one request under way. The channel subtracts arriving bytes from `Flow.announced`; this module
finds the requests whose time is over. Rates are not used here.
"""

from dataclasses import dataclass, field
from typing import Final

from quotas.limiters.limiter import Flow
from quotas.limiters.rate import NEVER_MS

# A request of 1 MB takes 80 ms at 100 Mbit/s. A second charge costs an honest client only its place in the queue.
ARRIVAL_MS: Final = 250
_SUSPENSION_MS: Final = 4 * ARRIVAL_MS
# If at least one in this many bytes of a doubtful request has arrived in time, the request is slow, not a false
# announcement. Of 1 MB over 2 Mbit/s one byte in sixteen arrives in the time of a charge.
_SLOW_SHARE: Final = 17
_IN_ORDER_MS: Final = 10_000  # after the last doubtful bytes that did not come
_POLL_MS_MIN: Final = 25
_NEVER_DUE_MS: Final = 1 << 60
# The bytes that every channel is trusted with: producers' default batch.size.
_TRUSTED_BYTES_MIN: Final = 16 * 1024


@dataclass(slots=True, eq=False)
class Announcements:
    """Produce requests that were charged as a whole before all of their bytes have arrived.

    They are those of one identity: all clients that share a quota.

    Attributes:
        flows: their channels, and the missing bytes of each when it was charged, the oldest first.
        doubtful: the doubtful bytes of all these requests: those beyond what their channels are trusted with.
        suspended_until_ms: the time until which no further doubtful request is admitted.
        due_ms: the earliest time at which the charge of a request may expire (`expire`).

    >>> announcements, flow = Announcements(), Flow()
    >>> announcements.begin(flow, 1_000_000, now_ms=0)
    >>> flow.announced -= 30_000  # that much has come
    >>> len(announcements.expire(now_ms=249)), len(announcements.expire(now_ms=250)), flow.lost
    (0, 1, 970000)
    >>> announcements.suspended_until_ms, flow.trusted  # it was new, and so trusted with 16 KiB
    (1250, 30000)
    """

    flows: dict[Flow, int] = field(default_factory=dict)
    doubtful: int = 0
    suspended_until_ms: int = NEVER_MS
    # The channels whose doubtful requests wait, in order of arrival.
    _waiting: dict[Flow, None] = field(default_factory=dict)
    due_ms: int = _NEVER_DUE_MS

    def begin(self, flow: Flow, missing: int, now_ms: int) -> None:
        """Register a request that was charged and has `missing` bytes still to arrive."""
        self._discard(flow)
        self.dequeue(flow)
        flow.announced = missing
        flow.announced_ms = now_ms
        flow.lost = 0
        if not self.flows:
            self.due_ms = now_ms + ARRIVAL_MS
        self.flows[flow] = missing
        self.doubtful += self.doubtful_bytes(flow, missing)

    def charged_doubtful_bytes(self, flow: Flow) -> int:
        """Return how many bytes of the channel's present request were doubtful when it was charged."""
        return self.doubtful_bytes(flow, self.flows.get(flow, 0))

    def complete(self, flow: Flow) -> None:
        """Complete the request under way: all its bytes have arrived."""
        announced = self._discard(flow)
        flow.announced = flow.lost = 0
        flow.trusted = max(flow.trusted, announced)

    def must_wait(self, flow: Flow, now_ms: int) -> bool:
        """Whether a doubtful request must wait, even if the quota has room; it is then queued.

        This is so after doubtful bytes did not arrive: for a while doubtful requests pass only one at a time.
        """
        return now_ms < self.suspended_until_ms + _IN_ORDER_MS and not self.enqueue(flow, now_ms)

    def enqueue(self, flow: Flow, now_ms: int) -> bool:
        """Queue a doubtful request; returns whether it is the first in the queue and may pass."""
        self._waiting[flow] = None
        return now_ms >= self.suspended_until_ms and next(iter(self._waiting)) is flow

    def dequeue(self, flow: Flow) -> None:
        """Take a request out of the queue: it passes, or is refused."""
        self._waiting.pop(flow, None)

    def retry_at_ms(self, now_ms: int) -> int:
        """Return the time at which a waiting doubtful request is to be decided on again."""
        return max(self.suspended_until_ms, now_ms + min(max(_POLL_MS_MIN, len(self._waiting)), ARRIVAL_MS))

    def remove(self, flow: Flow, now_ms: int) -> int:
        """Remove a closed channel; returns the bytes that were charged and did not arrive."""
        self.dequeue(flow)
        lost = self._uncharge(flow, now_ms) if flow in self.flows else 0
        flow.announced = flow.lost = 0
        return lost

    def expire(self, now_ms: int) -> list[Flow]:
        """Remove the requests whose bytes did not arrive in time; returns their flows, with `Flow.lost` set."""
        if now_ms < self.due_ms:
            return []
        found = []
        self.due_ms = _NEVER_DUE_MS
        for flow in self.flows:
            if now_ms < flow.announced_ms + ARRIVAL_MS:
                self.due_ms = flow.announced_ms + ARRIVAL_MS
                break
            found.append(flow)
        for flow in found:
            flow.lost, flow.announced = self._uncharge(flow, now_ms), 0
        return found

    def doubtful_bytes(self, flow: Flow, missing: int) -> int:
        """Return how many of `missing` bytes are doubtful: those beyond what the channel is trusted with."""
        return max(0, missing - max(_TRUSTED_BYTES_MIN, 2 * flow.trusted))

    def _discard(self, flow: Flow) -> int:
        """Remove the request under way, if any; returns its missing bytes as of its charge."""
        announced = self.flows.pop(flow, 0)
        self.doubtful -= self.doubtful_bytes(flow, announced)
        return announced

    def _uncharge(self, flow: Flow, now_ms: int) -> int:
        """Remove the request under way; returns its charged bytes that have not arrived.

        If it was doubtful and too few of its bytes have arrived, doubtful requests are suspended.
        """
        announced = self._discard(flow)
        lost = max(flow.announced, 0)
        if lost:
            came = announced - lost
            if self.doubtful_bytes(flow, announced) and came * _SLOW_SHARE < announced:
                self.suspended_until_ms = now_ms + _SUSPENSION_MS
            flow.trusted = came
        return lost
