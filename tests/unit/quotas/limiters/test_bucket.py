"""quotas.limiters.bucket: KIP-599's token bucket with Kafka's own numbers (kafka-quotas.md §3.1, §3.4).

The strict vector (StrictControllerMutationQuotaTest) is the example of the class itself.
"""

import pytest

from quotas.limiters.bucket import TokenBucket


def bucket(rate: float = 10, burst: float = 100) -> TokenBucket:
    """Kafka's test values: 10 mutations/s, 10 samples of 1 s: 10 · 10 tokens."""
    return TokenBucket(rate, burst, now_ms=0)


def test_permissive_vector_of_kafkas_own_test() -> None:
    tokens = bucket()
    tokens.record(90, 0)
    assert tokens.throttle_ms(0) == 0
    tokens.record(90, 0)
    assert tokens.throttle_ms(0) == 8000  # (180 - 100) / 10 per s
    tokens.record(90, 0)
    assert tokens.throttle_ms(0) == 17_000  # (270 - 100) / 10 per s
    assert tokens.throttle_ms(5000) == 12_000  # (170 - 5 · 10) / 10 per s


def test_manager_vector_of_kafkas_own_test() -> None:
    # ControllerMutationQuotaManagerTest: 110 passes, 110 more wait a second, and then pass.
    tokens = bucket()
    assert tokens.take(110, 0)
    assert not tokens.take(110, 0)
    assert tokens.throttle_ms(0) == 1000  # (110 - 100) / 10 per s
    assert tokens.take(110, 1000)


def test_integration_vector_of_kafkas_own_test() -> None:
    # ControllerMutationQuotaTest: 2/s, 10 samples of 1 s: two topics of 30 partitions.
    strict = bucket(2, 20)
    assert [strict.take(30, 0) for _ in range(2)] == [True, False]
    assert strict.throttle_ms(0) == 5000  # (30 - 20) / 2 per s
    permissive = bucket(2, 20)
    for _ in range(2):
        permissive.record(30, 0)
    assert permissive.throttle_ms(0) == 20_000  # (60 - 20) / 2 per s


def test_changed_rate_counts_from_the_last_refill_and_a_smaller_burst_takes_away() -> None:
    tokens = bucket()
    tokens.record(180, 0)
    tokens.configure(20, 200)
    assert tokens.tokens(2000) == -40  # -80 + 2 s · 20
    tokens.configure(1, 5)
    assert tokens.tokens(2000 + 60_000) == 5


def test_settling_forgets_the_overdraft_alone() -> None:
    tokens = bucket()
    tokens.record(40, 0)
    tokens.settle(0)
    assert tokens.tokens(0) == 60
    tokens.record(140, 0)
    tokens.settle(0)
    assert tokens.tokens(0) == 0


def test_time_that_goes_back_refills_nothing_twice() -> None:
    tokens = bucket()
    tokens.record(100, 1000)
    assert tokens.tokens(500) == 0
    assert tokens.tokens(2000) == 10  # 1 s · 10


@pytest.mark.parametrize("rate", [1e-9, 5e-324])
def test_throttle_time_is_cut_to_what_a_response_can_hold(rate: float) -> None:
    tokens = TokenBucket(rate, 1, 0)
    tokens.record(100, 0)
    assert tokens.throttle_ms(0) == 2**31 - 1


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_bucket_that_never_fills_is_refused(rate: float) -> None:
    with pytest.raises(AssertionError, match="never refilled"):
        TokenBucket(rate, 1, 0)
    with pytest.raises(AssertionError, match="never refilled"):
        bucket().configure(rate, 1)
