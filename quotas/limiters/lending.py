"""The interfaces by which several processes share the limit of a limiter (`quotas.sharing.budgets`)."""

from typing import Final, Protocol

from quotas.decisions import Decision
from quotas.definitions.entities import BucketKey

ALL_BROKERS: Final = -1  # in place of a broker, where one budget is for all of them
# Quota key, identity, broker.
LimiterKey = tuple[str, BucketKey, int]


class Lendable(Protocol):
    """A limiter of any kind: bytes, request time, tokens."""

    limiter_key: LimiterKey | None
    limit: float  # per second, of all processes together

    @property
    def decides_again(self) -> bool:
        """Whether a request that arrives after a shortened mute is decided on again before it is charged."""

    def lend(self, share: float, now_ms: int) -> None:
        """Use this share of the limit from now on; credit and debt stay the same."""

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Begin as if the burst had been used up at `since_ms`."""

    def used(self) -> float:
        """Return the amount used so far, in the limit's unit."""


class Budgets(Protocol):
    """The shares that this process has of its limiters' limits."""

    def begin(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Give a new limiter its share; it begins without a burst."""

    def lend(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Give a limiter its current share."""

    def waits(self, limiter: Lendable, waiting: object, decision: Decision, now_ms: int) -> Decision:
        """Note that the connection `waiting` has to wait; returns the decision to carry out."""

    def end(self, limiter: Lendable) -> None:
        """Forget a limiter."""


class ThrottleSource(Protocol):
    """The engine, as far as every throttle needs it.

    Attributes:
        version: replaced by every change of definitions, options and shares; throttles compare it.
        budgets: None if this process has every quota by itself.
        lease_until_ms: the end of the lease of the shares; None while no lease can end, so that a single process
            compares no times.
    """

    version: object
    enforcing: bool
    budgets: Budgets | None
    lease_until_ms: int | None

    def end_lease(self, now_ms: int) -> None:
        """If the lease of the shares is over, make every limiter take its share again before its next use."""
