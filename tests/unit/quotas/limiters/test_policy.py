"""quotas.limiters.policy: the arithmetic of the policy in force; what it does is tested with `sampled` and
`schedule`.
"""

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from quotas.engine import Engine
from quotas.limiters.flow import Flow
from quotas.limiters.kip13 import SampledLimiter
from quotas.limiters.policy import limiter_in_force
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions

PLACE = (PRODUCER_BYTE_RATE, BucketKey(None, "a"), 1)
SCHEDULE = EngineOptions(policy="schedule")


def test_limiter_stays_until_the_policy_changes() -> None:
    rules = Engine(EngineOptions(), Definitions())
    first = limiter_in_force(None, 1000, rules, PLACE, 0)
    assert limiter_in_force(first, 2000, rules, PLACE, 0) is first
    rules.update(SCHEDULE, Definitions(), 0)
    assert [type(first), type(limiter_in_force(first, 1000, rules, PLACE, 0))] == [
        SampledLimiter,
        ScheduledLimiter,
    ]


def test_change_of_policy_is_no_reason_for_another_burst() -> None:
    rules = Engine(SCHEDULE, Definitions())
    before = limiter_in_force(None, 1000, Engine(EngineOptions(), Definitions()), PLACE, 0)
    fresh, changed = (
        limiter_in_force(None, 1000, rules, PLACE, 0),
        limiter_in_force(before, 1000, rules, PLACE, 0),
    )
    assert [one.observe(Flow(), 1000, 0, consumes=False) for one in (fresh, changed)] == [0, 1000]
