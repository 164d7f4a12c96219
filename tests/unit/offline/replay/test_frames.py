"""The request that is sent for a recorded one, as kafka-python reads it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from kafka.record import MemoryRecords

from offline.replay.frames import Encoder, Frame
from offline.replay.messages import Broker, Topic
from offline.replay.schedule import Part
from offline.replay.target import Placement
from protocol.api import API_VERSIONS, FETCH, HEARTBEAT, METADATA
from tests.unit.offline.replay.rows import recorded
from tests.unit.protocol.kafka_frames import REQUESTS, decoded


def encoder(version: int = 12, ranges: Mapping[int, tuple[int, int]] = MappingProxyType({})) -> Encoder:
    """Make an encoder for a target with two topics.

    Args:
        version: the target's Produce.
        ranges: the versions of the other APIs that it takes.
    """
    brokers = {1: Broker("h1", 1), 2: Broker("h2", 2), -1: Broker("h1", 1)}
    topics = {"a": Topic(0, {0: 11, 1: 12, 2: 11}), "b": Topic(0, {0: 12})}
    nodes = {1: 11, 2: 12, -1: 11}
    placement = Placement(brokers, nodes, topics, {("a", 0): 40}, ranges, produce_version=version)
    return Encoder(placement, -1, 1_800_000_000_000)


def body(frame: Frame | None) -> Any:
    assert frame is not None
    return decoded(REQUESTS[frame.api_key], frame.version, frame.data)


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_produce_has_the_recorded_bytes_and_records(version: int) -> None:
    frame = encoder(version).encode(recorded(partitions=(Part("a", 0, 1000, 7), Part("a", 2, 500, -1))), 5)
    message = body(frame)
    assert (message.acks, [topic.name for topic in message.topic_data]) == (-1, ["a"])
    partitions = message.topic_data[0].partition_data
    assert [entry.index for entry in partitions] == [0, 2]
    assert [len(entry.records) for entry in partitions] == [1000, 500]
    batch = MemoryRecords(bytes(partitions[0].records)).next_batch()
    assert batch.validate_crc()
    assert len(list(batch)) == 7


def test_produce_that_was_not_answered_asks_for_no_answer() -> None:
    frame = encoder().encode(recorded(response_bytes=-1), 5)
    assert frame is not None
    assert (body(frame).acks, frame.expects_response) == (0, False)


def test_partition_goes_where_its_broker_leads_one() -> None:
    assert [
        entry.index for entry in body(encoder().encode(recorded(broker=2), 5)).topic_data[0].partition_data
    ] == [1]


def test_partition_without_a_leader_is_left_out_and_counted() -> None:
    made = encoder()
    assert made.encode(recorded(partitions=(Part("b", 0, 10, 1),)), 5) is None
    assert (made.left_out.partitions, made.left_out.bytes) == (1, 10)
    kept = body(made.encode(recorded(partitions=(Part("b", 0, 10, 1), Part("a", 0, 100, 1))), 5))
    assert ([topic.name for topic in kept.topic_data], made.left_out.partitions) == (["a"], 2)


@pytest.mark.parametrize(
    ("broker", "rest", "expected", "left_out"),
    [
        (1, 3000, [(0, 1000), (2, 3000)], (0, 0)),
        (1, 3_000_000, [(0, 1000), (2, 1_000_000)], (1, 2_000_000)),
        (2, 9, [(1, 1000)], (1, 9)),
    ],
)
def test_summed_partitions_go_to_the_topics_other_partitions(
    broker: int, rest: int, expected: list[tuple[int, int]], left_out: tuple[int, int]
) -> None:
    made = encoder()
    parts = (Part("a", 0, 1000, 7), Part("", -1, rest, -1))
    (topic,) = body(made.encode(recorded(broker=broker, partitions=parts), 5)).topic_data
    assert [(entry.index, len(entry.records)) for entry in topic.partition_data] == expected
    assert (made.left_out.partitions, made.left_out.bytes) == left_out


def test_summed_part_of_a_fetch_is_asked_for_at_any_size() -> None:
    parts = (Part("a", 0, 1000, -1), Part("", -1, 3_000_000, -1))
    (asked,) = body(encoder().encode(recorded(api_key=FETCH, partitions=parts), 5)).topics
    assert [(entry.partition, entry.partition_max_bytes) for entry in asked.partitions] == [
        (0, 1000),
        (2, 3_000_000),
    ]


def test_partitions_that_fall_together_are_added_up() -> None:
    made = encoder()
    parts = tuple(Part("a", index, 1000, 7) for index in range(0, 12, 2))
    # Broker 1 leads 0 and 2 there; of 0, 2, 4 … 10 those above go to 0.
    (topic,) = body(made.encode(recorded(partitions=parts), 5)).topic_data
    assert [(entry.index, len(entry.records)) for entry in topic.partition_data] == [(0, 5000), (2, 1000)]
    assert len(list(MemoryRecords(bytes(topic.partition_data[0].records)).next_batch())) == 35
    (asked,) = body(made.encode(recorded(api_key=FETCH, partitions=parts), 5)).topics
    assert [(entry.partition, entry.partition_max_bytes) for entry in asked.partitions] == [
        (0, 5000),
        (2, 1000),
    ]
    assert made.left_out.partitions == 0


def test_bytes_beyond_one_batch_are_counted() -> None:
    made = encoder()
    parts = tuple(Part("a", index, 600_000, 7) for index in (0, 4))
    (topic,) = body(made.encode(recorded(partitions=parts), 5)).topic_data
    assert [(entry.index, len(entry.records)) for entry in topic.partition_data] == [(0, 600_000)]
    assert (made.left_out.partitions, made.left_out.bytes) == (1, 600_000)


def test_fetch_leaves_out_partitions_that_brought_nothing() -> None:
    made = encoder()
    parts = (Part("a", 0, 0, -1), Part("a", 2, 700, -1), Part("b", 0, 0, -1))
    message = body(made.encode(recorded(api_key=FETCH, request_bytes=300, partitions=parts), 5))
    assert [
        (topic.topic, [(entry.partition, entry.partition_max_bytes) for entry in topic.partitions])
        for topic in message.topics
    ] == [("a", [(2, 700)])]
    empty = body(made.encode(recorded(api_key=FETCH, partitions=(Part("a", 0, 0, -1),)), 5))
    assert (list(empty.topics), made.left_out.partitions) == ([], 0)


def test_fetch_asks_for_the_recorded_bytes() -> None:
    row = recorded(
        api_key=FETCH, request_bytes=300, partitions=(Part("a", 0, 5000, -1), Part("a", 2, 700, -1))
    )
    frame = encoder().encode(row, 5)
    message = body(frame)
    assert frame is not None
    assert len(frame.data) == 300 + 4
    assert (message.max_bytes, message.max_wait_ms, message.session_id, message.session_epoch) == (
        5700,
        0,
        0,
        -1,
    )
    asked = [
        (entry.partition, entry.fetch_offset, entry.partition_max_bytes)
        for entry in message.topics[0].partitions
    ]
    assert asked == [(0, 40, 5000), (2, 0, 700)]


@pytest.mark.parametrize(("answer", "key"), [(30, METADATA), (600, API_VERSIONS), (9000, METADATA)])
def test_other_requests_become_pings_of_their_size(answer: int, key: int) -> None:
    frame = encoder().encode(recorded(api_key=HEARTBEAT, request_bytes=400, response_bytes=answer), 5)
    assert frame is not None
    assert (frame.api_key, len(frame.data)) == (key, 400 + 4)
    message = body(frame)
    if key == METADATA:
        assert message.topics == (None if answer > 4096 else [])


def test_request_smaller_than_any_has_the_least_size() -> None:
    frame = encoder().encode(recorded(api_key=HEARTBEAT, request_bytes=5), 5)
    assert frame is not None
    assert body(frame).topics == []
    assert frame.data[8:12] == (5).to_bytes(4, "big")
