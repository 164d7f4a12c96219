"""quotas.schedule: one decision after another, in columns of literal times. The closed loop is tests/simulation."""

import pytest

from quotas.decisions import ADMITTED, Decision
from quotas.options import EngineOptions
from quotas.schedule import FETCH_QUANTUM_MS, FIRST_FETCH_MS, ScheduledThrottle
from quotas.turn import Turn

MB = 1_000_000
LIMIT = 2.0 * MB  # 1 MB = 500 ms


def schedule(**options: float) -> ScheduledThrottle:
    return ScheduledThrottle(LIMIT, EngineOptions(policy="schedule", **options), 0)  # type: ignore[arg-type]  # seconds


def mute_ms(decision: Decision) -> int:
    assert not decision.hold_until_ms, f"expected to pass, not {decision}"
    return decision.throttle_ms


def hold_ms(decision: Decision) -> int:
    assert not decision.throttle_ms, f"expected to be held, not {decision}"
    assert decision.hold_until_ms, f"expected to be held, not {decision}"
    return decision.hold_until_ms


def test_burst_passes_and_then_the_channel_is_muted_until_its_slot() -> None:
    throttle, turn = schedule(), Turn()
    assert [mute_ms(throttle.produce(turn, MB, 0)) for _ in range(3)] == [0, 0, 500]  # 1 s of burst, one more
    assert mute_ms(throttle.produce(turn, MB, 500)) == 500
    assert mute_ms(throttle.produce(turn, MB, 1007)) == 493  # late by 7 ms: the schedule does not drift


def test_request_within_the_quota_makes_no_decision_object() -> None:
    throttle, turn = schedule(), Turn()
    assert throttle.produce(turn, 1000, 0) is ADMITTED
    assert throttle.produce(turn, 1000, 1) is ADMITTED


def test_unused_time_gives_back_the_burst_and_no_more() -> None:
    throttle, turn = schedule(), Turn()
    for _ in range(3):
        throttle.produce(turn, MB, 0)
    assert [mute_ms(throttle.produce(turn, MB, 60_000)) for _ in range(3)] == [0, 0, 500]


def test_request_of_any_size_passes_and_is_paid_for_afterwards() -> None:
    throttle, turn = schedule(), Turn()
    assert mute_ms(throttle.produce(turn, 10 * MB, 0)) == 4000  # 5 s, less the burst of 1 s


def test_produce_before_its_slot_is_held_and_charged_once() -> None:
    throttle, first, second = schedule(), Turn(), Turn()
    for _ in range(3):
        throttle.produce(first, MB, 0)
    assert hold_ms(throttle.produce(second, MB, 0)) == 500
    owed = throttle.debt_bytes(0)
    assert hold_ms(throttle.produce(second, MB, 100)) == 500  # asking again costs nothing
    assert throttle.debt_bytes(0) == owed
    assert mute_ms(throttle.produce(second, MB, 500)) > 0


def test_held_requests_pass_in_order_one_slot_apart() -> None:
    throttle = schedule()
    turns = [Turn() for _ in range(6)]
    passed = []
    for now_ms in range(0, 3000, 100):
        for number, turn in enumerate(turns):
            if turn.passed and now_ms < turn.due_ms:
                continue
            if not throttle.produce(turn, MB, now_ms).hold_until_ms:
                passed.append((now_ms, number))
    assert passed[:6] == [(0, 0), (0, 1), (0, 2), (500, 3), (1000, 4), (1500, 5)]


def test_held_channel_asks_again_after_half_a_burst_at_the_latest() -> None:
    throttle, first, second = schedule(), Turn(), Turn()
    throttle.produce(first, 20 * MB, 0)  # slot of the next: 9 s
    assert hold_ms(throttle.produce(second, MB, 0)) == 500


def test_hold_ends_after_its_maximum_and_the_rest_is_debt() -> None:
    throttle, first, second = schedule(hold_seconds_max=2), Turn(), Turn()
    throttle.produce(second, 1000, 0)
    throttle.produce(first, 20 * MB, 0)
    now_ms = 0
    while hold := throttle.produce(second, MB, now_ms).hold_until_ms:
        now_ms = hold
    assert now_ms == 2000
    # 20 MB at 0, 4 MB paid for by now, 2 MB of burst: 14 MB too early, and this request's 1 MB.
    assert throttle.debt_bytes(2000) == pytest.approx(15 * MB, rel=0.001)
    third = Turn()
    third.passed = True
    assert hold_ms(throttle.produce(third, MB, 2000)) == 2500  # and yet the schedule goes on from here


def test_debt_is_bounded_and_paid_back_at_a_hundredth_of_the_rate() -> None:
    throttle, turn = schedule(hold_seconds_max=0, mute_seconds_max=1), Turn()
    for now_ms in range(0, 100_000, 1000):
        throttle.produce(turn, 10 * MB, now_ms)
    worst = throttle.debt_bytes(99_000)
    assert worst <= LIMIT * 1 + 10.1 * MB  # (hold + mute) of quota, the last request and its hundredth
    idle_ms = 200_000  # time alone pays back the schedule, not what was forced
    before = throttle.debt_bytes(idle_ms)
    assert before == LIMIT * 1
    throttle.produce(turn, MB, idle_ms)
    assert throttle.debt_bytes(idle_ms) == before - MB / 100


def test_mute_is_capped_and_the_channel_keeps_its_slot() -> None:
    throttle, turn = schedule(mute_seconds_max=2), Turn()
    assert mute_ms(throttle.produce(turn, 10 * MB, 0)) == 2000
    assert hold_ms(throttle.produce(turn, MB, 2000)) == 2500
    assert hold_ms(throttle.produce(turn, MB, 3800)) == 4000
    assert mute_ms(throttle.produce(turn, MB, 4000)) == 500


def test_place_of_a_channel_that_leaves_is_given_back() -> None:
    throttle, first, second, third = schedule(), Turn(), Turn(), Turn()
    for _ in range(3):
        throttle.produce(first, MB, 0)
    throttle.produce(second, MB, 0)
    throttle.produce(third, MB, 0)
    throttle.leave(second, 100)
    throttle.leave(first, 100)
    assert hold_ms(throttle.produce(third, MB, 200)) == 500  # not 1000


def test_raised_quota_frees_a_held_request_at_its_next_call() -> None:
    throttle, first, second = schedule(), Turn(), Turn()
    for _ in range(3):
        throttle.produce(first, MB, 0)
    assert hold_ms(throttle.produce(second, MB, 0)) == 500
    throttle.configure(100 * LIMIT, EngineOptions(policy="schedule"), 0)
    assert throttle.produce(second, MB, 1) is not None
    assert second.held_since_ms == -1  # it has passed


def test_lowered_quota_keeps_what_is_owed_in_bytes() -> None:
    throttle, turn = schedule(), Turn()
    throttle.produce(turn, 10 * MB, 0)  # 8 MB beyond the burst
    throttle.configure(LIMIT / 2, EngineOptions(policy="schedule"), 0)
    assert throttle.debt_bytes(0) == 9 * MB  # the burst is 1 MB now


def test_too_many_first_requests_pass_evenly_within_the_longest_hold() -> None:
    throttle = schedule(hold_seconds_max=4)
    turns = [Turn() for _ in range(40)]  # 20 s of quota where 4 + 1 have room
    asks = dict.fromkeys(range(40), 0)
    passed: list[int] = []
    for now_ms in range(0, 4001, 5):
        for number in [number for number, at_ms in asks.items() if at_ms <= now_ms]:
            hold = throttle.produce(turns[number], MB, now_ms).hold_until_ms
            if hold:
                asks[number] = hold
            else:
                passed.append(now_ms)
                del asks[number]
    assert len(passed) == 40
    assert sum(at_ms < 1000 for at_ms in passed) <= 5  # 2.5 times the quota, no more
    thirds = [sum(from_ms <= at_ms < from_ms + 1000 for at_ms in passed) for from_ms in (1000, 2000, 3000)]
    assert max(thirds) - min(thirds) <= 4


def test_fetch_is_charged_at_its_last_size_and_corrected_by_its_answer() -> None:
    throttle, turn = schedule(), Turn()
    assert throttle.fetch(turn, 0) is ADMITTED
    assert throttle.fetched(turn, MB, 5) is ADMITTED
    assert throttle.fetch(turn, 10) is ADMITTED
    assert throttle.debt_bytes(10) == 0
    assert mute_ms(throttle.fetched(turn, 3 * MB, 15)) == 990  # 4 MB since 5: 2 s, less the burst, less 10 ms


def test_fetch_before_its_slot_is_answered_with_the_time_that_is_left() -> None:
    throttle, turn = schedule(), Turn()
    throttle.fetch(turn, 0)
    assert mute_ms(throttle.fetched(turn, 10 * MB, 0)) == 4000
    # A group member is muted for less than it was told; it keeps its place.
    assert mute_ms(throttle.fetch(turn, 3333)) == 667
    assert throttle.fetch(turn, 4000) is ADMITTED


def test_throttled_consumers_come_back_at_different_times() -> None:
    # KIP-219: "the throttle time of each fetch response increases differently".
    throttle = schedule()
    turns = [Turn() for _ in range(5)]
    for turn in turns:
        turn.expected, turn.passed = MB, True
    throttle.produce(Turn(), 3 * MB, 0)
    assert [mute_ms(throttle.fetch(turn, 0)) for turn in turns] == [500, 1000, 1500, 2000, 2500]


def test_fetches_of_unknown_size_go_out_one_by_one() -> None:
    throttle = schedule()
    turns = [Turn() for _ in range(5)]
    told = [throttle.fetch(turn, 0).throttle_ms for turn in turns]
    # half a second each until the burst is used up, then the smallest step
    assert told == [0, 0, 0, FIRST_FETCH_MS, 2 * FIRST_FETCH_MS]


def test_fetch_may_ask_for_its_share_of_half_a_second() -> None:
    throttle, turn = schedule(), Turn()
    throttle.fetch(turn, 0)
    assert throttle.fetch_max_bytes(turn, 50 * MB, 0) == LIMIT * FETCH_QUANTUM_MS / 1000
    throttle.fetched(turn, MB, 0)
    throttle.fetch(turn, 5)
    assert throttle.fetch_max_bytes(turn, 50 * MB, 5) == MB
    assert throttle.fetch_max_bytes(turn, 1000, 5) == 1000


def test_fetch_may_always_ask_for_one_byte() -> None:
    throttle, turn = ScheduledThrottle(1, EngineOptions(policy="schedule"), 0), Turn()
    throttle.fetch(turn, 0)
    assert throttle.fetch_max_bytes(turn, 50 * MB, 0) == 1


def test_fetch_whose_channel_leaves_is_not_charged() -> None:
    throttle, turn = schedule(), Turn()
    turn.expected, turn.passed = 50 * MB, True
    throttle.fetch(turn, 0)
    assert throttle.debt_bytes(0) > 0
    throttle.leave(turn, 0)
    assert throttle.debt_bytes(0) == 0


def test_empty_answers_lower_what_is_expected_by_and_by() -> None:
    throttle, turn = schedule(), Turn()
    throttle.fetch(turn, 0)
    throttle.fetched(turn, MB, 0)
    throttle.fetched(turn, 50, 10_000)
    assert turn.expected == MB // 2
    for _ in range(20):
        throttle.fetched(turn, 50, 20_000)
    assert turn.expected == 50


def test_observing_lets_pass_and_bounds_what_it_adds_up() -> None:
    throttle, turn = schedule(), Turn()
    assert throttle.observe(turn, MB, 0, consumes=False) == 0
    assert throttle.observe(turn, 1000 * MB, 0, consumes=False) == 35_000  # one hold and one mute
    throttle.settle(1)
    assert throttle.debt_bytes(1) == 0
    assert mute_ms(throttle.produce(turn, MB, 1)) == 500  # no debt, but no burst either


def test_small_requests_beside_large_ones_pass_first() -> None:
    throttle, large, small = schedule(), Turn(), Turn()
    for _ in range(3):
        throttle.produce(large, MB, 0)
    throttle.produce(small, 1000, 0)
    assert throttle.produce(small, 1000, 500).hold_until_ms == 0
    assert hold_ms(throttle.produce(large, MB, 500)) > 500


def test_limit_of_nothing_is_our_own_fault() -> None:
    with pytest.raises(AssertionError):
        ScheduledThrottle(0, EngineOptions(policy="schedule"), 0)
