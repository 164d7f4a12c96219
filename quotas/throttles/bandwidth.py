"""The throttle of one client's Produce or Fetch bytes (KIP-13, KIP-219).

A channel uses one `Throttle` for each direction of its client at its broker. The throttle counts, refreshes itself
when definitions or options have changed, and delegates to the limiter of the policy in force:
`limiters.kip13.SampledLimiter` (kip13) or `schedule.ScheduledLimiter`. Clients that share a quota share a limiter.
The arithmetic is in the limiters; holds and mutes are carried out by the channel.
"""

from dataclasses import replace
from typing import Protocol

from quotas.definitions.classes import NEWCOMERS, NEWCOMERS_BURST_SECONDS, SHARED_BURST_SECONDS, Terms
from quotas.definitions.kinds import Kind
from quotas.limiters.announced import ARRIVAL_MS
from quotas.limiters.exempt import ExemptLimiter
from quotas.limiters.kip13 import SampledLimiter
from quotas.limiters.limiter import ADMITTED, Decision, Flow, Limiter, LimiterKey, ThrottleSource
from quotas.limiters.schedule import ScheduledLimiter
from quotas.limiters.virtual_time import TOLD_MS_MAX
from quotas.throttles.figures import ClientThrottle
from quotas.throttles.prediction import predict


class Source(ThrottleSource, Protocol):
    """The part of the engine that a throttle of bytes uses."""

    def attach(self, throttle: "Throttle", now_ms: int) -> tuple[float | None, Limiter | None]:
        """Return the client's limit in bytes/s, and the limiter of all clients that share it; both None: unlimited."""

    def return_missing(self, limiter: Limiter, before: Limiter, size: int, counted: int, now_ms: int) -> None:
        """Take `size` bytes that did not arrive off what a limiter pays for another one, which had admitted them.

        Args:
            counted: how many of them the limiter's throttles still count.
        """

    def release(self, limiter: Limiter, throttle: "Throttle") -> None:
        """Detach a throttle from its limiter."""


class Throttle(ClientThrottle):
    """The throttle of one client's Produce or Fetch bytes at one broker: decides on its requests, and counts them."""

    __slots__ = ("_limiter", "_source", "_version", "broker", "flows")

    def __init__(self, source: Source, kind: Kind, user: str, client_id: str, broker: int) -> None:
        super().__init__(kind, user, client_id)
        self._source = source
        self.broker = broker
        self._version: object = None
        self._limiter: Limiter | None = None
        self.flows = 0  # the number of attached channels

    def flow(self) -> Flow:
        """Attach a channel; returns its state, which it passes to the other calls. `leave` detaches it."""
        self.flows += 1
        return Flow()

    def leave(self, flow: Flow, now_ms: int) -> None:
        """Detach a channel that was closed or belongs to another client now.

        The charge for the missing bytes of an incomplete request is given back.
        """
        self.flows -= 1
        missing = max(flow.announced, 0) + flow.lost
        self.total -= missing
        if flow.limiter is not None:
            if missing and self._limiter is not None and flow.limiter is not self._limiter:
                self._source.return_missing(self._limiter, flow.limiter, missing, 0, now_ms)
            flow.limiter.leave(flow, now_ms)
            flow.limiter = None

    def produce(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Decide on a Produce when its header was read, or when its hold is over.

        Args:
            flow: the channel's state; `Flow.missing` is the number of bytes still to arrive.
            size: the frame's length without its prefix, known from the header (KIP-13 counts these bytes).
            now_ms: monotonic.

        Returns:
            ADMITTED, or a decision with one of these:
            throttle_ms: the request passes, the response has this throttle time, and the channel is muted from now on.
            hold_until_ms: leave the payload unread; call again at that time (or earlier) with the same size.
            refused: the longest hold is over, and the request does not pass.
        """
        source = self._source
        if self._version is not source.version or (
            source.lease_until_ms is not None and now_ms >= source.lease_until_ms
        ):
            self._refresh(now_ms)
        limiter = self._limiter
        if flow.limiter is not limiter:
            self._rehome(flow, limiter, now_ms)
        if limiter is None:
            self.total += size
            return ADMITTED
        if not source.enforcing:
            return self._observe(limiter, flow, size, now_ms, consumes=False)
        held_since_ms = flow.held_since_ms
        decision = limiter.produce(flow, size, now_ms)
        if decision is not ADMITTED and source.budgets is not None:
            decision = source.budgets.waits(limiter, flow, decision, now_ms)
        if decision.hold_until_ms:
            return decision
        if decision is not ADMITTED or held_since_ms >= 0:
            held_ms = now_ms - held_since_ms if held_since_ms >= 0 else 0
            self.count(decision.throttle_ms + held_ms)
        if not decision.refused:
            self.total += size
        return decision

    def announce(self, flow: Flow, missing: int, now_ms: int) -> bool:
        """Register that the Produce admitted now is charged as a whole while `missing` bytes have not arrived.

        The channel subtracts arriving bytes from `Flow.announced`. Before it forwards more bytes it calls
        `bytes_arrived`, and then `produce_rest` if `Flow.lost` is above 0; at the end it calls `request_arrived`.
        Returns False if nothing is limited here, so that none of these calls is needed.
        """
        limiter = self._limiter
        if limiter is None or flow.limiter is not limiter or not self._source.enforcing:
            return False
        limiter.announce(flow, missing, now_ms)
        return True

    def produce_rest(self, flow: Flow, now_ms: int) -> Decision:
        """Charge the late bytes (`Flow.lost`) again; returns the same decisions as `produce`."""
        missing = flow.missing = flow.lost
        self.refresh(now_ms)
        if flow.limiter is not None and self._limiter is not None and flow.limiter is not self._limiter:
            self._source.return_missing(self._limiter, flow.limiter, missing, missing, now_ms)
        decision = self.produce(flow, missing, now_ms)
        if not decision.hold_until_ms and not decision.refused:
            self.total -= missing  # it was counted when its header was seen
            flow.lost = 0
            self.announce(flow, missing, now_ms)
        else:
            flow.lost = missing  # also at another limiter, which knows nothing of it
        return decision

    def bytes_arrived(self, flow: Flow, now_ms: int) -> None:
        """Give back the charge of an announced request's missing bytes if they are late; they are then `Flow.lost`.

        Call it when more bytes have arrived, before they are forwarded.
        """
        if flow.limiter is not None and not flow.lost and now_ms >= flow.announced_ms + ARRIVAL_MS:
            flow.limiter.take_back(now_ms)

    def request_arrived(self, flow: Flow) -> None:
        """Register that an announced request has arrived completely, so that its charge is final."""
        if flow.limiter is not None:
            flow.limiter.request_arrived(flow)

    def fetch(self, flow: Flow, now_ms: int) -> Decision:
        """Decide on a Fetch before it is forwarded: ADMITTED, or throttle_ms: send an empty response now, and mute.

        An admitted Fetch, if `limits` is true, may ask for `fetch_max_bytes` and wait for `Flow.wait_ms_max`.
        """
        source = self._source
        if self._version is not source.version or (
            source.lease_until_ms is not None and now_ms >= source.lease_until_ms
        ):
            self._refresh(now_ms)
        limiter = self._limiter
        if flow.limiter is not limiter:
            self._rehome(flow, limiter, now_ms)
        if limiter is None or not source.enforcing:
            if flow.connection is not None:
                flow.connection.arrive(now_ms)
            return ADMITTED
        if flow.told_until_ms:
            _count_told(flow, now_ms)
        decision = limiter.fetch(flow, now_ms)
        if decision is not ADMITTED:
            if source.budgets is not None:
                decision = source.budgets.waits(limiter, flow, decision, now_ms)
            flow.told_until_ms = now_ms + decision.throttle_ms
            self.count(decision.throttle_ms)
        return decision

    def fetch_beside(self, flow: Flow, now_ms: int) -> Decision:
        """Decide on a Fetch that another throttle decides on, and that may bring bytes which count here as well.

        Returns ADMITTED, or throttle_ms while the client is in debt here. Nothing is charged.
        """
        limiter = self._limiter if self.limits(now_ms) else None
        # As for a Produce: for a Fetch it is the time until another one has room.
        wait_ms = 0 if limiter is None else limiter.room_in_ms(0, now_ms, consumes=False, alone=False)
        if limiter is None or not wait_ms:
            return ADMITTED
        mute_ms_max = int(self._source.options.mute_seconds_max * 1000)
        decision = Decision(throttle_ms=min(wait_ms, mute_ms_max), reason="fetch while in debt")
        if self._source.budgets is not None:
            decision = self._source.budgets.waits(limiter, flow, decision, now_ms)
        self.count(decision.throttle_ms)
        return decision

    def fetch_arrived(self, flow: Flow, now_ms: int) -> bool:
        """Register a Fetch before it is decided on (`fetch`); returns whether an enforced quota limits it."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        if self._limiter is None:
            return False
        if self._source.enforcing:
            return True
        if flow.connection is not None:
            flow.connection.arrive(now_ms)
        return False

    def backlog_bytes(self, now_ms: int) -> float:
        """Return the bytes that the clients with this quota would have left to send if it were enforced.

        They are taken to send at the same rate. 0 while quotas are enforced.
        """
        limiter = self._limiter
        if limiter is None or limiter.virtual_time is None or self._source.enforcing:
            return 0.0
        backlog = limiter.virtual_time.backlog
        return 0.0 if backlog is None else backlog.bytes(limiter.rate, now_ms)

    def fetch_max_bytes(self, flow: Flow, requested: int, now_ms: int) -> int:
        """Return the max_bytes of an admitted Fetch: at most `requested`, at least 1."""
        limiter = self._limiter
        if limiter is None or flow.limiter is not limiter or not self._source.enforcing:
            return requested
        return limiter.fetch_max_bytes(flow, requested, now_ms)

    def fetched(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Charge a Fetch response of `size` bytes (4 + body) when it begins.

        Returns:
            ADMITTED; or throttle_ms, which is written into this response, and for which the channel is muted.
        """
        source = self._source
        if self._version is not source.version or (
            source.lease_until_ms is not None and now_ms >= source.lease_until_ms
        ):
            self._refresh(now_ms)
        self.total += size
        limiter = self._limiter
        if flow.limiter is not limiter:
            self._rehome(flow, limiter, now_ms)
        if limiter is None:
            return ADMITTED
        if not source.enforcing:
            self.total -= size
            return self._observe(limiter, flow, size, now_ms, consumes=True)
        decision = limiter.fetched(flow, size, now_ms)
        if decision is not ADMITTED:
            if source.budgets is not None:
                decision = source.budgets.waits(limiter, flow, decision, now_ms)
            self.count(decision.throttle_ms)
        return decision

    def fetched_none(self, flow: Flow, now_ms: int) -> None:
        """Give back the charge of an admitted Fetch whose response brought nothing that counts here."""
        if flow.limiter is not None and flow.admitted >= 0:
            flow.limiter.fetched(flow, 0, now_ms)
        self.vacate(flow, now_ms)

    def vacate(self, flow: Flow, now_ms: int) -> None:
        """Leave the channel's place in the queue to others: its next Fetch is decided on by another throttle."""
        if flow.limiter is not None:
            flow.limiter.leave(flow, now_ms)

    def delivered(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Charge a response without a preceding `fetch`; the result is that of `fetched`.

        A Fetch under way is not affected.
        """
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if limiter is not None and not self._source.enforcing:
            return self._observe(limiter, flow, size, now_ms, consumes=True)
        self.total += size
        if limiter is None:
            return ADMITTED
        decision = limiter.delivered(size, now_ms)
        if decision is not ADMITTED:
            self.count(decision.throttle_ms)
        return decision

    def debt_bytes(self, now_ms: int) -> float:
        """Return by how many bytes the clients that share this quota have exceeded it; 0 if it is unlimited."""
        return 0.0 if self._limiter is None else self._limiter.debt_bytes(now_ms)

    def in_use(self, now_ms: int) -> bool:  # noqa: ARG002 - for every time
        """Whether a channel is attached."""
        return self.flows > 0

    def limits(self, now_ms: int) -> bool:
        """Whether a quota is enforced here now; if not, a Fetch need not be decoded."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        return self._limiter is not None and self._source.enforcing

    def refresh(self, now_ms: int) -> None:
        """Apply the definitions and options in force, if they have changed."""
        if self._version is not self._source.version:
            self._refresh(now_ms)

    def attach_again(self) -> None:
        """Ask for the limiter again at the next use."""
        self._version = None

    def detach(self) -> None:
        """Detach from the limiter; the next call attaches again."""
        if self._limiter is not None:
            self._source.release(self._limiter, self)
        self._limiter = self._version = None

    def _refresh(self, now_ms: int) -> None:
        self._source.end_lease(now_ms)
        self.begin(now_ms)
        before = self._limiter
        self.limit, after = self._source.attach(self, now_ms)
        if after is not before:
            if after is not None:
                after.throttles.add(self)
                after.uncounted -= self.total
            self._limiter = after
            if before is not None:
                self._source.release(before, self)
        self._version = self._source.version

    def _rehome(self, flow: Flow, limiter: Limiter | None, now_ms: int) -> None:
        """Move a channel to another limiter, or to none; its state at the old limiter is removed."""
        if flow.limiter is not None:
            flow.limiter.leave(flow, now_ms)
            flow.forget()
        flow.limiter = limiter

    def _observe(self, limiter: Limiter, flow: Flow, size: int, now_ms: int, consumes: bool) -> Decision:
        """Charge bytes, and count the throttle that would have applied with enforcement; returns ADMITTED."""
        self.total += size
        source = self._source
        if source.budgets is not None and source.lease_until_ms is None:
            return ADMITTED  # what it may use is not known yet, or not any more
        waits_ms = predict(limiter, flow, self, size, now_ms, consumes)
        if waits_ms > 0 and source.budgets is not None:
            source.budgets.would_wait(limiter, flow, waits_ms, now_ms)
        return ADMITTED


def _count_told(flow: Flow, now_ms: int) -> None:
    """Add the time between the end of the mute that the last empty response told and this Fetch to `told_ms`."""
    if flow.connection is not None:
        flow.connection.told_ms += min(max(0, now_ms - flow.told_until_ms), TOLD_MS_MAX)
    flow.told_until_ms = 0


def limiter_in_force(
    limiter: Limiter | None,
    limit: float,
    rules: ThrottleSource,
    limiter_key: LimiterKey,
    now_ms: int,
    *,
    terms: Terms | None = None,
) -> Limiter:
    """Return a limiter with the current limit and options: the given one, or a new one of the policy in force.

    Args:
        limiter: the present limiter; None if there is none yet.
        rules: the options and shares in force.
        limiter_key: what it limits: the clients that share a quota, or a topic.
        terms: those of the class that it limits, if that shares a capacity.
    """
    options, budgets = rules.options, rules.budgets
    exempt = terms is not None and terms.exempt
    kind: type[SampledLimiter | ScheduledLimiter]
    kind = SampledLimiter if options.policy == "kip13" else ExemptLimiter if exempt else ScheduledLimiter
    if terms is not None:
        burst_seconds = min(options.burst_seconds, SHARED_BURST_SECONDS)
        if limiter_key[1] == NEWCOMERS:
            burst_seconds = NEWCOMERS_BURST_SECONDS
        options = replace(options, burst_seconds=burst_seconds)
    if limiter is None or type(limiter) is not kind:
        before = limiter
        limiter = kind(limit, options, now_ms)
        limiter.limiter_key = limiter_key
        if budgets is not None:
            if before is not None:
                budgets.end(before)
            budgets.begin(limiter, limiter_key, now_ms)
        if before is not None:  # a change of policy is no reason for another burst
            limiter.use_up_burst(now_ms)
    elif limiter.version is not rules.version:
        limiter.configure(limit, options, now_ms)
        if budgets is not None:
            budgets.lend(limiter, limiter_key, now_ms)
        if rules.enforcing and not limiter.enforced:
            limiter.settle(now_ms)
    limiter.enforced = rules.enforcing
    limiter.version = rules.version
    return limiter
