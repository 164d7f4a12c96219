"""quotas.limiters.rate: KIP-13's sampled window with Kafka's own numbers (kafka-quotas.md §1.1-1.2).

The worked example of KIP-13 is that of the class itself.
"""

import pytest

from quotas.limiters.rate import SampledRate


def rate(samples: int = 11, sample_ms: int = 1000) -> SampledRate:
    return SampledRate(samples=samples, sample_ms=sample_ms)


def test_quota_violation_of_kafkas_own_test() -> None:
    # ClientQuotaManagerTest.testQuotaViolation: quota 500 B/s.
    window = rate()
    for second in range(10):
        window.record(400, second * 1000)
        assert window.throttle_ms(500, second * 1000) == 0
    window.record(2300, 10_500)
    assert window.total == 6300  # 10 · 400 + 2300
    assert window.window_ms(10_500) == 10_500
    assert window.per_second(10_500) == 600
    assert window.throttle_ms(500, 10_500) == 2100  # (600 - 500) / 500 · 10.5 s
    # The window moves on: the samples of 0, 1 and 2 s are gone, 7 · 400 + 2300 + 400 = 5500 B in 10.5 s remain.
    window.record(400, 13_500)
    assert window.throttle_ms(500, 13_500) == 500  # 5500 / 500 - 10.5 s


def test_quota_parsing_of_kafkas_own_test() -> None:
    # ClientQuotaManagerTest.testQuotaParsing: 2500 · 11 bytes.
    window = rate()
    window.record(2500 * 11, 0)
    assert window.throttle_ms(2000, 0) > 0
    assert window.throttle_ms(3000, 0) == 0
    assert window.throttle_ms(500, 0) > 0
    window.record(1000 * 11, 0)  # then 4000: 38,500 B / 10 s
    assert window.throttle_ms(4000, 0) == 0


@pytest.mark.parametrize(
    ("observed", "limit", "window_s", "throttle_ms"),
    [
        (100, 50, 2, 2000),  # QuotaUtilsTest, N = 3: (100 - 50) / 50 · 2 s
        (55, 50, 1, 100),  # N = 2: 5 / 50 · 1 s
        (50, 50, 2, 0),  # at the quota is within the quota
    ],
)
def test_throttle_time_of_kafkas_own_test(observed: int, limit: int, window_s: int, throttle_ms: int) -> None:
    window = rate(samples=window_s + 1)
    window.record(observed * window_s, 0)
    assert window.window_ms(0) == window_s * 1000
    assert window.throttle_ms(limit, 0) == throttle_ms


def test_negative_record_takes_a_throttled_fetch_back() -> None:
    window = rate()
    window.record(1000, 0)
    window.record(5000, 10)
    window.record(-5000, 10)
    assert window.total == 1000


def test_bytes_that_are_only_expected_count_without_a_record() -> None:
    window = rate()
    window.record(4000, 0)
    assert window.throttle_ms(500, 0, also=2000) == 2000  # 6000 / 500 - 10 s
    assert window.total == 4000


def test_remaining_bytes_are_the_rest_of_the_window() -> None:
    window = rate()
    window.record(4000, 0)
    assert window.left(500, 0) == 1000
    window.record(2000, 0)
    assert window.left(500, 0) == -1000


def test_empty_in_is_the_time_until_no_sample_counts() -> None:
    window = rate()
    assert window.empty_in_ms(0) == 0
    window.record(4000, 0)
    assert window.empty_in_ms(400) == 10_600
    window.record(500, 5000)
    window.record(-500, 5000)  # taken back: it leaves nothing to wait for
    assert window.empty_in_ms(5000) == 6000
    assert window.empty_in_ms(20_000) == 0


def test_window_of_one_sample_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        SampledRate(samples=1, sample_ms=1000)
    with pytest.raises(AssertionError):
        SampledRate(samples=2, sample_ms=0)
