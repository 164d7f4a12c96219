"""Fetches between brokers: what is left out, what waits, and what passes as it is (KIP-73, KAFKA-4313)."""

from typing import Any

import pytest

from proxy.channel.follower import ReplicaLink
from proxy.system.stats import Stats
from quotas.replication.replication_quotas import (
    EVERY_REPLICA,
    BrokerLimits,
    ReplicationOptions,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)
from tests.support.frames import fetch, frame, request, some_response
from tests.support.playbook import Ends, Playbook, stats_of
from tests.support.portions import run
from tests.support.replicas import (
    FOLLOWER,
    LEADER,
    REQUEST,
    Follower,
    Leader,
    Link,
    SessionError,
    replication_channel,
    topic_names,
)
from tests.unit.protocol.kafka_frames import decoded

VERSIONS = range(12, 19)
FREE, MOVED = (1, 0), (2, 0)
PLENTY = 1000


def throttling(
    rate: float | None = 10_000, *, policy: Any = "schedule", lists: str = "*"
) -> ReplicationQuotas:
    """Every replica of topic 2 counts against the leader's rate."""
    quotas = ReplicationQuotas(ReplicationOptions(policy=policy))
    quotas.name_topics(topic_names([1, 2]))
    quotas.limit(BrokerLimits(default=rate), BrokerLimits())
    quotas.throttle(ThrottledReplicas(leaders={"t2": parse_replicas(lists)[0]}))
    return quotas


def linked(quotas: ReplicationQuotas, version: int = 18, **ends: int) -> Link:
    """A follower that has a free partition in sync, and one that it has nothing of."""
    leader = Leader(ends={FREE: 10, MOVED: ends.get("moved", PLENTY)})
    return Link(quotas, Follower(version=version, offsets={FREE: 10, MOVED: 0}), leader)


def behind(**ends: int) -> Link:
    """A follower of which it is known that it is behind with the throttled partition, which is left out."""
    link = linked(throttling(), **ends)
    link.round(0)
    link.round(1)
    assert asked_for(link) == {FREE}
    return link


def unasked() -> Link:
    """A follower whose new replicas were asked for a byte, since the cluster has not been asked about them."""
    quotas = throttling(None, lists="")
    quotas.last_completed_poll = 0
    link = linked(quotas)
    assert link.round(10) == 1000  # the one that has news has a batch
    assert link.leader.asked == {FREE: 1, MOVED: 1}
    return link


def asked_for(link: Link) -> set[tuple[int, int]]:
    return set(link.leader.asked)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_throttle_every_byte_is_the_followers_own(version: int) -> None:
    link = linked(ReplicationQuotas(ReplicationOptions()), version)
    for now_ms in range(5):
        assert link.send(now_ms) == link.asked
        reply, _ = link.leader.respond(version, link.asked)
        link.relay(reply, now_ms, piece_bytes=37)


@pytest.mark.parametrize("version", VERSIONS)
def test_throttled_partition_that_is_behind_is_left_out_and_the_free_one_is_asked_for(version: int) -> None:
    link = linked(throttling(), version)
    # 2,500 bytes are there, a quarter of a second; a batch is taken for 16,384 bytes until one was seen.
    assert link.round(0) == 1000 * 16
    assert link.round(1) == 0
    assert asked_for(link) == {FREE}
    last = link.leader.seen[-1]
    assert [(topic.partitions) for topic in last.forgotten_topics_data] == [[0]]
    # Forgotten once: the next request has nothing to say.
    assert link.round(2) == 0
    assert link.leader.seen[-1].topics == []
    assert link.leader.seen[-1].forgotten_topics_data == []


def test_left_out_partition_comes_back_with_its_current_offset() -> None:
    link = behind()
    assert link.leader.seen[-1].max_wait_ms == 500
    # 16,000 bytes came and 2,500 were there: 13,500 are owed, and a batch of 1,000 is wanted: 1.45 s at 10,000 bytes/s.
    assert link.round(1300) == 0
    assert link.leader.seen[-1].max_wait_ms == 150  # the leader is to respond when there is room again
    assert link.round(1400) == 0
    assert link.round(1700) == 2000  # batches of 1,000 now that one was seen
    (topic,) = link.leader.seen[-1].topics
    (entry,) = topic.partitions
    assert entry.fetch_offset == 16


def test_fetch_without_partitions_left_waits_and_gets_an_empty_response() -> None:
    link = linked(throttling())
    del link.follower.offsets[FREE]
    assert link.round(0) == 16_000
    until = link.send(10)
    assert until == 510  # replica.fetch.wait.max.ms; there is room later than that
    requests = len(link.leader.seen)
    assert link.show(b"", 510) is None
    assert len(link.leader.seen) == requests, "no leader has seen it"
    # The session goes on, and the leader's own epoch with it.
    assert link.send(520) == 1020
    assert link.show(b"", 1020) is None
    sent = link.send(1700)
    assert isinstance(sent, bytes)
    reply, size = link.leader.respond(18, sent)
    assert size == 2000
    assert link.relay(reply, 1700) == 2000


def test_wait_ends_when_the_quota_is_raised() -> None:
    quotas = throttling()
    link = linked(quotas)
    del link.follower.offsets[FREE]
    link.round(0)
    assert link.send(10) == 510
    quotas.limit(BrokerLimits(), BrokerLimits())
    assert isinstance(link.show(b"", 20), bytes)


def test_in_sync_replica_is_never_left_out_and_its_bytes_count() -> None:
    quotas = throttling(1)
    link = linked(quotas, moved=0)
    link.follower.offsets = {MOVED: 0}
    assert link.round(0) == 0  # in sync: it has all there is
    for now_ms in range(1, 50):
        link.leader.ends[MOVED] += 1
        assert link.round(now_ms) == 1000
    assert quotas.leader(LEADER, 50).per_second(50) == 49_000


def test_replica_of_unknown_standing_is_asked_for_a_byte() -> None:
    quotas = throttling()
    quotas.leader(LEADER, 0).record(100_000, 0)  # no room for seconds
    link = linked(quotas)
    assert link.round(1) == 1000  # one batch at least
    assert link.leader.asked == {FREE: 1024 * 1024, MOVED: 1}
    assert link.round(2) == 0
    assert asked_for(link) == {FREE}, "it is known to be behind"
    link.follower.leader_epoch += 1
    link.round(3)
    assert link.leader.asked[MOVED] == 1, "another leader may have less"


@pytest.mark.parametrize("keeps_sessions", [True, False])
def test_session_that_the_leader_drops_is_begun_anew_without_the_follower(keeps_sessions: bool) -> None:
    link = behind()
    link.leader.drop_sessions()
    link.leader.keeps_sessions = keeps_sessions
    assert link.round(2) == 0  # error 70, which the follower does not see
    assert link.round(3) == 0
    assert asked_for(link) == {FREE}
    assert link.leader.seen[-1].session_epoch == 0
    assert link.round(2000) == 2000
    assert asked_for(link) == {FREE, MOVED}


def test_session_that_is_not_known_here_is_begun_anew_by_the_follower() -> None:
    link = linked(throttling())
    link.round(0)
    epoch = link.follower.epoch
    link.connect()
    link.follower.epoch = epoch
    with pytest.raises(SessionError, match="error 70"):
        link.send(1)
    assert link.round(2) == 1000


def test_switched_off_nothing_is_left_out_and_on_again_it_is() -> None:
    link = behind(moved=10_000)
    link.quotas.enforcing = False
    assert link.round(2) == 1048 * 1000  # 1 MiB
    link.quotas.enforcing = True
    assert link.round(3) == 0
    assert asked_for(link) == {FREE}


def test_kafkas_windows_let_a_whole_fetch_through_and_then_nothing() -> None:
    link = linked(throttling(policy="kip73"), moved=10_000)
    assert link.round(0) == 1048 * 1000  # 1 MiB
    assert link.round(1) == 0
    assert asked_for(link) == {FREE}


def test_follower_rate_holds_for_the_follower_alone() -> None:
    quotas = throttling(None)
    quotas.limit(BrokerLimits(), BrokerLimits(of_broker={FOLLOWER: 10_000}))
    quotas.throttle(ThrottledReplicas(followers={"t2": EVERY_REPLICA}))
    throttled = linked(quotas)
    other = linked(quotas)
    other.follower.broker = FOLLOWER + 1
    assert throttled.round(0) == 16_000
    assert throttled.round(1) == 0
    assert other.round(1) == PLENTY * 1000


def test_leaders_list_names_the_leader() -> None:
    assert linked(throttling(lists=f"0:{FOLLOWER}")).round(0) == PLENTY * 1000
    assert linked(throttling(lists=f"0:{LEADER}")).round(0) == 16_000


def test_replicas_being_added_need_no_list() -> None:
    quotas = throttling()
    quotas.throttle(ThrottledReplicas(adding={("t2", 0): frozenset({FOLLOWER})}))
    assert linked(quotas).round(0) == 16_000
    quotas.throttle(ThrottledReplicas(adding={("t2", 0): frozenset({FOLLOWER + 1})}))
    assert linked(quotas).round(10_000) == PLENTY * 1000


def test_topic_without_a_known_name_is_not_throttled_and_asked_for() -> None:
    quotas = throttling()
    quotas.name_topics(topic_names([1]))
    link = linked(quotas)
    assert link.round(0) == PLENTY * 1000
    assert quotas.unknown_topics == set(topic_names([2]))
    quotas.name_topics(topic_names([1, 2]))
    link.follower.offsets[MOVED] = 0  # truncated
    assert link.round(10_000) == 16_000


def test_consumers_fetch_and_other_requests_pass() -> None:
    talk = Playbook(replication_channel(throttling()))
    for asked in (fetch(12), request(3, 9)):
        talk.asks(0, asked)
        talk.responds(0, some_response(30))


@pytest.mark.parametrize("version", [11, 19, 100])
def test_version_that_is_not_known_passes_and_is_counted(version: int) -> None:
    channel = replication_channel(throttling())
    talk = Playbook(channel)
    talk.asks(0, frame(b"\0\1" + version.to_bytes(2, "big") + b"\0\0\0\1\0\1a" + b"x" * 40))
    talk.responds(0, some_response(30))
    assert stats_of(channel).replication_unknown_versions == {str(version): 1}


def test_second_fetch_waits_for_the_response_to_the_first() -> None:
    link = linked(throttling())
    first = link.follower.request()
    link.follower.epoch = 0
    second = link.follower.request()
    orders = link.talk.orders("client", 0, first + second)
    assert [type(order).__name__ for order in orders][-1] == "Wait"
    sent = b"".join(order.data for order in orders if hasattr(order, "data"))
    assert len(decoded(REQUEST, 18, sent).topics) == 2


@pytest.mark.parametrize("rest", [b"\0\1a\0" + bytes(5), b"\x7f\xff"])
def test_nonsense_ends_the_connection(rest: bytes) -> None:
    talk = Playbook(replication_channel(throttling()))
    talk.client(0, frame(b"\0\1\0\x12\0\0\0\1" + rest), Ends("malformed"))


def test_reserved_bytes_are_given_back_when_the_connection_ends() -> None:
    quotas = throttling()
    link = linked(quotas)
    assert isinstance(link.send(0), bytes)
    assert not quotas.leader(LEADER, 0).grant(1, 1, 0)
    link.channel.close(0)
    assert quotas.leader(LEADER, 0).room(0) == 2500
    assert quotas.replicas == 0


def test_partition_taken_away_and_given_back_before_the_leader_heard_of_it_is_not_forgotten() -> None:
    quotas = throttling(2000)
    link = linked(quotas)
    link.leader.ends[FREE] = 0
    link.follower.offsets = {FREE: 0, MOVED: 0}
    link.round(0)  # 16,000 bytes at 2,000 bytes/s: nothing more for seconds
    del link.follower.offsets[FREE]
    assert link.send(1) == 501  # nothing left but what is left out: the leader still holds the free partition
    assert link.show(b"", 501) is None
    link.follower.offsets[FREE] = 0
    link.leader.ends[FREE] = 3
    assert link.round(510) == 3000
    assert asked_for(link) == {FREE}


def test_new_replica_is_left_out_until_the_cluster_was_asked() -> None:
    link = unasked()
    assert link.quotas.poll_requested
    assert link.round(11) == 0
    assert asked_for(link) == {FREE}  # in sync, as is known now
    assert link.leader.seen[-1].max_wait_ms == 30
    link.quotas.last_completed_poll = 1
    assert link.round(13) == (PLENTY - 1) * 1000
    assert not link.talk.stats.replicas_passed_unasked


def test_earlier_cluster_response_does_not_decide_on_a_new_replica() -> None:
    quotas = throttling(None, lists="")
    quotas.last_completed_poll, quotas.polls_started = 0, 1  # a question is under way
    link = linked(quotas)
    link.round(10)
    quotas.last_completed_poll = 1
    assert link.round(11) == 0
    quotas.last_completed_poll = quotas.polls_started = 2
    assert link.round(12) == (PLENTY - 1) * 1000


def test_new_replica_does_not_wait_for_ever() -> None:
    link = unasked()
    assert link.round(2000) == 0
    assert link.round(2011) == (PLENTY - 1) * 1000
    assert link.talk.stats.replicas_passed_unasked == 2  # the free one as well


def test_new_replica_waits_for_its_topics_name_as_well() -> None:
    """A broker that was just asked may not know a topic that was just created."""
    link = unasked()
    link.quotas.name_topics(topic_names([1]))
    link.quotas.last_completed_poll = 1
    assert link.round(13) == 0
    link.quotas.name_topics(topic_names([1, 2]))
    assert link.round(14) == (PLENTY - 1) * 1000


def test_no_replica_waits_while_the_cluster_cannot_be_asked() -> None:
    link = unasked()
    link.quotas.last_completed_poll = None
    assert link.round(11) == (PLENTY - 1) * 1000


def test_new_replica_that_turns_out_to_be_throttled_has_had_one_batch() -> None:
    link = unasked()
    link.quotas.limit(BrokerLimits(default=0), BrokerLimits())
    link.quotas.throttle(ThrottledReplicas(leaders={"t2": EVERY_REPLICA}))
    link.quotas.last_completed_poll = 1
    for now_ms in range(13, 5000, 100):
        assert link.round(now_ms) == 0
    assert link.follower.offsets[MOVED] == 1


def test_partition_named_and_forgotten_at_once_is_not_waited_for() -> None:
    quotas = throttling(None, lists="")
    quotas.last_completed_poll = 0
    replica_link = ReplicaLink(quotas, LEADER, Stats())
    replica_link.session.added = [(b"x" * 16, 7)]
    replica_link.session.removed = [(b"x" * 16, 7)]
    replica_link.now_ms = 1
    assert (b"x" * 16, 7) not in run(replica_link.decide()).limits


@pytest.mark.interpreted
def test_follower_that_grows_beyond_what_is_remembered_begins_anew_and_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = linked(throttling())
    link.round(0)
    monkeypatch.setattr("proxy.channel.follower.REPLICAS_MAX", 2)
    link.follower.offsets[3, 0] = 0
    with pytest.raises(SessionError, match="error 71"):
        link.send(1)
    assert link.send(2) == link.asked, "full, and the follower's own"
    assert link.quotas.replicas == 0
