"""quotas.replication.rates: Kafka's own vectors (ReplicationQuotaManagerTest), and the pace's bounds in numbers."""

import pytest

from quotas.replication.rates import READY_MS_MAX, PacedRate, WindowRate

MB = 1_000_000


def test_kafkas_vector_of_exceeding_and_coming_back() -> None:
    # ReplicationQuotaManagerTest: 100 bytes/s, 10 samples of 1 s. The first second is a window of its own.
    rate = WindowRate(100, 10, 1000)
    assert rate.room(0) is None
    rate.record(1, 0)
    rate.record(149, 1500)
    assert rate.per_second(1500) == 100  # 150 B / 1.5 s, and not over
    assert rate.room(1500) is None
    rate.record(1, 1500)
    assert rate.per_second(1500) == pytest.approx(151 / 1.5)
    assert rate.room(1500) == 0
    assert rate.per_second(2000) == 151 / 2
    assert rate.room(2000) is None
    rate.record(99, 2500)
    assert rate.per_second(2500) == 100  # 250 B / 2.5 s
    assert rate.room(2500) is None
    rate.record(1, 2500)
    assert rate.room(2500) == 0  # 251 B
    assert rate.per_second(4500) == pytest.approx(251 / 4.5)
    assert rate.room(4500) is None


def test_windows_say_when_they_have_room() -> None:
    rate = WindowRate(100, 10, 1000)
    rate.record(300, 0)
    assert (
        rate.ready_in_ms(1, 0) == 2000
    )  # 300 B / 100 B/s = 3 s, of which the first second is taken for past
    assert rate.room(2999) == 0
    assert rate.room(3000) is None


def test_windows_forget_after_their_number() -> None:
    rate = WindowRate(1, 11, 1000)
    rate.record(1000, 0)
    assert rate.ready_in_ms(1, 0) == 11_000
    assert rate.room(10_999) == 0
    assert rate.room(11_000) is None


@pytest.mark.parametrize("rate", [WindowRate(None, 11, 1000), PacedRate(None, 0)])
def test_without_a_limit_everything_is_granted_and_counted(rate: WindowRate | PacedRate) -> None:
    rate.record(5 * MB, 0)
    assert rate.grant(1, 10 * MB, 0) == 10 * MB
    assert rate.ready_in_ms(1, 0) == 0
    assert rate.per_second(0) == 5 * MB


def test_pace_of_zero_grants_nothing() -> None:
    rate = PacedRate(0, 0)
    assert rate.grant(1, MB, 1000) == 0
    assert rate.ready_in_ms(1, 1000) == READY_MS_MAX


def test_windows_of_zero_let_one_fetch_through_as_kafka_does() -> None:
    rate = WindowRate(0, 11, 1000)
    assert rate.grant(1, MB, 0) == MB  # 0 is not over 0
    rate.record(1, 0)
    assert rate.grant(1, MB, 1000) == 0


def test_pace_pays_for_a_batch_larger_than_its_order() -> None:
    rate = PacedRate(100_000, 0)
    granted = rate.grant(16_384, MB, 0)
    assert granted == 25_000
    rate.reserve(granted)
    rate.settle(granted, MB, 0)
    # 25,000 - 1,000,000 = -975,000; a batch of 16,384 more: 991,384 / 100,000 per s.
    assert rate.ready_in_ms(16_384, 0) == 9914
    assert rate.grant(16_384, MB, 9913) == 0
    assert rate.grant(16_384, MB, 9914) == 16_400


def test_pace_lets_a_batch_larger_than_its_bucket_through_alone() -> None:
    rate = PacedRate(100_000, 0)
    assert rate.grant(MB, MB, 0) == MB
    rate.reserve(1)
    assert rate.grant(MB, MB, 0) == 0  # something is under way
    rate.settle(1, 0, 0)  # it did not arrive
    assert rate.grant(MB, MB, 0) == MB


def test_paced_rate_bounds_the_debt_of_in_sync_replicas() -> None:
    rate = PacedRate(1000, 0)
    for now_ms in range(100):
        rate.record(1000, now_ms)  # 100 s of quota
    assert rate.ready_in_ms(100, 99) == 10_100  # 10 s, and a batch of 100


def test_pace_forgets_a_debt_of_a_higher_limit() -> None:
    rate = PacedRate(100 * MB, 0)
    rate.record(2000 * MB, 0)  # 20 s of quota, one batch
    rate.record(1, 1)
    rate.limit = MB
    assert rate.ready_in_ms(20_000, 1) == 10_020  # 10 s of the new one; 2000 s without that


def fetch(
    rate: PacedRate, since_ms: int, until_ms: int, batch: int, latency_ms: int
) -> list[tuple[int, int]]:
    """Fetch from a leader that always has data: at least one batch, else whole batches within the grant."""
    came: list[tuple[int, int]] = []
    now_ms, most = since_ms, 8 * 1_048_576
    while now_ms < until_ms:
        granted = rate.grant(min(batch, most), most, now_ms)
        if not granted:
            now_ms += max(1, rate.ready_in_ms(batch, now_ms))
            continue
        rate.reserve(granted)
        now_ms += latency_ms
        size = max(1, granted // batch) * batch
        rate.settle(granted, size, now_ms)
        came.append((now_ms, size))
    return came


def in_second(came: list[tuple[int, int]], at_ms: int) -> int:
    return sum(size for when_ms, size in came if at_ms <= when_ms < at_ms + 1000)


def test_pace_grants_nothing_beyond_a_limit_that_has_fallen_until_a_second_is_within_it() -> None:
    """Of 4 MB/s 4 MB came in the last second; 3 MB of them must be a second old."""
    rate = PacedRate(4 * MB, 0)
    fetch(rate, 0, 3000, 20_000, 5)
    rate.allow(MB, 0.0, 3000)
    came = fetch(rate, 3000, 6000, 20_000, 5)
    assert came[0][0] >= 3500
    assert in_second(came, 3000) < 0.75 * MB


@pytest.mark.parametrize("batch", [1000, 20_000, 100_000])
@pytest.mark.parametrize("lent", [0, MB // 2])
def test_pace_grants_its_floor_in_any_second_after_a_loan_has_ended(batch: int, lent: int) -> None:
    rate = PacedRate(8 * MB, 0)
    rate.allow(8 * MB, float(MB), 0)
    fetch(rate, 0, 3000, batch, 5)
    rate.allow(MB + lent, float(MB), 3000)
    came = fetch(rate, 3000, 6000, batch, 5)
    seconds = [in_second(came, at_ms) for at_ms in range(3000, 4000, 10)]
    assert min(seconds) >= 0.9 * MB
    assert max(seconds) <= MB + lent + batch


def test_what_was_reserved_of_the_floor_and_did_not_arrive_may_be_granted_again() -> None:
    rate = PacedRate(4 * MB, 0)
    rate.allow(4 * MB, float(MB), 0)
    fetch(rate, 0, 1000, 10_000, 10)
    rate.allow(MB, float(MB), 1000)
    assert rate.grant(1, MB, 1000) == 0
    assert rate.grant(1, MB, 1050) == 50_000  # 50 ms of 1 MB/s
    rate.reserve(50_000)
    rate.settle(50_000, 20_000, 1050)
    assert rate.grant(1, MB, 1050) == 30_000


def test_a_rate_of_which_no_loan_has_ended_is_ready_when_a_second_is_within_it() -> None:
    rate = PacedRate(MB, 0)
    rate.allow(MB, float(MB), 0)
    rate.record(MB, 0)
    assert rate.ready_in_ms(20_000, 900) == 100
    assert (rate.grant(20_000, MB, 999), rate.grant(20_000, MB, 1000)) == (0, 250_000)


@pytest.mark.parametrize("limit", [100_000, MB, 4 * MB, 50 * MB])
@pytest.mark.parametrize("batch", [1000, 16_384, 200_000, 1_048_576])
@pytest.mark.parametrize("latency_ms", [1, 20])
@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_no_second_of_the_pace_exceeds_the_quota_and_one_batch(
    limit: int, batch: int, latency_ms: int, floor: float
) -> None:
    """Also of a rate that is a floor as a whole."""
    rate = PacedRate(limit, 0)
    rate.allow(limit, floor * limit, 0)
    came = fetch(rate, 0, 20_000, batch, latency_ms)
    total = sum(size for _, size in came)
    # 20 s, and the bucket at the start or the debt at the end.
    assert total >= 0.95 * limit * 20 - batch
    assert total <= limit * 20.25 + batch
    for at_ms, _ in came:
        second = sum(size for when_ms, size in came if at_ms <= when_ms < at_ms + 1000)
        assert second <= limit + batch
