"""Policy `kip13`: Kafka's own arithmetic for one identity (KIP-13, KIP-219; kafka-quotas.md §1.1-1.6).

A Produce is charged afterwards: it passes, is recorded, and its response has the throttle time for the excess. A Fetch
is decided on beforehand: above the quota it gets an empty response, "as if a non-empty response were returned".

The first Produce of a connection that was made while its client is over the quota is held for the throttle time, at
most the longest mute. Kafka lets it pass, so a client can evade its quota with a new connection for each request
(`new_connections`).

Differences from Kafka: Kafka decides on a Fetch when its data is ready, and discards the data if there is too much. A
proxy decides before it forwards the Fetch, and takes the size of the channel's last response for that of the next one;
Fetches at their brokers count as recorded. A response to a forwarded Fetch is delivered even if it is larger than
expected; then this response has the throttle time. A Fetch whose channel closes counts as delivered. A batch larger
than the whole window passes once the window is empty; Kafka never returns it (§1.5). Mutes are capped; Kafka's are not.
"""

from typing import Final

from quotas.limiters.announced import Announcements
from quotas.limiters.limiter import ADMITTED, Counted, Decision, Flow
from quotas.limiters.rate import NEVER_MS
from quotas.limiters.sampled import SampledLimit
from quotas.limiters.virtual_time import Backlog, SampledBacklog
from quotas.options import EngineOptions

# The estimate for an identity's first Fetch, before there is a response.
FIRST_FETCH_BYTES: Final = 65_536
# A Fetch that is at its broker for longer than this counts as delivered. Clients' max_wait_ms is 0.5 to 5 s.
FETCH_MS_MAX: Final = 6_000
_REFUSED: Final = Decision(refused=True, reason="new connection of a client far over its quota")
# Default max.partition.fetch.bytes: a consumer whose last responses were empty may always start with it.
FETCH_BYTES_MIN: Final = 1_048_576


class SampledLimiter(SampledLimit):
    """The limiter of policy `kip13`: Kafka's sampled windows (KIP-13), for all clients that share a quota."""

    __slots__ = (
        "_announcements",
        "_expected",
        "_fetching",
        "_held",
        "_holds",
        "_in_flight",
        "_mute_ms_max",
        "_next_ms",
        "enforced",
        "throttles",
        "uncounted",
        "version",
    )

    def __init__(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        super().__init__(limit, options.window_samples, int(options.window_seconds * 1000))
        self.throttles: set[Counted] = set()
        self.uncounted = 0
        self.version: object = None
        self.enforced = True
        self._in_flight = 0  # expected bytes of Fetches at the broker
        self._fetching: dict[Flow, None] = {}  # the channels of those Fetches, the oldest first
        self._expected = FIRST_FETCH_BYTES  # the estimate for a channel without history
        self._announcements = Announcements()
        self._next_ms = NEVER_MS  # when the next doubtful request may pass
        self._held = 0  # bytes of the first requests of new connections that wait
        self.configure(limit, options, now_ms)

    def configure(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit; recorded bytes stay, unless the windows have changed."""
        assert limit > 0, "a definition checks this"
        self.limit_to(limit)
        self._holds = options.new_connections == "held"
        self._mute_ms_max = int(options.mute_seconds_max * 1000)
        if self.resize(options.window_samples, int(options.window_seconds * 1000), now_ms):
            for flow in self._announcements.flows:
                flow.sample = self._rate.sample

    def used(self) -> int:
        """Return the bytes counted so far by all throttles while they were attached."""
        return sum(throttle.total for throttle in self.throttles) + self.uncounted

    def use_up_burst(self, now_ms: int) -> None:
        """Do nothing: a new limiter starts with empty windows, as in Kafka."""

    def produce(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Record a Produce; returns the throttle for the excess over the quota (KIP-13).

        A connection's first Produce is held instead while the quota is exceeded, if `new_connections` is `held`.
        """
        if self._announcements.flows and now_ms >= self._announcements.due_ms:
            self.take_back(now_ms)
        if self._holds and not flow.passed:
            decision = self._hold(flow, size, now_ms)
            if decision is not ADMITTED:
                return decision
        elif flow.held_since_ms >= 0:  # `new_connections` was changed while it waited
            self._release(flow)
            self._announcements.dequeue(flow)
        flow.passed = True
        rate = self._rate
        rate.record(size, now_ms)
        if rate.total <= self._safe and now_ms < rate.purge_at_ms:
            return ADMITTED  # the smallest window allows as much, and no sample is due to be emptied
        announcements = self._announcements
        # Doubtful bytes of others may never arrive, and mute no channel except those with doubtful requests.
        others = 0 if announcements.doubtful_bytes(flow, flow.missing) else announcements.doubtful
        return self._throttled(now_ms, others)

    def announce(self, flow: Flow, missing: int, now_ms: int) -> None:
        """Register that the admitted request has `missing` bytes still to arrive; late ones are subtracted
        (`take_back`).
        """
        flow.sample = self._rate.sample
        self._announcements.begin(flow, missing, now_ms)

    def take_back(self, now_ms: int) -> None:
        """Subtract recorded bytes that did not arrive in time."""
        for expired in self._announcements.expire(now_ms):
            self._rate.take_back(expired.lost, expired.sample)
            self._next_ms = min(self._next_ms, now_ms)
            expired.passed = False  # its late bytes wait as those of a new connection do

    def request_arrived(self, flow: Flow) -> None:
        """Register that all bytes of the announced request have arrived."""
        self._announcements.complete(flow)

    def _hold(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Hold a connection's first Produce while its client exceeds the quota.

        The hold is the mute that an existing connection would have, computed once, with all requests that wait before
        it counted as recorded. If it is longer than a request may wait, the request is refused at the end; otherwise
        any number of connections would pass together then.
        """
        announcements = self._announcements
        if announcements.doubtful_bytes(flow, flow.missing):
            return self._hold_doubtful(flow, size, now_ms)
        if flow.held_since_ms < 0:
            left_ms = self._rate.throttle_ms(self._limit, now_ms, self._held - announcements.doubtful)
            if left_ms <= 0:
                return ADMITTED
            hold_ms_max = min(self._mute_ms_max, flow.hold_ms_max)
            flow.waited = left_ms > hold_ms_max
            flow.hold_end_ms = now_ms + min(left_ms, hold_ms_max)
            flow.held_since_ms = now_ms
            flow.size = size
            self._held += size
        if flow.hold_end_ms > now_ms:
            return Decision(
                hold_until_ms=flow.hold_end_ms, reason="new connection of a client over its quota"
            )
        self._release(flow)
        # Requests that wait only for each other would all be refused: one of them passes, and is recorded.
        if flow.waited and self._rate.throttle_ms(self._limit, now_ms) > 0:
            return _REFUSED
        return ADMITTED

    def _hold_doubtful(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Hold a connection's first Produce with doubtful bytes.

        It waits as long as `_hold` says, without being counted there; then for earlier doubtful requests: each passes
        when the one before it is paid for, or did not arrive.
        """
        announcements = self._announcements
        if flow.held_since_ms < 0:
            left_ms = self._rate.throttle_ms(self._limit, now_ms, self._held - announcements.doubtful)
            if left_ms <= 0 and not announcements.doubtful and not announcements.must_wait(flow, now_ms):
                return self._next(flow, size, now_ms)
            flow.held_since_ms = now_ms
            flow.hold_end_ms = now_ms + min(self._mute_ms_max, flow.hold_ms_max)
            flow.due_ms = now_ms + left_ms
            flow.size = 0
        first = announcements.enqueue(flow, now_ms) and not announcements.doubtful
        if first and now_ms >= max(flow.due_ms, self._next_ms):
            return self._next(flow, size, now_ms)
        if now_ms >= flow.hold_end_ms:
            flow.held_since_ms = -1
            announcements.dequeue(flow)
            return _REFUSED
        until_ms = max(flow.due_ms, self._next_ms if first else announcements.retry_at_ms(now_ms))
        return Decision(
            hold_until_ms=min(until_ms, flow.hold_end_ms), reason="new connection that announces much"
        )

    def _next(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Admit one doubtful request; the next one passes when this one is paid for, or did not arrive."""
        flow.held_since_ms = -1
        self._announcements.dequeue(flow)
        self._next_ms = now_ms + int(size * 1000 / self._limit)
        return ADMITTED

    def _release(self, flow: Flow) -> None:
        """End the hold of a connection's first Produce."""
        if flow.held_since_ms >= 0:
            self._held -= flow.size
            flow.held_since_ms = -1

    def _throttled(self, now_ms: int, doubtful: int = 0) -> Decision:
        """Return the throttle for the excess over the quota, without counting `doubtful` bytes."""
        throttle_ms = self._rate.throttle_ms(self._limit, now_ms, -doubtful)
        if throttle_ms <= 0:
            return ADMITTED
        return Decision(throttle_ms=min(throttle_ms, self._mute_ms_max), reason="over quota")

    def fetch(self, flow: Flow, now_ms: int) -> Decision:
        """Admit a Fetch if another response of the size of the channel's last one is within the quota.

        Otherwise return its throttle time (KIP-219). An admitted one counts with that size until its response begins.
        """
        if flow.admitted >= 0:
            self._release_fetch(flow)
        if self._fetching:
            self._record_late(now_ms)
        rate = self._rate
        expected = flow.expected or self._expected
        throttle_ms = 0
        if rate.total + self._in_flight + expected > self._safe or now_ms >= rate.purge_at_ms:
            rate.record(expected, now_ms)  # as Kafka does: record, compare, take back
            throttle_ms = rate.throttle_ms(self._limit, now_ms, self._in_flight)
            rate.record(-expected, now_ms)
        if throttle_ms > 0:
            # If the window is empty, waiting longer cannot help: the request passes.
            empty_in_ms = max(rate.empty_in_ms(now_ms), self.window_ms if self._in_flight else 0)
            throttle_ms = min(throttle_ms, empty_in_ms, self._mute_ms_max)
            if throttle_ms > 0:
                return Decision(throttle_ms=throttle_ms, reason="fetch over quota")
        flow.admitted = expected
        flow.forwarded_ms = now_ms
        self._fetching[flow] = None
        self._in_flight += expected
        return ADMITTED

    def _release_fetch(self, flow: Flow) -> None:
        """Remove this channel's Fetch from those at the broker."""
        self._in_flight -= flow.admitted
        flow.admitted = -1
        self._fetching.pop(flow, None)

    def _record_late(self, now_ms: int) -> None:
        """Record Fetches that are at their broker for too long; otherwise they would count against the window for
        ever.
        """
        while self._fetching:
            flow = next(iter(self._fetching))
            if now_ms < flow.forwarded_ms + FETCH_MS_MAX:
                return
            flow.exposed = flow.admitted  # these bytes of the response are recorded
            self._release_fetch(flow)
            self._rate.record(flow.exposed, now_ms)

    def fetch_max_bytes(self, flow: Flow, requested: int, now_ms: int) -> int:
        """Return the max_bytes of an admitted Fetch (KAFKA-9677): at most what the quota allows in the windows now.

        It is also at most twice the size of the channel's last response (or FETCH_BYTES_MIN, if that is more), since
        several Fetches may be at the broker at once.
        """
        rate = self._rate
        granted = requested
        if flow.expected:
            known = 2 * flow.expected
            if known < FETCH_BYTES_MIN:
                known = FETCH_BYTES_MIN
            if granted > known:
                granted = known
        if granted > self._safe:
            granted = int(self._safe)
        others = self._in_flight
        if flow.admitted > 0:
            others -= flow.admitted
        if rate.total + others + granted > self._safe or now_ms >= rate.purge_at_ms:
            granted = max(1, min(granted, rate.left(self._limit, now_ms) - others))
        if not flow.expected and flow.admitted >= 0:  # without history the granted bytes are the estimate
            self._in_flight += granted - flow.admitted
            flow.admitted = granted
        return granted

    def delivered(self, size: int, now_ms: int) -> Decision:
        """Record bytes that pass without a decision; returns the throttle for the excess."""
        self._rate.record(size, now_ms)
        return self._throttled(now_ms)

    def fetched(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Record the bytes of a Fetch response; returns the throttle time for it if they exceed the quota."""
        if flow.admitted >= 0:
            self._release_fetch(flow)
        recorded, flow.exposed = flow.exposed, 0
        # One empty response does not mean that there is nothing to fetch; ten in a row do.
        flow.expected = self._expected = size if size > flow.expected // 2 else flow.expected // 2
        rate = self._rate
        rate.record(size - recorded if size > recorded else 0, now_ms)
        if rate.total <= self._safe and now_ms < rate.purge_at_ms:
            return ADMITTED
        return self._throttled(now_ms)

    @property
    def rate(self) -> float:
        """This process's share of the limit, in bytes/s."""
        return self._limit

    def new_backlog(self) -> Backlog:
        """Return a new backlog: the bytes that clients would have left to send if the quota were enforced."""
        return SampledBacklog(self._samples, self.window_ms)

    def room_in_ms(self, size: int, now_ms: int, consumes: bool, alone: bool) -> int:
        """Return the time in ms until a Fetch has room, or, for a Produce, until earlier bytes are within the quota."""
        rate = self._rate
        if not consumes:
            return 0 if alone else rate.throttle_ms(self._limit, now_ms)
        rate.record(size, now_ms)
        wait_ms = rate.throttle_ms(self._limit, now_ms)
        rate.record(-size, now_ms)
        return min(wait_ms, rate.empty_in_ms(now_ms))

    def muted_until_next(self, consumes: bool) -> bool:
        """True for Produce; False for Fetch, which gets an empty response if there is no room when it arrives."""
        return not consumes

    def observe(self, flow: Flow, size: int, now_ms: int, consumes: bool) -> int:  # noqa: ARG002 - both cost alike
        """Record bytes that pass in any case; return the throttle time in ms for the excess."""
        if flow.admitted >= 0:
            self._release_fetch(flow)
        self._release(flow)
        self._announcements.dequeue(flow)
        flow.expected = size
        self._rate.record(size, now_ms)
        return min(self._rate.throttle_ms(self._limit, now_ms), self._mute_ms_max)

    def leave(self, flow: Flow, now_ms: int) -> None:
        """Remove a closed channel: its Fetch at the broker counts as delivered; bytes that did not arrive do not
        count.
        """
        if flow.admitted >= 0:
            self._rate.record(flow.admitted, now_ms)
            self._release_fetch(flow)
        missing = self._announcements.remove(flow, now_ms)
        if missing:
            self._next_ms = min(self._next_ms, now_ms)
            self._rate.take_back(missing, flow.sample)
        self._release(flow)

    def debt_bytes(self, now_ms: int) -> float:
        """Return the bytes in the window beyond the quota."""
        return float(max(0, -self.room(now_ms)))
