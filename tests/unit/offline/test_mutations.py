"""Partition mutations: rate and burst against the bucket that the proxy runs."""

from hypothesis import given
from hypothesis import strategies as st

from offline.advice.mutations import burst_for, mutation_quota
from quotas.limiters.bucket import TokenBucket


def test_no_mutations_have_no_recommendation() -> None:
    assert mutation_quota({}, 1.1) is None


def test_two_clients_share_the_clusters_bucket() -> None:
    found = mutation_quota({("", "a"): {0: 60}, ("", "b"): {1: 60}}, 1.0)
    assert found is not None
    assert found.rate == 2.0  # 120 in a minute
    assert found.burst == 117.0  # 60, less 2 in a second, and 59 before the last
    assert found.client_rate == 6.0  # 59 / 11, in tenths 5.4, rounded up


@given(
    seconds=st.dictionaries(st.integers(0, 300), st.integers(1, 200), min_size=1, max_size=30),
    rate=st.floats(0.1, 100),
)
def test_the_burst_is_enough_for_the_bucket_and_no_less_is(seconds: dict[int, int], rate: float) -> None:
    burst = burst_for(seconds, rate)
    assert not _overdrawn(seconds, rate, burst + 1e-6)
    if burst > 1:
        assert _overdrawn(seconds, rate, burst - 0.5)


def _overdrawn(seconds: dict[int, int], rate: float, burst: float) -> bool:
    """Whether any mutation, one at a time, finds the bucket overdrawn."""
    bucket = TokenBucket(rate, burst, 0)
    for second in sorted(seconds):
        bucket.record(seconds[second] - 1, second * 1000)
        if bucket.overdrawn(second * 1000):
            return True
        bucket.record(1, second * 1000)
    return False
