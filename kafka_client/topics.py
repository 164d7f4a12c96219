"""Requests about single topics: of Sluice's own, and of the target of a replay.

Versions: Metadata 12, CreateTopics 5, ListOffsets 6, ApiVersions 3. Metadata says which operations this user may
perform on a topic (KIP-430), so a missing permission is known before a write fails; it creates no topic. Brokers before
Kafka 2.8 have no topic ids and refuse that version. The other Metadata requests are in `kafka_client.metadata`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafka.protocol import admin, consumer, metadata

from kafka_client.request import MIB, Request, request_of
from protocol.api import API_VERSIONS, CREATE_TOPICS, LIST_OFFSETS

# Kafka's AclOperation codes.
READ: Final = 3
WRITE: Final = 4

# The versions of a replay's preparation.
VERSIONS: Final = {API_VERSIONS: 3, CREATE_TOPICS: 5, LIST_OFFSETS: 6}

_METADATA_VERSION: Final = 12
_BYTES_MAX: Final = MIB
_TOPIC_BYTES_MAX: Final = 4 * MIB  # 10,000 brokers, and one topic with 50,000 partitions
_CREATE_TIMEOUT_MS: Final = 10_000
_REPLAY_TIMEOUT_MS: Final = 30_000  # for a topic with many partitions
_CONSUMER: Final = -1
_NO_EPOCH: Final = -1
_EARLIEST: Final = -2


class TopicLook(NamedTuple):
    """What one broker's Metadata response says about a topic.

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


def version_ranges(software: str) -> Request[dict[int, tuple[int, int]]]:
    """Return the ApiVersions request; its result is the version range (lowest, highest) of each API key.

    The result is empty if the broker does not support this version of ApiVersions.

    Args:
        software: the name of the client's software to send (KIP-511).
    """
    asked = metadata.ApiVersionsRequest(
        version=VERSIONS[API_VERSIONS], client_software_name=software, client_software_version="1"
    )
    return request_of(asked, metadata.ApiVersionsResponse, _ranges, _BYTES_MAX)


def look(topic: str) -> Request[TopicLook]:
    """Return the Metadata request for a topic's id, partitions and permitted operations; it does not create it."""
    asked = metadata.MetadataRequest(
        version=_METADATA_VERSION,
        topics=[metadata.MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    return request_of(asked, metadata.MetadataResponse, partial(_look, topic), _TOPIC_BYTES_MAX)


def create(
    topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> Request[tuple[int, str]]:
    """Return the CreateTopics request for a topic; its response is decoded into error code and message."""
    kind = admin.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    entries = [kind(name=name, value=value) for name, value in configs.items()]
    return _create(topic, partitions, replication_factor, [], entries, _CREATE_TIMEOUT_MS)


def create_placed(topic: str, replicas: Sequence[Sequence[int]]) -> Request[tuple[int, str]]:
    """Return the CreateTopics request for a topic whose replicas are given; code and message as of `create`.

    Args:
        replicas: the broker ids of each partition; the first one becomes the leader.
    """
    kind = admin.CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment
    assignments = [kind(partition_index=index, broker_ids=brokers) for index, brokers in enumerate(replicas)]
    return _create(topic, -1, -1, assignments, [], _REPLAY_TIMEOUT_MS)


def first_offsets(topic: str, partitions: Sequence[int]) -> Request[dict[int, tuple[int, int]]]:
    """Return the ListOffsets request for the first offsets of a topic's partitions.

    Its response is decoded into error code and offset by partition.
    """
    kind = consumer.ListOffsetsRequest.ListOffsetsTopic
    rows = [
        kind.ListOffsetsPartition(partition_index=index, current_leader_epoch=_NO_EPOCH, timestamp=_EARLIEST)
        for index in partitions
    ]
    asked = consumer.ListOffsetsRequest(
        version=VERSIONS[LIST_OFFSETS],
        replica_id=_CONSUMER,
        isolation_level=0,
        topics=[kind(name=topic, partitions=rows)],
    )
    return request_of(asked, consumer.ListOffsetsResponse, _offsets, _BYTES_MAX)


def _create(
    topic: str, partitions: int, replication_factor: int, assignments: Any, configs: Any, timeout_ms: int
) -> Request[tuple[int, str]]:
    entry = admin.CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=assignments,
        configs=configs,
    )
    asked = admin.CreateTopicsRequest(
        version=VERSIONS[CREATE_TOPICS], topics=[entry], timeout_ms=timeout_ms, validate_only=False
    )
    return request_of(asked, admin.CreateTopicsResponse, _created, _BYTES_MAX)


def _ranges(response: Any) -> dict[int, tuple[int, int]]:
    if response.error_code:
        return {}
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys or ()}


def _look(topic: str, response: Any) -> TopicLook:
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


def _created(response: Any) -> tuple[int, str]:
    for topic in response.topics or ():
        return topic.error_code, topic.error_message or ""
    return -1, "the response does not name the topic"


def _offsets(response: Any) -> dict[int, tuple[int, int]]:
    return {
        one.partition_index: (one.error_code, one.offset)
        for topic in response.topics or ()
        for one in topic.partitions or ()
    }
