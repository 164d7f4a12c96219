"""Requests that create, grow and delete topics, by their bytes (KIP-599)."""

import pytest

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, UnknownVersionError
from protocol.messages.topic_mutations import NO_TOPIC_ID, TOPICS_MAX, keep_topics, read_request

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
