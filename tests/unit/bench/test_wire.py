"""The generator's requests are what Kafka's schema says, judged by kafka-python."""

import struct

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest

from tests.bench import wire
from tests.support.frames import frame


def body(request: bytes, api_key: int, version: int) -> bytes:
    """Check length and header; return what follows."""
    length, key, spoken, correlation_id, name_length = struct.unpack_from(">ihhih", request)
    assert length == len(request) - 4
    assert (key, spoken, correlation_id) == (api_key, version, 1)
    assert request[14 : 14 + name_length] == b"bench"
    assert request[14 + name_length] == 0  # no tags
    return request[15 + name_length :]


@pytest.mark.parametrize("size", [100, 65536])
def test_produce_carries_one_record_of_the_size_asked_for(size: int) -> None:
    request = wire.produce("bench", "requests", size, timestamp_ms=1_700_000_000_000)
    decoded = ProduceRequest.decode(body(request, 0, 12), version=12)
    assert (decoded.acks, decoded.topic_data[0].name) == (1, "requests")
    partition = decoded.topic_data[0].partition_data[0]
    assert partition.index == 0
    assert size < len(bytes(partition.records)) < size + 100


def test_fetch_asks_for_one_byte_of_the_first_batch_outside_any_session() -> None:
    decoded = FetchRequest.decode(body(wire.fetch_first("bench", "requests"), 1, 12), version=12)
    assert (decoded.min_bytes, decoded.max_bytes, decoded.session_id, decoded.session_epoch) == (1, 1, 0, -1)
    (topic,) = decoded.topics
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition) == ("requests", 0)
    assert (partition.fetch_offset, partition.partition_max_bytes) == (0, 1)
    assert (decoded.forgotten_topics_data, decoded.rack_id) == ([], "")


def test_metadata_asks_for_every_topic() -> None:
    decoded = MetadataRequest.decode(body(wire.metadata_all_topics("bench"), 3, 12), version=12)
    assert decoded.topics is None
    assert not decoded.allow_auto_topic_creation


def test_api_versions_names_the_generator() -> None:
    decoded = ApiVersionsRequest.decode(body(wire.api_versions("bench"), 18, 3), version=3)
    assert decoded.client_software_name == "sluice-bench"


def test_produce_failed_finds_the_error_of_the_partition() -> None:
    partition = struct.pack(">ih", 0, 6)  # NOT_LEADER_OR_FOLLOWER
    response = frame(struct.pack(">i", 1) + b"\0\2\2t\2" + partition)
    assert wire.produce_failed(response, "t") == 6
