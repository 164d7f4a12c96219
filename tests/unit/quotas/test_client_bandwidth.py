"""quotas.client_bandwidth: Kafka's arithmetic request by request, and what a channel sees of either policy."""

from itertools import pairwise

import pytest

from quotas.client_bandwidth import FETCH_BYTES_MIN, SampledThrottle, Throttle
from quotas.decisions import ADMITTED
from quotas.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.options import EngineOptions, Mode, Policy
from quotas.turn import Turn

MB = 1_000_000
LIMIT = 2.0 * MB


def sampled(limit: float = LIMIT) -> SampledThrottle:
    return SampledThrottle(limit, EngineOptions(), 0)


def engine(limit: float | None = LIMIT, policy: Policy = "kip13", mode: Mode = "enforce") -> Engine:
    static = StaticQuotas(producer_default=limit, consumer_default=limit)
    return Engine(EngineOptions(policy=policy, mode=mode), Definitions(static=static))


def produce_of(engine_: Engine) -> Throttle:
    return engine_.client("", "a", 1).produce


def fetch_of(engine_: Engine) -> Throttle:
    return engine_.client("", "a", 1).fetch


# -- kip13


def test_produce_passes_and_is_throttled_afterwards() -> None:
    throttle, turn = sampled(), Turn()
    assert throttle.produce(turn, 20 * MB, 0) is ADMITTED  # 10 s · 2 MB/s, at the quota is within
    assert throttle.produce(turn, 2 * MB, 0).throttle_ms == 1000  # 22 MB / 2 MB/s - 10 s


def test_produce_debt_is_seen_by_every_channel_of_the_identity() -> None:
    throttle = sampled()
    throttle.produce(Turn(), 22 * MB, 0)
    assert throttle.produce(Turn(), MB, 0).throttle_ms == 1500


def test_produce_mute_is_capped() -> None:
    assert sampled().produce(Turn(), 200 * MB, 0).throttle_ms == 20_000  # 90 s by Kafka's arithmetic


def test_fetch_that_would_go_over_is_answered_empty_and_not_recorded() -> None:
    throttle, turn = sampled(), Turn()
    assert throttle.fetch(turn, 0) is ADMITTED
    assert throttle.fetched(turn, 11 * MB, 0) is ADMITTED
    assert throttle.fetch(turn, 10).throttle_ms == 990  # "as if non-empty": 22 MB / 2 MB/s - 10.01 s
    assert throttle.fetch(turn, 990).throttle_ms == 10  # nothing was recorded in between
    # The window's sawtooth: from 1000 ms on W is 10 s again, for 11 + 11 MB it takes 1 s more.
    assert throttle.fetch(turn, 1000).throttle_ms == 1000


def test_fetch_with_the_broker_counts_as_recorded() -> None:
    throttle, first, second = sampled(), Turn(), Turn()
    for turn in (first, second):
        turn.expected = 11 * MB
    assert throttle.fetch(first, 0) is ADMITTED
    assert throttle.fetch(second, 0).throttle_ms == 1000  # 22 MB / 2 MB/s - 10 s
    throttle.leave(first, 1)
    assert throttle.fetch(second, 1) is ADMITTED


def test_fetch_that_turns_out_larger_is_delivered_and_throttled() -> None:
    throttle, turn = sampled(), Turn()
    throttle.fetch(turn, 0)
    assert throttle.fetched(turn, 24 * MB, 0).throttle_ms == 2000


def test_batch_larger_than_the_window_arrives_once_the_window_is_empty() -> None:
    # Kafka refuses it for ever (kafka-quotas.md §1.5).
    throttle, turn = sampled(), Turn()
    now_ms = 0
    arrived: list[int] = []
    while len(arrived) < 3:
        decision = throttle.fetch(turn, now_ms)
        if decision is ADMITTED:
            arrived.append(now_ms)
            decision = throttle.fetched(turn, 50 * MB, now_ms)
        now_ms += max(1, decision.throttle_ms)
    assert arrived[0] == 0
    assert all(10_000 <= later - earlier <= 21_000 for earlier, later in pairwise(arrived))


def test_fetch_may_ask_for_what_is_left_of_the_window() -> None:
    throttle, turn = sampled(), Turn()
    throttle.fetch(turn, 0)
    assert throttle.fetch_max_bytes(turn, 55 * MB, 0) == 20 * MB  # KAFKA-9677: 10 · T
    assert throttle.fetch_max_bytes(turn, 1000, 0) == 1000
    throttle.fetched(turn, 15 * MB, 0)
    throttle.fetch(turn, 0)
    assert throttle.fetch_max_bytes(turn, 55 * MB, 0) == 5 * MB


def test_fetch_may_ask_for_twice_what_came_last() -> None:
    throttle, turn = sampled(), Turn()
    turn.expected = MB
    throttle.fetch(turn, 0)
    assert throttle.fetch_max_bytes(turn, 55 * MB, 0) == 2 * MB
    turn.expected = 10
    assert throttle.fetch_max_bytes(turn, 55 * MB, 0) == FETCH_BYTES_MIN


def test_fetch_may_always_ask_for_one_byte() -> None:
    throttle, turn = sampled(), Turn()
    throttle.produce(turn, 30 * MB, 0)
    assert throttle.fetch_max_bytes(turn, 55 * MB, 0) == 1


def test_first_fetches_of_many_channels_do_not_all_take_the_whole_window() -> None:
    throttle = sampled()
    turns = [Turn() for _ in range(20)]
    granted = 0
    for turn in turns:
        if throttle.fetch(turn, 0) is ADMITTED:
            granted += throttle.fetch_max_bytes(turn, 50 * MB, 0)
    assert granted <= 20 * MB + len(turns)


def test_lowered_quota_is_enforced_against_what_was_recorded() -> None:
    throttle, turn = sampled(), Turn()
    throttle.produce(turn, 20 * MB, 0)
    throttle.configure(LIMIT / 4, EngineOptions(mute_seconds_max=60), 0)
    assert throttle.produce(turn, 0, 0).throttle_ms == 30_000  # 20 MB / 0.5 MB/s - 10 s


def test_changed_windows_keep_the_recorded_bytes() -> None:
    throttle, turn = sampled(), Turn()
    throttle.produce(turn, 20 * MB, 0)
    throttle.configure(LIMIT, EngineOptions(window_samples=6), 0)
    assert throttle.produce(turn, 0, 0).throttle_ms == 5000  # 20 MB / 2 MB/s - 5 s


def test_debt_is_what_the_window_holds_beyond_its_quota() -> None:
    throttle, turn = sampled(), Turn()
    throttle.produce(turn, 21 * MB, 0)
    assert throttle.debt_bytes(0) == MB
    assert throttle.debt_bytes(60_000) == 0


def test_observed_fetch_is_taken_back_as_kafka_does() -> None:
    throttle, turn = sampled(), Turn()
    assert throttle.observe(turn, 22 * MB, 0, consumes=True) == 1000
    assert throttle.debt_bytes(0) == 0
    assert throttle.observe(turn, 22 * MB, 0, consumes=False) == 1000
    assert throttle.debt_bytes(0) == 2 * MB


# -- what the channel sees


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_unlimited_client_is_counted_and_let_pass(policy: Policy) -> None:
    unlimited = engine(None, policy)
    throttle, turn = produce_of(unlimited), Turn()
    assert throttle.produce(turn, 500 * MB, 0) is ADMITTED
    assert fetch_of(unlimited).fetch(turn, 0) is ADMITTED
    assert fetch_of(unlimited).fetch_max_bytes(turn, 77, 0) == 77
    assert fetch_of(unlimited).fetched(turn, 5, 0) is ADMITTED
    assert (throttle.bytes_total, fetch_of(unlimited).bytes_total) == (500 * MB, 5)
    assert throttle.debt_bytes(0) == 0
    assert throttle.limit is None


def test_throttled_request_is_counted_with_its_time() -> None:
    throttle = produce_of(engine())
    turn = throttle.turn()
    throttle.produce(turn, 22 * MB, 0)
    assert (throttle.throttled_total, throttle.throttle_ms_total, throttle.bytes_total) == (1, 1000, 22 * MB)


def test_held_request_is_counted_once_with_the_time_it_was_held() -> None:
    throttle = produce_of(engine(policy="schedule"))
    first, second = throttle.turn(), throttle.turn()
    throttle.produce(first, 3 * MB, 0)
    throttle.produce(second, MB, 0)
    throttle.produce(second, MB, 200)
    assert throttle.bytes_total == 3 * MB  # a held request has not passed
    before = throttle.throttle_ms_total
    decision = throttle.produce(second, MB, 1000)
    assert throttle.bytes_total == 4 * MB
    assert throttle.throttle_ms_total - before == 1000 + decision.throttle_ms
    assert throttle.throttled_total == 2


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_observing_lets_everything_pass_and_counts_what_would_have_been(policy: Policy) -> None:
    throttle = produce_of(engine(policy=policy, mode="observe"))
    turn = throttle.turn()
    for now_ms in range(0, 10_000, 100):
        assert throttle.produce(turn, MB, now_ms) is ADMITTED
    assert throttle.throttled_total == 0
    assert throttle.would_throttled_total > 0
    # Overlapping mutes of one channel count once: never more than the time that passed and the last mute.
    assert 0 < throttle.would_throttle_ms_total <= 10_000 + 35_000


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_observed_fetches_are_never_capped_or_answered_here(policy: Policy) -> None:
    throttle = fetch_of(engine(policy=policy, mode="observe"))
    turn = throttle.turn()
    for now_ms in range(0, 1000, 10):
        assert throttle.fetch(turn, now_ms) is ADMITTED
        assert throttle.fetch_max_bytes(turn, 50 * MB, now_ms) == 50 * MB
        assert throttle.fetched(turn, MB, now_ms) is ADMITTED
    assert throttle.bytes_total == 100 * MB
    assert throttle.would_throttled_total > 0


def test_leaving_twice_for_two_channels_leaves_none() -> None:
    throttle = produce_of(engine(policy="schedule"))
    turns = [throttle.turn(), throttle.turn()]
    throttle.produce(turns[0], MB, 0)
    for turn in turns:
        throttle.leave(turn, 1)
    assert throttle.turns == 0
    assert turns[0].limiter is None


def test_byte_rate_is_that_between_two_questions() -> None:
    throttle = produce_of(engine(None))
    turn = throttle.turn()
    assert throttle.byte_rate(0) == 0
    throttle.produce(turn, 3 * MB, 500)
    assert throttle.byte_rate(999) == 0  # asked again within the second
    assert throttle.byte_rate(1500) == 2 * MB
    assert throttle.byte_rate(1600) == 2 * MB
