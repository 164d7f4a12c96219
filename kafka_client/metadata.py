"""Requests about the cluster: brokers, topics with their partitions, configs, replicas, reassignments, ACLs.

Metadata (KIP-4, KIP-516) creates no topics: version 1 for the brokers only, which every broker since 0.10 supports; 2
with the cluster's id, since 0.10.1; 12 for topics, the first in which brokers look up topics by id. Topics are
requested in chunks of 250 (`chunks`). ApiVersions 5 (KIP-1242) has a broker since 4.4 say whether it is a certain node
of a certain cluster. DescribeCluster 2 (KIP-1073) has the registered brokers. DescribeConfigs 1 (KIP-133, KIP-73) has a
few dynamic configs; synonyms are not requested: a value is the one in force, which is a broker's own config or else the
cluster's default. DescribeLogDirs 1 (KIP-113) has the sizes of replicas, 5 (KIP-1066) whether directories are cordoned;
ElectLeaders 1 (KIP-183) elects preferred leaders. The messages about reassignments (KIP-455) are those of `protocol`,
since Sluice also handles them for clients. DescribeAcls 1 (KIP-140) shows whether the brokers have an authorizer.

Non-obvious:

- A broker describes only its own configs and its own log directories. Replicas that move between directories of a
  broker ("future") are left out.
- Unclean elections are never requested: they lose records.
- Without an authorizer every client may do everything; a broker then responds with SECURITY_DISABLED. With one,
  Sluice's own user may have no right to ask, which says as much. ACLs of the cluster are asked for: these are few.
"""

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafka.protocol import admin
from kafka.protocol import metadata as messages

from kafka_client.request import KIB, MIB, Request, request_of
from protocol.api import ALTER_PARTITION_REASSIGNMENTS, API_VERSIONS, LIST_PARTITION_REASSIGNMENTS
from protocol.messages import api_versions, reassignments
from protocol.messages.reassignments import AlterRequest, AlterResponse, Reassignments, Stepping, Target

_BROKERS_VERSION: Final = 1
_CLUSTER_ID_VERSION: Final = 2
_IDENTIFYING_VERSION: Final = 5
_TOPICS_VERSION: Final = 12
_CLUSTER_VERSION: Final = 2
_CORDONED_VERSION: Final = 5
_ADMIN_VERSION: Final = 1  # of DescribeConfigs, DescribeLogDirs, ElectLeaders and DescribeAcls

_BROKERS_BYTES_MAX: Final = 2 * MIB  # 10,000 brokers with names of 150 characters
# 250 topics (`chunks`) with 800 partitions each; decoded, it takes 20 times as much memory.
_TOPICS_BYTES_MAX: Final = 8 * MIB
_EVERYTHING_BYTES_MAX: Final = 16 * MIB
_CLUSTER_BYTES_MAX: Final = MIB
_CONFIGS_BYTES_MAX: Final = 8 * MIB  # a list of throttled replicas has up to 32 kB
_VERSIONS_BYTES_MAX: Final = 64 * KIB
_LOG_DIRS_BYTES_MAX: Final = 16 * MIB
_CORDONED_BYTES_MAX: Final = 256 * KIB
_ELECT_BYTES_MAX: Final = 4 * MIB
_LIST_BYTES_MAX: Final = 8 * MIB
_ALTER_BYTES_MAX: Final = 4 * MIB
_ACLS_BYTES_MAX: Final = 4 * MIB

SECURITY_DISABLED: Final = 54
_ENDPOINTS_OF_BROKERS: Final = 1
_NO_ID: Final = bytes(16)
_TOPIC_CONFIGS: Final = 2
_BROKER_CONFIGS: Final = 4
_PREFERRED: Final = 0
_ELECTION_NOT_NEEDED: Final = 84
_CLUSTER_ACLS: Final = 4
_ANY: Final = 1

Partition = tuple[str, int]


class Broker(NamedTuple):
    """A broker's id and address as another broker returns them; the values are not validated."""

    broker: int
    host: str
    port: int


class ClusterBrokers(NamedTuple):
    """A cluster's id, "" if the broker does not tell it, and its brokers that are alive."""

    cluster_id: str
    brokers: Sequence[Broker]


class PartitionMetadata(NamedTuple):
    """A partition's leader (-1 if there is none), replicas and in-sync replicas, as broker ids."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicPartitions(NamedTuple):
    """A topic with its partitions, or the error code that the broker has returned for it."""

    error_code: int
    topic_id: bytes
    partitions: Mapping[int, PartitionMetadata]


class ClusterMetadata(NamedTuple):
    """The brokers that are alive, and the requested topics with their partitions."""

    brokers: Sequence[Broker]
    topics: Mapping[str, TopicPartitions]

    @property
    def live(self) -> frozenset[int]:
        """The ids of the brokers that are alive."""
        return frozenset(broker.broker for broker in self.brokers)


class TopicMetadata(NamedTuple):
    """A topic's name and id as a broker knows them; the name is None or "" if the broker does not know the id."""

    error_code: int
    name: str | None
    topic_id: bytes


class Described(NamedTuple):
    """The configs of one topic or broker by name, without those that have no value."""

    error_code: int
    name: str
    configs: Mapping[str, str]


# Brokers, and topics with their partitions.


def brokers() -> Request[list[Broker]]:
    """Return the Metadata request for the brokers that are alive, without topics."""
    asked = messages.MetadataRequest(version=_BROKERS_VERSION, topics=[])
    return request_of(asked, messages.MetadataResponse, _brokers, _BROKERS_BYTES_MAX)


def cluster_brokers() -> Request[ClusterBrokers]:
    """Return the Metadata request for the cluster's id and the brokers that are alive, without topics."""
    asked = messages.MetadataRequest(version=_CLUSTER_ID_VERSION, topics=[])
    return request_of(asked, messages.MetadataResponse, _cluster_brokers, _BROKERS_BYTES_MAX)


def identify(software_version: str, cluster_id: str, node_id: int) -> Request[bool]:
    """Return the ApiVersions request whose response is False if the broker is not this node of this cluster (KIP-1242).

    Brokers before 4.4 do not check it: they respond with UNSUPPORTED_VERSION, which is decoded into True.
    """
    body = api_versions.identifying_body(software_version, cluster_id, node_id)
    return Request(API_VERSIONS, _IDENTIFYING_VERSION, body, _identified, _VERSIONS_BYTES_MAX)


def all_topics() -> Request[ClusterMetadata]:
    """Return the Metadata request for all topics with their partitions, in a version without topic ids."""
    asked = messages.MetadataRequest(version=_BROKERS_VERSION, topics=None)
    return request_of(asked, messages.MetadataResponse, _cluster, _EVERYTHING_BYTES_MAX)


def partitions(topics: Sequence[str], version: int = _TOPICS_VERSION) -> Request[ClusterMetadata]:
    """Return the Metadata request for these topics with their partitions; before version 12 topic ids are zeros."""
    asked = _asked(topics, version)
    return request_of(asked, messages.MetadataResponse, _cluster, _TOPICS_BYTES_MAX)


def topics_by_name(names: Sequence[str]) -> Request[list[TopicMetadata]]:
    """Return the Metadata request that finds topics' ids by their names."""
    return request_of(_asked(names), messages.MetadataResponse, _topics, _TOPICS_BYTES_MAX)


def topics_by_id(topic_ids: Sequence[bytes]) -> Request[list[TopicMetadata]]:
    """Return the Metadata request that finds topics' names by their ids."""
    return request_of(_asked(topic_ids), messages.MetadataResponse, _topics, _TOPICS_BYTES_MAX)


def registered_brokers() -> Request[tuple[int, frozenset[int]]]:
    """Return the DescribeCluster request for every registered broker, alive or fenced (Kafka 4.0).

    Its response is decoded into the error code and the brokers' ids.
    """
    asked = admin.DescribeClusterRequest(
        version=_CLUSTER_VERSION,
        include_cluster_authorized_operations=False,
        endpoint_type=_ENDPOINTS_OF_BROKERS,
        include_fenced_brokers=True,
    )
    return request_of(asked, admin.DescribeClusterResponse, _registered, _CLUSTER_BYTES_MAX)


def _asked(topics: Sequence[str] | Sequence[bytes], version: int = _TOPICS_VERSION) -> Any:
    """Return kafka-python's Metadata request for topics by name, or by id (bytes)."""
    kind = messages.MetadataRequest.MetadataRequestTopic
    return messages.MetadataRequest(
        version=version,
        topics=[
            kind(name=topic) if isinstance(topic, str) else kind(topic_id=uuid.UUID(bytes=topic), name=None)
            for topic in topics
        ],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def _brokers(response: Any) -> list[Broker]:
    return [Broker(one.node_id, one.host or "", one.port) for one in response.brokers or ()]


def _cluster_brokers(response: Any) -> ClusterBrokers:
    return ClusterBrokers(response.cluster_id or "", _brokers(response))


def _identified(frame: bytes) -> bool:
    return api_versions.error_code(frame) != api_versions.REBOOTSTRAP_REQUIRED


def _topics(response: Any) -> list[TopicMetadata]:
    return [TopicMetadata(one.error_code, one.name, _id_of(one)) for one in response.topics or ()]


def _cluster(response: Any) -> ClusterMetadata:
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
    return ClusterMetadata(_brokers(response), topics)


def _id_of(topic: Any) -> bytes:
    """Return a topic's id, 16 bytes; zeros if it has none, which kafka-python returns as None."""
    return topic.topic_id.bytes if topic.topic_id is not None else _NO_ID


def _registered(response: Any) -> tuple[int, frozenset[int]]:
    return response.error_code, frozenset(broker.broker_id for broker in response.brokers or ())


# Configs.


def describe_topics(names: Sequence[str], keys: Sequence[str]) -> Request[list[Described]]:
    """Return the DescribeConfigs request for the configs `keys` of topics."""
    return _describe(_TOPIC_CONFIGS, names, keys)


def describe_brokers(brokers: Sequence[int], keys: Sequence[str]) -> Request[list[Described]]:
    """Return the DescribeConfigs request for the configs `keys` of brokers."""
    return _describe(_BROKER_CONFIGS, [str(broker) for broker in brokers], keys)


def _describe(kind: int, names: Sequence[str], keys: Sequence[str]) -> Request[list[Described]]:
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    asked = admin.DescribeConfigsRequest(
        version=_ADMIN_VERSION,
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
        ],
        include_synonyms=False,
    )
    return request_of(asked, admin.DescribeConfigsResponse, _described, _CONFIGS_BYTES_MAX)


def _described(response: Any) -> list[Described]:
    found = []
    for one in response.results or ():
        values = {config.name: config.value for config in one.configs or () if config.value is not None}
        values.pop(None, None)
        found.append(Described(one.error_code, one.resource_name or "", values))
    return found


# The sizes of replicas, and elections of leaders.


def replica_sizes() -> Request[dict[Partition, int]]:
    """Return the DescribeLogDirs request for the size in bytes of each replica on the broker that receives it."""
    asked = admin.DescribeLogDirsRequest(version=_ADMIN_VERSION, topics=None)
    return request_of(asked, admin.DescribeLogDirsResponse, _sizes, _LOG_DIRS_BYTES_MAX)


def is_cordoned() -> Request[bool]:
    """Return the DescribeLogDirs request that asks a broker whether all its log directories are cordoned (KIP-1066).

    Brokers before 4.3 close the connection.
    """
    asked = admin.DescribeLogDirsRequest(version=_CORDONED_VERSION, topics=[])
    return request_of(asked, admin.DescribeLogDirsResponse, _is_cordoned, _CORDONED_BYTES_MAX)


def elect_preferred(
    partitions: Sequence[Partition], timeout_ms: int
) -> Request[tuple[int, dict[Partition, tuple[int, str]]]]:
    """Return the ElectLeaders request that makes each partition's preferred replica its leader.

    Its response is decoded into the error code of the whole request, and an error code and message by partition. The
    code is 0 also for a partition whose preferred replica was the leader already.
    """
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    kind = admin.ElectLeadersRequest.TopicPartitions
    asked = admin.ElectLeadersRequest(
        version=_ADMIN_VERSION,
        election_type=_PREFERRED,
        topic_partitions=[kind(topic=name, partitions=indexes) for name, indexes in topics.items()],
        timeout_ms=timeout_ms,
    )
    return request_of(asked, admin.ElectLeadersResponse, _elected, _ELECT_BYTES_MAX)


def _sizes(response: Any) -> dict[Partition, int]:
    return {
        (topic.name or "", one.partition_index): max(one.partition_size, 0)
        for directory in response.results or ()  # a failed directory lists no topics
        for topic in directory.topics or ()
        for one in topic.partitions or ()
        if not one.is_future_key
    }


def _is_cordoned(response: Any) -> bool:
    directories = [directory for directory in response.results or () if not directory.error_code]
    return bool(directories) and all(directory.is_cordoned for directory in directories)


def _elected(response: Any) -> tuple[int, dict[Partition, tuple[int, str]]]:
    found = {}
    for topic in response.replica_election_results or ():
        for one in topic.partition_result or ():
            code = 0 if one.error_code == _ELECTION_NOT_NEEDED else one.error_code
            found[topic.topic or "", one.partition_id] = (code, one.error_message or "")
    return response.error_code, found


# Reassignments.


def list_ongoing() -> Request[Reassignments]:
    """Return the ListPartitionReassignments request for all reassignments under way."""
    return Request(
        LIST_PARTITION_REASSIGNMENTS,
        reassignments.VERSION,
        reassignments.EVERYTHING,
        reassignments.read_list_response,
        _LIST_BYTES_MAX,
    )


def list_batches() -> Request[tuple[Reassignments, Mapping[Partition, Stepping]]]:
    """Return the request to a Sluice proxy for all reassignments, and for the step of each under way (KIP-435)."""
    return Request(
        LIST_PARTITION_REASSIGNMENTS,
        reassignments.BATCH_VERSION,
        reassignments.EVERYTHING,
        reassignments.read_batch,
        _LIST_BYTES_MAX,
    )


def alter(targets: Mapping[Partition, Target], timeout_ms: int) -> Request[AlterResponse]:
    """Return the AlterPartitionReassignments request; a target of None cancels the partition's reassignment."""
    version = reassignments.VERSION
    body = reassignments.request_body(AlterRequest(timeout_ms, True, list(targets.items())), version)
    read = partial(reassignments.read_alter_response, version=version)
    return Request(ALTER_PARTITION_REASSIGNMENTS, version, body, read, _ALTER_BYTES_MAX)


# ACLs.


def describe_cluster_acls() -> Request[int]:
    """Return the DescribeAcls request for the ACLs of the cluster, of whose response only the error code is used."""
    asked = admin.DescribeAclsRequest(
        version=_ADMIN_VERSION,
        resource_type_filter=_CLUSTER_ACLS,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    return request_of(
        asked, admin.DescribeAclsResponse, lambda response: int(response.error_code), _ACLS_BYTES_MAX
    )
