"""What Sluice asks for itself, as kafka-python decodes the requests and encodes the responses."""

import uuid
from typing import Any

import pytest
from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.metadata import MetadataRequest

from kafka_client import Request, metadata, topics
from protocol.errors import WireError
from protocol.messages.api_versions import meant_cluster, software
from tests.support.frames import frame
from tests.support.own_requests import frame_of
from tests.unit.protocol.kafka_frames import decoded, framed, struct


def sent(kind: Any, request: Request[Any]) -> Any:
    """A request as its broker reads it."""
    return decoded(kind, request.version, frame_of(request))


def test_configs_are_asked_for() -> None:
    message = sent(DescribeConfigsRequest, metadata.describe_topics(["a", "b"], ["k", "l"]))
    assert [(one.resource_type, one.resource_name) for one in message.resources] == [(2, "a"), (2, "b")]
    assert message.resources[0].configuration_keys == ["k", "l"]
    assert not message.include_synonyms
    (broker,) = sent(DescribeConfigsRequest, metadata.describe_brokers([7], ["k"])).resources
    assert (broker.resource_type, broker.resource_name) == (4, "7")


def test_configs_are_read() -> None:
    kind = DescribeConfigsResponse
    entry = {"read_only": False, "config_source": 1, "is_sensitive": False, "synonyms": []}
    values = [
        struct(kind, 1, "DescribeConfigsResourceResult", name=name, value=value, **entry)
        for name, value in (("k", "0:1"), ("l", None))
    ]
    of = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "a", "configs": values}
    results = [struct(kind, 1, "DescribeConfigsResult", **of)]
    frame = framed(kind(version=1, throttle_time_ms=0, results=results))
    read = metadata.describe_topics(["a"], ["k", "l"]).read
    assert read(frame) == [(0, "a", {"k": "0:1"})]
    for end in range(8, len(frame)):
        with pytest.raises(WireError):
            read(frame[:end])


def test_reassignments_are_asked_for_and_read() -> None:
    message = sent(ListPartitionReassignmentsRequest, metadata.list_ongoing())
    assert (message.timeout_ms, message.topics) == (60_000, None)
    kind, name = ListPartitionReassignmentsResponse, "OngoingPartitionReassignment"
    partitions = [
        struct(
            kind, 0, name, partition_index=number, replicas=[1], adding_replicas=added, removing_replicas=[1]
        )
        for number, added in ((0, [3, 4]), (1, []))
    ]
    topic = struct(kind, 0, "OngoingTopicReassignment", name="t", partitions=partitions)
    frame = framed(kind(version=0, throttle_time_ms=0, error_code=0, error_message=None, topics=[topic]))
    found = metadata.list_ongoing().read(frame)
    assert (found.error_code, found.error_message) == (0, None)
    assert found.adding == {("t", 0): frozenset({3, 4})}
    with pytest.raises(WireError):
        metadata.list_ongoing().read(frame[:-8])


def test_topics_are_asked_for_and_none_is_created() -> None:
    topic_id = uuid.UUID(int=5)
    for request, expected in (
        (metadata.partitions(["a", "b"]), [(None, "a"), (None, "b")]),
        (metadata.topics_by_name(["a"]), [(None, "a")]),
        (metadata.topics_by_id([topic_id.bytes]), [(topic_id, None)]),
    ):
        message = sent(MetadataRequest, request)
        assert [(one.topic_id, one.name) for one in message.topics] == expected
        assert not message.allow_auto_topic_creation
    assert [one.name for one in sent(MetadataRequest, metadata.partitions(["a"], 9)).topics] == ["a"]


def test_all_topics_and_no_topics_are_told_apart() -> None:
    assert sent(MetadataRequest, metadata.all_topics()).topics is None
    assert sent(MetadataRequest, metadata.brokers()).topics == []


def test_log_sizes_are_read_without_those_on_their_way_to_another_disk() -> None:
    kind, size = DescribeLogDirsResponse, {"partition_size": 1 << 40, "offset_lag": 0}
    partitions = [
        struct(kind, 1, "DescribeLogDirsPartition", partition_index=number, is_future_key=future, **size)
        for number, future in ((0, False), (1, True))
    ]
    topic = struct(kind, 1, "DescribeLogDirsTopic", name="t", partitions=partitions)
    result = struct(kind, 1, "DescribeLogDirsResult", error_code=0, log_dir="/d", topics=[topic])
    frame = framed(kind(version=1, throttle_time_ms=0, results=[result]))
    assert metadata.replica_sizes().read(frame) == {("t", 0): 1 << 40}


def test_broker_that_refuses_the_version_offers_no_api() -> None:
    refusal = b"\0\0\0\1" + (35).to_bytes(2, "big") + (1).to_bytes(4, "big") + bytes((0, 18, 0, 0, 0, 3))
    read = topics.version_ranges("me").read
    assert read(len(refusal).to_bytes(4, "big") + refusal) == {}


def test_broker_says_whether_it_is_the_one_that_is_meant() -> None:
    request = metadata.identify("0.1.0", "cluster", 3)
    sent_tags = b"\0" + request.body
    assert software(sent_tags, 0, len(sent_tags), 5) == "sluice 0.1.0"
    assert meant_cluster(sent_tags, 0, len(sent_tags), 5) == b"cluster"
    assert request.body.endswith(b"\0\0\0\3\0"), "the node's id, and no tags"
    head = b"\0\0\0\1"
    for code, said in ((0, True), (35, True), (129, False)):
        assert request.read(frame(head + code.to_bytes(2) + b"\1\0\0\0\0\0")) is said
    with pytest.raises(WireError):
        request.read(frame(head + b"\0"))


def test_brokers_say_whether_they_have_an_authorizer() -> None:
    request = metadata.describe_cluster_acls()
    message = sent(DescribeAclsRequest, request)
    assert (message.resource_type_filter, message.resource_name_filter, message.operation) == (4, None, 1)
    for code in (0, 31, metadata.SECURITY_DISABLED):
        kind = DescribeAclsResponse
        frame = framed(kind(version=1, throttle_time_ms=0, error_code=code, error_message=None, resources=[]))
        assert request.read(frame) == code
        for end in range(8, len(frame)):
            with pytest.raises(WireError):
                request.read(frame[:end])
