"""Requests that create, grow and delete topics, by their bytes (KIP-599)."""

import pytest

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, UnknownVersionError
from protocol.messages.topic_mutations import (
    NO_TOPIC_ID,
    TOPICS_MAX,
    TopicMutation,
    keep_topics,
    local_response,
    match_results,
    merged_response,
    read_request,
    read_response,
    rejected_entry,
)

# A header that ends at byte 14: length, key, version, correlation id 9, no client id.
HEAD = "0000{length:04x} {key:04x} {version:04x} 00000009 ffff"
# CreateTopics 0: "ab", 5 partitions, 1 replica, nothing assigned, one config; "c", 2 partitions by hand.
CREATED_AB = "0002 6162 00000005 0001 00000000 00000001 0001 6b 0001 76"
CREATED_C = (
    "0001 63 ffffffff ffff 00000002 00000000 00000002 00000001 00000002 00000001 00000001 00000003 00000000"
)


def frame(api_key: int, version: int, body: str) -> bytes:
    fields = bytes.fromhex(body)
    return bytes.fromhex(HEAD.format(length=10 + len(fields), key=api_key, version=version)) + fields


CREATE_0 = frame(CREATE_TOPICS, 0, f"00000002 {CREATED_AB} {CREATED_C} 00007530")
# CreatePartitions 0: "a" to 7, "b" to 9 with replicas for one; timeout, validate_only.
GROW_0 = frame(
    CREATE_PARTITIONS,
    0,
    "00000002 0001 61 00000007 ffffffff 0001 62 00000009 00000001 00000001 00000005 00007530 01",
)
# DeleteTopics 6 (flexible, body at 15): "a" by name, one by its id with a tag; timeout, no tags.
DELETE_6 = frame(DELETE_TOPICS, 6, f"00 03 02 61 {'00' * 16} 00 00 {'11' * 16} 01 07 01 aa 00007530 00")


def test_created_topics_are_read_with_their_offsets() -> None:
    asked = read_request(CREATE_0, 14, CREATE_TOPICS, 0)
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [("ab", 5), ("c", 2)]
    assert (asked.timeout_ms, asked.validate_only) == (30_000, False)
    first, second = asked.topics
    assert CREATE_0[first.start : first.end] == bytes.fromhex(CREATED_AB)
    assert CREATE_0[second.start : second.end] == bytes.fromhex(CREATED_C)


def test_request_reduced_to_one_topic_keeps_its_bytes() -> None:
    asked = read_request(CREATE_0, 14, CREATE_TOPICS, 0)
    cut = keep_topics(CREATE_0, asked, asked.topics[1:], CREATE_TOPICS, 0)
    assert cut == frame(CREATE_TOPICS, 0, f"00000001 {CREATED_C} 00007530")


def test_create_partitions_request_is_read() -> None:
    asked = read_request(GROW_0, 14, CREATE_PARTITIONS, 0)
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [("a", 7), ("b", 9)]
    assert (asked.timeout_ms, asked.validate_only) == (30_000, True)


def test_deleted_topics_are_read_by_name_and_id() -> None:
    asked = read_request(DELETE_6, 15, DELETE_TOPICS, 6)
    assert [topic.key for topic in asked.topics] == [("a", NO_TOPIC_ID), (None, b"\x11" * 16)]
    cut = keep_topics(DELETE_6, asked, asked.topics[1:], DELETE_TOPICS, 6)
    assert cut == frame(DELETE_TOPICS, 6, f"00 02 00 {'11' * 16} 01 07 01 aa 00007530 00")


def test_topic_without_a_name_is_refused() -> None:
    with pytest.raises(MalformedFieldError, match="has no name"):
        read_request(frame(DELETE_TOPICS, 0, "00000001 ffff 00007530"), 14, DELETE_TOPICS, 0)


def test_too_many_topics_are_refused_before_they_are_read() -> None:
    with pytest.raises(OversizedError, match="10001 topics"):
        read_request(frame(DELETE_TOPICS, 0, f"{TOPICS_MAX + 1:08x}"), 14, DELETE_TOPICS, 0)


@pytest.mark.parametrize("version", [-1, 8])
def test_version_that_is_not_known_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        read_request(CREATE_0, 14, CREATE_TOPICS, version)


def test_cut_request_is_refused() -> None:
    with pytest.raises(TruncatedError):
        read_request(CREATE_0[:-1], 14, CREATE_TOPICS, 0)


MESSAGE = b"The throttling quota has been exceeded."


def topic(name: str | None, topic_id: bytes = NO_TOPIC_ID) -> TopicMutation:
    return TopicMutation(name, topic_id, 1, 0, 0)


def response(body: str) -> bytes:
    fields = bytes.fromhex(body)
    return len(fields).to_bytes(4, "big") + fields


# DeleteTopics 1: correlation id 9, throttle time 5, "b" deleted, "a" not known.
DELETED_1 = response("00000009 00000005 00000002 0001 62 0000 0001 61 0003")


def test_response_is_read_with_topics_and_throttle_offset() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    assert [(entry.name, entry.error_code) for entry in found.topics] == [("b", 0), ("a", 3)]
    assert found.throttle_at == 8


def test_version_without_a_throttle_time_has_no_offset() -> None:
    assert read_response(response("00000009 00000000"), DELETE_TOPICS, 0).throttle_at == -1


def test_entries_are_put_into_the_requests_order() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    became = match_results(found, [topic("a"), topic("b")])
    merged = merged_response(DELETED_1, found, became, compact=False)
    assert merged == response("00000009 00000005 00000002 0001 61 0003 0001 62 0000")


def test_unrequested_topic_comes_last_and_is_not_lost() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    made = rejected_entry(topic("x"), DELETE_TOPICS, 1)
    merged = merged_response(DELETED_1, found, [made, None], compact=False)
    assert merged == response("00000009 00000005 00000003 0001 78 0059 0001 62 0000 0001 61 0003")


def test_topic_named_twice_gets_one_response() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    became = match_results(found, [topic("a"), topic("a"), topic("c")])
    assert [None if entry is None else entry.name for entry in became] == ["a", None, None]


def test_topic_is_found_by_its_id_though_the_broker_names_it() -> None:
    topic_id = b"\x11" * 16
    frame = response(f"00000009 00 00000000 02 02 61 {topic_id.hex()} 0000 00 00 00")
    (became,) = match_results(read_response(frame, DELETE_TOPICS, 6), [topic(None, topic_id)])
    assert became is not None
    assert (became.name, became.topic_id) == ("a", topic_id)


def test_created_topics_are_read_with_their_partition_counts() -> None:
    # CreateTopics 5: "a", no error, no message, 12 partitions, 1 replica, one config, no tags.
    config = "02 6b 02 76 00 05 00 00"
    frame = response(f"00000009 00 00000000 02 02 61 0000 00 0000000c 0001 02 {config} 00 00")
    (entry,) = read_response(frame, CREATE_TOPICS, 5).topics
    assert (entry.name, entry.partitions, entry.end) == ("a", 12, len(frame) - 1)


def test_rejected_creation_has_kafkas_bytes() -> None:
    # Name, no id, error 89, message, no partitions, no replicas, no configs, no tags.
    assert rejected_entry(topic("a"), CREATE_TOPICS, 7) == (
        b"\x02a"
        + bytes(16)
        + b"\0\x59"
        + b"\x28"
        + MESSAGE
        + b"\xff\xff\xff\xff"
        + b"\xff\xff"
        + b"\1"
        + b"\0"
    )


def test_local_response_has_kafkas_bytes() -> None:
    entry = b"\0\1a" + b"\0\x59" + b"\0\x27" + MESSAGE
    body = b"\0\0\0\x09" + b"\0\0\x13\x88" + b"\0\0\0\1" + entry
    made = local_response([topic("a")], CREATE_PARTITIONS, 1, 9, 5000)
    assert made == len(body).to_bytes(4, "big") + body
