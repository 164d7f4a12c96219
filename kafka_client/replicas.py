"""DescribeLogDirs 1 and ElectLeaders 1: the sizes of replicas, and preferred leader elections (KIP-113, KIP-183).

A broker only describes its own log directories; replicas that move between directories of a broker ("future") are left
out. Unclean elections are never requested: they lose records.
"""

from collections.abc import Sequence
from typing import Final

from kafka_client.codec import admin, decode, encode
from kafka_client.request import MIB, Request
from protocol.api import DESCRIBE_LOG_DIRS, ELECT_LEADERS

__all__ = ["Partition", "elect_preferred", "replica_sizes"]

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
