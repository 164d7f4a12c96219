"""The request that is sent for a recorded one, as kafka-python reads it."""

import struct
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from offline.replay import frames as recorded_frames
from offline.replay.frames import Encoder, Frame
from offline.replay.messages import Broker, Topic
from offline.replay.schedule import Part, Recorded
from offline.replay.target import LeftOut, Placement
from protocol.api import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
)
from tests.support import frames
from tests.unit.offline.replay.rows import recorded
from tests.unit.protocol.kafka_frames import REQUESTS, decoded, framed
from tests.unit.protocol.kafka_frames import struct as part


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


def body(frame: Frame) -> Any:
    return decoded(REQUESTS[frame.api_key], frame.version, frame.data)


def sent(row: Recorded, made: Encoder | None = None) -> Frame:
    """The request that is sent for a recorded one."""
    frame = (made or encoder()).encode(row, 5)
    assert frame is not None
    return frame


def produced_to(row: Recorded, made: Encoder | None = None) -> list[tuple[int, int]]:
    """The partitions of the only topic of a Produce, each with the bytes that are sent to it."""
    (topic,) = body(sent(row, made)).topic_data
    return [(entry.index, len(entry.records)) for entry in topic.partition_data]


def fetched_from(row: Recorded, made: Encoder | None = None) -> list[tuple[int, int]]:
    """The partitions of the only topic of a Fetch, each with the bytes that are wanted of it."""
    (topic,) = body(sent(row, made)).topics
    return [(entry.partition, entry.partition_max_bytes) for entry in topic.partitions]


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_produce_has_the_recorded_bytes_and_records(version: int) -> None:
    message = body(
        sent(recorded(partitions=(Part("a", 0, 1000, 7), Part("a", 2, 500, -1))), encoder(version))
    )
    assert (message.acks, [topic.name for topic in message.topic_data]) == (-1, ["a"])
    partitions = message.topic_data[0].partition_data
    assert [(entry.index, len(entry.records)) for entry in partitions] == [(0, 1000), (2, 500)]
    batch = MemoryRecords(bytes(partitions[0].records)).next_batch()
    assert batch.validate_crc()
    assert len(list(batch)) == 7


def test_produce_that_got_no_response_asks_for_no_response() -> None:
    frame = sent(recorded(response_bytes=-1))
    assert (body(frame).acks, frame.expects_response) == (0, False)


def test_partition_goes_where_its_broker_leads_one() -> None:
    assert produced_to(recorded(broker=2)) == [(1, 1000)]


def test_partition_without_a_leader_is_left_out_and_counted() -> None:
    made = encoder()
    assert made.encode(recorded(partitions=(Part("b", 0, 10, 1),)), 5) is None
    assert made.left_out == LeftOut(1, 10)
    kept = body(sent(recorded(partitions=(Part("b", 0, 10, 1), Part("a", 0, 100, 1))), made))
    assert ([topic.name for topic in kept.topic_data], made.left_out.partitions) == (["a"], 2)


@pytest.mark.parametrize(
    ("broker", "rest", "expected", "left_out"),
    [
        (1, 3000, [(0, 1000), (2, 3000)], LeftOut()),
        (1, 3_000_000, [(0, 1000), (2, 1_000_000)], LeftOut(1, 2_000_000)),
        (2, 9, [(1, 1000)], LeftOut(1, 9)),
    ],
)
def test_summed_partitions_go_to_the_topics_other_partitions(
    broker: int, rest: int, expected: list[tuple[int, int]], left_out: LeftOut
) -> None:
    made = encoder()
    parts = (Part("a", 0, 1000, 7), Part("", -1, rest, -1))
    assert produced_to(recorded(broker=broker, partitions=parts), made) == expected
    assert made.left_out == left_out


def test_summed_part_of_a_fetch_is_asked_for_at_any_size() -> None:
    parts = (Part("a", 0, 1000, -1), Part("", -1, 3_000_000, -1))
    assert fetched_from(recorded(api_key=FETCH, partitions=parts)) == [(0, 1000), (2, 3_000_000)]


def test_partitions_that_fall_together_are_added_up() -> None:
    made = encoder()
    parts = tuple(Part("a", index, 1000, 7) for index in range(0, 12, 2))
    # Broker 1 leads 0 and 2 there; of 0, 2, 4 … 10 those above go to 0.
    assert produced_to(recorded(partitions=parts), made) == [(0, 5000), (2, 1000)]
    (topic,) = body(sent(recorded(partitions=parts), made)).topic_data
    assert len(list(MemoryRecords(bytes(topic.partition_data[0].records)).next_batch())) == 35
    assert fetched_from(recorded(api_key=FETCH, partitions=parts), made) == [(0, 5000), (2, 1000)]
    assert made.left_out.partitions == 0


def test_bytes_beyond_one_batch_are_counted() -> None:
    made = encoder()
    parts = tuple(Part("a", index, 600_000, 7) for index in (0, 4))
    assert produced_to(recorded(partitions=parts), made) == [(0, 600_000)]
    assert made.left_out == LeftOut(1, 600_000)


def test_fetch_leaves_out_partitions_that_brought_nothing() -> None:
    made = encoder()
    parts = (Part("a", 0, 0, -1), Part("a", 2, 700, -1), Part("b", 0, 0, -1))
    assert fetched_from(recorded(api_key=FETCH, request_bytes=300, partitions=parts), made) == [(2, 700)]
    empty = body(sent(recorded(api_key=FETCH, partitions=(Part("a", 0, 0, -1),)), made))
    assert (list(empty.topics), made.left_out.partitions) == ([], 0)


def test_fetch_asks_for_the_recorded_bytes() -> None:
    parts = (Part("a", 0, 5000, -1), Part("a", 2, 700, -1))
    frame = sent(recorded(api_key=FETCH, request_bytes=300, partitions=parts))
    assert len(frame.data) == 300 + 4
    message = body(frame)
    assert (message.max_bytes, message.max_wait_ms) == (5700, 0)
    assert (message.session_id, message.session_epoch) == (0, -1)
    asked = message.topics[0].partitions
    assert [(entry.partition, entry.fetch_offset) for entry in asked] == [(0, 40), (2, 0)]


@pytest.mark.parametrize(("response", "key"), [(30, METADATA), (600, API_VERSIONS), (9000, METADATA)])
def test_other_requests_become_pings_of_their_size(response: int, key: int) -> None:
    frame = sent(recorded(api_key=HEARTBEAT, request_bytes=400, response_bytes=response))
    assert (frame.api_key, len(frame.data)) == (key, 400 + 4)
    if key == METADATA:
        assert body(frame).topics == (None if response > 4096 else [])


def test_request_smaller_than_any_has_the_least_size() -> None:
    frame = sent(recorded(api_key=HEARTBEAT, request_bytes=5))
    assert body(frame).topics == []
    assert frame.data[8:12] == (5).to_bytes(4, "big")


EPOCHS = 23  # OffsetForLeaderEpoch


def of_producer(values: list[bytes], compression: int = 0) -> bytes:
    """A batch of an idempotent, transactional producer."""
    builder = MemoryRecordsBuilder(2, compression, 1 << 20)
    builder.set_producer_state(77, 3, 12, True)
    for value in values:
        builder.append(timestamp=1_700_000_000_000, key=b"k", value=value)
    builder.close()
    made: bytes = bytes(builder.buffer())
    return made


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_batch_is_freed_and_stays_valid(size: int, compression: int) -> None:
    batch = of_producer([bytes(range(256)) * size, b"second"], compression)
    found = recorded_frames.without_producer(batch)
    assert found is not None
    assert struct.unpack_from(">qhi", found, 43) == (-1, -1, -1)
    parsed = MemoryRecords(found).next_batch()
    assert parsed.validate_crc()
    assert not parsed.is_transactional
    assert [record.value for record in parsed] == [bytes(range(256)) * size, b"second"]


def test_invalid_batch_is_replaced_by_a_synthetic_one() -> None:
    assert recorded_frames.without_producer(b"\0" * 60) is None
    assert recorded_frames.without_producer(frames.filler(100)) is None


@pytest.mark.parametrize("version", range(3, 14))
def test_records_of_any_version_are_taken_out(version: int) -> None:
    frame = frames.produce_to(version, {"a": [10, 0], "b": [300]}, acks=1)
    found = recorded_frames.read_produce(frame)
    assert found is not None
    assert (found.acks, [len(records) for records in found.records]) == (1, [10, 0, 300])


def test_frame_that_was_cut_is_made_up() -> None:
    assert recorded_frames.read_produce(frames.produce_to(9, {"a": [10]})[:40]) is None


def produced(batch: bytes) -> bytes:
    cls = REQUESTS[PRODUCE]
    entry: Any = part(cls, 9, "PartitionProduceData", index=1, records=batch)
    data: Any = part(cls, 9, "TopicProduceData", partition_data=[entry])
    data.name = "a"
    return framed(cls[9](transactional_id=None, acks=1, timeout_ms=1, topic_data=[data]), 9, "c")


def test_kept_records_go_to_the_targets_partition_and_are_not_added_up() -> None:
    batch = of_producer([b"value"])
    made = encoder()
    parts = (Part("a", 1, len(batch), 1), Part("a", 2, 300, 1))
    message = body(sent(recorded(partitions=parts, frame=produced(batch)), made))
    assert message.acks == 1
    (entry,) = message.topic_data[0].partition_data
    # Broker 1 stands for one that leads partitions 0 and 2 there.
    assert (entry.index, bytes(entry.records)) == (2, recorded_frames.without_producer(batch))
    assert made.left_out == LeftOut(1, 300)


def test_request_that_only_asks_is_sent_as_it_was() -> None:
    made = encoder(ranges={FIND_COORDINATOR: (0, 6), METADATA: (0, 13)})
    frame = frames.request(FIND_COORDINATOR, 4, b"whatever")
    found = sent(recorded(api_key=FIND_COORDINATOR, api_version=4, frame=frame), made)
    assert (found.data, found.version) == (frame[:8] + (5).to_bytes(4, "big") + frame[12:], 4)


def metadata(version: int, **fields: Any) -> bytes:
    cls = REQUESTS[METADATA]
    topic = part(cls, version, "MetadataRequestTopic", name="orders", **fields)
    return framed(cls[version](topics=[topic, topic], allow_auto_topic_creation=True), 9, "c")


def resent(frame: bytes, key: int = METADATA, version: int = 0, high: int = 13) -> Frame:
    """The request that is sent for a captured one, to a target that takes its versions up to the highest."""
    row = recorded(api_key=key, api_version=version, frame=frame, response_bytes=60)
    return sent(row, encoder(ranges={key: (0, high)}))


@pytest.mark.parametrize("version", range(4, 14))
def test_kept_metadata_creates_no_topics(version: int) -> None:
    frame = metadata(version)
    found = resent(frame, version=version)
    message = body(found)
    assert (found.version, [topic.name for topic in message.topics]) == (version, ["orders"] * 2)
    assert not message.allow_auto_topic_creation
    assert len(found.data) == len(frame)
    everything = framed(REQUESTS[METADATA][version](topics=None, allow_auto_topic_creation=True), 9, "c")
    message = body(resent(everything, version=version))
    assert message.topics is None
    assert not message.allow_auto_topic_creation


@pytest.mark.parametrize(
    ("version", "frame"),
    [(0, metadata(0)), (3, metadata(3)), (12, metadata(12, topic_id=uuid.uuid4())), (9, metadata(9)[:30])],
)
def test_metadata_without_a_flag_for_auto_creation_is_a_ping(version: int, frame: bytes) -> None:
    found = resent(frame, version=version)
    assert (found.version, body(found).topics) == (9, [])


@pytest.mark.parametrize(
    ("key", "version"),
    [(HEARTBEAT, 4), (FIND_COORDINATOR, 7), (LIST_OFFSETS, 6), (OFFSET_FETCH, 10), (EPOCHS, 4)],
)
def test_other_requests_become_pings(key: int, version: int) -> None:
    high = 6 if key == FIND_COORDINATOR else 10
    assert resent(frames.request(key, version), key, version, high).api_key == METADATA
