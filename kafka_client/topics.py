"""ApiVersions 3, CreateTopics 5 and ListOffsets 6: the requests that prepare the target of a replay.

The Metadata requests of a replay are in `kafka_client.metadata`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kafka_client.codec import admin, consumer, decode, encode, metadata
from kafka_client.codec import metadata as messages
from kafka_client.request import MIB, Request
from protocol.api import API_VERSIONS, CREATE_TOPICS, LIST_OFFSETS, METADATA

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


# ----------------------------------------------------------------------------------------------------
# Metadata 12 and CreateTopics 5 for a topic of Sluice's own: the requests that look it up and create it.
#
# Metadata says which operations this user may perform on the topic (KIP-430), so a missing permission is
# known before a
# write fails. The Metadata request creates no topic. Brokers before Kafka 2.8 have no topic ids and refuse
# this version.


# Kafka's AclOperation codes.
READ: Final = 3
WRITE: Final = 4

_METADATA_VERSION: Final = 12
_CREATE_VERSION: Final = 5
_BYTES_MAX_LOG_TOPICS: Final = 4 * MIB  # 10,000 brokers, and one topic with 50,000 partitions
_TIMEOUT_MS_LOG_TOPICS: Final = 10_000


class TopicLook(NamedTuple):
    """A topic as one broker knows it.

    Attributes:
        error_code: Kafka's; 3 for a topic that does not exist, 29 for one that this user may not describe.
        operations: the AclOperation codes of what this user may do; None if the broker does not return them.
        brokers: the number of live brokers.
    """

    error_code: int
    topic_id: bytes
    partitions: int
    operations: frozenset[int] | None
    brokers: int


def look(topic: str) -> Request[TopicLook]:
    """Return the request for a topic's id, partitions and permitted operations."""
    kind = messages.MetadataRequest.MetadataRequestTopic
    asked = messages.MetadataRequest(
        version=_METADATA_VERSION,
        topics=[kind(version=_METADATA_VERSION, name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    return Request(
        METADATA, _METADATA_VERSION, encode(asked), partial(_read_look, topic), _BYTES_MAX_LOG_TOPICS
    )


def create(
    topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> Request[tuple[int, str]]:
    """Return the request that creates a topic; the result: error code and message."""
    kind = admin.CreateTopicsRequest.CreatableTopic
    entries = [
        kind.CreatableTopicConfig(version=_CREATE_VERSION, name=name, value=value)
        for name, value in configs.items()
    ]
    entry = kind(
        version=_CREATE_VERSION,
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=entries,
    )
    asked = admin.CreateTopicsRequest(
        version=_CREATE_VERSION, topics=[entry], timeout_ms=_TIMEOUT_MS_LOG_TOPICS, validate_only=False
    )
    return Request(
        CREATE_TOPICS, _CREATE_VERSION, encode(asked), _read_created_log_topics, _BYTES_MAX_LOG_TOPICS
    )


def _read_look(topic: str, frame: bytes) -> TopicLook:
    response = decode(messages.MetadataResponse, _METADATA_VERSION, frame)
    brokers = len(response.brokers or ())
    for found in response.topics or ():
        if found.name == topic:
            operations = found.authorized_operations
            return TopicLook(
                found.error_code,
                found.topic_id.bytes if found.topic_id is not None else bytes(16),
                len(found.partitions or ()),
                None if operations is None else frozenset(operations),
                brokers,
            )
    return TopicLook(-1, bytes(16), 0, frozenset(), brokers)


def _read_created_log_topics(frame: bytes) -> tuple[int, str]:
    response = decode(admin.CreateTopicsResponse, _CREATE_VERSION, frame)
    for topic in response.topics or ():
        return topic.error_code, topic.error_message or ""
    return -1, "the response does not name the topic"
