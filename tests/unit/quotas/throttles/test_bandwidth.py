"""quotas.throttles.bandwidth: what a channel sees of either policy, and what is counted."""

import pytest

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.limiters.limiter import ADMITTED, Flow
from quotas.options import Mode, Policy
from quotas.throttles.bandwidth import Throttle
from tests.support.engines import engine_with

MB = 1_000_000
LIMIT = 2.0 * MB


def engine(limit: float | None = LIMIT, policy: Policy = "kip13", mode: Mode = "enforce") -> Engine:
    static = StaticQuotas(producer_default=limit, consumer_default=limit)
    return engine_with(static=static, policy=policy, mode=mode)


def produce_of(engine_: Engine) -> Throttle:
    return engine_.client("", "a", 1).produce


def fetch_of(engine_: Engine) -> Throttle:
    return engine_.client("", "a", 1).fetch


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_unlimited_client_passes_and_is_counted(policy: Policy) -> None:
    unlimited = engine(None, policy)
    throttle, flow = produce_of(unlimited), Flow()
    assert throttle.produce(flow, 500 * MB, 0) is ADMITTED
    assert fetch_of(unlimited).fetch(flow, 0) is ADMITTED
    assert fetch_of(unlimited).fetch_max_bytes(flow, 77, 0) == 77
    assert fetch_of(unlimited).fetched(flow, 5, 0) is ADMITTED
    assert (throttle.total, fetch_of(unlimited).total) == (500 * MB, 5)
    assert throttle.debt_bytes(0) == 0
    assert throttle.limit is None


def test_held_request_is_counted_once_with_the_time_it_was_held() -> None:
    throttle = produce_of(engine(policy="schedule"))
    first, second = throttle.flow(), throttle.flow()
    throttle.produce(first, 3 * MB, 0)
    throttle.produce(second, MB, 0)
    throttle.produce(second, MB, 200)
    assert throttle.total == 3 * MB  # a held request has not passed
    before = throttle.throttle_ms_total
    decision = throttle.produce(second, MB, 1000)
    assert throttle.total == 4 * MB
    assert throttle.throttle_ms_total - before == 1000 + decision.throttle_ms
    assert throttle.throttled_total == 2


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_observe_admits_everything_and_counts_throttles(policy: Policy) -> None:
    throttle = produce_of(engine(policy=policy, mode="observe"))
    flow = throttle.flow()
    for now_ms in range(0, 60_000, 100):
        assert throttle.produce(flow, MB, now_ms) is ADMITTED
    assert throttle.throttled_total == 0
    assert throttle.would_throttled_total > 0
    # It would wait for nearly all of the time after the burst, or the first windows; never for longer than that.
    assert 40_000 < throttle.would_throttle_ms_total <= 60_000


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_observed_fetches_are_never_capped_or_responded_to_here(policy: Policy) -> None:
    throttle = fetch_of(engine(policy=policy, mode="observe"))
    flow = throttle.flow()
    for now_ms in range(0, 1000, 10):
        assert throttle.fetch(flow, now_ms) is ADMITTED
        assert throttle.fetch_max_bytes(flow, 50 * MB, now_ms) == 50 * MB
        assert throttle.fetched(flow, MB, now_ms) is ADMITTED
    assert throttle.total == 100 * MB
    assert throttle.would_throttled_total > 0


def test_leaving_twice_for_two_channels_leaves_none() -> None:
    throttle = produce_of(engine(policy="schedule"))
    flows = [throttle.flow(), throttle.flow()]
    throttle.produce(flows[0], MB, 0)
    for flow in flows:
        throttle.leave(flow, 1)
    assert throttle.flows == 0
    assert flows[0].limiter is None


WINDOWS_MS = 11_000


def test_rate_is_known_at_the_first_look() -> None:
    throttle = produce_of(engine(None))
    throttle.produce(throttle.flow(), 3 * MB, 500)
    assert throttle.rate(500) == 3 * MB  # no client is younger than a second
    assert throttle.rate(2000) == 2 * MB  # 3 MB in 1.5 s


def test_byte_rate_is_over_the_windows_and_asking_changes_nothing() -> None:
    throttle = produce_of(engine(None))
    flow = throttle.flow()
    for second in range(60):
        throttle.mark(second * 1000, WINDOWS_MS)
        throttle.produce(flow, 2 * MB if second < 30 else MB, second * 1000)
        throttle.rate(second * 1000)
    # Marks at 6, 12, ... 54: since 48, when 12 MB were to come before 60.
    assert throttle.rate(60_000) == MB
    assert throttle.rate(61_000) == 12 * MB / 13


def test_rate_of_a_client_that_moves_nothing_any_more_is_gone_after_the_windows() -> None:
    throttle = produce_of(engine(None))
    throttle.produce(throttle.flow(), 3 * MB, 0)
    for second in range(1, 13):
        throttle.mark(second * 1000, WINDOWS_MS)
    assert throttle.rate(12_000) == 0


def test_bytes_that_are_given_back_are_no_negative_rate() -> None:
    throttle = produce_of(engine(None))
    flow = throttle.flow()
    throttle.produce(flow, 3 * MB, 0)
    throttle.mark(6000, WINDOWS_MS)
    throttle.mark(12_000, WINDOWS_MS)
    flow.announced = MB
    throttle.leave(flow, 12_000)
    assert throttle.rate(12_000) == 0


def test_client_with_a_removed_definition_detaches() -> None:
    running = engine(policy="schedule")
    throttle = produce_of(running)
    first, held = throttle.flow(), throttle.flow()
    throttle.produce(first, 3 * MB, 0)
    assert throttle.produce(held, MB, 0).hold_until_ms
    limiter = held.limiter
    running.update(running.options, Definitions(), 10)
    assert throttle.produce(held, MB, 10) is ADMITTED
    assert (held.limiter, held.held_since_ms, held.queued) == (None, -1, False)
    assert limiter is not None


def test_flow_forgets_its_place_and_keeps_the_size_of_the_last_fetch() -> None:
    flow = Flow()
    flow.tag, flow.queued, flow.held_since_ms, flow.expected, flow.passed = 7, True, 5, 1000, True
    flow.forget()
    assert (flow.tag, flow.queued, flow.held_since_ms, flow.passed) == (0, False, -1, False)
    assert flow.expected == 1000
