"""Metadata 12 and DescribeCluster 2: who leads, holds and follows a partition, asked for by Sluice itself.

Topics are asked for by name and come with their ids, so that one that was deleted and created again is told from the
one it was (KIP-516). Brokers that are registered but not alive are "fenced" (KIP-1073): a reassignment may name them.
No question here creates a topic.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from protocol.api import DESCRIBE_CLUSTER, METADATA
from protocol.header import response_body_start
from protocol.messages.metadata_topics import BY_ID_VERSION
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int16,
    int32,
    int32s,
    skip,
    skip_string,
    skip_tags,
    string,
    string_bytes,
)

__all__ = [
    "BROKERS_AND_FENCED",
    "CLUSTER_VERSION",
    "VERSION",
    "ClusterSeen",
    "PartitionSeen",
    "TopicPartitions",
    "read_answer",
    "read_brokers",
    "request_body",
]

VERSION: Final = BY_ID_VERSION
CLUSTER_VERSION: Final = 2
# No authorized operations, brokers and not controllers, fenced ones too, no tags.
BROKERS_AND_FENCED: Final = b"\0\1\1\0"
_OPERATIONS_BYTES: Final = 4


class PartitionSeen(NamedTuple):
    """A partition; the leader is -1 where there is none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicPartitions(NamedTuple):
    """A topic, or why there is none."""

    error_code: int
    topic_id: bytes
    partitions: Mapping[int, PartitionSeen]


class ClusterSeen(NamedTuple):
    """An answer: the brokers that are alive, and the topics that were asked for."""

    live: frozenset[int]
    topics: Mapping[str, TopicPartitions]


def request_body(topics: Sequence[str]) -> bytes:
    """A request's fields: these topics, of any id; nothing is created."""
    named = b"".join(bytes(16) + string_bytes(topic, True) + b"\0" for topic in topics)
    return count_bytes(len(topics), True) + named + bytes(3)


def read_answer(frame: Buffer) -> ClusterSeen:
    """Read a whole answer.

    Raises:
        WireError: it is none.
    """
    end = len(frame)
    pos = skip(response_body_start(frame, 0, end, METADATA, VERSION), 4, end)
    brokers, pos = count(frame, pos, end, True)
    live = set()
    for _ in range(brokers):
        live.add(int32(frame, pos, end))
        pos = skip(skip_string(frame, pos + 4, end, True), 4, end)
        pos = skip_tags(frame, skip_string(frame, pos, end, True), end)
    pos = skip(skip_string(frame, pos, end, True), 4, end)
    topics, pos = count(frame, pos, end, True)
    found: dict[str, TopicPartitions] = {}
    for _ in range(topics):
        error_code = int16(frame, pos, end)
        name, pos = string(frame, pos + 2, end, True)
        after = skip(pos, 16, end)
        topic_id = bytes(frame[pos:after])
        partitions, pos = _partitions(frame, skip(after, 1, end), end)
        pos = skip_tags(frame, skip(pos, _OPERATIONS_BYTES, end), end)
        found[name or ""] = TopicPartitions(error_code, topic_id, partitions)
    return ClusterSeen(frozenset(live), found)


def read_brokers(frame: Buffer) -> tuple[int, frozenset[int]]:
    """The error of a whole DescribeCluster answer, and every registered broker, alive or not.

    Raises:
        WireError: it is none.
    """
    end = len(frame)
    pos = skip(response_body_start(frame, 0, end, DESCRIBE_CLUSTER, CLUSTER_VERSION), 4, end)
    error_code = int16(frame, pos, end)
    # Message; endpoint type; cluster id; controller.
    pos = skip_string(frame, skip(skip_string(frame, pos + 2, end, True), 1, end), end, True)
    brokers, pos = count(frame, skip(pos, 4, end), end, True)
    found = set()
    for _ in range(brokers):
        found.add(int32(frame, pos, end))
        pos = skip(skip_string(frame, pos + 4, end, True), 4, end)
        pos = skip_tags(frame, skip(skip_string(frame, pos, end, True), 1, end), end)
    return error_code, frozenset(found)


def _partitions(frame: Buffer, pos: int, end: int) -> tuple[dict[int, PartitionSeen], int]:
    partitions, pos = count(frame, pos, end, True)
    found = {}
    for _ in range(partitions):
        # Error; index; leader; its epoch. A partition without a leader has an error and is no less there.
        index, leader = int32(frame, skip(pos, 2, end), end), int32(frame, skip(pos, 6, end), end)
        replicas, pos = int32s(frame, skip(pos, 14, end), end, True)
        isr, pos = int32s(frame, pos, end, True)
        _, pos = int32s(frame, pos, end, True)
        pos = skip_tags(frame, pos, end)
        found[index] = PartitionSeen(leader, replicas, isr)
    return found, pos
