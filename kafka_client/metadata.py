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
from protocol.api import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from protocol.messages import reassignments
from protocol.messages import reassignments as alter_reassignments
from protocol.messages.reassignments import (
    AlterRequest,
    AlterResponse,
    Reassignments,
    Stepping,
    Target,
)

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


# ----------------------------------------------------------------------------------------------------
# DescribeConfigs 1: a few dynamic configs of topics and brokers (KIP-133, KIP-73).
#
# A broker can describe only its own configs. Synonyms are not requested: a value is the one in force, which
# is a broker's
# own config or else the cluster's default.


_VERSION: Final = 1
_BYTES_MAX: Final = 8 * MIB  # a list of throttled replicas has up to 32 kB
_TOPIC: Final = 2
_BROKER: Final = 4


class Described(NamedTuple):
    """One resource: its configs by name, without those that have no value."""

    error_code: int
    name: str
    configs: Mapping[str, str]


def describe_topics(names: Sequence[str], keys: Sequence[str]) -> Request[list[Described]]:
    """Describe these keys of topics."""
    return _describe(_TOPIC, names, keys)


def describe_brokers(brokers: Sequence[int], keys: Sequence[str]) -> Request[list[Described]]:
    """Describe these keys of brokers."""
    return _describe(_BROKER, [str(broker) for broker in brokers], keys)


def _describe(kind: int, names: Sequence[str], keys: Sequence[str]) -> Request[list[Described]]:
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        resource(version=_VERSION, resource_type=kind, resource_name=name, configuration_keys=keys)
        for name in names
    ]
    asked = admin.DescribeConfigsRequest(version=_VERSION, resources=resources, include_synonyms=False)
    return Request(DESCRIBE_CONFIGS, _VERSION, encode(asked), _read, _BYTES_MAX)


def _read(frame: bytes) -> list[Described]:
    response = decode(admin.DescribeConfigsResponse, _VERSION, frame)
    return [
        Described(
            one.error_code,
            one.resource_name or "",
            {
                config.name: config.value
                for config in one.configs or ()
                if config.name is not None and config.value is not None
            },
        )
        for one in response.results or ()
    ]


# ----------------------------------------------------------------------------------------------------
# DescribeLogDirs 1 and ElectLeaders 1: the sizes of replicas, and preferred leader elections (KIP-113,
# KIP-183).
#
# A broker only describes its own log directories; replicas that move between directories of a broker
# ("future") are left
# out. Unclean elections are never requested: they lose records.


Partition = tuple[str, int]

_LOG_DIRS_VERSION: Final = 1
_LOG_DIRS_BYTES_MAX: Final = 16 * MIB
_ELECT_VERSION: Final = 1
_ELECT_BYTES_MAX: Final = 4 * MIB
_PREFERRED: Final = 0
_ELECTION_NOT_NEEDED: Final = 84


def replica_sizes() -> Request[dict[Partition, int]]:
    """Return the request for the size in bytes of each replica of a broker."""
    body = encode(admin.DescribeLogDirsRequest(version=_LOG_DIRS_VERSION, topics=None))
    return Request(DESCRIBE_LOG_DIRS, _LOG_DIRS_VERSION, body, _read_sizes, _LOG_DIRS_BYTES_MAX)


def elect_preferred(
    partitions: Sequence[Partition], timeout_ms: int
) -> Request[tuple[int, dict[Partition, tuple[int, str]]]]:
    """Return the request that elects the preferred leaders.

    The result is the request's error code, and code and message of each partition: 0 if it needed no election.
    """
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    kind = admin.ElectLeadersRequest.TopicPartitions
    asked = admin.ElectLeadersRequest(
        version=_ELECT_VERSION,
        election_type=_PREFERRED,
        topic_partitions=[
            kind(version=_ELECT_VERSION, topic=name, partitions=indexes) for name, indexes in topics.items()
        ],
        timeout_ms=timeout_ms,
    )
    return Request(ELECT_LEADERS, _ELECT_VERSION, encode(asked), _read_elected, _ELECT_BYTES_MAX)


def _read_sizes(frame: bytes) -> dict[Partition, int]:
    response = decode(admin.DescribeLogDirsResponse, _LOG_DIRS_VERSION, frame)
    return {
        (topic.name or "", one.partition_index): max(one.partition_size, 0)
        for directory in response.results or ()  # a failed directory lists no topics
        for topic in directory.topics or ()
        for one in topic.partitions or ()
        if not one.is_future_key
    }


def _read_elected(frame: bytes) -> tuple[int, dict[Partition, tuple[int, str]]]:
    response = decode(admin.ElectLeadersResponse, _ELECT_VERSION, frame)
    found = {}
    for topic in response.replica_election_results or ():
        for one in topic.partition_result or ():
            code = 0 if one.error_code == _ELECTION_NOT_NEEDED else one.error_code
            found[topic.topic or "", one.partition_id] = (code, one.error_message or "")
    return response.error_code, found


# ----------------------------------------------------------------------------------------------------
# ListPartitionReassignments and AlterPartitionReassignments, sent by Sluice itself (KIP-455).
#
# The messages are encoded and decoded in `protocol`, since Sluice also handles them for clients.


_ALTER: Final = alter_reassignments.VERSION
_LIST_BYTES_MAX: Final = 8 * MIB
_ALTER_BYTES_MAX: Final = 4 * MIB


def list_ongoing() -> Request[Reassignments]:
    """Return the request for all reassignments under way."""
    version = reassignments.VERSION
    return Request(
        LIST_PARTITION_REASSIGNMENTS,
        version,
        reassignments.EVERYTHING,
        reassignments.read_list_response,
        _LIST_BYTES_MAX,
    )


def list_batches() -> Request[tuple[Reassignments, Mapping[Partition, Stepping]]]:
    """Return the request, to a Sluice proxy, for all reassignments and their current steps (KIP-435)."""
    version = reassignments.BATCH_VERSION
    return Request(
        LIST_PARTITION_REASSIGNMENTS,
        version,
        reassignments.EVERYTHING,
        reassignments.read_batch,
        _LIST_BYTES_MAX,
    )


def alter(targets: Mapping[Partition, Target], timeout_ms: int) -> Request[AlterResponse]:
    """Return the request that reassigns partitions, or cancels their reassignments (None)."""
    body = alter_reassignments.request_body(AlterRequest(timeout_ms, True, list(targets.items())), _ALTER)
    read = partial(alter_reassignments.read_alter_response, version=_ALTER)
    return Request(ALTER_PARTITION_REASSIGNMENTS, _ALTER, body, read, _ALTER_BYTES_MAX)


# ----------------------------------------------------------------------------------------------------
# DescribeAcls 1, to find out whether the brokers have an authorizer (KIP-140).
#
# Without one every client may do everything; a broker then responds with SECURITY_DISABLED. With one,
# Sluice's own user
# may have no right to ask, which says as much. ACLs of the cluster are asked for, since these are few.


SECURITY_DISABLED: Final = 54
_DESCRIBE_ACLS: Final = 29

_BYTES_MAX_ACLS: Final = 4 * MIB
_CLUSTER: Final = 4  # the kind of a resource
_ANY: Final = 1


def describe_cluster_acls() -> Request[int]:
    """Return the request; the result is Kafka's error code."""
    asked = admin.DescribeAclsRequest(
        version=_VERSION,
        resource_type_filter=_CLUSTER,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    return Request(_DESCRIBE_ACLS, _VERSION, encode(asked), _read_acls, _BYTES_MAX_ACLS)


def _read_acls(frame: bytes) -> int:
    return int(decode(admin.DescribeAclsResponse, _VERSION, frame).error_code)
