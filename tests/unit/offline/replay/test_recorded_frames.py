"""Requests that were kept: taken apart, freed of their producers, and sent again."""

import struct
import uuid
from typing import Any

import pytest
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from offline.replay import frames as recorded_frames
from offline.replay.schedule import Part
from protocol.api import FIND_COORDINATOR, HEARTBEAT, LIST_OFFSETS, METADATA, OFFSET_FETCH, PRODUCE
from tests.support import frames
from tests.unit.offline.replay.rows import recorded
from tests.unit.offline.replay.test_frames import body, encoder
from tests.unit.protocol.kafka_frames import REQUESTS, framed
from tests.unit.protocol.kafka_frames import struct as part

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
    assert (found.acks, [(index, len(records)) for index, records in found.records]) == (
        1,
        [(0, 10), (1, 0), (0, 300)],
    )


def test_frame_that_was_cut_is_made_up() -> None:
    assert recorded_frames.read_produce(frames.produce_to(9, {"a": [10]})[:40]) is None


def produced(batch: bytes) -> bytes:
    cls = REQUESTS[PRODUCE]
    entry: Any = part(cls, 9, "PartitionProduceData", index=1, records=batch)
    data: Any = part(cls, 9, "TopicProduceData", partition_data=[entry])
    data.name = "a"
    return framed(cls[9](transactional_id=None, acks=1, timeout_ms=1, topic_data=[data]), 9, "c")


def test_kept_produce_goes_to_the_targets_partition_with_its_records() -> None:
    batch = of_producer([b"value"])
    row = recorded(broker=1, partitions=(Part("a", 1, len(batch), 1),), frame=produced(batch))
    message = body(encoder().encode(row, 5))
    assert message.acks == 1
    (entry,) = message.topic_data[0].partition_data
    # Broker 1 stands for one that leads partitions 0 and 2 there.
    assert (entry.index, bytes(entry.records)) == (2, recorded_frames.without_producer(batch))


def test_kept_records_are_not_added_up_but_counted() -> None:
    batch = of_producer([b"value"])
    made = encoder()
    parts = (Part("a", 1, len(batch), 1), Part("a", 2, 300, 1))
    (entry,) = (
        body(made.encode(recorded(partitions=parts, frame=produced(batch)), 5)).topic_data[0].partition_data
    )
    assert (entry.index, bytes(entry.records)) == (2, recorded_frames.without_producer(batch))
    assert (made.left_out.partitions, made.left_out.bytes) == (1, 300)


def test_request_that_only_asks_is_sent_as_it_was() -> None:
    made = encoder(ranges={FIND_COORDINATOR: (0, 6), METADATA: (0, 13)})
    frame = frames.request(FIND_COORDINATOR, 4, b"whatever")
    row = recorded(api_key=FIND_COORDINATOR, api_version=4, frame=frame)
    found = made.encode(row, 1234)
    assert found is not None
    assert (found.data, found.version) == (frame[:8] + (1234).to_bytes(4, "big") + frame[12:], 4)


def metadata(version: int, **fields: Any) -> bytes:
    cls = REQUESTS[METADATA]
    topic = part(cls, version, "MetadataRequestTopic", name="orders", **fields)
    return framed(cls[version](topics=[topic, topic], allow_auto_topic_creation=True), 9, "c")


@pytest.mark.parametrize("version", range(4, 14))
def test_kept_metadata_creates_no_topics(version: int) -> None:
    made = encoder(ranges={METADATA: (0, 13)})
    frame = metadata(version)
    found = made.encode(recorded(api_key=METADATA, api_version=version, frame=frame), 5)
    assert found is not None
    message = body(found)
    assert (found.version, [topic.name for topic in message.topics]) == (version, ["orders"] * 2)
    assert not message.allow_auto_topic_creation
    assert len(found.data) == len(frame)
    everything = framed(REQUESTS[METADATA][version](topics=None, allow_auto_topic_creation=True), 9, "c")
    found = made.encode(recorded(api_key=METADATA, api_version=version, frame=everything), 5)
    assert body(found).topics is None
    assert not body(found).allow_auto_topic_creation


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (0, metadata(0)),
        (3, metadata(3)),
        (12, metadata(12, topic_id=uuid.uuid4())),
        (9, metadata(9)[:30]),
    ],
)
def test_metadata_without_a_flag_for_auto_creation_is_a_ping(version: int, frame: bytes) -> None:
    made = encoder(ranges={METADATA: (0, 13)})
    found = made.encode(recorded(api_key=METADATA, api_version=version, frame=frame, response_bytes=60), 5)
    assert found is not None
    assert (found.version, body(found).topics) == (9, [])


@pytest.mark.parametrize(
    ("key", "version"),
    [(HEARTBEAT, 4), (FIND_COORDINATOR, 7), (LIST_OFFSETS, 6), (OFFSET_FETCH, 10), (EPOCHS, 4)],
)
def test_other_requests_become_pings(key: int, version: int) -> None:
    made = encoder(ranges={key: (0, 10), FIND_COORDINATOR: (0, 6)})
    found = made.encode(recorded(api_key=key, api_version=version, frame=frames.request(key, version)), 5)
    assert found is not None
    assert found.api_key == METADATA
