"""Which arithmetic limits bytes: the one of the policy in force, brought up to date when something has changed.

One way for all who keep a limiter: clients' identities (`engine`, KIP-13) and topics (`topic_quotas`). What a
limiter is can be read in `turn`; this module keeps none.
"""

from typing import Protocol

from quotas.options import EngineOptions
from quotas.sampled import SampledThrottle
from quotas.schedule import ScheduledThrottle
from quotas.turn import Limiter

__all__ = ["Rules", "brought_up"]


class Rules(Protocol):
    """What is in force."""

    version: object  # replaced by every change
    enforcing: bool

    @property
    def options(self) -> EngineOptions:
        """The options in force."""


def brought_up(limiter: Limiter | None, limit: float, rules: Rules, now_ms: int) -> Limiter:
    """Give a limiter as it is to be now: the same one, or another where there is none of this policy yet."""
    options = rules.options
    kind = SampledThrottle if options.policy == "kip13" else ScheduledThrottle
    if limiter is None or type(limiter) is not kind:
        before = limiter
        limiter = kind(limit, options, now_ms)
        if before is not None:  # a change of policy is no reason for another burst
            limiter.use_up_burst(now_ms)
    elif limiter.version is not rules.version:
        limiter.configure(limit, options, now_ms)
        if rules.enforcing and not limiter.enforced:
            limiter.settle(now_ms)
    limiter.enforced = rules.enforcing
    limiter.version = rules.version
    return limiter
