"""Followers' quotas with shares: limits of this process, and the demand."""

from quotas.replication.replication_quotas import BrokerLimits, ReplicationOptions, ReplicationQuotas
from quotas.sharing.followers import FOLLOWERS_MAX, FollowerShares, follower_key
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
    quotas = quotas_with(Q)
    shares = FollowerShares(quotas, leased(0.25), lambda: None)
    rate = quotas.follower(3, 0)
    rate.held_ms = 0
    assert shares.wishes(0) == {KEY: Wish(1.0, 1.0)}


def test_a_follower_that_is_not_held_back_wants_twice_its_rate() -> None:
    quotas = quotas_with(Q)
    shares = FollowerShares(quotas, leased(0.5), lambda: None)
    rate = quotas.follower(3, 0)
    wishes = {}
    for now_ms in range(0, 5000, 100):
        rate.record(20_000, now_ms)  # 0.2 MB/s
        wishes = shares.wishes(now_ms)
    assert wishes == {KEY: Wish(0.1, 1.0)}


def test_a_follower_without_traffic_wants_nothing() -> None:
    quotas = quotas_with(Q)
    shares = FollowerShares(quotas, leased(0.5), lambda: None)
    quotas.follower(3, 0)
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
