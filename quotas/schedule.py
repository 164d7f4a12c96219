"""The `schedule` policy: one virtual schedule per identity (design.md, "Quota policies"; closes KIP-219's two
caveats).

Rate. GCRA: `_paid_ms` is the time at which everything that passed will have been paid for at the rate T. A
request may pass while that is at most `burst_seconds` ahead; passing moves it by size / T. So at most burst +
T·t + one request pass in any t, a request of any size passes in the end, and being late costs nothing (up to
the burst): the schedule does not drift with timers, round trips and rounding.

Order. Start-time fair queueing in bytes. A channel's tag is the virtual time at which its next request
begins: the virtual time of the last start, or the end of its own last request if that is later. The lowest
tag is next, equal tags in order of arrival. So channels that always have something to send get equal bytes,
whatever the size of their requests, and one that sends little is soon served.

Places. The queue holds a place for every Produce that waits at its header (held), and for every channel that
was told to come back (muted): its reservation, of the size it last had (KIP-219: "as if a non-empty response
were returned"). The slot of a place is when the schedule is free and the bytes ahead of it are paid for. A
request passes when its slot has come, even if those ahead have not come for theirs: their bytes stay set
aside, for GRACE_MS after the time they were told. Nothing here can wake a channel. So a held one is told to
ask again at half of the burst at the latest: then what somebody else gave back is found before the burst
could overflow.

Limits. A hold ends after `hold_seconds_max`, a mute after `mute_seconds_max`; a Produce held that long
passes, and the schedule goes on from there: what that was too early is put down as `_debt` and paid back at
DEBT_SHARE of the rate, so that the steady rate stays within its bar. With n channels of requests of s bytes
the cycle n·s/T cannot be longer than hold + mute, so the rate is T · max(1, n·s / (T · (hold + mute))) for
producers. Consumers have no such limit: a Fetch that comes back early is answered again at once.
Channels that have not sent before, and are too many to be held, are let pass evenly over the longest hold
instead of all at its end.

It knows no clock and no socket, and it decides nothing about what the limit is (`definitions`).
"""

from bisect import bisect_left, bisect_right
from math import ceil
from typing import Final

from quotas.decisions import ADMITTED, Decision
from quotas.options import EngineOptions
from quotas.turn import Place, Turn

# A channel comes back a round trip and a timer after it was told to; WAN round trips are below this.
GRACE_MS: Final = 250
# A held channel calls again by itself; one that is this late has gone without a word.
HELD_GRACE_MS: Final = 5_000
SWEEP_MS: Final = 100
POLL_MS_MIN: Final = 100
# Half of the bar for the steady rate (1.00 ± 0.02).
DEBT_SHARE: Final = 0.01
# A Fetch whose answer nobody can guess yet is taken for what is left of the burst, and at least for this much time of the
# rate: so such Fetches go out one by one, and each is corrected by its answer before many others have gone out.
FIRST_FETCH_MS: Final = 50
# A forwarded Fetch may ask for its share of this much time of the rate. Smaller answers cost more requests, larger ones
# make the others wait longer.
FETCH_QUANTUM_MS: Final = 500
# The fractional part of the golden ratio: its multiples fill an interval evenly, however many there will be.
GOLDEN: Final = 0.6180339887498949


class ScheduledThrottle:
    """GCRA, a fair queue and bounded holds for one identity."""

    __slots__ = (
        "_burst_ms",
        "_debt",
        "_debt_max",
        "_expected",
        "_hold_ms_max",
        "_lag_max",
        "_mute_ms_max",
        "_paid_ms",
        "_rate",
        "_sizes",
        "_spread",
        "_sweep_ms",
        "_tags",
        "_turns",
        "_virtual",
        "enforced",
        "place",
        "users",
        "version",
    )

    def __init__(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        self.users = 0
        self.version: object = None
        self.enforced = True
        self.place: Place | None = None
        self._rate = limit / 1000.0  # bytes per ms
        self._paid_ms = float(now_ms)
        self._virtual = 0
        self._debt = 0.0
        self._expected = 0
        self._spread = 0.0
        self._sweep_ms = now_ms
        # Three columns of one table, the queue: by tag, equal tags in order of arrival.
        self._tags: list[int] = []
        self._sizes: list[int] = []
        self._turns: list[Turn] = []
        self.configure(limit, options, now_ms)

    def configure(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit or new options; what is owed in bytes stays owed."""
        assert limit > 0, "a definition checks this"
        rate = limit / 1000.0
        ahead_ms = self._paid_ms - now_ms
        if ahead_ms > 0:
            self._paid_ms = now_ms + ahead_ms * self._rate / rate
        self._rate = rate
        self._burst_ms = options.burst_seconds * 1000.0
        self._hold_ms_max = int(options.hold_seconds_max * 1000)
        self._mute_ms_max = int(options.mute_seconds_max * 1000)
        self._lag_max = rate * self._burst_ms / 2
        self._debt_max = rate * (self._hold_ms_max + self._mute_ms_max)
        self._debt = min(self._debt, self._debt_max)

    def settle(self, now_ms: int) -> None:
        """What passed while nothing was enforced is no debt, but the burst is used up."""
        self._paid_ms = now_ms + self._burst_ms

    def produce(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """Decide on a Produce whose header was seen: pass (and mute), or hold."""
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        slot_ms, back_ms = self._slot(turn, self._enter(turn))
        if slot_ms <= now_ms:
            return self._pass(turn, turn.tag, size, now_ms)
        if turn.held_since_ms < 0:
            turn.held_since_ms = now_ms
            turn.force_ms = now_ms + self._hold_ms_max
            turn.spread = False
        if now_ms >= turn.force_ms:
            return self._force(turn, size, now_ms)
        if back_ms > turn.force_ms and not turn.passed and not turn.spread:
            self._step_aside(turn, now_ms)
        if not turn.spread:
            self._place(turn, size)
        turn.due_ms = self._again_ms(slot_ms, now_ms)
        return Decision(hold_until_ms=min(turn.due_ms, turn.force_ms), reason="held to its slot")

    def fetch(self, turn: Turn, now_ms: int) -> Decision:
        """Decide on a Fetch before it is forwarded: its answer is charged beforehand at its last size."""
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        if turn.admitted >= 0:
            self._refund(turn)
        slot_ms, back_ms = self._slot(turn, self._enter(turn))
        expected = turn.expected or self._expected or self._first_fetch_bytes(now_ms)
        if slot_ms > now_ms:
            wait_ms = max(back_ms - now_ms, min(slot_ms - now_ms, POLL_MS_MIN))
            throttle_ms = min(ceil(wait_ms), self._mute_ms_max)
            self._place(turn, expected)
            turn.due_ms = now_ms + throttle_ms
            return Decision(throttle_ms=throttle_ms, reason="fetch before its slot")
        if turn.queued:
            self._remove(turn)
        self._charge(expected, now_ms)
        turn.admitted = expected
        turn.start = turn.tag
        self._virtual = max(self._virtual, turn.start)
        return ADMITTED

    def fetch_max_bytes(self, turn: Turn, requested: int, now_ms: int) -> int:  # noqa: ARG002 - kip13 needs it
        """What an admitted Fetch may ask for: its share of half a second's quota, so that turns stay short."""
        if not turn.expected and not self._expected:
            return max(1, min(requested, turn.admitted))
        return max(1, min(requested, int(self._rate * FETCH_QUANTUM_MS) // (len(self._turns) + 1)))

    def fetched(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """Put the real size in place of the expected one, and reserve the next slot."""
        if turn.admitted >= 0:
            self._refund(turn)
        else:  # forwarded before this policy or this limit began
            turn.start = max(turn.tag, self._virtual)
        turn.expected = size
        self._expected = size
        return self._pass(turn, turn.start, size, now_ms)

    def observe(self, turn: Turn, size: int, now_ms: int, consumes: bool) -> int:  # noqa: ARG002 - both are paid alike here
        """Record what passes anyway; the wait it would have had, at most one hold and one mute."""
        if turn.queued:
            self._remove(turn)
        turn.held_since_ms = turn.admitted = -1
        turn.expected = size
        ceiling_ms = now_ms + self._burst_ms + self._hold_ms_max + self._mute_ms_max
        self._charge(size, now_ms)
        self._paid_ms = min(self._paid_ms, ceiling_ms)
        return max(0, ceil(self._paid_ms - self._burst_ms - now_ms))

    def leave(self, turn: Turn, now_ms: int) -> None:
        """The channel is gone: its place, and what an unanswered Fetch was charged, go back."""
        if turn.queued:
            self._remove(turn)
        if turn.admitted >= 0:
            self._refund(turn)
        turn.held_since_ms = -1

    def debt_bytes(self, now_ms: int) -> float:
        """Bytes that passed and that neither the burst nor the time since has paid for."""
        return max(0.0, (self._paid_ms - self._burst_ms - now_ms) * self._rate) + self._debt

    def waiting(self) -> int:
        """How many places the queue has now: held requests and reservations."""
        return len(self._turns)

    # -- the schedule

    def _first_fetch_bytes(self, now_ms: int) -> int:
        left_ms = now_ms + self._burst_ms - max(now_ms, self._paid_ms)
        return ceil(min(max(left_ms, FIRST_FETCH_MS), FETCH_QUANTUM_MS) * self._rate)

    def _charge(self, size: int, now_ms: int) -> None:
        """Move the schedule by `size` bytes; credit older than the burst is lost."""
        self._paid_ms = max(now_ms, self._paid_ms) + size / self._rate

    def _refund(self, turn: Turn) -> None:
        """Take back what an admitted Fetch was charged."""
        self._paid_ms -= turn.admitted / self._rate
        turn.admitted = -1

    def _pass(self, turn: Turn, start: int, size: int, now_ms: int) -> Decision:
        """Charge a request that passes now, and reserve its channel's next slot."""
        if turn.queued:
            self._remove(turn)
        turn.held_since_ms = -1
        turn.passed = True
        charged = size
        if self._debt > 0:
            repaid = min(self._debt, size * DEBT_SHARE)
            self._debt -= repaid
            charged += ceil(repaid)
        self._charge(charged, now_ms)
        self._virtual = max(self._virtual, start)
        turn.tag = start + size
        return self._reserve(turn, size, now_ms)

    def _force(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """The longest hold is over: pass. The schedule goes on from now, and what is left over becomes
        debt.
        """
        if turn.spread:
            ahead = float(size)
            virtual_ms = self._paid_ms - size / self._rate  # charged to the debt alone
        else:
            virtual_ms = min(self._paid_ms, now_ms + self._burst_ms)
            ahead = (self._paid_ms - virtual_ms) * self._rate
        self._paid_ms = virtual_ms
        decision = self._pass(turn, turn.tag, size, now_ms)
        self._debt = min(self._debt + ahead, self._debt_max)
        return decision

    def _reserve(self, turn: Turn, expected: int, now_ms: int) -> Decision:
        """Find the slot of what this channel will send next, and mute the channel until then."""
        # It goes on without a pause, so a round trip longer than its slots costs it its share only beyond this lag.
        turn.tag = max(turn.tag, self._virtual - int(self._lag_max))
        _, back_ms = self._slot(turn, bisect_right(self._tags, turn.tag))
        wait_ms = ceil(back_ms - now_ms)
        if wait_ms <= 0:
            if self._turns:  # others wait: keep its place warm for a round trip
                self._place(turn, expected)
                turn.due_ms = now_ms
            return ADMITTED
        throttle_ms = min(wait_ms, self._mute_ms_max)
        self._place(turn, expected)
        turn.due_ms = now_ms + throttle_ms
        return Decision(throttle_ms=throttle_ms, reason="muted until its slot")

    # -- the queue

    def _enter(self, turn: Turn) -> int:
        """Where in the queue the turn is, or would be: who comes without a place starts at the virtual time."""
        if turn.queued:
            return self._index(turn)
        turn.tag = max(turn.tag, self._virtual)
        return bisect_right(self._tags, turn.tag)

    def _slot(self, turn: Turn, index: int) -> tuple[float, float]:
        """When this place in the queue may pass; and when its channel is best told to come back.

        Each place ahead is one request at least. One with smaller requests may send several before this one's tag:
        then that is kept for it, but never more than half a burst beyond the schedule, or capacity could be lost;
        and since it may also stop, its channel is told to come back half-way.
        """
        free_ms = self._paid_ms - self._burst_ms
        if not index:
            return free_ms, free_ms
        once = sum(self._sizes[:index])
        lag = index * turn.tag - sum(self._tags[:index])
        soonest_ms = free_ms + once / self._rate
        if lag <= once:
            return soonest_ms, soonest_ms
        slot_ms = free_ms + min(lag, once + self._lag_max) / self._rate
        return slot_ms, free_ms + (once + lag) / 2 / self._rate

    def _place(self, turn: Turn, size: int) -> None:
        """Give the turn its place in the queue, or keep it."""
        if turn.queued:
            if turn.size != size:
                self._sizes[self._index(turn)] = size
        else:
            index = bisect_right(self._tags, turn.tag)
            self._tags.insert(index, turn.tag)
            self._sizes.insert(index, size)
            self._turns.insert(index, turn)
            turn.queued = True
        turn.size = size

    def _again_ms(self, slot_ms: float, now_ms: int) -> int:
        """When a held channel is to ask again: at its slot, but often enough to find what others gave back."""
        poll_ms = max(POLL_MS_MIN, int(self._burst_ms) // 2, len(self._turns))
        return min(ceil(slot_ms), now_ms + poll_ms)

    def _step_aside(self, turn: Turn, now_ms: int) -> None:
        """Too many start at once: let this one pass at a time of its own within the longest hold."""
        self._spread = (self._spread + GOLDEN) % 1.0
        # Not within the first second: that one belongs to the burst.
        first_ms = max(now_ms + 1, turn.held_since_ms + min(1000, self._hold_ms_max // 4))
        turn.force_ms = first_ms + int(self._spread * max(0, turn.force_ms - first_ms))
        turn.spread = True
        if turn.queued:
            self._remove(turn)

    def _index(self, turn: Turn) -> int:
        return self._turns.index(turn, bisect_left(self._tags, turn.tag))

    def _remove(self, turn: Turn) -> None:
        index = self._index(turn)
        del self._tags[index], self._sizes[index], self._turns[index]
        turn.queued = False

    def _sweep(self, now_ms: int) -> None:
        """Give back the places of channels that did not come back."""
        self._sweep_ms = now_ms + SWEEP_MS
        for turn in self._turns:
            grace_ms = GRACE_MS if turn.held_since_ms < 0 else HELD_GRACE_MS
            if now_ms > turn.due_ms + grace_ms:
                break
        else:
            return
        for turn in list(self._turns):
            grace_ms = GRACE_MS if turn.held_since_ms < 0 else HELD_GRACE_MS
            if now_ms > turn.due_ms + grace_ms:
                self._remove(turn)
