"""quotas.replication.replication_quotas where other processes share a follower's quota: limits that change with time.

What it does with one process is shown with whole dialogues, in `tests/unit/proxy/channel/test_replication.py`.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.replication.rates import PacedRate, WindowRate
from quotas.replication.replication_quotas import (
    EVERY_REPLICA,
    PROBLEMS_MAX,
    BrokerLimits,
    Claim,
    ReplicaList,
    ReplicationOptions,
    ReplicationQuotas,
    Reservation,
    Side,
    ThrottledReplicas,
    parse_replicas,
)

MB = 1_000_000
FOLLOWER = 7


class HalfOrMore:
    """All of a leader's quota, and a half of every follower's; of these another part until a time."""

    def __init__(self) -> None:
        self.part, self.until_ms = 0.5, 0

    def limit(self, side: Side, broker: int, quota: float, now_ms: int) -> tuple[float, float]:
        if side == "leader":
            return quota, 0.0
        return quota * (self.part if now_ms < self.until_ms else 0.5), 0.0

    def changes_ms(self, now_ms: int) -> int:
        return self.until_ms if now_ms < self.until_ms else 1 << 62

    def give(self, part: float, until_ms: int) -> None:
        self.part, self.until_ms = part, until_ms


def shared() -> tuple[ReplicationQuotas, HalfOrMore]:
    """A follower's quota of 4 MB/s, of which this process has a half."""
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.shares = shares = HalfOrMore()
    quotas.limit(BrokerLimits(default=9 * MB), BrokerLimits(of_broker={FOLLOWER: 4 * MB}))
    return quotas, shares


def leased() -> tuple[ReplicationQuotas, PacedRate | WindowRate]:
    """Of a follower's quota of 4 MB/s, this process has three quarters until 4,100 ms."""
    quotas, shares = shared()
    rate = quotas.follower(FOLLOWER, 0)
    shares.give(0.75, 4100)
    quotas.share(100)
    return quotas, rate


def test_follower_has_an_equal_share_and_leader_everything() -> None:
    quotas, _ = shared()
    assert quotas.follower(FOLLOWER, 0).limit == 2 * MB
    assert quotas.leader(1, 0).limit == 9 * MB
    assert quotas.follower(8, 0).limit is None


def test_share_changes_the_limit_and_says_so() -> None:
    quotas, shares = shared()
    rate = quotas.follower(FOLLOWER, 0)
    assert not quotas.share(0)
    shares.give(0.75, 4100)
    assert quotas.share(100)
    assert rate.limit == 3 * MB
    assert not quotas.share(101)


def test_lease_ends_by_time_alone_where_bytes_are_granted() -> None:
    quotas, rate = leased()
    claim = Claim(Reservation((rate,)))
    quotas.begin_sharing(1).grant(claim, 1, 4099)
    assert rate.limit == 3 * MB
    quotas.begin_sharing(1).grant(claim, 1, 4100)
    assert rate.limit == 2 * MB


def test_changed_quota_holds_with_the_next_grant() -> None:
    quotas, rate = leased()
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


@pytest.mark.parametrize(
    ("text", "pairs"),
    [("", set()), ("0:1", {(0, 1)}), ("0:1,1:2", {(0, 1), (1, 2)}), (" 0:1 , ,1:2,", {(0, 1), (1, 2)})],
)
def test_replica_list_is_read(text: str, pairs: set[tuple[int, int]]) -> None:
    assert parse_replicas(text) == (ReplicaList(pairs=frozenset(pairs)), [])


@pytest.mark.parametrize("text", ["*", " * ", "*,0:1"])
def test_star_means_every_replica(text: str) -> None:
    assert parse_replicas(text) == (EVERY_REPLICA, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0:1,x", "entry 2, 'x': not [partition]:[replica]"),
        ("0-1,0:1", "entry 1, '0-1': not [partition]:[replica]; did you mean '0:1'?"),
        ("0:1,*", "entry 2, '*': \"*\" must be the whole list"),
        ("0:1,3000000000:1", "entry 2, '3000000000:1': a number is over 2147483647"),
        ("0:1,-1:2", "entry 2, '-1:2': not [partition]:[replica]"),
    ],
)
def test_malformed_entry_is_named_and_the_rest_holds(text: str, problem: str) -> None:
    found, problems = parse_replicas(text)
    assert problems == [problem]
    assert found.holds(0, 1)


def test_problems_are_bounded() -> None:
    _, problems = parse_replicas("x," * 100)
    assert len(problems) == PROBLEMS_MAX


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    found, problems = parse_replicas(text)
    assert found.every or len(found.pairs) + len(problems) <= len(text.split(","))


def test_directions_have_separate_lists() -> None:
    lists = ThrottledReplicas(
        leaders={"t": parse_replicas("0:1")[0]}, followers={"t": parse_replicas("0:3")[0]}
    )
    assert lists.sending("t", 0, leader=1, follower=3)
    assert not lists.sending("t", 0, leader=2, follower=3)
    assert not lists.sending("t", 1, leader=1, follower=3)
    assert lists.receiving("t", 0, follower=3)
    assert not lists.receiving("u", 0, follower=3)


def test_replica_that_is_added_is_throttled_at_both_ends() -> None:
    lists = ThrottledReplicas(adding={("t", 0): frozenset({3})})
    assert lists.sending("t", 0, leader=1, follower=3)
    assert lists.receiving("t", 0, follower=3)
    assert not lists.sending("t", 0, leader=1, follower=2)
