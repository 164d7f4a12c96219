"""Followers' quotas with shares: limits of this process, and the demand."""

from quotas.replication.rates import PacedRate
from quotas.replication.replication_quotas import BrokerLimits, ReplicationOptions, ReplicationQuotas
from quotas.sharing.followers import FOLLOWERS_MAX, Demands, FollowerShares, follower_key
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Wish
from quotas.sharing.lessee import Lessee

Q = 4_000_000.0


KEY = follower_key(3)


def leased(share: float) -> Lessee:
    lessee = Lessee(LeaseTerms(15_000, 1000, 4), LesseeId("a", 1), 0)
    number = lessee.report(0).number
    lessee.take(Grants(1, 1, 1, number, 15_000, {DEFAULT_KEY: 0.25, KEY: share}, True, 4), 0)
    return lessee


def quotas_with(limit: float | None) -> ReplicationQuotas:
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.limit(BrokerLimits(), BrokerLimits(default=limit))
    return quotas


def shares_of(share: float) -> tuple[FollowerShares, PacedRate]:
    """A follower's quota of 4 MB/s, of which this process has a share."""
    quotas = quotas_with(Q)
    shares = FollowerShares(quotas, leased(share), lambda: None)
    rate = quotas.follower(3, 0)
    assert isinstance(rate, PacedRate)
    return shares, rate


def test_a_follower_has_this_processs_share_of_its_quota_until_the_lease_is_over() -> None:
    quotas = quotas_with(Q)
    changes: list[str] = []
    shares = FollowerShares(quotas, leased(0.6), lambda: changes.append("limits"))
    rate = quotas.follower(3, 0)
    assert rate.limit == 0.6 * Q
    assert shares.changes_ms(0) == 15_000
    shares.apply(15_000)
    assert rate.limit == 0.25 * Q
    assert changes == ["limits"]


def test_an_unlimited_follower_stays_unlimited() -> None:
    quotas = quotas_with(None)
    shares = FollowerShares(quotas, leased(0.1), lambda: None)
    assert quotas.follower(3, 0).limit is None
    assert shares.wishes(0) == {}


def test_a_follower_that_is_held_back_wants_the_whole_quota() -> None:
    shares, rate = shares_of(0.25)
    rate.held_ms = 0
    assert shares.wishes(0) == {KEY: Wish(1.0, 1.0)}


def test_a_follower_that_is_not_held_back_wants_twice_its_rate() -> None:
    shares, rate = shares_of(0.5)
    wishes = {}
    for now_ms in range(0, 5000, 100):
        rate.record(20_000, now_ms)  # 0.2 MB/s
        wishes = shares.wishes(now_ms)
    assert wishes == {KEY: Wish(0.1, 1.0)}


def test_a_follower_without_traffic_wants_nothing() -> None:
    shares, _ = shares_of(0.5)
    assert shares.wishes(0) == {}


def test_only_the_largest_demands_are_named() -> None:
    quotas = quotas_with(Q)
    shares = FollowerShares(quotas, leased(0.5), lambda: None)
    for broker in range(FOLLOWERS_MAX + 1):
        quotas.follower(broker, 0)
    shares.wishes(0)
    for broker in range(FOLLOWERS_MAX + 1):
        quotas.follower(broker, 0).record(20_000 + 80_000 * (broker > 0), 0)
    found = shares.wishes(1000)
    assert len(found) == FOLLOWERS_MAX
    assert follower_key(0) not in found


def spend(demands: Demands, rate: PacedRate, since_ms: int, until_ms: int, size: int, held: bool) -> float:
    """Count `size` bytes a second; returns what is wanted at the end."""
    found = 0.0
    for now_ms in range(since_ms, until_ms, 100):
        rate.total += size // 10
        if held:
            rate.held_ms = now_ms
        found = demands.wanted(3, Q, rate, now_ms)
    return found


def test_follower_that_is_held_back_and_uses_its_share_wants_the_quota() -> None:
    assert spend(Demands(), PacedRate(3_000_000.0, 0), 0, 3000, 2_900_000, True) == Q


def test_follower_that_is_held_back_and_gets_nothing_wants_the_quota_at_once() -> None:
    rate = PacedRate(40_000.0, 0)  # the least share
    rate.held_ms = 0
    assert Demands().wanted(3, Q, rate, 0) == Q


def test_larger_share_that_is_not_used_is_wanted_no_more_after_two_seconds() -> None:
    demands, rate = Demands(), PacedRate(40_000.0, 0)
    assert spend(demands, rate, 0, 1000, 40_000, True) == Q
    rate.limit = 0.98 * Q
    assert spend(demands, rate, 1000, 2900, 400_000, True) == Q
    assert spend(demands, rate, 2900, 5000, 400_000, True) == 800_000


def test_slow_leader_keeps_to_its_headroom() -> None:
    """It is always granted less than a follower asks for, and still sends 400 kB/s of its 800, in few responses."""
    demands, rate = Demands(), PacedRate(800_000.0, 0)
    found = []
    for now_ms in range(0, 10_000, 100):
        rate.held_ms = now_ms
        rate.total += 300_000 * (now_ms % 750 < 100)
        found.append(demands.wanted(3, Q, rate, now_ms))
    # In two seconds lie two or three responses: 300 to 450 kB/s.
    assert set(found[50:]) == {900_000.0}


def test_load_that_stops_is_forgotten_within_a_second() -> None:
    demands, rate = Demands(), PacedRate(Q / 2, 0)
    assert spend(demands, rate, 0, 3000, 2_000_000, True) == Q
    assert spend(demands, rate, 3000, 4200, 0, False) == 0
