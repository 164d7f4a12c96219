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
from tests.support.frames import (
    LIST_OFFSETS,
    fetch,
    fetch_response,
    frame,
    join_group,
    request,
    some_response,
    with_throttle_time,
)
from tests.support.playbook import Drop, Ends, Insert, More, Pass, Passthrough, Playbook, Wait, playbook
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed, struct

REQUEST, RESPONSE = REQUESTS[1], RESPONSES[1]
OVER = 12_000
SESSION = 4711
VERSIONS_WITH_SESSIONS = (7, 11, 12, 15, 18)


def throttle_at(version: int) -> int:
    return 9 if version >= 12 else 8


def size_of(charged: int, version: int) -> int:
    """The frame of which Kafka would charge so many bytes: a flexible header's empty tag section is not counted."""
    return charged + 1 if version >= 12 else charged


def muted(version: int, *, gateway: bool = False, sessions: SessionTable | None = None) -> Playbook:
    """A dialogue in which a response has just used up the quota: muted until 2000."""
    talk = playbook(gateway=gateway, consumer_default=1000, sessions=sessions)
    asked = fetch(version, max_bytes=50_000)
    capped = fetch(version, max_bytes=10_000)
    talk.client(0, asked, Pass(capped if version >= 3 else asked))
    response = fetch_response(version, size_of(OVER, version))
    with_time = with_throttle_time(response, throttle_at(version), 2000) if version >= 1 else response
    talk.broker(0, response, Pass(with_time))
    talk.client(0, b"", Wait(2000))
    return talk


@pytest.mark.parametrize("version", range(19))
def test_response_over_the_quota_tells_the_time_and_mutes(version: int) -> None:
    talk = muted(version)
    assert talk.mute_left_ms(0) == 2000


@pytest.mark.parametrize("version", range(19))
def test_fetch_over_the_quota_gets_a_response_here(version: int) -> None:
    talk = muted(version)
    asked = fetch(version, correlation_id=2)
    # At 2,000 ms the window holds 12,000 bytes and 12,000 more are expected: (24,000 - 10,000) / 1,000 = 14 s,
    # but the window is empty at 11,000 ms.
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    made = decoded(RESPONSE, version, talk.inserted("broker", 2000))
    assert (made.responses, made.throttle_time_ms) == ([], 9000 if version >= 1 else 0)


def test_fetch_over_the_quota_never_owes_a_brokers_response() -> None:
    talk = muted(11)
    asked = fetch(11, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    made = fetch_response(11, 18, correlation_id=2, throttle_ms=9000)[:18] + b"\0\0\0\0"
    talk.broker(2000, b"", Insert(made))
    assert talk.channel.idle()


def test_channel_knows_that_a_local_response_is_due() -> None:
    talk = muted(11)
    asked = fetch(11, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    assert talk.local_response_due


def test_local_response_waits_for_the_responses_before_it() -> None:
    talk = muted(11)
    before, asked = request(LIST_OFFSETS, 7, correlation_id=2, size=100), fetch(11, correlation_id=3)
    talk.client(2000, before + asked, Pass(before), Drop(len(asked)), Wait(11_000))
    talk.broker(2000, b"")
    made = fetch_response(11, 18, correlation_id=3, throttle_ms=9000)[:18] + b"\0\0\0\0"
    talk.broker(2010, some_response(correlation_id=2), Pass(some_response(correlation_id=2)), Insert(made))


def test_request_behind_a_local_response_waits_for_the_end_of_the_mute() -> None:
    talk = muted(11)
    asked, behind = fetch(11, correlation_id=2), request(LIST_OFFSETS, 7, correlation_id=3, size=100)
    talk.client(2000, asked + behind, Drop(len(asked)), Wait(11_000))
    talk.client(11_000, b"", Pass(behind))


def test_fetch_after_its_time_is_forwarded() -> None:
    talk = muted(11)
    asked = fetch(11, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    talk.broker(
        2000, b"", Insert(fetch_response(11, 18, correlation_id=2, throttle_ms=9000)[:18] + b"\0\0\0\0")
    )
    talk.asks(11_000, fetch(11, correlation_id=3, max_bytes=5000))


def test_cut_fetch_is_kept_until_it_is_whole() -> None:
    talk = muted(11)
    asked = fetch(11, correlation_id=2)
    talk.client(2000, asked[:30], More(len(asked)))
    talk.client(2000, asked[30:], Drop(len(asked)), Wait(11_000))


def test_responses_made_here_are_counted() -> None:
    talk = muted(11)
    asked = fetch(11, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    assert talk.stats.fetches_answered == 1


@pytest.mark.parametrize("version", range(3, 19))
def test_forwarded_fetch_is_capped_to_what_is_left(version: int) -> None:
    talk = playbook(consumer_default=1000, gateway=False)
    asked = fetch(version, max_bytes=50_000, min_bytes=20_000)
    talk.client(0, asked, Pass(fetch(version, max_bytes=10_000, min_bytes=10_000)))


def test_smaller_fetch_is_left_as_it_is() -> None:
    talk = playbook(consumer_default=1000)
    talk.asks(0, fetch(11, max_bytes=9_000, min_bytes=1))


@pytest.mark.parametrize("version", range(3))
def test_fetch_without_a_limit_of_its_own_passes(version: int) -> None:
    talk = playbook(consumer_default=1000)
    talk.asks(0, fetch(version))


def test_unlimited_fetch_passes_untouched() -> None:
    talk = playbook()
    talk.asks(0, fetch(11))


def test_unlimited_fetch_is_not_kept_until_it_is_whole() -> None:
    talk = playbook()
    asked = fetch(11)
    talk.client(0, asked[:20], Pass(asked[:20]), Passthrough(len(asked) - 20))


@pytest.mark.parametrize("version", range(19))
def test_response_is_charged_as_kafka_does(version: int) -> None:
    talk = playbook(gateway=False)
    talk.asks(0, fetch(version))
    talk.responds(0, fetch_response(version, size_of(OVER, version)))
    assert talk.engine.client("ANONYMOUS", "a", 1).fetch.total == OVER


def test_rest_of_a_charged_response_passes_unseen() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, fetch(11))
    response = fetch_response(11, 100_000)
    talk.broker(0, response[:19], Pass(response[:19]), Passthrough(100_004 - 19))


def test_cut_response_head_is_kept_until_the_throttle_time_is_there() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, fetch(11))
    response = fetch_response(11, 1000)
    talk.broker(0, response[:10], More(2 * 10 + 64))
    talk.broker(0, response[10:], Pass(response))


def test_larger_throttle_time_of_the_broker_stands() -> None:
    talk = playbook(consumer_default=1000, gateway=False)
    talk.asks(0, fetch(11, max_bytes=10_000))
    talk.responds(0, fetch_response(11, OVER, throttle_ms=7000))


def test_channel_is_muted_for_its_own_part_only() -> None:
    talk = playbook(consumer_default=1000, gateway=False)
    talk.asks(0, fetch(11, max_bytes=10_000))
    talk.responds(0, fetch_response(11, OVER, throttle_ms=7000))
    assert talk.mute_left_ms(0) == 2000


def test_mute_of_a_group_member_is_capped() -> None:
    talk = playbook(consumer_default=1000, gateway=False)
    talk.asks(0, join_group(5, 6000) + fetch(11, correlation_id=2, max_bytes=10_000))
    talk.responds(0, some_response())
    response = fetch_response(11, 30_000, correlation_id=2)  # 20 s
    talk.broker(0, response, Pass(with_throttle_time(response, 8, 1200)))


def test_batch_larger_than_the_window_arrives() -> None:
    talk = playbook(consumer_default=1000, gateway=False)
    talk.asks(0, fetch(11, max_bytes=10_000))
    response = fetch_response(11, 1_000_000)
    talk.broker(
        0, response[:100], Pass(with_throttle_time(response, 8, 20_000)[:100]), Passthrough(1_000_004 - 100)
    )


def test_fetch_behind_such_a_batch_passes_once_the_window_is_empty() -> None:
    talk = playbook(consumer_default=1000, gateway=False)
    talk.asks(0, fetch(11, max_bytes=10_000))
    response = fetch_response(11, 1_000_000)
    talk.broker(0, response, Pass(with_throttle_time(response, 8, 20_000)))
    talk.asks(20_000, fetch(11, correlation_id=2, max_bytes=10_000))


def charged_over_the_quota(version: int, first: bytes, second: bytes) -> None:
    """The response to the first Fetch uses the quota up; the second one gets an empty response."""
    talk = playbook(consumer_default=1000, gateway=False)
    talk.orders("client", 0, first)
    talk.orders("broker", 0, fetch_response(version, OVER))
    talk.client(2000, second, Drop(len(second)), Wait(11_000))


@pytest.mark.parametrize("version", [4, 11, 14])
def test_client_that_says_it_is_a_replica_is_charged(version: int) -> None:
    first, second = (fetch(version, correlation_id=one, replica_id=2) for one in (1, 2))
    charged_over_the_quota(version, first, second)


def test_client_that_says_so_in_a_tag_is_charged() -> None:
    state = struct(REQUEST, 15, "ReplicaState", replica_id=2, replica_epoch=1)
    first, second = (framed(REQUEST(version=15, replica_state=state), correlation_id=one) for one in (1, 2))
    charged_over_the_quota(15, first, second)


def test_second_limited_fetch_waits_for_the_response_to_the_first() -> None:
    talk = playbook(consumer_default=1000, gateway=False)
    first, second = fetch(11, max_bytes=1000), fetch(11, correlation_id=2, max_bytes=1000)
    talk.client(0, first + second, Pass(first), Wait(0))
    talk.responds(1, fetch_response(11, 500))
    assert talk.signalled
    talk.client(1, b"", Pass(second))


def test_response_to_a_fetch_that_ends_a_session_lets_no_other_pass() -> None:
    talk = muted(11)
    ends = fetch(11, correlation_id=2, session_id=SESSION, session_epoch=-1)
    second, third = (fetch(11, correlation_id=one, max_bytes=1000) for one in (3, 4))
    talk.client(2000, ends, Pass(ends), Wait(11_000))
    talk.orders("client", 13_000, second)
    talk.responds(13_000, fetch_response(11, 50, correlation_id=2))
    talk.client(13_001, third, Wait(0))


def test_fetch_that_ends_a_session_brings_no_records_over_the_quota() -> None:
    talk = muted(11)
    topics = bytes.fromhex("00000001 0001 74 00000001 00000003 ffffffff") + bytes(20) + bytes(4) + bytes(2)
    asked = fetch(11, correlation_id=2, session_id=SESSION, session_epoch=-1, topics=topics)
    without = fetch(11, correlation_id=2, session_id=SESSION, session_epoch=-1)
    # Muted as after a local response: franz-go repeats such a Fetch at once if it gets no records.
    talk.client(2000, asked, Insert(without), Drop(len(asked)), Wait(11_000))


def test_observed_fetch_is_neither_capped_nor_muted() -> None:
    options = EngineOptions(mode="observe")
    talk = playbook(consumer_default=1000, gateway=False, options=options)
    talk.asks(0, fetch(11))
    talk.responds(0, fetch_response(11, OVER))
    talk.asks(0, fetch(11, correlation_id=2))


def test_observed_fetch_is_counted_as_one_that_would_be_muted() -> None:
    talk = playbook(consumer_default=1000, gateway=False, options=EngineOptions(mode="observe"))
    talk.asks(0, fetch(11))
    talk.responds(0, fetch_response(11, OVER))
    list(talk.channel.close(3000))
    assert talk.engine.client("ANONYMOUS", "a", 1).fetch.would_throttle_ms_total == 2000


def test_raised_quota_frees_a_muted_channel() -> None:
    talk = muted(11)
    engine = talk.engine
    engine.update(EngineOptions(), Definitions(static=StaticQuotas(consumer_default=1e6)), 500)
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
        version=version,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=5000,
        session_id=SESSION if epoch else 0,
        session_epoch=epoch,
        topics=[topic] if offsets else [],
    )
    return framed(message, correlation_id=correlation_id, client_id="a")


def passed_on(talk: Playbook, now_ms: int, asked: bytes) -> bytes:
    """What the broker is sent for a request, however it was ordered."""
    orders = talk.orders("client", now_ms, asked)
    return b"".join(order.data for order in orders if isinstance(order, Pass | Insert))


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
def test_full_fetch_over_the_quota_begins_no_session(version: int) -> None:
    talk = muted(version)
    asked = session_fetch(version, 0, {0: 0}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    assert decoded(RESPONSE, version, talk.inserted("broker", 2000)).session_id == 0


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
def test_incremental_fetch_over_the_quota_keeps_its_session(version: int) -> None:
    talk = muted(version)
    asked = session_fetch(version, 3, {0: 10}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    assert decoded(RESPONSE, version, talk.inserted("broker", 2000)).session_id == SESSION


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
def test_epoch_is_translated_after_a_response_made_here(version: int) -> None:
    talk = muted(version)
    asked = session_fetch(version, 3, {0: 10}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    talk.inserted("broker", 2000)
    seen = decoded(REQUEST, version, passed_on(talk, 11_000, session_fetch(version, 4, {}, correlation_id=3)))
    assert (seen.session_id, seen.session_epoch) == (SESSION, 3)


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
def test_changes_of_a_fetch_responded_to_here_are_merged_into_the_next(version: int) -> None:
    talk = muted(version)
    asked = session_fetch(version, 3, {0: 10, 1: 20}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    talk.inserted("broker", 2000)
    again = session_fetch(version, 4, {1: 21, 2: 30}, correlation_id=3)
    seen = decoded(REQUEST, version, passed_on(talk, 11_000, again))
    offsets = {entry.partition: entry.fetch_offset for topic in seen.topics for entry in topic.partitions}
    assert offsets == {0: 10, 1: 21, 2: 30}


def test_session_moves_to_another_connection() -> None:
    sessions = SessionTable(10)
    talk = muted(11, sessions=sessions)
    asked = session_fetch(11, 3, {0: 10}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    other = playbook(gateway=False, sessions=sessions)
    seen = decoded(REQUEST, 11, passed_on(other, 2100, session_fetch(11, 4, {}, correlation_id=1)))
    assert seen.session_epoch == 3


def test_unlimited_fetch_is_looked_at_while_a_session_is_shifted() -> None:
    sessions = SessionTable(10)
    talk = muted(11, sessions=sessions)
    asked = session_fetch(11, 3, {0: 10}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    other = playbook(gateway=False, sessions=sessions)
    other.asks(
        2100,
        session_fetch(11, 9, {}, correlation_id=1).replace(
            struct_module.pack(">i", SESSION), struct_module.pack(">i", 5)
        ),
    )


def test_session_that_ends_is_told_to_the_broker_over_the_quota() -> None:
    talk = muted(11)
    asked = fetch(11, correlation_id=2, session_id=SESSION, session_epoch=-1)
    talk.client(2000, asked, Pass(asked), Wait(11_000))  # it names no topics, so nothing can come


def test_session_that_ends_after_a_response_made_here_passes_untouched() -> None:
    sessions = SessionTable(10)
    talk = muted(11, sessions=sessions)
    asked = session_fetch(11, 3, {}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    other = playbook(gateway=False, sessions=sessions)
    other.asks(2100, fetch(11, session_id=SESSION, session_epoch=-1))
    assert not sessions.is_shifted(1, SESSION)


@pytest.mark.parametrize(("error", "session_id"), [(70, 0), (71, 0), (0, 5)])
def test_session_a_broker_gives_up_is_forgotten(error: int, session_id: int) -> None:
    sessions = SessionTable(10)
    talk = muted(11, sessions=sessions)
    asked = session_fetch(11, 3, {}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    talk.inserted("broker", 2000)
    passed_on(talk, 11_000, session_fetch(11, 4, {}, correlation_id=3))
    talk.responds(11_010, fetch_response(11, 18, correlation_id=3, error=error, session_id=session_id))
    assert not sessions.is_shifted(1, SESSION)


def test_session_of_a_fetch_responded_to_here_is_kept() -> None:
    sessions = SessionTable(10)
    talk = muted(11, sessions=sessions)
    asked = session_fetch(11, 3, {}, correlation_id=2)
    talk.client(2000, asked, Drop(len(asked)), Wait(11_000))
    talk.inserted("broker", 2000)
    passed_on(talk, 11_000, session_fetch(11, 4, {}, correlation_id=3))
    talk.responds(11_010, fetch_response(11, 18, correlation_id=3, session_id=SESSION))
    assert sessions.is_shifted(1, SESSION)


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


def test_cut_addresses_are_kept_until_they_are_whole() -> None:
    talk = playbook()
    talk.asks(0, fetch(18))
    response = with_new_leader(18, 100)
    passed = talk.orders("broker", 0, response[:-5])[0]
    assert isinstance(passed, Pass)
    assert len(passed.data) < len(response) - 20


def test_sidecar_does_not_walk() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, fetch(18))
    talk.responds(0, with_new_leader(18, 100))


def test_malformed_fetch_response_ends_the_connection() -> None:
    talk = playbook()
    talk.asks(0, fetch(18))
    topics_without_end = frame(struct_module.pack(">ixihib", 1, 0, 0, 0, 9))
    talk.broker(0, topics_without_end, Ends("malformed"))
