"""What Sluice asks about replicas, as kafka-python encodes the answers and decodes the questions."""

import pytest
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.metadata import MetadataResponse

from protocol.errors import WireError
from protocol.header import REQUEST_HEAD
from protocol.messages import describe_configs, reassignments, replica_sizes
from tests.unit.protocol.kafka_frames import decoded, framed, struct


def whole(api_key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    """A request with its header."""
    head = REQUEST_HEAD.pack(0, api_key, version, 1, 1)[4:] + b"c" + (b"\0" if flexible else b"") + body
    return len(head).to_bytes(4, "big") + head


def test_describe_configs_is_asked_as_kafka_asks() -> None:
    body = describe_configs.request_body(describe_configs.TOPIC, ["a", "b"], ["k", "l"])
    message = decoded(DescribeConfigsRequest, 1, whole(32, 1, body))
    assert [(one.resource_type, one.resource_name) for one in message.resources] == [(2, "a"), (2, "b")]
    assert message.resources[0].configuration_keys == ["k", "l"]
    assert not message.include_synonyms


def test_describe_configs_is_read() -> None:
    kind = DescribeConfigsResponse
    entry = {"read_only": False, "config_source": 1, "is_sensitive": False, "synonyms": []}
    configs = [
        struct(kind, 1, "DescribeConfigsResourceResult", name="k", value="0:1", **entry),
        struct(kind, 1, "DescribeConfigsResourceResult", name="l", value=None, **entry),
    ]
    result = struct(
        kind,
        1,
        "DescribeConfigsResult",
        error_code=0,
        error_message=None,
        resource_type=2,
        resource_name="a",
        configs=configs,
    )
    frame = framed(kind(version=1, throttle_time_ms=0, results=[result]))
    assert describe_configs.read_answer(frame) == [(0, "a", {"k": "0:1"})]
    for end in range(8, len(frame)):
        with pytest.raises(WireError):
            describe_configs.read_answer(frame[:end])


def test_reassignments_are_asked_for_and_read() -> None:
    message = decoded(
        ListPartitionReassignmentsRequest, 0, whole(46, 0, reassignments.EVERYTHING, flexible=True)
    )
    assert message.timeout_ms == 60_000
    assert message.topics is None
    kind = ListPartitionReassignmentsResponse
    partitions = [
        struct(
            kind,
            0,
            "OngoingPartitionReassignment",
            partition_index=number,
            replicas=[1, *added],
            adding_replicas=added,
            removing_replicas=[1],
        )
        for number, added in ((0, [3, 4]), (1, []))
    ]
    topic = struct(kind, 0, "OngoingTopicReassignment", name="t", partitions=partitions)
    frame = framed(kind(version=0, throttle_time_ms=0, error_code=0, error_message=None, topics=[topic]))
    found = reassignments.read_answer(frame)
    assert (found.error_code, found.error_message) == (0, None)
    assert found.adding == {("t", 0): frozenset({3, 4})}
    with pytest.raises(WireError):
        reassignments.read_answer(frame[:-8])


def test_metadata_is_read_with_replicas() -> None:
    kind = MetadataResponse
    broker = struct(kind, 1, "MetadataResponseBroker", node_id=1, host="h", port=9092, rack=None)
    partition = struct(
        kind,
        1,
        "MetadataResponsePartition",
        error_code=0,
        partition_index=7,
        leader_id=1,
        replica_nodes=[1, 2],
        isr_nodes=[1],
    )
    topic = struct(
        kind, 1, "MetadataResponseTopic", error_code=0, name="t", is_internal=False, partitions=[partition]
    )
    frame = framed(kind(version=1, brokers=[broker], controller_id=1, topics=[topic]))
    assert replica_sizes.read_metadata(frame) == ({1: ("h", 9092)}, {("t", 7): (1, (1, 2))})


def test_log_sizes_are_read_without_those_on_their_way_to_another_disk() -> None:
    kind = DescribeLogDirsResponse
    partitions = [
        struct(
            kind,
            1,
            "DescribeLogDirsPartition",
            partition_index=number,
            partition_size=1 << 40,
            offset_lag=0,
            is_future_key=future,
        )
        for number, future in ((0, False), (1, True))
    ]
    topic = struct(kind, 1, "DescribeLogDirsTopic", name="t", partitions=partitions)
    result = struct(kind, 1, "DescribeLogDirsResult", error_code=0, log_dir="/d", topics=[topic])
    frame = framed(kind(version=1, throttle_time_ms=0, results=[result]))
    assert replica_sizes.read_log_dirs(frame) == {("t", 0): 1 << 40}
