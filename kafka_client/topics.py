"""ApiVersions 3, CreateTopics 5 and ListOffsets 6: the requests that prepare the target of a replay.

The Metadata requests of a replay are in `kafka_client.metadata`.
"""

from collections.abc import Sequence
from typing import Final

from kafka_client.codec import admin, consumer, decode, encode, metadata
from kafka_client.request import MIB, Request
from protocol.api import API_VERSIONS, CREATE_TOPICS, LIST_OFFSETS

__all__ = ["VERSIONS", "create_topic", "first_offsets", "version_ranges"]

_BYTES_MAX: Final = MIB
_API_VERSIONS: Final = 3
_CREATE: Final = 5
_OFFSETS: Final = 6
VERSIONS: Final = {API_VERSIONS: _API_VERSIONS, CREATE_TOPICS: _CREATE, LIST_OFFSETS: _OFFSETS}
_CONSUMER: Final = -1
_NO_EPOCH: Final = -1
_EARLIEST: Final = -2
_TIMEOUT_MS: Final = 30_000


def version_ranges(software: str) -> Request[dict[int, tuple[int, int]]]:
    """Return the request for the version range of each API; the result is empty if the broker refuses this version."""
    asked = metadata.ApiVersionsRequest(
        version=_API_VERSIONS, client_software_name=software, client_software_version="1"
    )
    return Request(API_VERSIONS, _API_VERSIONS, encode(asked), _read_ranges, _BYTES_MAX)


def create_topic(topic: str, replicas: Sequence[Sequence[int]]) -> Request[tuple[int, str]]:
    """Create one topic with its replicas by partition, of which the first leads; the response is error and message."""
    kind = admin.CreateTopicsRequest.CreatableTopic
    assignments = [
        kind.CreatableReplicaAssignment(version=_CREATE, partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(replicas)
    ]
    entry = kind(
        version=_CREATE,
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=assignments,
        configs=[],
    )
    asked = admin.CreateTopicsRequest(
        version=_CREATE, topics=[entry], timeout_ms=_TIMEOUT_MS, validate_only=False
    )
    return Request(CREATE_TOPICS, _CREATE, encode(asked), _read_created, _BYTES_MAX)


def first_offsets(topic: str, partitions: Sequence[int]) -> Request[dict[int, tuple[int, int]]]:
    """Return the request for the first offsets of one topic; the result is error code and offset by partition."""
    kind = consumer.ListOffsetsRequest.ListOffsetsTopic
    rows = [
        kind.ListOffsetsPartition(
            version=_OFFSETS, partition_index=index, current_leader_epoch=_NO_EPOCH, timestamp=_EARLIEST
        )
        for index in partitions
    ]
    asked = consumer.ListOffsetsRequest(
        version=_OFFSETS,
        replica_id=_CONSUMER,
        isolation_level=0,
        topics=[kind(version=_OFFSETS, name=topic, partitions=rows)],
    )
    return Request(LIST_OFFSETS, _OFFSETS, encode(asked), _read_offsets, _BYTES_MAX)


def _read_ranges(frame: bytes) -> dict[int, tuple[int, int]]:
    response = decode(metadata.ApiVersionsResponse, _API_VERSIONS, frame)
    if response.error_code:
        return {}
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys or ()}


def _read_created(frame: bytes) -> tuple[int, str]:
    response = decode(admin.CreateTopicsResponse, _CREATE, frame)
    for topic in response.topics or ():
        return topic.error_code, topic.error_message or ""
    return -1, "the response does not name it"


def _read_offsets(frame: bytes) -> dict[int, tuple[int, int]]:
    response = decode(consumer.ListOffsetsResponse, _OFFSETS, frame)
    return {
        one.partition_index: (one.error_code, one.offset)
        for topic in response.topics or ()
        for one in topic.partitions or ()
    }
