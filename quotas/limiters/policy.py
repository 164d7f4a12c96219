"""Creates and updates the limiter of the policy in force.

Used for clients' identities (`engine`, KIP-13) and for topics (`topic_quotas`). The interface of a limiter is
`flow.Limiter`.
"""

from typing import Protocol

from quotas.decisions import Decision
from quotas.limiters.flow import Flow, Limiter, LimiterKey
from quotas.limiters.kip13 import SampledThrottle
from quotas.limiters.schedule import ScheduledThrottle
from quotas.options import EngineOptions

__all__ = ["Budgets", "Rules", "limiter_in_force"]


class Budgets(Protocol):
    """The shares of this process (`quotas.sharing.budgets`), as far as a limiter needs them."""

    def begin(self, limiter: Limiter, limiter_key: LimiterKey, now_ms: int) -> None:
        """Give a new limiter its share; it begins without a burst."""

    def refreshed(self, limiter: Limiter, limiter_key: LimiterKey, now_ms: int) -> None:
        """Give a limiter its share again."""

    def waits(self, limiter: Limiter, flow: Flow, decision: Decision, now_ms: int) -> Decision:
        """Note that a connection waits; returns the decision to carry out."""

    def end(self, limiter: Limiter) -> None:
        """Forget a limiter."""


class Rules(Protocol):
    """The engine's options and version, as far as a limiter needs them."""

    version: object  # replaced by every change
    enforcing: bool
    budgets: Budgets | None  # None: this process has every quota by itself

    @property
    def options(self) -> EngineOptions:
        """The options in force."""


def limiter_in_force(
    limiter: Limiter | None, limit: float, rules: Rules, limiter_key: LimiterKey, now_ms: int
) -> Limiter:
    """Return the limiter with the current limit and options: the given one, or a new one of the policy in force."""
    options, budgets = rules.options, rules.budgets
    kind = SampledThrottle if options.policy == "kip13" else ScheduledThrottle
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
            budgets.refreshed(limiter, limiter_key, now_ms)
        if rules.enforcing and not limiter.enforced:
            limiter.settle(now_ms)
    limiter.enforced = rules.enforcing
    limiter.version = rules.version
    return limiter
