"""Metadata and DescribeCluster: the brokers, and topics with their partitions (KIP-4, KIP-516, KIP-1073).

Requests create no topics. Versions: Metadata 1 for the brokers only, which every broker since 0.10 supports; 12 for
topics, the first in which brokers look up topics by id. Topics are requested in chunks of 250 (`chunks`).
"""

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafka_client.codec import admin, decode, encode
from kafka_client.codec import metadata as messages
from kafka_client.request import MIB, Request
from protocol.api import DESCRIBE_CLUSTER, METADATA

__all__ = [
    "Broker",
    "ClusterMetadata",
    "PartitionMetadata",
    "TopicMetadata",
    "TopicPartitions",
    "all_topics",
    "brokers",
    "partitions",
    "registered_brokers",
    "topics_by_id",
    "topics_by_name",
]

_BROKERS_VERSION: Final = 1
_BROKERS_BYTES_MAX: Final = 2 * MIB  # 10,000 brokers with names of 150 characters
_TOPICS_VERSION: Final = 12
# 250 topics (`chunks`) with 800 partitions each; decoded, it takes 20 times as much memory.
_TOPICS_BYTES_MAX: Final = 8 * MIB
_EVERYTHING_BYTES_MAX: Final = 16 * MIB
_CLUSTER_VERSION: Final = 2
_CLUSTER_BYTES_MAX: Final = MIB
_ENDPOINTS_OF_BROKERS: Final = 1
_NO_ID: Final = bytes(16)


class Broker(NamedTuple):
    """A broker as the responding one knows it; the values are not validated."""

    broker: int
    host: str
    port: int


class PartitionMetadata(NamedTuple):
    """A partition; the leader is -1 if there is none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicPartitions(NamedTuple):
    """A topic with its partitions, or the error code that the broker has returned for it."""

    error_code: int
    topic_id: bytes
    partitions: Mapping[int, PartitionMetadata]


class ClusterMetadata(NamedTuple):
    """The brokers that are alive, and the requested topics."""

    brokers: Sequence[Broker]
    topics: Mapping[str, TopicPartitions]

    @property
    def live(self) -> frozenset[int]:
        """The ids of the brokers that are alive."""
        return frozenset(broker.broker for broker in self.brokers)


class TopicMetadata(NamedTuple):
    """A topic's name and id as a broker knows them; the name is empty if the broker does not know the id."""

    error_code: int
    name: str | None
    topic_id: bytes


def brokers() -> Request[list[Broker]]:
    """Return the request for the brokers that are alive."""
    body = encode(messages.MetadataRequest(version=_BROKERS_VERSION, topics=[]))
    return Request(METADATA, _BROKERS_VERSION, body, _read_brokers, _BROKERS_BYTES_MAX)


def all_topics() -> Request[ClusterMetadata]:
    """Return the request for all topics with their partitions, in the version of `brokers`, which has no topic ids."""
    body = encode(messages.MetadataRequest(version=_BROKERS_VERSION, topics=None))
    read = partial(_read_partitions, _BROKERS_VERSION)
    return Request(METADATA, _BROKERS_VERSION, body, read, _EVERYTHING_BYTES_MAX)


def partitions(topics: Sequence[str], version: int = _TOPICS_VERSION) -> Request[ClusterMetadata]:
    """Return the request for these topics with their partitions; before version 12 the ids are zeros."""
    read = partial(_read_partitions, version)
    return Request(METADATA, version, _names_body(topics, version), read, _TOPICS_BYTES_MAX)


def topics_by_name(names: Sequence[str]) -> Request[list[TopicMetadata]]:
    """Return the request for the ids of topics."""
    body = _names_body(names, _TOPICS_VERSION)
    return Request(METADATA, _TOPICS_VERSION, body, _read_topics, _TOPICS_BYTES_MAX)


def topics_by_id(topic_ids: Sequence[bytes]) -> Request[list[TopicMetadata]]:
    """Return the request for the names of topics."""
    kind = messages.MetadataRequest.MetadataRequestTopic
    entries = [
        kind(version=_TOPICS_VERSION, topic_id=uuid.UUID(bytes=topic_id), name=None) for topic_id in topic_ids
    ]
    body = _topics_body(entries, _TOPICS_VERSION)
    return Request(METADATA, _TOPICS_VERSION, body, _read_topics, _TOPICS_BYTES_MAX)


def registered_brokers() -> Request[tuple[int, frozenset[int]]]:
    """Return the request for every registered broker, alive or not (Kafka 4.0); the result: error code and ids."""
    asked = admin.DescribeClusterRequest(
        version=_CLUSTER_VERSION,
        include_cluster_authorized_operations=False,
        endpoint_type=_ENDPOINTS_OF_BROKERS,
        include_fenced_brokers=True,
    )
    body = encode(asked)
    return Request(DESCRIBE_CLUSTER, _CLUSTER_VERSION, body, _read_registered, _CLUSTER_BYTES_MAX)


def _names_body(names: Sequence[str], version: int) -> bytes:
    kind = messages.MetadataRequest.MetadataRequestTopic
    return _topics_body([kind(version=version, name=name) for name in names], version)


def _topics_body(topics: Sequence[Any], version: int) -> bytes:
    asked = messages.MetadataRequest(
        version=version,
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return encode(asked)


def _brokers_of(response: Any) -> list[Broker]:
    return [Broker(one.node_id, one.host or "", one.port) for one in response.brokers or ()]


def _read_brokers(frame: bytes) -> list[Broker]:
    return _brokers_of(decode(messages.MetadataResponse, _BROKERS_VERSION, frame))


def _read_topics(frame: bytes) -> list[TopicMetadata]:
    response = decode(messages.MetadataResponse, _TOPICS_VERSION, frame)
    return [TopicMetadata(one.error_code, one.name, _id_of(one)) for one in response.topics or ()]


def _read_partitions(version: int, frame: bytes) -> ClusterMetadata:
    response = decode(messages.MetadataResponse, version, frame)
    topics = {}
    for topic in response.topics or ():
        # A partition without a leader has an error, but it exists.
        seen = {
            one.partition_index: PartitionMetadata(
                one.leader_id, tuple(one.replica_nodes or ()), tuple(one.isr_nodes or ())
            )
            for one in topic.partitions or ()
        }
        topics[topic.name or ""] = TopicPartitions(topic.error_code, _id_of(topic), seen)
    return ClusterMetadata(_brokers_of(response), topics)


def _id_of(topic: Any) -> bytes:
    """Return a topic's id; zeros if it has none, which kafka-python returns as None."""
    return topic.topic_id.bytes if topic.topic_id is not None else _NO_ID


def _read_registered(frame: bytes) -> tuple[int, frozenset[int]]:
    response = decode(admin.DescribeClusterResponse, _CLUSTER_VERSION, frame)
    return response.error_code, frozenset(broker.broker_id for broker in response.brokers or ())
