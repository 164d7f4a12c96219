"""quotas.limiters.virtual_time: lags of connections and budgets; ms throughout."""

from quotas.limiters.virtual_time import COUNT_MS, BudgetTime, ConnectionTime
from quotas.throttles.figures import ThrottleCounters


def test_rest_of_a_mute_is_the_lag_of_the_next_request() -> None:
    time = ConnectionTime()
    time.weigh(0)
    time.mute(1000, 0)
    time.weigh(300)
    assert (time.lag_ms, time.waited_ms) == (700, 1000)
    time.mute(1000, 300)  # from 1000 to 2000, with the lag
    time.weigh(2000)  # 2700 with the lag
    assert (time.lag_ms, time.waited_ms) == (700, 2000)


def test_overlapping_mutes_count_once() -> None:
    time = ConnectionTime()
    time.mute(1000, 0)
    time.mute(600, 500)
    assert time.waited_ms == 1100


def test_mute_is_bounded_by_the_group_of_the_connection() -> None:
    time = ConnectionTime()
    time.mute_ms_max = 2000
    time.mute(9000, 0)
    assert time.waited_ms == 2000


def test_requests_in_flight_make_good_for_waits_of_each_other() -> None:
    owed: list[int] = []
    time = ConnectionTime(owed)
    time.weigh(0)
    time.mute(100, 0)
    owed.append(0)
    time.weigh(10)  # it was sent before the response to the first one had come: it waits until 100
    assert time.lag_ms == 90
    time.weigh(95)  # this one as well: with the lag of the first, it would come at 95, after the one before
    assert time.lag_ms == 5


def test_time_until_the_next_slot_is_a_wait_if_the_mute_would_last_as_long() -> None:
    time = ConnectionTime()
    time.weigh(0)
    time.mute(100, 0)
    time.weigh(150)
    time.hold(30, mute_ms=200)
    assert time.waited_ms == 100 + 50 + 30
    time.mute(100, 150)
    time.weigh(950)
    time.hold(30, mute_ms=200)  # 670 ms after the mute, nothing was reserved any more
    assert time.waited_ms == 180 + 100 + 30


def test_counters_get_the_part_of_the_real_time() -> None:
    throttle = ThrottleCounters()
    time = ConnectionTime()
    time.weigh(0)
    time.hold(30_000)
    time.count(throttle, 30_000)
    time.weigh(COUNT_MS)
    assert throttle.would_throttle_ms_total == COUNT_MS * 30_000 // (COUNT_MS + 30_000)
    time.settle(2 * COUNT_MS)  # nothing more
    assert throttle.would_throttle_ms_total == 7_500


def test_connection_behind_a_budget_waits_for_one_or_two_requests_of_the_others() -> None:
    budget = BudgetTime()
    rounds = 0
    for _ in range(1000):  # one connection, which brings 5 ms with each request
        rounds = budget.turn(rounds, 0)
        budget.lag_ms += 5
    assert budget.behind_ms(0) == 10


def test_places_of_a_connection_are_bounded() -> None:
    time = ConnectionTime()
    budgets = [BudgetTime() for _ in range(100)]
    for budget in budgets:
        time.take_place(budget, 0)
    assert sum(time.place(budget) is not None for budget in budgets) == 16
