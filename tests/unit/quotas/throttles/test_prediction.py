"""quotas.throttles.prediction: waits that would have been, request by request; ms throughout.

The quota is 1 MB/s. kip13: 11 windows of 1 s, of which 10 count at the start, so 10 MB are free. schedule: a burst of
1 s, so 1 MB is free.
"""

from dataclasses import replace

import pytest

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.limiters.limiter import ADMITTED, Flow
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions, Mode, Policy
from quotas.throttles.bandwidth import Throttle

MB = 1_000_000
POLICIES: list[Policy] = ["kip13", "schedule"]
FREE = {"kip13": 10 * MB, "schedule": MB}
BUSY_MS = 10_000


def engine(policy: Policy, mode: Mode = "observe", limit: float = MB) -> Engine:
    static = StaticQuotas(producer_default=limit, consumer_default=limit)
    return Engine(EngineOptions(policy=policy, mode=mode), Definitions(static=static))


def busy(policy: Policy, throttle: Throttle, flow: Flow) -> None:
    """Use the budget as it allows for ten seconds, so that nothing of it is free, in all windows alike."""
    if policy == "schedule":
        throttle.produce(flow, MB, 0)
    for now_ms in range(0, BUSY_MS, 100):
        throttle.produce(flow, 100_000, now_ms)


def connected(throttle: Throttle) -> tuple[Flow, ConnectionTime]:
    flow = throttle.flow()
    flow.connection = ConnectionTime()
    return flow, flow.connection


@pytest.mark.parametrize("policy", POLICIES)
def test_debt_is_waited_for_once(policy: Policy) -> None:
    throttle = engine(policy).client("", "a", 1).produce
    flow, time = connected(throttle)
    throttle.produce(flow, FREE[policy], 0)
    assert time.waited_ms == 0
    throttle.produce(flow, 500_000, 0)
    assert (time.waited_ms, time.lag_ms) == (500, 0)  # 0.5 MB over
    throttle.produce(flow, 500_000, 100)  # 400 ms of the mute are left
    assert (time.waited_ms, time.lag_ms) == (1000, 400)


@pytest.mark.parametrize("policy", POLICIES)
def test_two_connections_share_the_time_that_passes(policy: Policy) -> None:
    throttle = engine(policy).client("", "a", 1).produce
    (first, one), (second, other) = connected(throttle), connected(throttle)
    busy(policy, throttle, first)
    before_ms = one.lag_ms
    for now_ms in range(BUSY_MS, BUSY_MS + 2000, 100):  # 0.1 MB of each in every 100 ms: twice the quota
        throttle.produce(first, 100_000, now_ms)
        throttle.produce(second, 100_000, now_ms + 50)
    # In 2 s they send 4 MB, for which the budget needs 4 s: each is 2 s later.
    assert one.lag_ms - before_ms == pytest.approx(2000, abs=300)
    assert other.lag_ms == pytest.approx(2000, abs=300)


def test_fetch_waits_for_room_and_not_while_its_client_is_busy() -> None:
    throttle = engine("kip13").client("", "a", 1).fetch
    flow, time = connected(throttle)
    throttle.fetched(flow, 10 * MB, 0)
    assert throttle.fetch_arrived(flow, 100) is False
    throttle.fetched(flow, 500_000, 200)
    assert (time.waited_ms, time.lag_ms) == (300, 300)  # there is room after 0.5 s, of which 0.2 had passed


@pytest.mark.parametrize("policy", POLICIES)
def test_enforcement_begins_without_lag_debt_or_credit(policy: Policy) -> None:
    quotas = engine(policy)
    throttle = quotas.client("", "a", 1).produce
    flow, _ = connected(throttle)
    for now_ms in range(0, 30_000, 10):  # a hundred times the quota
        throttle.produce(flow, MB, now_ms)
    quotas.update(replace(quotas.options, mode="enforce"), quotas.definitions, 30_000)
    assert throttle.produce(flow, 100, 30_000).throttle_ms <= 1  # the rounded time of 100 bytes
    # Nothing is free but what leaves Kafka's windows at this moment, which is one of them at most.
    assert 900 <= throttle.produce(flow, 2 * MB, 30_001).throttle_ms <= 2010
    assert throttle.backlog_bytes(30_001) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_enforced_requests_leave_nothing_to_observe(policy: Policy) -> None:
    quotas = engine(policy, "enforce")
    throttle = quotas.client("", "a", 1).produce
    flow, time = connected(throttle)
    decisions = [throttle.produce(flow, FREE[policy], 0), throttle.produce(flow, MB, 0)]
    assert decisions[0] is ADMITTED
    assert decisions[1].throttle_ms == 1000
    assert (time.waited_ms, time.lag_ms, throttle.would_throttled_total) == (0, 0, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_tiny_quota_and_a_month_of_flood_keep_numbers_exact(policy: Policy) -> None:
    quotas = engine(policy, limit=1.0)
    throttle = quotas.client("", "a", 1).produce
    flow, time = connected(throttle)
    month_ms = 30 * 86_400_000
    for now_ms in range(0, month_ms, month_ms // 1000):
        throttle.produce(flow, 100 * MB, now_ms)
    assert time.waited_ms > 0
    quotas.update(replace(quotas.options, mode="enforce"), quotas.definitions, month_ms)
    assert throttle.produce(flow, 1, month_ms).throttle_ms <= 1000  # one byte's time


def test_changed_share_of_a_lease_keeps_what_was_predicted() -> None:
    quotas = engine("kip13")
    throttle = quotas.client("", "a", 1).produce
    flow, time = connected(throttle)
    throttle.produce(flow, 11 * MB, 0)
    before = time.waited_ms
    limiter = flow.limiter
    assert limiter is not None
    limiter.lend(0.5, 0)
    throttle.produce(flow, 100_000, 5000)
    assert time.waited_ms >= before == 1000
