"""What `sluice reassign` asks a cluster: who holds which partition, how large it is, and how fast it grows.

One connection a broker, one question at a time. Growth is measured: log sizes are asked for twice, some seconds apart.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_client import ASKING_FAILS, Connection
from protocol.api import METADATA
from protocol.messages import describe_configs, replica_sizes
from proxy.commands.command_config import Security, connect_any
from proxy.config import Address
from proxy.errors import ServerError, reason
from quotas.move_estimate import RESPONSE_BYTES, Partition, Replicated

__all__ = ["Found", "read_cluster"]

_CONNECT_SECONDS_MAX: Final = 10.0
_ANSWER_SECONDS_MAX: Final = 60.0  # of all log directories of a broker
_RESPONSE_BYTES_KEY: Final = "replica.fetch.response.max.bytes"


class Found(NamedTuple):
    """A cluster, as it was read."""

    brokers: Mapping[int, tuple[str, int]]
    partitions: Mapping[Partition, Replicated]
    response_bytes: int


async def read_cluster(servers: Sequence[Address], security: Security, sample_seconds: float) -> Found:
    """Read a whole cluster.

    Raises:
        ServerError: it can not be asked.
    """
    connection = await connect_any(servers, security, _CONNECT_SECONDS_MAX)
    try:
        frame = await _asked(connection, METADATA, replica_sizes.METADATA_VERSION, replica_sizes.ALL_TOPICS)
        brokers, placed = replica_sizes.read_metadata(frame)
    finally:
        connection.close()
    connections = {}
    try:
        for broker, (host, port) in brokers.items():
            connections[broker] = await connect_any([Address(host, port)], security, _CONNECT_SECONDS_MAX)
        first, began = await _sizes(connections), time.monotonic()
        await asyncio.sleep(sample_seconds)
        second, ended = await _sizes(connections), time.monotonic()
        response_bytes = await _response_bytes(connections)
    finally:
        for connection in connections.values():
            connection.close()
    partitions = {}
    for partition, (leader, replicas) in placed.items():
        holder = leader if leader in connections else replicas[0]
        before, after = (sizes.get(holder, {}).get(partition, 0) for sizes in (first, second))
        rate = max(0, after - before) / (ended - began)
        partitions[partition] = Replicated(replicas, leader, after, rate)
    return Found(brokers, partitions, response_bytes)


async def _sizes(connections: Mapping[int, Connection]) -> dict[int, dict[Partition, int]]:
    found = {}
    for broker, connection in connections.items():
        frame = await _asked(
            connection,
            replica_sizes.DESCRIBE_LOG_DIRS,
            replica_sizes.LOG_DIRS_VERSION,
            replica_sizes.ALL_LOG_DIRS,
        )
        found[broker] = replica_sizes.read_log_dirs(frame)
    return found


async def _response_bytes(connections: Mapping[int, Connection]) -> int:
    """The largest answer that any follower asks for."""
    largest = 0
    for broker, connection in connections.items():
        body = describe_configs.request_body(describe_configs.BROKER, (str(broker),), (_RESPONSE_BYTES_KEY,))
        frame = await _asked(connection, describe_configs.DESCRIBE_CONFIGS, describe_configs.VERSION, body)
        for described in describe_configs.read_answer(frame):
            value = described.configs.get(_RESPONSE_BYTES_KEY, "")
            largest = max(largest, int(value) if value.isdecimal() else 0)
    return largest or RESPONSE_BYTES


async def _asked(connection: Connection, api_key: int, version: int, body: bytes) -> bytes:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            return await connection.request(api_key, version, body)
    except ASKING_FAILS as error:
        raise ServerError(f"no response from the cluster: {reason(error, _ANSWER_SECONDS_MAX)}") from error
