"""Fetches of one identity at their brokers (policy `schedule`), and the bytes that they may bring beyond their charge.

A Fetch is charged beforehand with the size of the channel's last response. The response may be larger: as large as the
max_bytes granted, or as the largest batch seen, since a broker returns one whole batch whatever max_bytes is. The
difference is *exposed* until the response begins. While the Fetch waits at the broker, time pays for its charge; the
paid part is exposed as well, since the response may still bring these bytes, together with those of other Fetches.
`schedule` decides how many bytes may be exposed at a time, the *room*; this module counts them, without a clock.

In a *crowd* more Fetches are to be at their brokers than the room allows. Then each waits there only for a part of a
second, and afterwards its channel *rests* in proportion to that wait, so that three quarters of the room are in use. A
Fetch that finds records immediately hardly rests, and finds a place, however many others wait without finding records.
"""

from dataclasses import InitVar, dataclass, field
from math import ceil
from typing import Final

from quotas.limiters.limiter import GRACE_MS, Flow

# A forwarded Fetch may ask for its share of this much time of the rate.
FETCH_QUANTUM_MS: Final = 500
# Brokers count records alone against max_bytes. So a Fetch asks for less than it may bring, by one part in this many
# and at most by the heads of 100 partitions; otherwise a response cut at max_bytes would be taken for a large batch.
HEAD_SHARE: Final = 32
HEAD_BYTES_MAX: Final = 4_096
# An idle channel's Fetch may ask for this much time of the rate, at most the default of max.partition.fetch.bytes.
IDLE_FETCH_MS: Final = 100
IDLE_FETCH_BYTES_MAX: Final = 1_048_576
# One part in this many of the burst is kept for the bytes that idle Fetches may bring. They share it if many are under
# way, and leave the rest to busy ones.
EXPOSED_SHARE: Final = 4
# But each Fetch counts with at least the default batch size of producers (batch.size), since brokers return whole
# batches; with less if the burst is small, so that IDLE_AT_A_TIME of them may be under way.
BATCH_BYTES_MIN: Final = 16_384
IDLE_AT_A_TIME: Final = 128
# A share consumer's with three times as much: its broker hands out whole batches whatever the session has seen, and
# consumers of a share group are often many on one user, so that records for all of them come at once.
SHARE_FLOORS: Final = 3
# A Fetch without history may bring a batch of any size, whatever it is granted. The estimate is the largest batch that
# brokers accept by default (message.max.bytes), or a tenth of a second's quota if that is more, but at most half a
# second's quota and the rest of the burst; so at most eight of unknown size are at brokers at a time. It is at least
# this much time of the rate: if the burst is nearly used up, such Fetches are forwarded one by one.
FIRST_FETCH_BYTES: Final = 1_048_588
FIRST_FETCH_MS: Final = 50
# The part of the room that is used in a crowd, so that a Fetch that finds records at once finds a place.
ROOM_USED_PERCENT: Final = 75
# In a crowd a channel's wait and rest together take CROWDED_ROUND_MS, and the wait at least CROWDED_WAIT_MS.
CROWDED_ROUND_MS: Final = 500
CROWDED_WAIT_MS: Final = 100
CROWDED_MS: Final = 1_000  # the time for which a crowd is taken to last
# The longest wait of a Fetch, since the bytes that it may bring are kept for it. Clients ask for 0.5 to 5 s.
FETCH_WAIT_MS_MAX: Final = 5_000
FIRST_WAIT_MS: Final = 500  # of a channel's first Fetch, charged with the size of other channels' responses
# A Fetch that is at its broker for longer than this is charged with all bytes that it may bring.
FETCH_MS_MAX: Final = 6_000
BATCH_MS: Final = 300_000  # a response larger than its Fetch was granted counts for one to two of these


@dataclass(slots=True, eq=False)
class FetchesUnderWay:
    """The Fetches at brokers of all clients that share a quota, and the bytes that they may bring beyond their charge.

    Attributes:
        exposed: the exposed bytes of all: those that the responses may bring beyond what the Fetches were charged.
        flows: their channels' flows, the oldest Fetch first.
        resting: the flows of channels that send no Fetch for a while, since there is no room for the Fetches of all.
        crowded_until_ms: until when the Fetches are taken to be a crowd, more than have room; in the past if they are
            not.

    >>> fetches, flow = FetchesUnderWay(0), Flow()
    >>> fetches.configure(2000.0, 1000)  # bytes per ms
    >>> fetches.begin(flow, 50_000, known=True, waiting=0, now_ms=0)
    >>> flow.granted, fetches.exposed  # a tenth of a second may be asked for
    (200000, 150000)
    >>> fetches.end(flow)
    >>> fetches.exposed
    0
    """

    now_ms: InitVar[int]
    exposed: int = field(default=0, init=False)
    flows: dict[Flow, None] = field(default_factory=dict, init=False)
    resting: dict[Flow, None] = field(default_factory=dict, init=False)
    crowded_until_ms: int = field(init=False)
    _batch: int = field(default=0, init=False)  # the largest response of more than was granted in this period
    _largest: int = field(default=0, init=False)  # the same for this period and the one before
    _batch_until_ms: int = field(init=False)
    # In bytes; the rate in bytes per ms.
    _quantum: int = field(default=0, init=False)
    _idle: int = field(default=0, init=False)
    _shared: int = field(default=0, init=False)
    _floor: int = field(default=0, init=False)
    _burst_ms: int = field(default=0, init=False)
    _rate: float = field(default=0.0, init=False)

    def __post_init__(self, now_ms: int) -> None:
        self.crowded_until_ms = now_ms
        self._batch_until_ms = now_ms + BATCH_MS

    def configure(self, rate: float, burst_ms: int) -> None:
        """Set the rate, in bytes per ms, and the burst; they bound the bytes that later Fetches are granted."""
        self._quantum = int(rate * FETCH_QUANTUM_MS)
        self._idle = min(int(rate * IDLE_FETCH_MS), IDLE_FETCH_BYTES_MAX)
        self._rate = rate
        self._burst_ms = burst_ms
        burst = int(rate * burst_ms)
        self._shared = burst // EXPOSED_SHARE
        self._floor = min(self._idle, BATCH_BYTES_MIN, burst // IDLE_AT_A_TIME)

    def begin(self, flow: Flow, expected: int, known: bool, waiting: int, now_ms: int) -> None:
        """Register a Fetch that is forwarded; sets `Flow.granted`, the bytes it may bring, and `Flow.exposed`.

        Args:
            expected: the bytes that it was charged with.
            known: whether `expected` is the size of an earlier response; if it is a guess, no more is granted.
            waiting: the number of channels with a place in the queue.
        """
        flow.admitted = expected
        flow.forwarded_ms = now_ms
        self.flows[flow] = None
        granted = 2 * expected if known else expected
        if known:
            idle = self._shared // (len(self.flows) + waiting)
            if idle > self._idle:
                idle = self._idle
            elif idle < self._floor:
                idle = self._floor
            if granted < idle:
                granted = idle
            quantum = self._quantum // (waiting + 1) if waiting else self._quantum
            if granted > quantum:
                granted = quantum
        flow.granted = granted = granted or 1
        brings = granted if granted > self._largest else self._largest
        floor = self._floor * SHARE_FLOORS if flow.shares else self._floor
        if brings < floor:
            brings = floor
        flow.exposed = exposed = brings - expected if brings > expected else 0
        self.exposed += exposed

    def share(self, waiting: int) -> int:
        """Return the bytes that each channel may ask for if this Fetch's, those of others and `waiting` more go on."""
        return self._quantum // max(1, len(self.flows) + waiting)

    def expected_share(self, expected: int, waiting: int) -> int:
        """Return how many of the expected bytes a Fetch will be granted while `waiting` other channels wait.

        >>> fetches = FetchesUnderWay(0)
        >>> fetches.configure(2000.0, 1000)
        >>> [fetches.expected_share(1_000_000, waiting) for waiting in (0, 99)]  # half a second, and a hundredth of it
        [1000000, 10000]
        """
        return min(expected, max(self._quantum // (waiting + 1), self._largest))

    def expose_paid(self, rate: float, now_ms: int, returned_ms: int) -> None:
        """Count the paid part of each Fetch's charge as exposed: it does not delay others any more, but may still come.

        Args:
            rate: in bytes per ms.
            now_ms: the current time.
            returned_ms: the sum of all charges that the schedule has given back since it began, in ms at the rate.
        """
        for flow in self.flows:
            left_ms = flow.until_ms + 1 - (returned_ms - flow.returned_ms) - now_ms  # its end is rounded down
            unpaid = int(left_ms * rate) if left_ms > 0 else 0
            if unpaid < flow.admitted:
                flow.exposed += flow.admitted - unpaid
                self.exposed += flow.admitted - unpaid
                flow.admitted = unpaid

    def first_estimate(self, rate: float, left_ms: float) -> int:
        """Return the estimated bytes of a response while no earlier response is known.

        Args:
            rate: in bytes per ms.
            left_ms: the unused part of the burst.

        >>> FetchesUnderWay(0).first_estimate(2000.0, 1000), FetchesUnderWay(0).first_estimate(200_000.0, 1000)
        (1000000, 20000000)
        """
        most_ms = min(max(FIRST_FETCH_BYTES / rate, IDLE_FETCH_MS), FETCH_QUANTUM_MS)
        return ceil(min(max(left_ms, FIRST_FETCH_MS), most_ms) * rate)

    def concurrent_max(self, room: int) -> int:
        """Return the number of Fetches that together expose three quarters of `room` bytes; at least 1."""
        each = max(self.exposed // len(self.flows) if self.flows else 0, self._floor, 1)
        return max(1, room * ROOM_USED_PERCENT // 100 // each)

    def _room(self, ahead_ms: float) -> int:
        """Return the bytes that may be exposed in all: the burst, less half of the part in use (`ahead_ms`)."""
        return int((self._burst_ms - max(0.0, ahead_ms) / 2) * self._rate)

    def wait_ms_max(self, flow: Flow, ahead_ms: float, now_ms: int) -> int:
        """Return the longest time in ms that a Fetch forwarded now may wait at its broker for records.

        Args:
            ahead_ms: the used part of the burst, in ms.
        """
        if now_ms >= self.crowded_until_ms:
            return FETCH_WAIT_MS_MAX if flow.expected else FIRST_WAIT_MS
        concurrent_max = self.concurrent_max(self._room(ahead_ms))
        wanted = max(concurrent_max, len(self.flows) + len(self.resting))
        return max(CROWDED_WAIT_MS, CROWDED_ROUND_MS * concurrent_max // wanted)

    def rest_ms(self, flow: Flow, ahead_ms: float, now_ms: int) -> int:
        """Return for how many ms a channel may send no Fetch, so that others have room; 0 if there is room for all.

        Args:
            flow: the channel, whose Fetch has just ended.
            ahead_ms: the used part of the burst, in ms.

        >>> fetches, flow = FetchesUnderWay(0), Flow()
        >>> fetches.configure(2000.0, 1000)
        >>> fetches.mark_crowded(Flow(), 0)
        >>> fetches.resting = dict.fromkeys([Flow() for _ in range(192)])
        >>> fetches.concurrent_max(2_000_000)  # with 15,625 bytes each
        96
        >>> flow.forwarded_ms = 0
        >>> fetches.rest_ms(flow, 0.0, 250)  # it takes a place for half of the time
        250
        """
        concurrent_max = self.concurrent_max(self._room(ahead_ms))
        beyond = len(self.flows) + len(self.resting) - concurrent_max
        if beyond <= 0:
            return 0
        self.crowded_until_ms = now_ms + CROWDED_MS
        return min((now_ms - flow.forwarded_ms) * beyond // concurrent_max, FETCH_WAIT_MS_MAX)

    def mark_crowded(self, flow: Flow, now_ms: int) -> None:
        """Register that there is no room for this channel's Fetch; the channel rests, and a crowd lasts from now on."""
        self.crowded_until_ms = now_ms + CROWDED_MS
        self.resting[flow] = None

    def record_batch(self, size: int) -> None:
        """Register a response larger than its Fetch was granted: one large batch. Later Fetches may bring as much."""
        self._batch = max(self._batch, size)
        self._largest = max(self._largest, size)

    def remove(self, flow: Flow) -> None:
        """Remove a channel that was closed or has another limiter now."""
        self.end(flow)
        self.resting.pop(flow, None)

    def end(self, flow: Flow) -> None:
        """Remove the channel's Fetch, if one is at its broker, and its exposed bytes."""
        self.exposed -= flow.exposed
        flow.exposed = 0
        flow.admitted = -1
        if flow in self.flows:
            del self.flows[flow]

    def overdue(self, now_ms: int) -> Flow | None:
        """Remove and return the oldest Fetch if it has been at its broker for FETCH_MS_MAX; None otherwise."""
        for flow in self.flows:
            if now_ms < flow.forwarded_ms + FETCH_MS_MAX:
                return None
            del self.flows[flow]
            return flow
        return None

    def clear_exposed(self, flow: Flow) -> None:
        """Count the Fetch's exposed bytes as charged, since the caller has charged them."""
        flow.admitted += flow.exposed
        self.exposed -= flow.exposed
        flow.exposed = 0

    def expire(self, now_ms: int) -> None:
        """Remove resting channels that did not retry in time, and forget the largest batch after a while."""
        if self.resting:
            for flow in [flow for flow in self.resting if now_ms > flow.due_ms + GRACE_MS]:
                del self.resting[flow]
        if now_ms >= self._batch_until_ms:
            self._batch_until_ms = now_ms + BATCH_MS
            self._largest, self._batch = self._batch, 0
