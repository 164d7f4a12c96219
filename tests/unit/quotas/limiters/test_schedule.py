"""quotas.limiters.schedule: one decision after another, in columns of literal times. The closed loop is
tests/simulation.
"""

import pytest

from quotas.limiters.limiter import ADMITTED, Decision, Flow
from quotas.limiters.schedule import ScheduledLimiter
from quotas.limiters.under_way import FETCH_QUANTUM_MS, HEAD_BYTES_MAX
from quotas.options import EngineOptions

MB = 1_000_000
LIMIT = 2.0 * MB  # 1 MB = 500 ms


def schedule(**options: float) -> ScheduledLimiter:
    return ScheduledLimiter(LIMIT, EngineOptions(policy="schedule", **options), 0)  # type: ignore[arg-type]  # seconds


def mute_ms(decision: Decision) -> int:
    assert not decision.hold_until_ms, f"expected to pass, not {decision}"
    return decision.throttle_ms


def hold_ms(decision: Decision) -> int:
    assert not decision.throttle_ms, f"expected to be held, not {decision}"
    assert decision.hold_until_ms, f"expected to be held, not {decision}"
    return decision.hold_until_ms


def test_burst_passes_and_then_the_channel_is_muted_until_its_slot() -> None:
    throttle, flow = schedule(), Flow()
    assert [mute_ms(throttle.produce(flow, MB, 0)) for _ in range(3)] == [0, 0, 500]  # 1 s of burst, one more
    assert mute_ms(throttle.produce(flow, MB, 500)) == 500
    assert mute_ms(throttle.produce(flow, MB, 1007)) == 493  # late by 7 ms: the schedule does not drift


def test_unused_time_gives_back_the_burst_and_no_more() -> None:
    throttle, flow = schedule(), Flow()
    throttle.produce(flow, 3 * MB, 0)
    assert [mute_ms(throttle.produce(flow, MB, 60_000)) for _ in range(3)] == [0, 0, 500]


def test_produce_before_its_slot_is_held_and_charged_once() -> None:
    throttle, first, second = schedule(), Flow(), Flow()
    throttle.produce(first, 3 * MB, 0)
    assert hold_ms(throttle.produce(second, MB, 0)) == 500
    owed = throttle.debt_bytes(0)
    assert hold_ms(throttle.produce(second, MB, 100)) == 500  # asking again costs nothing
    assert throttle.debt_bytes(0) == owed
    assert mute_ms(throttle.produce(second, MB, 500)) > 0


def test_held_requests_pass_in_order_one_slot_apart() -> None:
    throttle = schedule()
    flows = [Flow() for _ in range(6)]
    passed = []
    for now_ms in range(0, 3000, 100):
        for number, flow in enumerate(flows):
            if flow.passed and now_ms < flow.due_ms:
                continue
            if not throttle.produce(flow, MB, now_ms).hold_until_ms:
                passed.append((now_ms, number))
    assert passed[:6] == [(0, 0), (0, 1), (0, 2), (500, 3), (1000, 4), (1500, 5)]


def test_held_channel_asks_again_after_half_a_burst_at_the_latest() -> None:
    throttle, first, second = schedule(), Flow(), Flow()
    throttle.produce(first, 20 * MB, 0)  # slot of the next: 9 s
    assert hold_ms(throttle.produce(second, MB, 0)) == 500


def test_held_channel_asks_again_after_half_a_burst_of_some_seconds() -> None:
    throttle, first, second = schedule(burst_seconds=4), Flow(), Flow()
    throttle.produce(first, 20 * MB, 0)  # slot of the next: 6 s
    assert hold_ms(throttle.produce(second, MB, 0)) == 2000  # as a backtest has it


def test_hold_that_ends_without_a_slot_is_a_refusal_and_costs_nothing() -> None:
    throttle, first, second = schedule(hold_seconds_max=2), Flow(), Flow()
    throttle.produce(second, 1000, 0)
    throttle.produce(first, 20 * MB, 0)
    owed = throttle.debt_bytes(2000)
    now_ms = 0
    while hold := throttle.produce(second, MB, now_ms).hold_until_ms:
        now_ms = hold
    assert now_ms == 2000
    assert throttle.debt_bytes(2000) == owed
    assert second.held_since_ms == -1  # the next one is held anew
    assert hold_ms(throttle.produce(second, MB, 2000)) == 2500


def test_refused_request_leaves_its_place() -> None:
    throttle, first, second, third = schedule(hold_seconds_max=1), Flow(), Flow(), Flow()
    throttle.produce(first, 8 * MB, 0)  # free again at 3 s
    assert hold_ms(throttle.produce(second, 4 * MB, 0)) == 500
    assert throttle.produce(second, 4 * MB, 1000).refused
    throttle.produce(third, MB, 2100)
    assert hold_ms(throttle.produce(third, MB, 2900)) == 3000  # not behind those 4 MB


def test_hold_of_no_time_is_one_of_a_tenth_of_a_second() -> None:
    # Or a request that comes a millisecond before its slot would be refused.
    throttle, first, second = schedule(hold_seconds_max=0), Flow(), Flow()
    throttle.produce(first, 20 * MB, 0)
    assert hold_ms(throttle.produce(second, MB, 0)) == 100
    assert throttle.produce(second, MB, 100).refused


def test_announced_bytes_that_do_not_come_are_given_back() -> None:
    throttle, liar, honest = schedule(), Flow(), Flow()
    throttle.produce(liar, 100 * MB, 0)
    throttle.announce(liar, 100 * MB - 28, 0)
    assert hold_ms(throttle.produce(honest, MB, 0)) == 250  # half a burst, but for the announcement's time
    assert throttle.produce(honest, MB, 250) is ADMITTED
    assert liar.lost == 100 * MB - 28


def test_announced_bytes_that_time_has_paid_for_are_no_credit() -> None:
    throttle, slow, other = schedule(), Flow(), Flow()
    throttle.produce(slow, MB, 0)
    throttle.announce(slow, MB, 0)
    # At 10 s the burst is there, and no more: 3 MB make 1.5 s, of which 1 s is the burst.
    assert mute_ms(throttle.produce(other, 3 * MB, 10_000)) == 500
    assert hold_ms(throttle.produce(other, MB, 10_000)) == 10_500


def test_announced_bytes_that_arrived_stay_charged() -> None:
    throttle, flow, other = schedule(), Flow(), Flow()
    throttle.produce(flow, 10 * MB, 0)
    throttle.announce(flow, 9 * MB, 0)
    flow.announced = 0
    throttle.request_arrived(flow)
    assert hold_ms(throttle.produce(other, MB, 250)) == 750
    assert throttle.debt_bytes(250) == 8 * MB - 500_000  # 10 MB, less the burst and 0.25 s


def test_mute_is_capped_and_the_channel_keeps_its_slot() -> None:
    throttle, flow = schedule(mute_seconds_max=2), Flow()
    assert mute_ms(throttle.produce(flow, 10 * MB, 0)) == 2000
    assert hold_ms(throttle.produce(flow, MB, 2000)) == 2500
    assert hold_ms(throttle.produce(flow, MB, 3800)) == 4000
    assert mute_ms(throttle.produce(flow, MB, 4000)) == 500


def test_place_of_a_channel_that_leaves_is_given_back() -> None:
    throttle, first, second, third = schedule(), Flow(), Flow(), Flow()
    throttle.produce(first, 3 * MB, 0)
    throttle.produce(second, MB, 0)
    throttle.produce(third, MB, 0)
    throttle.leave(second, 100)
    throttle.leave(first, 100)
    assert hold_ms(throttle.produce(third, MB, 200)) == 500  # not 1000


def test_raised_quota_frees_a_held_request_at_its_next_call() -> None:
    throttle, first, second = schedule(), Flow(), Flow()
    throttle.produce(first, 3 * MB, 0)
    assert hold_ms(throttle.produce(second, MB, 0)) == 500
    throttle.configure(100 * LIMIT, EngineOptions(policy="schedule"), 0)
    assert throttle.produce(second, MB, 1) is not None
    assert second.held_since_ms == -1  # it has passed


def test_lowered_quota_keeps_what_is_owed_in_bytes() -> None:
    throttle, flow = schedule(), Flow()
    throttle.produce(flow, 10 * MB, 0)  # 8 MB beyond the burst
    throttle.configure(LIMIT / 2, EngineOptions(policy="schedule"), 0)
    assert throttle.debt_bytes(0) == 9 * MB  # the burst is 1 MB now


def test_fetch_is_charged_at_its_last_size_and_corrected_by_its_response() -> None:
    throttle, flow = schedule(), Flow()
    assert throttle.fetch(flow, 0) is ADMITTED
    assert throttle.fetched(flow, MB, 5) is ADMITTED
    assert throttle.fetch(flow, 10) is ADMITTED
    assert throttle.debt_bytes(10) == 0
    # 4 MB since 5: 2 s, less the three quarters of the burst that Fetches may use, less 10 ms
    assert mute_ms(throttle.fetched(flow, 3 * MB, 15)) == 1240


def test_fetch_before_its_slot_gets_a_response_with_the_time_that_is_left() -> None:
    throttle, flow = schedule(), Flow()
    throttle.fetch(flow, 0)
    assert mute_ms(throttle.fetched(flow, 10 * MB, 0)) == 4250
    # A group member is muted for less than it was told; it keeps its place.
    assert mute_ms(throttle.fetch(flow, 3333)) == 917
    assert throttle.fetch(flow, 4250) is ADMITTED


def test_throttled_consumers_come_back_at_different_times() -> None:
    # KIP-219: "the throttle time of each fetch response increases differently".
    throttle = schedule()
    flows = [Flow() for _ in range(5)]
    for flow in flows:
        flow.expected, flow.passed = MB, True
    throttle.produce(Flow(), 3 * MB, 0)
    # Each place has what its Fetch may ask for then: a share of half a second, 500, 250, 167, 125 and 100 ms.
    assert [mute_ms(throttle.fetch(flow, 0)) for flow in flows] == [750, 1000, 1167, 1292, 1392]


def test_fetches_of_unknown_size_go_out_one_by_one() -> None:
    throttle = schedule()
    flows = [Flow() for _ in range(5)]
    told = [throttle.fetch(flow, 0).throttle_ms for flow in flows]
    # Half a second each until three quarters of the burst are used up; the others ask again when a response may come.
    assert told == [0, 0, 100, 100, 100]
    throttle.fetched(flows[0], 1000, 5)
    throttle.fetched(flows[1], 1000, 5)
    assert [throttle.fetch(flow, 100).throttle_ms for flow in flows[2:]] == [0, 0, 0]


def test_eight_fetches_of_unknown_size_go_out_where_the_quota_is_ample() -> None:
    throttle = ScheduledLimiter(20.0 * MB, EngineOptions(policy="schedule"), 0)
    flows = [Flow() for _ in range(10)]
    told = [throttle.fetch(flow, 0).throttle_ms for flow in flows]
    # A tenth of a second each until three quarters of the burst are used up.
    assert told == [0] * 8 + [50, 51]
    assert throttle.fetch_max_bytes(flows[0], 50 * MB, 0) == 2 * MB - HEAD_BYTES_MAX


def test_fetch_of_unknown_size_is_taken_for_the_largest_batch_that_brokers_accept_by_default() -> None:
    throttle = ScheduledLimiter(4.0 * MB, EngineOptions(policy="schedule"), 0)
    flows = [Flow() for _ in range(4)]
    told = [throttle.fetch(flow, 0).throttle_ms for flow in flows]
    assert told == [0, 0, 0, 37]  # 3 x 1,048,588 B / 4,000 B/ms - 750 ms
    assert throttle.fetch_max_bytes(flows[0], 50 * MB, 0) == 1_048_588 - HEAD_BYTES_MAX


def test_fetch_may_ask_for_its_share_of_half_a_second() -> None:
    throttle, flow = schedule(), Flow()
    throttle.fetch(flow, 0)
    assert throttle.fetch_max_bytes(flow, 50 * MB, 0) == LIMIT * FETCH_QUANTUM_MS / 1000 - HEAD_BYTES_MAX
    throttle.fetched(flow, MB, 0)
    throttle.fetch(flow, 5)
    assert throttle.fetch_max_bytes(flow, 50 * MB, 5) == MB - HEAD_BYTES_MAX
    assert throttle.fetch_max_bytes(flow, 1000, 5) == 1000


@pytest.mark.parametrize("asks", [50 * MB, 500_000])
def test_response_cut_at_max_bytes_is_no_large_batch(asks: int) -> None:
    # Brokers count records alone, so it is larger than max_bytes by its other fields.
    throttle, flow, others = schedule(), Flow(), idle(100)
    throttle.fetch(flow, 0)
    asked = throttle.fetch_max_bytes(flow, asks, 0)
    throttle.fetched(flow, asked + HEAD_BYTES_MAX, 0)
    assert sum(not throttle.fetch(other, 60_000).throttle_ms for other in others) == IDLE_AT_ONCE


def test_fetch_asks_for_whole_batches() -> None:
    throttle, flow = schedule(), Flow()
    flow.expected, flow.passed = 100_000, True
    flow.batch_least = flow.batch_most = 16_384
    throttle.fetch(flow, 0)
    # 200,000 bytes may come, 195,904 of them records: 11.96 batches.
    assert throttle.fetch_max_bytes(flow, 50 * MB, 0) == 11 * 16_384
    assert (flow.granted, flow.exposed) == (200_000, 100_000)


def test_fetch_may_always_ask_for_one_byte() -> None:
    throttle, flow = ScheduledLimiter(1, EngineOptions(policy="schedule"), 0), Flow()
    throttle.fetch(flow, 0)
    assert throttle.fetch_max_bytes(flow, 50 * MB, 0) == 1


@pytest.mark.parametrize(("asks", "grants"), [(50 * MB, 200_000 - HEAD_BYTES_MAX), (1, 1)])
def test_fetch_whose_channel_leaves_is_charged_with_all_it_may_bring(asks: int, grants: int) -> None:
    throttle, flow = schedule(), Flow()
    flow.expected, flow.passed = 1000, True
    throttle.fetch(flow, 0)
    # 100 ms of the rate, since it was idle; and a broker returns a whole batch also where it asks for little.
    assert throttle.fetch_max_bytes(flow, asks, 0) == grants
    throttle.leave(flow, 0)
    assert mute_ms(throttle.produce(Flow(), 2 * MB, 0)) == 100  # 2.2 MB less the burst of 2 MB


def test_bytes_given_back_before_are_no_credit_for_others() -> None:
    # Two announce 2 MB each at 0: 2 s. The first is given back at 1 s, so the end of the second one moves to 1 s.
    throttle, first, second = schedule(), Flow(), Flow()
    throttle.produce(first, 2 * MB, 0)
    throttle.announce(first, 2 * MB, 0)
    throttle.produce(second, 2 * MB, 0)
    throttle.announce(second, 2 * MB, 0)
    throttle.leave(first, 1000)
    throttle.leave(second, 1000)  # time has paid for it: nothing to give back
    # 2 s, less the burst: no more than that is there.
    assert mute_ms(throttle.produce(Flow(), 4 * MB, 1000)) == 1000


def test_fetch_that_does_not_end_keeps_its_part_of_the_burst_for_a_while_only() -> None:
    throttle, flows = schedule(), idle(IDLE_AT_ONCE + 1)
    for flow in flows[:-1]:
        throttle.fetch(flow, 0)
    assert throttle.fetch(flows[-1], 5999).throttle_ms == 100
    now_ms = 6000
    while throttle.fetch(flows[-1], now_ms).throttle_ms:
        now_ms += 100
    assert now_ms < 8000


def test_response_that_was_not_weighed_leaves_the_fetch_under_way_as_it_is() -> None:
    throttle, flow = schedule(), Flow()
    flow.expected, flow.passed = 1000, True
    throttle.fetch(flow, 0)
    exposed = flow.exposed
    throttle.delivered(MB, 0)
    assert (flow.admitted, flow.exposed) == (1000, exposed)
    assert throttle.debt_bytes(0) == 0
    throttle.delivered(2 * MB, 0)
    assert throttle.debt_bytes(0) == MB + 1000


# Of the burst of 2 MB the k-th idle Fetch takes a k-th of a quarter, at most 100 ms of the rate and at least 15,625 B:
# 2 x 200,000, 500,000 / k up to the 32nd, 15,625 from there on; the last one begins when the burst is just reached.
IDLE_AT_ONCE = 53


def idle(count: int) -> list[Flow]:
    flows = [Flow() for _ in range(count)]
    for flow in flows:
        flow.expected, flow.passed = 50, True
    return flows


def test_idle_fetches_may_bring_the_burst_together_and_no_more() -> None:
    throttle, flows = schedule(), idle(100)
    told = [throttle.fetch(flow, 0).throttle_ms for flow in flows]
    assert told == [0] * IDLE_AT_ONCE + [100] * (100 - IDLE_AT_ONCE)
    assert throttle.debt_bytes(0) == 0


def test_idle_fetches_that_ask_for_one_byte_are_no_more_at_a_time() -> None:
    throttle, flows = schedule(), idle(300)
    admitted = [flow for flow in flows if not throttle.fetch(flow, 0).throttle_ms]
    assert [throttle.fetch_max_bytes(flow, 1, 0) for flow in admitted] == [1] * len(admitted)
    assert len(admitted) == IDLE_AT_ONCE  # each may bring a batch of a size that is not known
    assert all(throttle.fetch(flow, 1).throttle_ms for flow in flows if flow.admitted < 0)


@pytest.mark.parametrize("before", [0, 200_000, MB])
def test_fetches_that_time_has_paid_bring_no_more_than_burst_and_one_request(before: int) -> None:
    # None gets a response for five seconds; then records come for all.
    throttle, waiting, under_way = schedule(), [Flow() for _ in range(300)], []
    for flow in waiting if before else ():
        flow.expected, flow.passed = before, True
    for now_ms in range(0, 5000, 50):
        for flow in [flow for flow in waiting if not throttle.fetch(flow, now_ms).throttle_ms]:
            throttle.fetch_max_bytes(flow, 50 * MB, now_ms)
            waiting.remove(flow)
            under_way.append(flow)
    brought = sum(flow.granted for flow in under_way)
    # Each may ask for half a second's quota at most; looked at each 100 ms.
    assert 1.9 * MB <= brought <= 3.1 * MB


def test_batch_that_is_more_than_was_asked_for_is_remembered() -> None:
    throttle, flows = schedule(), idle(100)
    for flow in flows[:11]:
        throttle.fetch(flow, 0)
    for flow in flows[:11]:  # a batch of 1 MB satisfies all of them, once
        throttle.fetched(flow, MB, 0)
    throttle.observe(Flow(), 0, 60_000, consumes=True)
    assert sum(not throttle.fetch(flow, 60_000).throttle_ms for flow in idle(100)) == 3


def test_fetches_that_wait_for_each_other_wait_shorter_at_the_broker() -> None:
    throttle, flows = schedule(), idle(IDLE_AT_ONCE + 1)
    admitted = [flow for flow in flows if not throttle.fetch(flow, 0).throttle_ms]
    # None could keep its part of the burst for weeks.
    assert [flow.wait_ms_max for flow in admitted] == [5000] * len(admitted)
    for flow in admitted:
        throttle.fetched(flow, 0, 900)
    throttle.fetch(flows[0], 1899)
    assert flows[0].wait_ms_max == 500  # less than a second ago there were more than there was room for
    throttle.fetched(flows[0], 0, 1900)
    throttle.fetch(flows[0], 1900)
    assert flows[0].wait_ms_max == 5000


def test_a_hundred_idle_fetches_leave_room_for_a_busy_one() -> None:
    throttle, (busy, *flows) = schedule(), idle(101)
    for now_ms in range(0, 3000, 100):  # each gets an empty response after 100 ms, and asks again
        for flow in flows:
            if flow.admitted >= 0:
                throttle.fetched(flow, 50, now_ms)
            throttle.fetch(flow, now_ms)
    assert [flow.admitted >= 0 for flow in flows] == [True] * 100  # 15,625 bytes each: 1.6 MB of the burst
    assert throttle.fetch(busy, 2999) is ADMITTED


def test_idle_fetch_does_not_keep_a_busy_one_waiting() -> None:
    throttle, (lazy, busy) = schedule(), idle(2)
    busy.expected = MB
    throttle.fetch(busy, 0)
    assert throttle.fetched(busy, MB, 0) is ADMITTED
    assert throttle.fetch(lazy, 0) is ADMITTED
    # 0.5 s and the 0.1 s that the idle one may bring are below 1 s.
    assert throttle.fetch(busy, 0) is ADMITTED


def test_empty_responses_lower_what_is_expected_by_and_by() -> None:
    throttle, flow = schedule(), Flow()
    throttle.fetch(flow, 0)
    throttle.fetched(flow, MB, 0)
    throttle.fetched(flow, 50, 10_000)
    assert flow.expected == MB // 2
    for _ in range(20):
        throttle.fetched(flow, 50, 20_000)
    assert flow.expected == 50


def test_observing_lets_pass_and_bounds_what_it_adds_up() -> None:
    throttle, flow = schedule(), Flow()
    assert throttle.observe(flow, MB, 0, consumes=False) == 0
    assert throttle.observe(flow, 1000 * MB, 0, consumes=False) == 35_000  # one hold and one mute
    throttle.settle(1)
    assert throttle.debt_bytes(1) == 0
    assert mute_ms(throttle.produce(flow, MB, 1)) == 500  # no debt, but no burst either


def test_client_far_below_its_quota_does_not_wait_when_enforcement_begins() -> None:
    throttle, flow = schedule(), Flow()
    for second in range(10):
        throttle.observe(flow, 100_000, second * 1000, consumes=True)  # a twentieth of the quota
    throttle.settle(9010)
    assert throttle.fetch(flow, 9010) is ADMITTED
    assert throttle.fetched(flow, 100_000, 9020) is ADMITTED


def test_burst_and_rate_bound_what_passes_after_enforcement_begins() -> None:
    throttle, flow = schedule(), Flow()
    throttle.observe(flow, MB, 0, consumes=False)  # half of the burst
    throttle.settle(0)
    assert throttle.produce(flow, MB, 0) is ADMITTED  # the other half
    assert mute_ms(throttle.produce(flow, MB, 0)) == 500


def test_small_requests_beside_large_ones_pass_first() -> None:
    throttle, large, small = schedule(), Flow(), Flow()
    throttle.produce(large, 3 * MB, 0)
    throttle.produce(small, 1000, 0)
    assert throttle.produce(small, 1000, 500).hold_until_ms == 0
    assert hold_ms(throttle.produce(large, MB, 500)) > 500


def test_limit_of_zero_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        ScheduledLimiter(0, EngineOptions(policy="schedule"), 0)
