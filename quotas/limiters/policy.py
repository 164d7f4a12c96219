"""Creates and updates the limiter of the policy in force.

Used for clients' identities (`engine`, KIP-13) and for topics (`topic_quotas`). The interface of a limiter is
`flow.Limiter`.
"""

from typing import Protocol

from quotas.limiters.flow import Limiter
from quotas.limiters.kip13 import SampledLimiter
from quotas.limiters.lending import LimiterKey, ThrottleSource
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions


class Rules(ThrottleSource, Protocol):
    """The engine's options and version, as far as a limiter needs them."""

    @property
    def options(self) -> EngineOptions:
        """The options in force."""


def limiter_in_force(
    limiter: Limiter | None, limit: float, rules: Rules, limiter_key: LimiterKey, now_ms: int
) -> Limiter:
    """Return the limiter with the current limit and options: the given one, or a new one of the policy in force."""
    options, budgets = rules.options, rules.budgets
    kind = SampledLimiter if options.policy == "kip13" else ScheduledLimiter
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
