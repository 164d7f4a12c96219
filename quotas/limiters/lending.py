"""What a limiter needs so that several processes can have its limit together (`quotas.sharing.budgets`)."""

from typing import Final, Protocol

from quotas.decisions import Decision
from quotas.definitions.entities import BucketKey

__all__ = ["ALL_BROKERS", "Budgets", "Lendable", "LimiterKey", "ThrottleSource"]

ALL_BROKERS: Final = -1  # in place of a broker, where one budget is for all of them
# Quota key, identity, broker.
LimiterKey = tuple[str, BucketKey, int]


class Lendable(Protocol):
    """A limiter of any kind: bytes, request time, tokens."""

    limiter_key: LimiterKey | None
    limit: float  # per second, of all processes together

    @property
    def decides_again(self) -> bool:
        """Whether a request that comes after a shortened mute is decided on again, and not charged before."""

    def lend(self, share: float, now_ms: int) -> None:
        """Use this share of the limit from now on; credit and debt stay the same."""

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Begin without a burst, but for what has come since that time."""

    def used(self) -> float:
        """Return what was used so far, in the limit's unit."""


class Budgets(Protocol):
    """The shares of this process."""

    def begin(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Give a new limiter its share; it begins without a burst."""

    def lend(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Give a limiter its share again."""

    def waits(self, limiter: Lendable, waiting: object, decision: Decision, now_ms: int) -> Decision:
        """Note that a connection waits; returns the decision to carry out."""

    def end(self, limiter: Lendable) -> None:
        """Forget a limiter."""


class ThrottleSource(Protocol):
    """The engine, as far as every throttle needs it.

    Attributes:
        version: replaced by every change of definitions, options and shares; throttles compare it.
        budgets: None if this process has every quota by itself.
        lease_until_ms: from then on limiters take their shares again before they are used; None while no lease can end,
            so that a process by itself compares no times.
    """

    version: object
    enforcing: bool
    budgets: Budgets | None
    lease_until_ms: int | None

    def end_lease(self, now_ms: int) -> None:
        """Have every limiter take its share again before it is used, if the lease of the shares is over."""
