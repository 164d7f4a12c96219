"""quotas.replication.replication_quotas where other processes share a follower's quota: limits that change with time.

What it does with one process is shown with whole dialogues, in `tests/unit/proxy/channel/test_replication.py`.
"""

from quotas.replication.claims import Claim, Reservation
from quotas.replication.replication_quotas import BrokerLimits, ReplicationOptions, ReplicationQuotas
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import Grant, LeaseAnswer, LeaseTerms

TERMS = LeaseTerms(("a", "b"), 5000)
MB = 1_000_000
FOLLOWER = 7


def shared(now_ms: int = 0) -> tuple[ReplicationQuotas, LeasePeer]:
    """A follower's quota of 4 MB/s; of it the process had no lease yet, and was started long ago."""
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.shares = peer = LeasePeer(TERMS, "a", 1, now_ms - 60_000)
    quotas.limit(BrokerLimits(default=9 * MB), BrokerLimits(of_broker={FOLLOWER: 4 * MB}))
    return quotas, peer


def give(peer: LeasePeer, share: float, hold_ms: int, now_ms: int) -> None:
    request = peer.ask((), now_ms)
    grants = (Grant(FOLLOWER, 4.0 * MB, share, hold_ms),)
    assert peer.take(LeaseAnswer(1, request.number, 5, False, grants), now_ms)


def test_follower_has_an_equal_share_and_leader_everything() -> None:
    quotas, _ = shared()
    assert quotas.follower(FOLLOWER, 0).limit == 2 * MB
    assert quotas.leader(1, 0).limit == 9 * MB
    assert quotas.follower(8, 0).limit is None


def test_share_changes_the_limit_and_says_so() -> None:
    quotas, peer = shared()
    rate = quotas.follower(FOLLOWER, 0)
    assert not quotas.share(0)
    give(peer, 0.75, 4000, 100)
    assert quotas.share(100)
    assert rate.limit == 3 * MB
    assert not quotas.share(101)


def test_lease_ends_by_time_alone_where_bytes_are_granted() -> None:
    quotas, peer = shared()
    rate = quotas.follower(FOLLOWER, 0)
    give(peer, 0.75, 4000, 100)
    quotas.share(100)
    claim = Claim(Reservation((rate,)))
    quotas.begin_sharing(1).grant(claim, 1, 4099)
    assert rate.limit == 3 * MB
    quotas.begin_sharing(1).grant(claim, 1, 4100)
    assert rate.limit == 2 * MB


def test_changed_quota_holds_with_the_next_grant() -> None:
    quotas, peer = shared()
    rate = quotas.follower(FOLLOWER, 0)
    give(peer, 0.75, 4000, 100)
    quotas.share(100)
    assert quotas.limit(quotas.leader_limits, BrokerLimits(of_broker={FOLLOWER: 1 * MB}))
    quotas.begin_sharing(1).grant(Claim(Reservation((rate,))), 1, 101)
    assert rate.limit == 750_000


def test_follower_with_a_smaller_grant_is_held_back() -> None:
    quotas, _ = shared()
    rate = quotas.follower(FOLLOWER, 0)
    quotas.begin_sharing(1).grant(Claim(Reservation((rate,))), 400_000, 10)
    assert rate.held_ms < 0  # a quarter of a second of 2 MB/s is 500 kB
    quotas.begin_sharing(1).grant(Claim(Reservation((rate,))), 600_000, 20)
    assert rate.held_ms == 20


def test_without_other_processes_the_quota_is_not_shared() -> None:
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.limit(BrokerLimits(), BrokerLimits(default=4 * MB))
    rate = quotas.follower(FOLLOWER, 0)
    assert rate.limit == 4 * MB
    assert not quotas.share(0)
    quotas.limit(BrokerLimits(), BrokerLimits(default=1 * MB))
    assert rate.limit == 1 * MB


class FollowerLink:
    """A connection that follows one topic."""

    follower = FOLLOWER

    def __init__(self, topic: bytes) -> None:
        self._topic = topic

    def replica_offsets(self) -> list[tuple[bytes, int, int, int]]:
        return []

    def topics(self) -> set[bytes]:
        return {self._topic}


def test_names_of_topics_without_replicas_are_removed() -> None:
    quotas = ReplicationQuotas(ReplicationOptions())
    kept = bytes(16)
    quotas.links.add(FollowerLink(kept))
    for number in range(5000):
        quotas.name_topics({**quotas.topic_names, number.to_bytes(16): str(number)})
        assert len(quotas.topic_names) <= 1000
    assert quotas.topic_names[kept] == "0"
