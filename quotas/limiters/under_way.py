"""Fetches of one identity that are with their brokers (the `schedule` policy): what they may bring beyond their charge.

A Fetch is charged beforehand with what the last one brought. What it was granted, or the largest batch seen (a broker
returns one whole batch whatever max_bytes says), may be more: that much is *exposed* until its response begins. While
it waits at the broker, the schedule moves on and pays for its charge. The part that is paid is exposed too, since the
response may still bring these bytes, at once with those of other Fetches.
`schedule` decides what may be exposed at a time, its *room*; this module counts, and knows neither a clock nor the
schedule.

A crowd: more Fetches want to be with their brokers than the room is for. Then each waits there for a part of a second
only, and its channel *rests* after that in proportion, so that three quarters of the room are in use: a Fetch that
finds records at once hardly rests, and finds a place, however many wait in vain.
"""

from math import ceil
from typing import Final

from quotas.limiters.flow import GRACE_MS, Flow

__all__ = ["FetchesUnderWay"]

# A forwarded Fetch may ask for its share of this much time of the rate.
FETCH_QUANTUM_MS: Final = 500
# An idle channel's Fetch may ask for this much time of the rate, and for max.partition.fetch.bytes' default at most.
IDLE_FETCH_MS: Final = 100
IDLE_FETCH_BYTES_MAX: Final = 1_048_576
# The burst's part that is kept for what idle Fetches may bring, one in so many: they leave the rest to busy ones, and
# share it where many are under way.
EXPOSED_SHARE: Final = 4
# But each counts with at least as much as producers batch by default (batch.size), since brokers return whole batches;
# of small bursts with less, so that so many may be under way.
BATCH_BYTES_MIN: Final = 16_384
IDLE_AT_A_TIME: Final = 128
# A Fetch without history may bring a batch of any size, whatever it is granted. It is taken for the largest that
# brokers accept by default (message.max.bytes), or for a tenth of a second's quota if that is more, so that at most
# eight of unknown size are with brokers at a time; for half a second at most, and for no more than is left of the
# burst, but for this much time of the rate: then such Fetches go out one by one.
FIRST_FETCH_BYTES: Final = 1_048_588
FIRST_FETCH_MS: Final = 50
# Of the room, this much is used where more Fetches want a place: one that finds records at once finds one free.
ROOM_USED_PERCENT: Final = 75
# In a crowd a channel's wait and rest take this long together, but a Fetch waits for this long at least.
CROWDED_ROUND_MS: Final = 500
CROWDED_WAIT_MS: Final = 100
CROWDED_MS: Final = 1_000  # a crowd is taken to last for so long
# No Fetch waits longer: what it may bring is kept for it. Clients ask for half a second to five seconds.
FETCH_WAIT_MS_MAX: Final = 5_000
FIRST_WAIT_MS: Final = 500  # a channel's first one, which is charged with what other channels' bring
# A Fetch that is with its broker for longer than this is charged with all it may bring.
FETCH_MS_MAX: Final = 6_000
BATCH_MS: Final = 300_000  # the largest batch beyond what was asked for is remembered for one to two of these


class FetchesUnderWay:
    """Whose they are, what each was granted, and what all together may bring beyond their charges.

    Attributes:
        exposed: in bytes.
        flows: whose they are, the oldest first.
        resting: whose channels were told to come back later, because of a crowd.
        crowded_until_ms: there is a crowd until then.

    >>> fetches, flow = FetchesUnderWay(0), Flow()
    >>> fetches.configure(2000.0, 1000)  # bytes per ms
    >>> fetches.begin(flow, 50_000, known=True, waiting=0, now_ms=0)
    >>> flow.granted, fetches.exposed  # a tenth of a second may be asked for
    (200000, 150000)
    >>> fetches.end(flow)
    >>> fetches.exposed
    0
    """

    __slots__ = (
        *(
            "_batch",
            "_batch_until_ms",
            "_burst_ms",
            "_floor",
            "_idle",
            "_largest",
            "_quantum",
            "_rate",
            "_shared",
        ),
        *("crowded_until_ms", "exposed", "resting", "flows"),
    )

    def __init__(self, now_ms: int) -> None:
        self.exposed = 0
        self.flows: dict[Flow, None] = {}
        self.resting: dict[Flow, None] = {}
        self.crowded_until_ms = now_ms
        self._batch = 0  # the largest response of late that was more than its Fetch had asked for
        self._largest = 0  # the same, with the span of time before included
        self._batch_until_ms = now_ms + BATCH_MS
        self._quantum = self._idle = self._shared = self._floor = self._burst_ms = 0
        self._rate = 0.0

    def configure(self, rate: float, burst_ms: int) -> None:
        """Grant by this rate, in bytes per ms, and this burst from now on."""
        self._quantum = int(rate * FETCH_QUANTUM_MS)
        self._idle = min(int(rate * IDLE_FETCH_MS), IDLE_FETCH_BYTES_MAX)
        self._rate = rate
        self._burst_ms = burst_ms
        burst = int(rate * burst_ms)
        self._shared = burst // EXPOSED_SHARE
        self._floor = min(self._idle, BATCH_BYTES_MIN, burst // IDLE_AT_A_TIME)

    def begin(self, flow: Flow, expected: int, known: bool, waiting: int, now_ms: int) -> None:
        """A Fetch is forwarded that was charged as `expected`.

        Args:
            known: whether that is what a Fetch has brought before; a guess is not gone beyond.
            waiting: how many channels have a place in the queue.
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
        if brings < self._floor:
            brings = self._floor
        flow.exposed = exposed = brings - expected if brings > expected else 0
        self.exposed += exposed

    def expected_share(self, expected: int, waiting: int) -> int:
        """What a Fetch will bring that is expected to bring so much, but has to share with so many that wait.

        >>> fetches = FetchesUnderWay(0)
        >>> fetches.configure(2000.0, 1000)
        >>> [fetches.expected_share(1_000_000, waiting) for waiting in (0, 99)]  # half a second, and a hundredth of it
        [1000000, 10000]
        """
        return min(expected, max(self._quantum // (waiting + 1), self._largest))

    def expose_paid(self, rate: float, now_ms: int, returned_ms: int) -> None:
        """Expose what time has paid of the charges by now: it is no longer part of what is owed, and may still come.

        Args:
            rate: in bytes per ms.
            now_ms: the schedule's.
            returned_ms: how much of the schedule was given back so far.
        """
        for flow in self.flows:
            left_ms = flow.until_ms + 1 - (returned_ms - flow.returned_ms) - now_ms  # its end is rounded down
            unpaid = int(left_ms * rate) if left_ms > 0 else 0
            if unpaid < flow.admitted:
                flow.exposed += flow.admitted - unpaid
                self.exposed += flow.admitted - unpaid
                flow.admitted = unpaid

    def first_estimate(self, rate: float, left_ms: float) -> int:
        """What a Fetch without history is taken for, at so many bytes per ms, with so much left of the burst.

        >>> FetchesUnderWay(0).first_estimate(2000.0, 1000), FetchesUnderWay(0).first_estimate(200_000.0, 1000)
        (1000000, 20000000)
        """
        most_ms = min(max(FIRST_FETCH_BYTES / rate, IDLE_FETCH_MS), FETCH_QUANTUM_MS)
        return ceil(min(max(left_ms, FIRST_FETCH_MS), most_ms) * rate)

    def concurrent_max(self, room: int) -> int:
        """How many may be with their brokers at a time: as many as use three quarters of so many bytes."""
        each = max(self.exposed // len(self.flows) if self.flows else 0, self._floor, 1)
        return max(1, room * ROOM_USED_PERCENT // 100 // each)

    def _room(self, ahead_ms: float) -> int:
        """Bytes that may be exposed in all: the burst, less half of what is used of it."""
        return int((self._burst_ms - max(0.0, ahead_ms) / 2) * self._rate)

    def wait_ms_max(self, flow: Flow, ahead_ms: float, now_ms: int) -> int:
        """How long a Fetch that is forwarded now may wait at its broker for bytes to come."""
        if now_ms >= self.crowded_until_ms:
            return FETCH_WAIT_MS_MAX if flow.expected else FIRST_WAIT_MS
        concurrent_max = self.concurrent_max(self._room(ahead_ms))
        wanted = max(concurrent_max, len(self.flows) + len(self.resting))
        return max(CROWDED_WAIT_MS, CROWDED_ROUND_MS * concurrent_max // wanted)

    def rest_ms(self, flow: Flow, ahead_ms: float, now_ms: int) -> int:
        """How long the channel of a Fetch that has ended leaves its place to others, in a crowd.

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
        """There is no room for this one."""
        self.crowded_until_ms = now_ms + CROWDED_MS
        self.resting[flow] = None

    def record_batch(self, size: int) -> None:
        """A response of so many bytes has come, which is more than its Fetch was granted: one large batch."""
        self._batch = max(self._batch, size)
        self._largest = max(self._largest, size)

    def remove(self, flow: Flow) -> None:
        """Its channel is closed, or has other limits now."""
        self.end(flow)
        self.resting.pop(flow, None)

    def end(self, flow: Flow) -> None:
        """It is not under way any more."""
        self.exposed -= flow.exposed
        flow.exposed = 0
        flow.admitted = -1
        if flow in self.flows:
            del self.flows[flow]

    def overdue(self, now_ms: int) -> Flow | None:
        """The oldest one, if it is with its broker for too long; it is not given twice. One a call."""
        for flow in self.flows:
            if now_ms < flow.forwarded_ms + FETCH_MS_MAX:
                return None
            del self.flows[flow]
            return flow
        return None

    def clear_exposed(self, flow: Flow) -> None:
        """All that it may bring is charged by now."""
        flow.admitted += flow.exposed
        self.exposed -= flow.exposed
        flow.exposed = 0

    def expire(self, now_ms: int) -> None:
        """Let go of channels that rested and did not come back, and of the largest batch of long ago."""
        if self.resting:
            for flow in [flow for flow in self.resting if now_ms > flow.due_ms + GRACE_MS]:
                del self.resting[flow]
        if now_ms >= self._batch_until_ms:
            self._batch_until_ms = now_ms + BATCH_MS
            self._largest, self._batch = self._batch, 0
