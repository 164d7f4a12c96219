"""Policy `schedule`: one virtual schedule per identity (docs/architecture.md, "Quotas").

Rate. GCRA (`gcra`): in any time t, at most burst + T·t bytes and one request pass. A request of any size passes in the
end. A request that is late by at most the burst loses nothing, so timers, round trips and rounding add no drift.

Order. `fair_queue` determines the bytes ahead of a request. The request's *slot* is the time at which the schedule is
free and these bytes are paid for. The request passes at its slot, even if channels ahead of it have not sent theirs:
their places are kept a moment longer (`FairQueue.sweep`).

Waiting. A channel whose request has passed is muted until its next slot, and keeps a place in the queue (KIP-219). A
Produce before its slot is held at its header, for at most `hold_seconds_max`; a Fetch before its slot gets an empty
response with the remaining time. A limiter cannot end a mute or a hold early. So a mute is never longer than the
requests ahead in the queue and one burst take, and a held Produce is decided on again after half a burst at the
latest. Capacity that other channels give back is therefore used. New names have a burst of several seconds together
(`classes.NEWCOMERS`); a held one of these is decided on again after POLL_MS_MAX.

Bounds. A mute ends after `mute_seconds_max`. A Produce whose slot has not come within `hold_seconds_max` is refused and
not charged: n producers with requests of s bytes have room for each request while n·s <= T·(hold + mute); with more,
some requests are refused and sent again. A Fetch needs no such bound, since its wait ends with an empty response.

Produce: the length in the header is charged at once; the charge holds while the bytes arrive (`announced`).

Fetch: the size of the channel's last response is charged beforehand. The bytes that the response may bring beyond that
are *exposed* (`under_way`). They count as passed when another Fetch is admitted: if one batch completes many idle
Fetches at once, these bring no more than the burst. One part in EXPOSED_SHARE of the burst is kept for exposed bytes;
otherwise an idle Fetch would keep busy ones waiting. If many Fetches wait for each other, they take turns. A Fetch
whose channel closes, or that is at its broker for too long, is charged with all bytes that it may bring.

A class of a capacity that no entry names saves for a Produce beyond its burst before it passes (`savings`).

The limit comes from `definitions`, the requests from `throttles.bandwidth`.
"""

from math import ceil
from typing import Final

from quotas.definitions.classes import NEWCOMERS
from quotas.limiters.announced import ARRIVAL_MS, Announcements
from quotas.limiters.batches import whole_batches
from quotas.limiters.fair_queue import FairQueue
from quotas.limiters.gcra import VirtualSchedule
from quotas.limiters.limiter import ADMITTED, Counted, Decision, Flow, LimiterKey
from quotas.limiters.savings import Savings
from quotas.limiters.under_way import (
    CROWDED_WAIT_MS,
    EXPOSED_SHARE,
    FETCH_WAIT_MS_MAX,
    HEAD_BYTES_MAX,
    HEAD_SHARE,
    FetchesUnderWay,
)
from quotas.options import EngineOptions

SWEEP_MS: Final = 100
POLL_MS_MIN: Final = 100
POLL_MS_MAX: Final = 500


class ScheduledLimiter(VirtualSchedule):
    """The limiter of policy `schedule`: GCRA, a fair queue and bounded holds, for all clients that share a quota."""

    __slots__ = (
        "_announcements",
        "_expected",
        "_fetch_ahead_ms",
        "_fetches",
        "_hold_ms_max",
        "_mute_ms_max",
        "_queue",
        "_sweep_ms",
        "enforced",
        "limiter_key",
        "savings",
        "throttles",
        "uncounted",
        "version",
    )

    def __init__(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        super().__init__(limit, int(options.burst_seconds * 1000), now_ms)
        self.throttles: set[Counted] = set()
        self.uncounted = 0
        self.version: object = None
        self.enforced = True
        self.limiter_key: LimiterKey | None = None
        self.savings: Savings | None = None  # of a class of a capacity that no entry names
        self._expected = 0  # the size expected of the response to a channel's first Fetch
        self._fetches = FetchesUnderWay(now_ms)
        self._sweep_ms = now_ms
        self._queue = FairQueue()
        self._announcements = Announcements()
        self.configure(limit, options, now_ms)

    def configure(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit or new options; debt in bytes stays the same."""
        self._burst_ms = int(options.burst_seconds * 1000)
        self._fetch_ahead_ms = self._burst_ms - self._burst_ms // EXPOSED_SHARE
        self._hold_ms_max = max(int(options.hold_seconds_max * 1000), POLL_MS_MIN)
        self._mute_ms_max = int(options.mute_seconds_max * 1000)
        self.limit_to(limit, now_ms)

    @property
    def decides_again(self) -> bool:
        """True: a request that is too early is held or gets an empty response, and is not charged."""
        return True

    def used(self) -> int:
        """Return the bytes counted so far by all throttles while they were attached."""
        return sum(throttle.total for throttle in self.throttles) + self.uncounted

    def unpaid_bytes(self, now_ms: int) -> float:
        """Return how many of the bytes that `used` counts are not paid for yet.

        It is 0 while the whole burst is unused, and below that while time pays for Fetches under way, whose bytes count
        when they come.
        """
        charged = sum(flow.admitted for flow in self._fetches.flows)
        if self.savings is not None:
            self.savings.add(self._paid_ms, self._rate, now_ms)
            charged += int(self.savings.bytes)
        return max(0.0, self._paid_ms - now_ms) * self._rate - charged

    def _under_way(self) -> tuple[Flow, ...]:
        return (*self._fetches.flows, *self._announcements.flows)

    def _change_rate(self, rate: float, fixed_ms: int, now_ms: int) -> None:
        if self.savings is not None:
            self.savings.add(self._paid_ms, self._rate, now_ms)
        super()._change_rate(rate, fixed_ms, now_ms)
        self._queue.lag_bytes = int(self._rate * self._burst_ms / 2)
        self._fetches.configure(self._rate, self._burst_ms)

    # -- produce

    def produce(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Decide on a Produce whose header was read: it passes (and may mute the channel), is held, or is refused."""
        announcements = self._announcements
        if (
            flow.passed
            and flow.held_since_ms < 0
            and (not announcements.flows or now_ms < announcements.due_ms)
            and now_ms >= announcements.suspended_until_ms
            and self._pass_if_alone(flow, flow.tag, size, now_ms, self._burst_ms)
        ):
            return ADMITTED
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        self.take_back(now_ms)
        doubtful = announcements.doubtful_bytes(flow, flow.missing)
        index = self._queue.enter(flow)
        slot_ms, _ = self._slot(flow, index, self._burst_ms)
        suspended = doubtful > 0 and announcements.must_wait(flow, now_ms)
        if slot_ms <= now_ms and not suspended:
            lacking = self._lacking(
                flow, size, now_ms - slot_ms, now_ms, first=not index, doubtful=doubtful > 0
            )
            if not lacking:
                return self._pass(flow, flow.tag, size, size - doubtful, now_ms, self._burst_ms, doubtful)
            slot_ms = now_ms + min(max(1.0, lacking / self._rate), float(POLL_MS_MAX))
        if flow.held_since_ms < 0:
            flow.held_since_ms = now_ms
            flow.hold_end_ms = now_ms + min(self._hold_ms_max, max(flow.hold_ms_max, POLL_MS_MIN))
            flow.waited = True
        if now_ms >= flow.hold_end_ms:
            self._queue.remove(flow)
            announcements.dequeue(flow)
            flow.held_since_ms = -1
            return _REFUSED
        if suspended:
            self._queue.remove(flow)
            flow.due_ms = min(announcements.retry_at_ms(now_ms), flow.hold_end_ms)
            return Decision(hold_until_ms=flow.due_ms, reason="others announced what did not come")
        self._queue.put(flow, size - doubtful)
        poll_ms = max(POLL_MS_MIN, self._burst_ms // 2, len(self._queue.flows))
        if poll_ms > POLL_MS_MAX and self.limiter_key is not None and self.limiter_key[1] == NEWCOMERS:
            poll_ms = max(POLL_MS_MAX, len(self._queue.flows))
        if announcements.flows:  # what they announce may be given back by then
            poll_ms = min(poll_ms, ARRIVAL_MS)
        flow.due_ms = min(ceil(slot_ms), now_ms + poll_ms, flow.hold_end_ms)
        return Decision(hold_until_ms=flow.due_ms, reason="held to its slot")

    def _lacking(
        self, flow: Flow, size: int, since_ms: float, now_ms: int, *, first: bool, doubtful: bool
    ) -> int:
        """Return the bytes that are still to be paid first for a Produce; with 0 it passes.

        Args:
            since_ms: for how long its slot has been there; what time has paid for since then is the burst.
            first: whether no other place is ahead of it: what is saved is for the first one.
            doubtful: whether it keeps no place from others.
        """
        flow.saved = 0
        savings = self.savings
        if savings is None:
            return 0
        lacking = max(0, size - int(min(since_ms, float(self._burst_ms)) * self._rate))
        if not first or size <= int(self._burst_ms * self._rate):
            return lacking
        savings.add(self._paid_ms, self._rate, now_ms)
        saved = min(lacking, int(savings.bytes))
        lacking -= saved
        advances = savings.advances
        if saved and advances is not None and advances.spend(self, 0, now_ms):
            savings.wait(size, now_ms + POLL_MS_MAX, now_ms, doubtful=doubtful)
            return max(lacking, ceil(POLL_MS_MIN * self._rate))
        if lacking and (advances is None or not advances.advance(self, lacking, size, now_ms)):
            savings.wait(size, now_ms + POLL_MS_MAX, now_ms, doubtful=doubtful)
            return lacking
        if saved and advances is not None:
            advances.spend(self, saved, now_ms)
        flow.saved = saved
        savings.spend(saved)
        return 0

    def _take_again(self, flow: Flow, size: int, now_ms: int) -> None:
        """Give back `size` bytes of a request that did not arrive: what was saved for it first, then the charge."""
        again = 0
        if self.savings is not None:
            again = min(flow.saved, size)
            if again:
                self.savings.restore(again, now_ms)
            flow.saved -= again
        self._give_back(flow, size - again, now_ms)

    def waits(self, now_ms: int) -> bool:
        """Whether a channel waits for its slot here."""
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        return bool(self._queue.flows)

    def announce(self, flow: Flow, missing: int, now_ms: int) -> None:
        """Register that the admitted request has `missing` bytes still to arrive; late ones are given back
        (`take_back`).
        """
        self._note_charge(flow)
        self._announcements.begin(flow, missing, now_ms)

    def take_back(self, now_ms: int) -> None:
        """Give back the charge of announced bytes that did not arrive in time."""
        for expired in self._announcements.expire(now_ms):
            self._take_again(expired, expired.lost, now_ms)

    def request_arrived(self, flow: Flow) -> None:
        """Register that all bytes of the announced request have arrived."""
        if not flow.trusted:
            self._queue.record_arrived(self._announcements.charged_doubtful_bytes(flow))
        self._announcements.complete(flow)

    # -- fetch

    def fetch(self, flow: Flow, now_ms: int) -> Decision:
        """Decide on a Fetch before it is forwarded; an admitted one is charged with the size of the last response."""
        expected = flow.expected
        fetches = self._fetches
        if (
            expected
            and flow.admitted < 0
            and now_ms >= fetches.crowded_until_ms
            and not fetches.flows
            and not self._queue.flows
        ):
            paid_ms = self._paid_ms
            if paid_ms < now_ms:
                paid_ms = float(now_ms)
            if paid_ms - self._fetch_ahead_ms <= now_ms:
                self._paid_ms = paid_ms = paid_ms + expected / self._rate
                virtual = self._queue.virtual
                flow.start = flow.tag if flow.tag > virtual else virtual
                flow.until_ms = int(paid_ms)  # `_note_charge`
                flow.returned_ms = int(self._returned_ms)
                flow.wait_ms_max = FETCH_WAIT_MS_MAX
                fetches.begin(flow, expected, True, 0, now_ms)
                return ADMITTED
        if now_ms >= self._sweep_ms:
            self._sweep(now_ms)
        if flow.admitted >= 0:
            self._give_back(flow, flow.admitted, now_ms)
            fetches.end(flow)
        self._charge_late(now_ms)
        fetches.resting.pop(flow, None)
        slot_ms, back_ms = self._slot(flow, self._queue.enter(flow), self._fetch_ahead_ms)
        known = expected or self._expected
        expected = known or fetches.first_estimate(
            self._rate, now_ms + self._burst_ms - max(now_ms, self._paid_ms)
        )
        if slot_ms > now_ms:
            wait_ms = max(back_ms - now_ms, min(slot_ms - now_ms, POLL_MS_MIN))
            place = self._place_bytes(flow, expected)
            if not known:  # no other channel waits for a mere guess; the next response shows the size
                place, wait_ms = 1, min(wait_ms, POLL_MS_MIN)
            return self._mute(flow, place, ceil(wait_ms), now_ms, "fetch before its slot")
        exposed = fetches.exposed
        if max(self._paid_ms, now_ms) + exposed / self._rate - self._burst_ms > now_ms and exposed:
            fetches.mark_crowded(flow, now_ms)
            place = self._place_bytes(flow, expected)
            return self._mute(flow, place, CROWDED_WAIT_MS, now_ms, "other fetches may bring the burst")
        self._queue.remove(flow)
        self._charge(expected, now_ms)
        flow.start = flow.tag
        self._note_charge(flow)
        flow.wait_ms_max = fetches.wait_ms_max(flow, self._paid_ms - now_ms, now_ms)
        fetches.begin(flow, expected, known > 0, len(self._queue.flows), now_ms)
        return ADMITTED

    def fetch_max_bytes(self, flow: Flow, requested: int, now_ms: int) -> int:
        """Return the max_bytes of an admitted Fetch: at most its fair share of what half a second allows.

        It leaves room for what a response has besides records, and ends with a whole batch (`batches`). The exposed
        bytes stay: the first batch may be larger than all of these.
        """
        granted = flow.granted
        head = granted // HEAD_SHARE
        if head > HEAD_BYTES_MAX:
            head = HEAD_BYTES_MAX
        granted -= head
        if requested < granted:
            granted = requested
            flow.granted = granted + head
        if granted < 1:
            return 1
        if not flow.batch_most:
            return granted
        share = self._fetches.share(len(self._queue.flows))
        return whole_batches(flow, granted, share, now_ms - flow.due_ms)

    def fetched(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Charge the response's actual size in place of the expected one; returns the mute until the next Fetch may
        pass.
        """
        if flow.admitted >= 0:
            if size > flow.granted:
                self._fetches.record_batch(size)
            self._give_back(flow, flow.admitted, now_ms)
            self._fetches.end(flow)
        else:  # it was forwarded before this policy or this limit began
            self._queue.enter(flow)
            flow.start = flow.tag
        # One empty response is no sign that there is nothing to fetch; ten in a row are.
        flow.expected = size if size > flow.expected // 2 else flow.expected // 2
        self._expected = size if size > self._expected // 2 else self._expected // 2
        decision = ADMITTED
        if not flow.passed or not self._pass_if_alone(flow, flow.start, size, now_ms, self._fetch_ahead_ms):
            place = self._place_bytes(flow, size)
            decision = self._pass(flow, flow.start, size, place, now_ms, self._fetch_ahead_ms)
            if self.savings is not None and not self.savings.tried:
                self._try(self.savings, now_ms)
        if now_ms < self._fetches.crowded_until_ms:
            rest_ms = self._fetches.rest_ms(flow, self._paid_ms - now_ms, now_ms)
            if rest_ms > decision.throttle_ms:
                return self._rest(flow, rest_ms, now_ms)
        return decision

    def _try(self, savings: Savings, now_ms: int) -> None:
        """Have new names pay first for the first Fetch response beyond the burst: a broker alone knows its size."""
        debt = int(self.debt_bytes(now_ms))
        if debt and savings.advances is not None:
            savings.tried = True
            savings.advances.charge(self, debt, now_ms)

    def _rest(self, flow: Flow, rest_ms: int, now_ms: int) -> Decision:
        """Mute a channel to let other Fetches be at their brokers; it gets no place in the queue."""
        rest_ms = min(rest_ms, self._mute_ms_max)
        self._queue.remove(flow)
        self._fetches.resting[flow] = None
        flow.due_ms = now_ms + rest_ms
        return Decision(throttle_ms=rest_ms, reason="other fetches wait for its place at the broker")

    def _place_bytes(self, flow: Flow, expected: int) -> int:
        """Return the size of a Fetch's place in the queue: the bytes that it will bring while others wait."""
        return self._fetches.expected_share(expected, len(self._queue.flows) - flow.queued)

    def _charge_late(self, now_ms: int) -> None:
        """Charge the exposed bytes of a Fetch that is at its broker for too long; otherwise they stay exposed."""
        flow = self._fetches.overdue(now_ms)
        if flow is not None and flow.exposed:
            self._charge(flow.exposed, now_ms)
            self._fetches.clear_exposed(flow)
            self._note_charge(flow)

    def delivered(self, size: int, now_ms: int) -> Decision:
        """Charge bytes that pass without a decision; they delay the next Fetch."""
        self._charge(size, now_ms)
        return ADMITTED

    # -- both

    def room_in_ms(self, size: int, now_ms: int, consumes: bool, alone: bool) -> int:  # noqa: ARG002 - kip13 needs all
        """Return the time in ms until the schedule admits a request, without the channels that wait in the queue."""
        ahead_ms = self._fetch_ahead_ms if consumes else self._burst_ms
        return max(0, ceil(self._paid_ms - ahead_ms - now_ms))

    def muted_until_next(self, consumes: bool) -> bool:  # noqa: ARG002 - both have slots
        """True: a channel whose request has passed is muted until its next request may pass."""
        return True

    def observe(self, flow: Flow, size: int, now_ms: int, consumes: bool) -> int:
        """Charge bytes that pass in any case; return how long they would wait if quotas were enforced, in ms.

        This is at most the longest hold and the longest mute together.
        """
        self._queue.remove(flow)
        self._fetches.remove(flow)
        self._announcements.dequeue(flow)
        flow.held_since_ms = -1
        flow.expected = size
        self._charge(size, now_ms)
        ceiling_ms = now_ms + self._burst_ms + self._hold_ms_max + self._mute_ms_max
        self._paid_ms = min(self._paid_ms, float(ceiling_ms))
        ahead_ms = self._fetch_ahead_ms if consumes else self._burst_ms
        return min(max(0, ceil(self._paid_ms - ahead_ms - now_ms)), self._hold_ms_max + self._mute_ms_max)

    def leave(self, flow: Flow, now_ms: int) -> None:
        """Remove a closed channel: its place in the queue, and the charge of announced bytes that did not arrive.

        A Fetch at the broker is charged with all bytes that it may bring: the broker sends a response that is not
        counted here.
        """
        self._queue.remove(flow)
        if flow.admitted >= 0:
            self._charge(flow.exposed, now_ms)
        self._fetches.remove(flow)
        self._take_again(flow, self._announcements.remove(flow, now_ms), now_ms)
        flow.held_since_ms = -1

    def _slot(self, flow: Flow, index: int, ahead_ms: int) -> tuple[float, float]:
        """Return the slot of a place in the queue, and the time at which the channel should retry.

        The slot is `ahead_ms` before the bytes ahead are paid for. Channels ahead keep their fair share beyond one
        request each, but at most half a burst of it, since it is lost if they send nothing. As they may stop, the
        channel retries half-way.
        """
        free_ms = self._paid_ms - ahead_ms
        if not index:
            return free_ms, free_ms
        once, due = self._queue.bytes_ahead(flow, index)
        soonest_ms = free_ms + once / self._rate
        if due == once:
            return soonest_ms, soonest_ms
        slot_ms = free_ms + min(due, once + self._queue.lag_bytes) / self._rate
        half_way_ms = free_ms + (once + due) / 2 / self._rate
        return slot_ms, min(half_way_ms, slot_ms)

    def _pass_if_alone(self, flow: Flow, start: int, size: int, now_ms: int, ahead_ms: int) -> bool:
        """Charge a request that may pass while the queue is empty; returns whether it has passed. A short `_pass`."""
        queue = self._queue
        if queue.flows:
            return False
        paid_ms = (self._paid_ms if self._paid_ms > now_ms else now_ms) + size / self._rate
        if paid_ms - ahead_ms > now_ms:
            return False
        self._paid_ms = paid_ms
        if start < queue.virtual:
            start = queue.virtual
        queue.virtual = start
        flow.tag = start + size
        flow.waited = False
        flow.saved = 0
        return True

    def _pass(
        self, flow: Flow, start: int, size: int, place: int, now_ms: int, ahead_ms: int, doubtful: int = 0
    ) -> Decision:
        """Charge a request that passes now, reserve its channel's next slot, and mute the channel until then."""
        queue = self._queue
        queue.remove(flow)
        flow.held_since_ms = -1
        aside = 0 if self.savings is None else self.savings.put_aside(size, now_ms)
        self._charge(size - flow.saved + aside, now_ms)
        queue.record_passed(flow, start, size, doubtful)
        _, back_ms = self._slot(flow, queue.index_after(flow), ahead_ms)
        wait_ms = ceil(back_ms - now_ms)
        if wait_ms > 0:
            if self._announcements.doubtful:  # that may not come
                wait_ms = max(1, wait_ms - int(self._announcements.doubtful / self._rate))
            return self._mute(flow, place, wait_ms, now_ms, "muted until its slot")
        flow.waited = False
        if queue.flows:  # others wait: the channel keeps a place for a round trip
            queue.put(flow, place)
            flow.due_ms = now_ms
        return ADMITTED

    def _mute(self, flow: Flow, expected: int, wait_ms: int, now_ms: int, reason: str) -> Decision:
        """Reserve a place of `expected` bytes for the channel's next request; return its mute."""
        throttle_ms = min(wait_ms, self._mute_ms_max)
        self._queue.put(flow, expected)
        flow.waited = True
        flow.due_ms = now_ms + throttle_ms
        return Decision(throttle_ms=throttle_ms, reason=reason)

    def _sweep(self, now_ms: int) -> None:
        self._sweep_ms = now_ms + SWEEP_MS
        self._queue.sweep(now_ms, self._burst_ms)
        self._fetches.expose_paid(self._rate, now_ms, ceil(self._returned_ms))
        self._fetches.expire(now_ms)


_REFUSED: Final = Decision(refused=True, reason="its slot is beyond the longest hold")
