"""Metadata 12 and CreateTopics 5 for a topic of Sluice's own: the requests that look it up and create it.

Metadata says which operations this user may perform on the topic (KIP-430), so a missing permission is known before a
write fails. The Metadata request creates no topic. Brokers before Kafka 2.8 have no topic ids and refuse this version.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from kafka_client.codec import admin, decode, encode
from kafka_client.codec import metadata as messages
from kafka_client.request import MIB, Request
from protocol.api import CREATE_TOPICS, METADATA

__all__ = ["READ", "WRITE", "TopicLook", "create", "look"]

# Kafka's AclOperation codes.
READ: Final = 3
WRITE: Final = 4

_METADATA_VERSION: Final = 12
_CREATE_VERSION: Final = 5
_BYTES_MAX: Final = 4 * MIB  # 10,000 brokers, and one topic with 50,000 partitions
_TIMEOUT_MS: Final = 10_000


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
    return Request(METADATA, _METADATA_VERSION, encode(asked), partial(_read_look, topic), _BYTES_MAX)


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
        version=_CREATE_VERSION, topics=[entry], timeout_ms=_TIMEOUT_MS, validate_only=False
    )
    return Request(CREATE_TOPICS, _CREATE_VERSION, encode(asked), _read_created, _BYTES_MAX)


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


def _read_created(frame: bytes) -> tuple[int, str]:
    response = decode(admin.CreateTopicsResponse, _CREATE_VERSION, frame)
    for topic in response.topics or ():
        return topic.error_code, topic.error_message or ""
    return -1, "the response does not name the topic"
