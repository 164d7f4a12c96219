"""The interface of a limiter (`Limiter`): what it is given and what it returns.

A *flow* is a limiter's state of one channel in one direction: `Throttle.flow()` creates it, `Throttle.leave()` ends it.
It has attributes and no behaviour; a channel holds one for each direction, and only the limiter that owns it changes
it. The rules are in `throttles.bandwidth` and in the policies.
"""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Final, Protocol

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import BucketKey
from quotas.limiters.virtual_time import Backlog, BudgetTime, ConnectionTime
from quotas.options import EngineOptions

# ----------------------------------------------------------------------------------------------------
# The engine's decision on a request: admit, hold, throttle or refuse (KIP-13, KIP-219).
#
# A decision is data; `proxy.channel` carries it out (reads on, responds, mutes). `ADMITTED` is one shared constant, so
# that an unthrottled request makes no object: compare with `is`.


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one request.

    Attributes:
        hold_until_ms: do not read the payload before this time, then ask again (nothing is charged yet); 0 for no hold.
        throttle_ms: respond with this throttle_time_ms and mute the channel for it; 0 for no throttle.
        refused: the request has been held for as long as it may be and does not pass: nothing is charged.
        reason: a short constant for logs and admin pages; "" for `ADMITTED`.
    """

    hold_until_ms: int = 0
    throttle_ms: int = 0
    refused: bool = False
    reason: str = ""


ADMITTED: Final = Decision()


# ----------------------------------------------------------------------------------------------------
# The interfaces by which several processes share the limit of a limiter (`quotas.sharing.budgets`).

ALL_BROKERS: Final = -1  # in place of a broker, where one budget is for all of them
# Quota key, identity, broker.
LimiterKey = tuple[str, BucketKey, int]


class Lendable(Protocol):
    """A limiter of bytes, request time or tokens; its process may use only a share of its limit (`quotas.sharing`)."""

    limiter_key: LimiterKey | None
    limit: float  # per second, of all processes together

    @property
    def decides_again(self) -> bool:
        """Whether a request is decided on when it arrives, and not charged if it is too early; if False, it is charged.

        If True, `Budgets.waits` may shorten a mute, because this process's share of the limit may grow soon. If it does
        not grow, the next request waits again.
        """

    def lend(self, share: float, now_ms: int) -> None:
        """Set the share (0 to 1) of the limit that this process may use from now on; credit and debt stay the same."""

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Start without a burst, as if it had been used up at `since_ms`: only the time since then counts as credit."""

    def used(self) -> float:
        """Return the amount used so far, in the limit's unit."""


class Borrowing(Lendable, Protocol):
    """A limiter of a class that shares a capacity: its rate is its share of the limit, and what is lent to it."""

    @property
    def throttles(self) -> Sized:
        """Those whose bytes `used` adds up."""

    @property
    def rate(self) -> float:
        """The rate now, in bytes/s."""

    def unpaid_bytes(self, now_ms: int) -> float:
        """Return how many of the bytes that `used` counts are not paid for yet: 0 while the whole burst is unused."""

    def lend(self, share: float, now_ms: int, loan: float = 0.0) -> None:
        """Set the share of the limit, and the loan in bytes/s; credit and debt stay the same."""


class Budgets(Protocol):
    """Sets each limiter's share of its limit, and counts those that wait for more (`quotas.sharing.budgets`)."""

    def begin(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Set a new limiter's share; it begins without a burst."""

    def lend(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Set a limiter's share to the one that this process may use now."""

    def waits(self, limiter: Lendable, waiting: object, decision: Decision, now_ms: int) -> Decision:
        """Register that a decision makes a connection wait: this is a demand for a larger share of the limit.

        Args:
            waiting: identifies the connection.

        Returns:
            The decision, with a shorter mute if the share may change soon.
        """

    def would_wait(self, limiter: Lendable, waiting: object, ms: int, now_ms: int) -> None:
        """Register that a connection would wait for `ms` if quotas were enforced; only of a class of a capacity."""

    def leased_until_ms(self, now_ms: int) -> int | None:
        """Return until when the present shares may be used; None if no lease is in force."""

    def end(self, limiter: Lendable) -> None:
        """Remove a limiter that is no longer used, and its demand for a share."""


class ThrottleSource(Protocol):
    """The part of the engine that throttles use: the options, definitions and shares in force.

    Attributes:
        options, definitions: those in force.
        relaying: whether all enforcement is switched off (SIGUSR1).
        version: an object that is replaced by every change of definitions, options or shares; a throttle that was
            refreshed at another version refreshes itself before its next use.
        budgets: None if this process has every quota by itself.
        lease_until_ms: when the lease of this process's shares ends; None without a lease that can end, as
            in a single process.
    """

    options: EngineOptions
    definitions: Definitions
    version: object
    enforcing: bool
    relaying: bool
    budgets: Budgets | None
    lease_until_ms: int | None

    def end_lease(self, now_ms: int) -> None:
        """If the lease of this process's shares has ended, make every limiter read its share again."""


# No bound of the channel's own: longer than any configurable hold or wait, so that the policy's bound applies.
MS_UNBOUNDED: Final = 1 << 40
# A channel retries a round trip and a timer after the time it was told; WAN round trips are below this.
GRACE_MS: Final = 250


@dataclass(slots=True, eq=False)
class Flow:
    """A limiter's state of one channel in one direction (Produce or Fetch), which only that limiter changes."""

    limiter: "Limiter | None" = None  # the owner of the other attributes
    connection: ConnectionTime | None = None  # its time, as it would be if quotas were enforced
    hold_ms_max: int = MS_UNBOUNDED  # the channel's own bound of a hold, for group members
    expected: int = 0  # bytes of the last Fetch response: the estimate for the next one
    # The smallest and the largest batch of its last Fetch responses, in bytes (`batches`); 0 = none was seen.
    batch_least: int = 0
    batch_most: int = 0
    admitted: int = -1  # bytes charged for the Fetch at the broker; -1 = none
    forwarded_ms: int = 0  # when that Fetch was forwarded
    wait_ms_max: int = MS_UNBOUNDED  # the longest time that it may wait at the broker
    # When the mute ends that the last response to a Fetch told; 0 unless it was empty.
    told_until_ms: int = 0
    held_since_ms: int = -1  # when the waiting Produce was first seen; -1 = none waits
    hold_end_ms: int = 0  # the latest end of its hold
    passed: bool = False  # whether a request has passed before
    # A Produce that is charged at its header, while its bytes come (`announced`).
    missing: int = 0  # bytes of the request to decide on that have not arrived, set by the channel
    trusted: int = 0  # the largest number of bytes that were announced and arrived
    announced: int = 0  # bytes that are charged and have not arrived
    announced_ms: int = 0  # when they were charged
    lost: int = 0  # bytes returned because they did not arrive in time; charged again on arrival
    saved: int = 0  # of a Produce that has passed: bytes that were saved for it (`savings`)
    sample: tuple[int, int] = (0, 0)  # the sample of the rate in which they are recorded
    # The rest belongs to policy `schedule`.
    until_ms: int = 0  # the schedule's time after the charge of the request under way
    returned_ms: int = 0  # the schedule's returned time at that moment
    granted: int = (
        0  # bytes that the response to the Fetch under way may have, unless its first batch is larger
    )
    exposed: int = 0  # bytes that its response may bring beyond the charge
    shares: bool = False  # whether it is a share consumer's, set by the channel
    tag: int = 0  # the virtual time, in bytes, at which this channel's next request begins
    start: int = 0  # the same for the Fetch at the broker
    size: int = 0  # bytes of its place in the queue
    queued: bool = False  # whether it has a place in the queue, for a waiting or an expected request
    due_ms: int = 0  # when it was told to retry
    waited: bool = False  # whether its request had to wait, so that the channel is backlogged

    def forget(self) -> None:
        """Reset the state when the channel moves to another limiter; the old one has already removed the channel."""
        self.admitted = self.held_since_ms = -1
        self.announced = self.lost = self.trusted = self.until_ms = self.granted = self.exposed = (
            self.saved
        ) = 0
        self.tag = self.start = self.size = self.due_ms = self.hold_end_ms = 0
        self.queued = self.passed = self.waited = False
        self.wait_ms_max = MS_UNBOUNDED


class Counted(Protocol):
    """A throttle with a count of bytes; a limiter's use is the sum over its throttles (`Lendable.used`)."""

    total: int


class Limiter(Lendable, Protocol):
    """Decides on requests by one policy, `kip13` or `schedule`, for all clients that share a quota or for a topic."""

    throttles: set[Counted]  # the attached ones
    uncounted: int  # of those that are not attached any more, less what the attached ones had before
    version: object  # the engine's version when it was last configured
    enforced: bool  # whether the engine enforced at that time
    virtual_time: BudgetTime | None  # None before the first bytes that are only observed

    def configure(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit or new options live; what was recorded stays."""

    def settle(self, now_ms: int) -> None:
        """Clear the debt made while quotas were not enforced; called when enforcement begins. An unused burst stays."""

    def use_up_burst(self, now_ms: int) -> None:
        """Start without a burst, and without debt, since this limiter replaces one of another policy."""

    def produce(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Decide on a Produce; arguments and result as in `Throttle.produce`."""

    def fetch(self, flow: Flow, now_ms: int) -> Decision:
        """Decide on a Fetch before it is forwarded, as `Throttle.fetch`."""

    def fetch_max_bytes(self, flow: Flow, requested: int, now_ms: int) -> int:
        """Return the max_bytes of an admitted Fetch, as `Throttle.fetch_max_bytes`."""

    def fetched(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Charge a Fetch response when it begins, as `Throttle.fetched`."""

    def delivered(self, size: int, now_ms: int) -> Decision:
        """Charge a response without a preceding `fetch`, as `Throttle.delivered`."""

    def observe(self, flow: Flow, size: int, now_ms: int, consumes: bool) -> int:
        """Record bytes that pass even beyond the limit; returns the throttle time in ms for the excess.

        This is used while quotas are not enforced, and for topics, whose bytes are known only afterwards.
        """

    @property
    def rate(self) -> float:
        """This process's share of the limit, in bytes/s."""

    def new_backlog(self) -> Backlog:
        """Return a new backlog: the bytes that clients would have left to send if the quota were enforced."""

    def room_in_ms(self, size: int, now_ms: int, consumes: bool, alone: bool) -> int:
        """Return the least time in ms until a request of `size` bytes may pass.

        Args:
            consumes: whether it is a Fetch, not a Produce.
            alone: whether this connection was also charged last: its mute after that charge covers all debt.
        """

    def muted_until_next(self, consumes: bool) -> bool:
        """Whether a channel whose request has passed is muted until its next request may pass."""

    def free_ms(self, now_ms: int) -> int:
        """Return the unused part of the limit as time in ms at the limit's rate; 0 if nothing is unused."""

    def elapse(self, ms: int) -> None:
        """Act as if `ms` more had passed since all records: a predicted wait, while quotas are not enforced."""

    def announce(self, flow: Flow, missing: int, now_ms: int) -> None:
        """Register a request that is charged before its bytes have arrived, as `Throttle.announce`."""

    def take_back(self, now_ms: int) -> None:
        """Take back the charge of announced bytes that did not arrive in time; `Flow.lost` has their number."""

    def request_arrived(self, flow: Flow) -> None:
        """Register that an announced request has arrived, as `Throttle.request_arrived`."""

    def leave(self, flow: Flow, now_ms: int) -> None:
        """Remove a closed channel: its place in the queue, and the charge of bytes that never arrived."""

    def debt_bytes(self, now_ms: int) -> float:
        """Return the bytes that have passed beyond the limit up to now."""
