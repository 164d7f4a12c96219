"""Topic mutations and their responses as whole frames, encoded by kafka-python (KIP-599)."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, METADATA
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, Message, decoded, framed, struct

TOPIC_ID: Final = uuid.UUID(int=77)
NO_ID: Final = uuid.UUID(int=0)
EXCEEDED: Final = 89
_ENTRY: Final = {
    CREATE_TOPICS: ("topics", "CreatableTopicResult"),
    CREATE_PARTITIONS: ("results", "CreatePartitionsTopicResult"),
    DELETE_TOPICS: ("responses", "DeletableTopicResult"),
}


def create(
    version: int,
    topics: Mapping[str, int] | Sequence[tuple[str, int]],
    *,
    validate_only: bool = False,
    correlation_id: int = 1,
    client_id: str = "a",
) -> bytes:
    """CreateTopics, by name and number of partitions."""
    pairs = list(topics.items()) if isinstance(topics, Mapping) else list(topics)
    entries = []
    for name, partitions in pairs:
        entry = struct(REQUESTS[CREATE_TOPICS], version, "CreatableTopic")
        entry.name, entry.num_partitions, entry.replication_factor = name, partitions, 1
        entry.assignments, entry.configs = [], []  # kafka-python's own defaults are shared
        entries.append(entry)
    fields = {"validate_only": validate_only} if version >= 1 else {}
    message = REQUESTS[CREATE_TOPICS][version](topics=entries, timeout_ms=30_000, **fields)
    return framed(message, correlation_id, client_id)


def assigned(version: int, name: str, partitions: int, *, correlation_id: int = 1) -> bytes:
    """CreateTopics of one topic whose replicas are assigned by hand."""
    entry = struct(REQUESTS[CREATE_TOPICS], version, "CreatableTopic")
    entry.name, entry.num_partitions, entry.replication_factor = name, -1, -1
    entry.assignments, entry.configs = [], []
    for index in range(partitions):
        replicas = struct(REQUESTS[CREATE_TOPICS], version, "CreatableReplicaAssignment")
        replicas.partition_index, replicas.broker_ids = index, [1, 2, 3]
        entry.assignments.append(replicas)
    message = REQUESTS[CREATE_TOPICS][version](topics=[entry], timeout_ms=30_000, validate_only=False)
    return framed(message, correlation_id, "a")


def grow(version: int, topics: Mapping[str, int], *, correlation_id: int = 1) -> bytes:
    """CreatePartitions, by name and new total."""
    entries = []
    for name, total in topics.items():
        entry = struct(REQUESTS[CREATE_PARTITIONS], version, "CreatePartitionsTopic")
        entry.name, entry.count, entry.assignments = name, total, None
        entries.append(entry)
    message = REQUESTS[CREATE_PARTITIONS][version](topics=entries, timeout_ms=30_000, validate_only=False)
    return framed(message, correlation_id, "a")


def delete(version: int, topics: Sequence[str | uuid.UUID], *, correlation_id: int = 1) -> bytes:
    """DeleteTopics, by name or id."""
    if version < 6:
        message = REQUESTS[DELETE_TOPICS][version](topic_names=list(topics), timeout_ms=30_000)
        return framed(message, correlation_id, "a")
    entries = []
    for topic in topics:
        entry = struct(REQUESTS[DELETE_TOPICS], version, "DeleteTopicState")
        by_id = isinstance(topic, uuid.UUID)
        entry.name, entry.topic_id = (None, topic) if by_id else (topic, NO_ID)
        entries.append(entry)
    message = REQUESTS[DELETE_TOPICS][version](topics=entries, timeout_ms=30_000)
    return framed(message, correlation_id, "a")


def mutation_response(
    api_key: int,
    version: int,
    topics: Sequence[tuple[str | None, int]],
    *,
    partitions: int = -1,
    throttle_ms: int = 0,
    correlation_id: int = 1,
    topic_id: uuid.UUID = NO_ID,
) -> bytes:
    """A broker's response, by name and error code."""
    array, kind = _ENTRY[api_key]
    entries = []
    for name, error_code in topics:
        entry = struct(RESPONSES[api_key], version, kind)
        entry.name, entry.error_code = name, error_code
        if api_key == CREATE_TOPICS:
            entry.num_partitions, entry.configs = partitions, []
        if api_key != CREATE_PARTITIONS:
            entry.topic_id = topic_id
        entries.append(entry)
    message = RESPONSES[api_key](version=version, **{array: entries})
    message.throttle_time_ms = throttle_ms
    return framed(message, correlation_id)


def errors(api_key: int, version: int, frame: bytes) -> tuple[list[tuple[str | None, int]], int]:
    """Each topic's name and error code in a response, and its throttle time (0 where it has none)."""
    message = decoded(RESPONSES[api_key], version, frame)
    entries = getattr(message, _ENTRY[api_key][0])
    return [(entry.name, entry.error_code) for entry in entries], message.throttle_time_ms or 0


def sizes(version: int, topics: Mapping[str, int], *, correlation_id: int = 1) -> bytes:
    """A Metadata response with topics of these sizes; 0 partitions: an unknown topic."""
    entries = []
    for name, partitions in topics.items():
        entry = struct(RESPONSES[METADATA], version, "MetadataResponseTopic")
        entry.name, entry.error_code = name, 0 if partitions else 3
        entry.topic_id, entry.partitions = TOPIC_ID, []
        for index in range(partitions):
            one = struct(RESPONSES[METADATA], version, "MetadataResponsePartition")
            one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes = index, 1, [1, 2], [1]
            entry.partitions.append(one)
        entries.append(entry)
    message: Message = RESPONSES[METADATA](version=version, brokers=[], topics=entries)
    return framed(message, correlation_id)
