"""Answers to requests that create, grow and delete topics, by their bytes (KIP-599)."""

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.messages.topic_mutations import (
    NO_TOPIC_ID,
    TopicMutation,
    local_response,
    match_results,
    merged_response,
    read_response,
    rejected_entry,
)

MESSAGE = b"The throttling quota has been exceeded."


def topic(name: str | None, topic_id: bytes = NO_TOPIC_ID) -> TopicMutation:
    return TopicMutation(name, topic_id, 1, 0, 0)


def answered(body: str) -> bytes:
    fields = bytes.fromhex(body)
    return len(fields).to_bytes(4, "big") + fields


# DeleteTopics 1: correlation id 9, throttle time 5, "b" deleted, "a" not known.
DELETED_1 = answered("00000009 00000005 00000002 0001 62 0000 0001 61 0003")


def test_response_is_read_with_topics_and_throttle_offset() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    assert [(entry.name, entry.error_code) for entry in found.topics] == [("b", 0), ("a", 3)]
    assert found.throttle_at == 8


def test_version_without_a_throttle_time_has_no_offset() -> None:
    assert read_response(answered("00000009 00000000"), DELETE_TOPICS, 0).throttle_at == -1


def test_entries_are_put_into_the_requests_order() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    became = match_results(found, [topic("a"), topic("b")])
    merged = merged_response(DELETED_1, found, became, compact=False)
    assert merged == answered("00000009 00000005 00000002 0001 61 0003 0001 62 0000")


def test_unrequested_topic_comes_last_and_is_not_lost() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    made = rejected_entry(topic("x"), DELETE_TOPICS, 1)
    merged = merged_response(DELETED_1, found, [made, None], compact=False)
    assert merged == answered("00000009 00000005 00000003 0001 78 0059 0001 62 0000 0001 61 0003")


def test_topic_named_twice_is_answered_once() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    became = match_results(found, [topic("a"), topic("a"), topic("c")])
    assert [None if entry is None else entry.name for entry in became] == ["a", None, None]


def test_topic_is_found_by_its_id_though_the_broker_names_it() -> None:
    topic_id = b"\x11" * 16
    frame = answered(f"00000009 00 00000000 02 02 61 {topic_id.hex()} 0000 00 00 00")
    (became,) = match_results(read_response(frame, DELETE_TOPICS, 6), [topic(None, topic_id)])
    assert became is not None
    assert (became.name, became.topic_id) == ("a", topic_id)


def test_created_topics_are_read_with_their_partition_counts() -> None:
    # CreateTopics 5: "a", no error, no message, 12 partitions, 1 replica, one config, no tags.
    config = "02 6b 02 76 00 05 00 00"
    frame = answered(f"00000009 00 00000000 02 02 61 0000 00 0000000c 0001 02 {config} 00 00")
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
