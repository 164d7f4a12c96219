"""Fetch over its quota (KIP-13, KIP-219, KIP-227): responded to here, capped, its session kept in step.

The arithmetic of all of them: 1,000 bytes/s, 11 windows of 1 s of which 10 count at the start, so 10,000 bytes are
free; a response of 12,000 bytes makes (12,000 - 10,000) / 1,000 = 2 s, and the next Fetch, expected to be as large,
(24,000 - 10,000) / 1,000 = 14 s at the same time, but no longer than until the window is empty after 11 s.
"""

import struct as struct_module
import uuid

import pytest

from protocol.messages.fetch_session import SessionTable
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.options import EngineOptions
from tests.support.frames import fetch, fetch_response, frame, join_group, some_response, with_throttle_time
from tests.support.playbook import Drop, Ends, Insert, Pass, Passthrough, Playbook, Wait, playbook
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed, struct

REQUEST, RESPONSE = REQUESTS[1], RESPONSES[1]
OVER = 12_000
SESSION = 4711
VERSIONS_WITH_SESSIONS = (7, 11, 12, 15, 18)


def size_of(charged: int, version: int) -> int:
    """The frame of which Kafka would charge so many bytes: a flexible header's empty tag section is not counted."""
    return charged + 1 if version >= 12 else charged


def limited(max_bytes: int | None = 10_000) -> Playbook:
    """A sidecar's dialogue in which a Fetch of version 11 is with the broker."""
    talk = playbook(consumer_default=1000, gateway=False)
    if max_bytes is not None:
        talk.asks(0, fetch(11, max_bytes=max_bytes))
    return talk


def muted(version: int = 11, sessions: SessionTable | None = None) -> Playbook:
    """A dialogue in which a response has just used up the quota: muted until 2000."""
    talk = playbook(gateway=False, consumer_default=1000, sessions=sessions)
    asked = fetch(version, max_bytes=50_000)
    capped = fetch(version, max_bytes=10_000)
    talk.client(0, asked, Pass(capped if version >= 3 else asked))
    response = fetch_response(version, size_of(OVER, version))
    told = with_throttle_time(response, 9 if version >= 12 else 8, 2000) if version >= 1 else response
    talk.broker(0, response, Pass(told))
    talk.client(0, b"", Wait(2000))
    return talk


def responded_here(asked: bytes, version: int = 11, sessions: SessionTable | None = None) -> Playbook:
    """The same, and this Fetch gets its response here.

    At 2,000 ms the window holds 12,000 bytes and 12,000 more are expected: (24,000 - 10,000) / 1,000 = 14 s, but the
    window is empty at 11,000 ms.
    """
    talk = muted(version, sessions)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    return talk


@pytest.mark.parametrize("version", range(19))
def test_fetch_over_the_quota_gets_a_response_here(version: int) -> None:
    talk = responded_here(fetch(version, correlation_id=2), version)
    assert talk.local_response_due
    made = decoded(RESPONSE, version, talk.inserted("broker", 2000))
    assert (made.responses, made.throttle_time_ms) == ([], 9000 if version >= 1 else 0)
    assert talk.channel.idle()
    assert (talk.quotas.fetch.total, talk.stats.fetches_answered) == (OVER, 1)


def test_fetch_behind_a_local_response_is_forwarded_after_the_mute() -> None:
    talk = muted()
    asked, behind = fetch(11, correlation_id=2), fetch(11, correlation_id=3, max_bytes=5000)
    talk.client(2000, asked + behind, Drop(len(asked)), Wait(11_000))
    talk.inserted("broker", 2000)
    talk.client(11_000, b"", Pass(behind))


@pytest.mark.parametrize("version", range(3, 19))
def test_forwarded_fetch_is_capped_to_what_is_left(version: int) -> None:
    asked = fetch(version, max_bytes=50_000, min_bytes=20_000)
    limited(None).client(0, asked, Pass(fetch(version, max_bytes=10_000, min_bytes=10_000)))


@pytest.mark.parametrize("gateway", [False, True])
@pytest.mark.parametrize("version", range(4, 19))
def test_later_fetch_asks_for_whole_batches_under_schedule(version: int, gateway: bool) -> None:
    # Half a second's quota, 500,000 bytes, less 4,096 for what is not records: four batches of 100,000.
    options = EngineOptions(policy="schedule")
    talk = playbook(consumer_default=1_000_000, options=options, gateway=gateway)
    asked = fetch(version, correlation_id=7, max_bytes=50_000_000)
    talk.client(0, asked, Pass(fetch(version, correlation_id=7, max_bytes=495_904)))
    records = (bytes(8) + (99_988).to_bytes(4) + bytes(99_988)) * 3
    partition = struct(RESPONSE, version, "PartitionData", records=records, aborted_transactions=[])
    topic = struct(RESPONSE, version, "FetchableTopicResponse", topic="t", partitions=[partition])
    talk.responds(0, framed(RESPONSE(version=version, responses=[topic], node_endpoints=[])))
    asked = fetch(version, correlation_id=2, max_bytes=50_000_000)
    talk.client(10, asked, Pass(fetch(version, correlation_id=2, max_bytes=400_000)))


@pytest.mark.parametrize("asked", [fetch(11, max_bytes=9_000), *map(fetch, range(3))])
def test_smaller_fetch_and_one_without_a_limit_of_its_own_pass(asked: bytes) -> None:
    limited(None).asks(0, asked)


def test_unlimited_fetch_is_not_kept_until_it_is_whole() -> None:
    asked = fetch(11)
    playbook().client(0, asked[:20], Pass(asked[:20]), Passthrough(len(asked) - 20))


def test_larger_throttle_time_of_the_broker_stands_and_the_mute_is_our_own_part() -> None:
    talk = limited()
    talk.responds(0, fetch_response(11, OVER, throttle_ms=7000))
    assert talk.mute_left_ms(0) == 2000


def test_mute_of_a_group_member_is_capped() -> None:
    talk = limited(None)
    talk.asks(0, join_group(5, 6000) + fetch(11, correlation_id=2, max_bytes=10_000))
    talk.responds(0, some_response())
    response = fetch_response(11, 30_000, correlation_id=2)  # 20 s
    talk.broker(0, response, Pass(with_throttle_time(response, 8, 1200)))


def test_batch_larger_than_the_window_arrives_and_a_fetch_passes_once_the_window_is_empty() -> None:
    talk = limited()
    response = fetch_response(11, 1_000_000)
    told = with_throttle_time(response, 8, 20_000)
    talk.broker(0, response[:100], Pass(told[:100]), Passthrough(1_000_004 - 100))
    talk.responds(0, response[100:])
    talk.asks(20_000, fetch(11, correlation_id=2, max_bytes=10_000))


STATE = struct(REQUEST, 15, "ReplicaState", replica_id=2, replica_epoch=1)


@pytest.mark.parametrize("version", [4, 11, 14, 15])
def test_client_that_says_it_is_a_replica_is_charged(version: int) -> None:
    first, second = (
        framed(REQUEST(version=15, replica_state=STATE), correlation_id=one)  # in a tag
        if version == 15
        else fetch(version, correlation_id=one, replica_id=2)
        for one in (1, 2)
    )
    talk = limited(None)
    talk.orders("client", 0, first)
    talk.orders("broker", 0, fetch_response(version, OVER))
    talk.client(2000, second, Drop(len(second)), Wait(11_000))


def test_second_limited_fetch_waits_for_the_response_to_the_first() -> None:
    talk = limited(None)
    first, second = fetch(11, max_bytes=1000), fetch(11, correlation_id=2, max_bytes=1000)
    talk.client(0, first + second, Pass(first), Wait(0))
    talk.responds(1, fetch_response(11, 500))
    assert talk.signalled
    talk.client(1, b"", Pass(second))


def test_response_to_a_fetch_that_ends_a_session_lets_no_other_pass() -> None:
    talk = muted()
    ends = fetch(11, correlation_id=2, session_id=SESSION, session_epoch=-1)
    second, third = (fetch(11, correlation_id=one, max_bytes=1000) for one in (3, 4))
    talk.client(2000, ends, Pass(ends), Wait(11_000))  # it names no topics, so nothing can come
    talk.orders("client", 13_000, second)
    talk.responds(13_000, fetch_response(11, 50, correlation_id=2))
    talk.client(13_001, third, Wait(0))


def test_fetch_that_ends_a_session_brings_no_records_over_the_quota() -> None:
    topics = bytes.fromhex("00000001 0001 74 00000001 00000003 ffffffff") + bytes(20) + bytes(4) + bytes(2)
    asked = fetch(11, correlation_id=2, session_id=SESSION, session_epoch=-1, topics=topics)
    without = fetch(11, correlation_id=2, session_id=SESSION, session_epoch=-1)
    # Muted as after a local response: franz-go repeats such a Fetch at once if it gets no records.
    muted().client(2000, asked, Insert(without), Drop(len(asked)), Wait(11_000))


def test_observed_fetch_is_neither_capped_nor_muted_and_counted_as_one_that_would_be() -> None:
    talk = playbook(consumer_default=1000, gateway=False, options=EngineOptions(mode="observe"))
    talk.asks(0, fetch(11))
    talk.responds(0, fetch_response(11, OVER))
    talk.client(0, b"")
    list(talk.channel.close(3000))
    assert talk.quotas.fetch.would_throttle_ms_total == 2000


def test_raised_quota_frees_a_muted_channel() -> None:
    talk = muted()
    talk.engine.update(EngineOptions(), Definitions(static=StaticQuotas(consumer_default=1e6)), 500)
    talk.channel.reconsider()
    talk.asks(500, fetch(11, correlation_id=2, max_bytes=5000))


# Sessions


def session_fetch(version: int, epoch: int, offsets: dict[int, int], *, correlation_id: int) -> bytes:
    """An incremental Fetch of one topic, or with epoch 0 a full one."""
    partitions = [
        struct(
            REQUEST, version, "FetchPartition", partition=number, fetch_offset=offset, partition_max_bytes=100
        )
        for number, offset in offsets.items()
    ]
    topic = struct(
        REQUEST, version, "FetchTopic", topic="t", topic_id=uuid.UUID(int=1), partitions=partitions
    )
    message = REQUEST(
        version=version, max_wait_ms=500, min_bytes=1, max_bytes=5000, session_id=SESSION if epoch else 0,
        session_epoch=epoch, topics=[topic] if offsets else [],
    )  # fmt: skip
    return framed(message, correlation_id=correlation_id, client_id="a")


def passed_on(talk: Playbook, now_ms: int, asked: bytes) -> bytes:
    """What the broker is sent for a request, however it was ordered."""
    orders = talk.orders("client", now_ms, asked)
    return b"".join(order.data for order in orders if isinstance(order, Pass | Insert))


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
def test_full_fetch_over_the_quota_begins_no_session(version: int) -> None:
    talk = responded_here(session_fetch(version, 0, {0: 0}, correlation_id=2), version)
    assert decoded(RESPONSE, version, talk.inserted("broker", 2000)).session_id == 0


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
def test_incremental_fetch_responded_to_here_is_merged_into_the_next(version: int) -> None:
    talk = responded_here(session_fetch(version, 3, {0: 10, 1: 20}, correlation_id=2), version)
    assert decoded(RESPONSE, version, talk.inserted("broker", 2000)).session_id == SESSION
    again = session_fetch(version, 4, {1: 21, 2: 30}, correlation_id=3)
    seen = decoded(REQUEST, version, passed_on(talk, 11_000, again))
    assert (seen.session_id, seen.session_epoch) == (SESSION, 3)
    offsets = {entry.partition: entry.fetch_offset for topic in seen.topics for entry in topic.partitions}
    assert offsets == {0: 10, 1: 21, 2: 30}


def shifted() -> tuple[SessionTable, Playbook]:
    """A table with a session of which a Fetch was responded to here, and another connection that has no quota."""
    sessions = SessionTable(10)
    responded_here(session_fetch(11, 3, {0: 10}, correlation_id=2), sessions=sessions)
    return sessions, playbook(gateway=False, sessions=sessions)


def test_session_moves_to_another_connection() -> None:
    _, other = shifted()
    seen = decoded(REQUEST, 11, passed_on(other, 2100, session_fetch(11, 4, {}, correlation_id=1)))
    assert seen.session_epoch == 3


def test_other_session_passes_while_one_is_shifted() -> None:
    _, other = shifted()
    asked = session_fetch(11, 9, {}, correlation_id=1)
    other.asks(2100, asked.replace(struct_module.pack(">i", SESSION), struct_module.pack(">i", 5)))


def test_session_that_ends_after_a_response_made_here_passes_untouched() -> None:
    sessions, other = shifted()
    other.asks(2100, fetch(11, session_id=SESSION, session_epoch=-1))
    assert not sessions.is_shifted(1, SESSION)


@pytest.mark.parametrize(
    ("error", "session_id", "kept"), [(70, 0, False), (71, 0, False), (0, 5, False), (0, SESSION, True)]
)
def test_session_is_kept_until_the_broker_gives_it_up(error: int, session_id: int, kept: bool) -> None:
    sessions = SessionTable(10)
    talk = responded_here(session_fetch(11, 3, {}, correlation_id=2), sessions=sessions)
    talk.inserted("broker", 2000)
    passed_on(talk, 11_000, session_fetch(11, 4, {}, correlation_id=3))
    talk.responds(11_010, fetch_response(11, 18, correlation_id=3, error=error, session_id=session_id))
    assert sessions.is_shifted(1, SESSION) is kept


# The addresses behind the records


def with_new_leader(version: int, records: int) -> bytes:
    partition = struct(RESPONSE, version, "PartitionData", partition_index=0, records=b"r" * records)
    topic = struct(
        RESPONSE, version, "FetchableTopicResponse", topic_id=uuid.UUID(int=1), partitions=[partition]
    )
    endpoint = struct(
        RESPONSE, version, "NodeEndpoint", node_id=2, host="broker-2.example.com", port=9092, rack=None
    )
    message = RESPONSE(version=version, responses=[topic], node_endpoints=[endpoint])
    return framed(message, correlation_id=1)


@pytest.mark.parametrize("version", [16, 17, 18])
def test_records_pass_unseen_and_addresses_behind_them_are_ours(version: int) -> None:
    talk = playbook()
    talk.asks(0, fetch(version))
    response = with_new_leader(version, 50_000)
    head, rest = talk.orders("broker", 0, response[:200])
    assert isinstance(head, Pass)
    assert isinstance(rest, Passthrough)
    assert (len(head.data), rest.count) >= (200, 49_000)
    talk.passthrough("broker", 0, rest.count)
    start = 200 + rest.count
    (tail,) = talk.orders("broker", 0, response[start:])
    assert isinstance(tail, Pass)
    seen = decoded(RESPONSE, version, response[:start] + tail.data)
    assert start + len(tail.data) == len(response)
    assert [(n.node_id, n.host, n.port) for n in seen.node_endpoints] == [(2, "sluice.example", 19102)]


def test_sidecar_does_not_walk() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, fetch(18))
    talk.responds(0, with_new_leader(18, 100))


def test_malformed_fetch_response_ends_the_connection() -> None:
    talk = playbook()
    talk.asks(0, fetch(18))
    topics_without_end = frame(struct_module.pack(">ixihib", 1, 0, 0, 0, 9))
    talk.broker(0, topics_without_end, Ends("malformed"))
