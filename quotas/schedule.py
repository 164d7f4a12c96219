"""The `schedule` policy: one virtual schedule per identity (design.md, "Quota policies").

It closes the two caveats that KIP-219 names: throttling reaches this request, not the next one; and the client is
known, and held, before its whole request has been read.

Rate. GCRA: `_paid_ms` is the time at which everything that passed will have been paid for at the rate T. A request
may pass while that is at most `burst_seconds` ahead; passing moves it by size / T. So at most burst + T·t + one
request pass in any t, a request of any size passes in the end, and being late costs nothing up to the burst: the
schedule does not drift with timers, round trips and rounding.

Order. `fair_queue` says which bytes are ahead of a request. Its slot is when the schedule is free and they are paid
for. It passes when its slot has come, even if those ahead have not come for theirs: their bytes stay set aside for a
moment.

Waiting. A channel that passed is muted until its next slot: that is its reservation (KIP-219: "as if a non-empty
response were returned"). A Produce before its slot is held at its header, at most `hold_seconds_max`; a Fetch before
its slot is answered empty with the time that is left. Nothing here can wake a channel. So nobody is muted longer than
what is certain to pass before him plus one burst; and a held one is told to ask again after half a burst at the
latest. Then what others give back is found before the burst overflows, and no capacity is lost.

Beyond the bounds. A mute ends after `mute_seconds_max`. A Produce held for `hold_seconds_max` passes; the schedule
goes on from that moment, and what it was too early is `_debt`, paid back at DEBT_SHARE of the rate so that the steady
rate stays within its bar. n producers of s bytes cannot be kept to a cycle longer than hold + mute: their rate is
T · max(1, n·s / (T · (hold + mute))). Debt is at most what (hold + mute) seconds allow. Consumers have no such limit.
When more channels send their first request than the longest hold has room for, those that find none pass evenly over
that time, not all at its end; they are charged to the debt alone.

It knows no clock and no socket. What the limit is comes from `definitions`, and who is asked from `client_bandwidth`.
"""

from math import ceil
from typing import Final

from quotas.decisions import ADMITTED, Decision
from quotas.fair_queue import FairQueue
from quotas.options import EngineOptions
from quotas.turn import Place, Turn

SWEEP_MS: Final = 100
POLL_MS_MIN: Final = 100
# Half of the bar for the steady rate (1.00 ± 0.02).
DEBT_SHARE: Final = 0.01
# A Fetch whose answer nobody can guess yet is taken for what is left of the burst, and at least for this much time of
# the rate: such Fetches go out one by one, and each is corrected by its answer before many others have gone out.
FIRST_FETCH_MS: Final = 50
# A forwarded Fetch may ask for its share of this much time of the rate. Smaller answers cost more requests, larger
# ones make the others wait longer.
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
        "_mute_ms_max",
        "_paid_ms",
        "_queue",
        "_rate",
        "_spread",
        "_sweep_ms",
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
        self._debt = 0.0  # bytes that passed too early, beyond what the schedule still knows
        self._expected = 0  # what a Fetch of a channel without history is taken for
        self._spread = 0.0
        self._sweep_ms = now_ms
        self._queue = FairQueue()
        self.configure(limit, options, now_ms)

    def configure(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit or new options; what is owed in bytes stays owed."""
        assert limit > 0, "a definition checks this"
        rate = limit / 1000.0
        ahead_ms = self._paid_ms - now_ms
        if ahead_ms > 0:
            self._paid_ms = now_ms + ahead_ms * self._rate / rate
        self._rate = rate
        self._burst_ms = int(options.burst_seconds * 1000)
        self._hold_ms_max = int(options.hold_seconds_max * 1000)
        self._mute_ms_max = int(options.mute_seconds_max * 1000)
        self._queue.lag_bytes = int(rate * self._burst_ms / 2)
        self._debt_max = rate * (self._hold_ms_max + self._mute_ms_max)
        self._debt = min(self._debt, self._debt_max)

    def settle(self, now_ms: int) -> None:
        """What passed while nothing was enforced is no debt, but the burst is used up."""
        self._paid_ms = float(now_ms + self._burst_ms)

    # -- produce

    def produce(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """Decide on a Produce whose header was seen: pass (and mute), or hold."""
        if turn.passed and turn.held_since_ms < 0 and self._plain(turn, turn.tag, size, now_ms):
            return ADMITTED
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        slot_ms, back_ms = self._slot(turn, self._queue.enter(turn))
        if slot_ms <= now_ms:
            return self._pass(turn, turn.tag, size, now_ms)
        if turn.held_since_ms < 0:
            turn.held_since_ms = now_ms
            turn.force_ms = now_ms + min(self._hold_ms_max, turn.hold_ms_max)
            turn.spread = False
            turn.waited = True
        if now_ms >= turn.force_ms:
            return self._force(turn, size, now_ms)
        if back_ms > turn.force_ms and not turn.passed and not turn.spread:
            self._step_aside(turn, now_ms)
        if not turn.spread:
            self._queue.put(turn, size)
        poll_ms = max(POLL_MS_MIN, self._burst_ms // 2, len(self._queue.turns))
        turn.due_ms = min(ceil(slot_ms), now_ms + poll_ms, turn.force_ms)
        return Decision(hold_until_ms=turn.due_ms, reason="held to its slot")

    def _force(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """The longest hold is over: pass, and put down as debt what that is too early."""
        if turn.spread:
            owed = float(size)  # charged to the debt alone: the slots of the others stay
            goes_on_ms = self._paid_ms - size / self._rate
        else:
            goes_on_ms = min(self._paid_ms, float(now_ms + self._burst_ms))
            owed = (self._paid_ms - goes_on_ms) * self._rate
        self._paid_ms = goes_on_ms
        decision = self._pass(turn, turn.tag, size, now_ms)
        self._debt = min(self._debt + owed, self._debt_max)
        return decision

    def _step_aside(self, turn: Turn, now_ms: int) -> None:
        """Too many start at once: this one passes at a time of its own within the longest hold."""
        self._spread = (self._spread + GOLDEN) % 1.0
        # Not within the first second: that one belongs to the burst.
        first_ms = max(now_ms + 1, turn.held_since_ms + min(1000, self._hold_ms_max // 4))
        turn.force_ms = first_ms + int(self._spread * max(0, turn.force_ms - first_ms))
        turn.spread = True
        self._queue.remove(turn)

    # -- fetch

    def fetch(self, turn: Turn, now_ms: int) -> Decision:
        """Decide on a Fetch before it is forwarded: its answer is charged beforehand, at its last size."""
        expected = turn.expected
        if expected and turn.admitted < 0 and not self._queue.turns:
            paid_ms = max(self._paid_ms, now_ms)
            if paid_ms - self._burst_ms <= now_ms:
                self._paid_ms = paid_ms + expected / self._rate
                turn.admitted = expected
                turn.start = max(turn.tag, self._queue.virtual)
                return ADMITTED
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        self._refund(turn)
        slot_ms, back_ms = self._slot(turn, self._queue.enter(turn))
        expected = expected or self._expected or self._first_fetch_bytes(now_ms)
        if slot_ms > now_ms:
            wait_ms = max(back_ms - now_ms, min(slot_ms - now_ms, POLL_MS_MIN))
            return self._mute(turn, expected, ceil(wait_ms), now_ms, "fetch before its slot")
        self._queue.remove(turn)
        self._charge(expected, now_ms)
        turn.admitted = expected
        turn.start = turn.tag
        return ADMITTED

    def fetch_max_bytes(self, turn: Turn, requested: int, now_ms: int) -> int:  # noqa: ARG002 - kip13 needs it
        """What an admitted Fetch may ask for: its share of half a second's quota, so that turns stay short."""
        if not turn.expected and not self._expected:
            return max(1, min(requested, turn.admitted))
        return max(1, min(requested, int(self._rate * FETCH_QUANTUM_MS) // (len(self._queue.turns) + 1)))

    def fetched(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """Put the real size in place of the expected one, and reserve the next slot."""
        if turn.admitted >= 0:
            self._paid_ms -= turn.admitted / self._rate
            turn.admitted = -1
        else:  # it was forwarded before this policy or this limit began
            self._queue.enter(turn)
            turn.start = turn.tag
        # One empty answer is no sign that there is nothing to fetch; ten in a row are.
        turn.expected = max(size, turn.expected // 2)
        self._expected = max(size, self._expected // 2)
        if turn.passed and self._plain(turn, turn.start, size, now_ms):
            return ADMITTED
        return self._pass(turn, turn.start, size, now_ms)

    def _first_fetch_bytes(self, now_ms: int) -> int:
        left_ms = now_ms + self._burst_ms - max(now_ms, self._paid_ms)
        return ceil(min(max(left_ms, FIRST_FETCH_MS), FETCH_QUANTUM_MS) * self._rate)

    def _refund(self, turn: Turn) -> None:
        """Take back what a Fetch was charged beforehand."""
        if turn.admitted >= 0:
            self._paid_ms -= turn.admitted / self._rate
            turn.admitted = -1

    # -- both

    def observe(self, turn: Turn, size: int, now_ms: int, consumes: bool) -> int:  # noqa: ARG002 - both cost alike
        """Record what passes anyway; the wait it would have had, at most one hold and one mute."""
        self._queue.remove(turn)
        turn.held_since_ms = turn.admitted = -1
        turn.expected = size
        self._charge(size, now_ms)
        ceiling_ms = now_ms + self._burst_ms + self._hold_ms_max + self._mute_ms_max
        self._paid_ms = min(self._paid_ms, float(ceiling_ms))
        return max(0, ceil(self._paid_ms - self._burst_ms - now_ms))

    def leave(self, turn: Turn, now_ms: int) -> None:  # noqa: ARG002 - same for every limiter
        """The channel is gone: its place, and what an unanswered Fetch was charged, go back."""
        self._queue.remove(turn)
        self._refund(turn)
        turn.held_since_ms = -1

    def debt_bytes(self, now_ms: int) -> float:
        """Bytes that passed and that neither the burst nor the time since has paid for."""
        return max(0.0, (self._paid_ms - self._burst_ms - now_ms) * self._rate) + self._debt

    def _slot(self, turn: Turn, index: int) -> tuple[float, float]:
        """When a place in the queue may pass; and when its channel is best told to come back.

        What is due to those ahead beyond one request each is kept for them, but never more than half a burst beyond
        the schedule, or capacity could be lost. And since they may stop, the channel comes back half-way.
        """
        free_ms = self._paid_ms - self._burst_ms
        if not index:
            return free_ms, free_ms
        once, due = self._queue.ahead(turn, index)
        soonest_ms = free_ms + once / self._rate
        if due == once:
            return soonest_ms, soonest_ms
        slot_ms = free_ms + min(due, once + self._queue.lag_bytes) / self._rate
        half_way_ms = free_ms + (once + due) / 2 / self._rate
        return slot_ms, min(half_way_ms, soonest_ms + self._burst_ms)

    def _plain(self, turn: Turn, start: int, size: int, now_ms: int) -> bool:
        """Charge a request that nobody waits before or behind: the short form of `_pass`, for the usual case."""
        queue = self._queue
        if queue.turns or self._debt:
            return False
        paid_ms = max(self._paid_ms, now_ms) + size / self._rate
        if paid_ms - self._burst_ms > now_ms:
            return False
        self._paid_ms = paid_ms
        queue.virtual = start = max(start, queue.virtual)
        turn.tag = start + size
        turn.waited = False
        return True

    def _charge(self, size: int, now_ms: int) -> None:
        """Move the schedule by `size` bytes; credit older than the burst is lost."""
        self._paid_ms = max(self._paid_ms, now_ms) + size / self._rate

    def _pass(self, turn: Turn, start: int, size: int, now_ms: int) -> Decision:
        """Charge a request that passes now, reserve its channel's next slot, and mute the channel until then."""
        queue = self._queue
        queue.remove(turn)
        turn.held_since_ms = -1
        charged = size
        if self._debt > 0:
            repaid = min(self._debt, size * DEBT_SHARE)
            self._debt -= repaid
            charged += ceil(repaid)
        self._charge(charged, now_ms)
        queue.started(turn, start, size)
        _, back_ms = self._slot(turn, queue.behind(turn))
        wait_ms = ceil(back_ms - now_ms)
        if wait_ms > 0:
            return self._mute(turn, size, wait_ms, now_ms, "muted until its slot")
        turn.waited = False
        if queue.turns:  # others wait: its place stays warm for a round trip
            queue.put(turn, size)
            turn.due_ms = now_ms
        return ADMITTED

    def _mute(self, turn: Turn, expected: int, wait_ms: int, now_ms: int, reason: str) -> Decision:
        """Reserve a place for what this channel will send, and tell it when to come back."""
        throttle_ms = min(wait_ms, self._mute_ms_max)
        self._queue.put(turn, expected)
        turn.waited = True
        turn.due_ms = now_ms + throttle_ms
        return Decision(throttle_ms=throttle_ms, reason=reason)

    def _sweep(self, now_ms: int) -> None:
        self._sweep_ms = now_ms + SWEEP_MS
        self._queue.sweep(now_ms, self._burst_ms)
