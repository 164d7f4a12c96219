"""The requests of `sluice reassign` to a cluster: replicas, sizes and growth of partitions.

One connection per broker, one request at a time. Growth is measured: log sizes are read twice, some seconds apart.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kafka_client import (
    ASKING_FAILS,
    Connection,
    Request,
    metadata,
)
from kafka_client import (
    metadata as configs,
)
from kafka_client import (
    metadata as replicas,
)
from proxy.commands.command_config import Security, connect_any
from proxy.config import Address
from proxy.system.errors import ServerError, reason
from quotas.reassignment.estimate import RESPONSE_BYTES, Partition, Replicated

T = TypeVar("T")

_CONNECT_SECONDS_MAX: Final = 10.0
_RESPONSE_SECONDS_MAX: Final = 60.0  # of all log directories of a broker
_RESPONSE_BYTES_KEY: Final = "replica.fetch.response.max.bytes"


class ClusterSnapshot(NamedTuple):
    """The state of a cluster: the brokers' addresses, all partitions, and the size of a follower's Fetch response."""

    brokers: Mapping[int, tuple[str, int]]
    partitions: Mapping[Partition, Replicated]
    response_bytes: int


async def read_cluster(
    servers: Sequence[Address], security: Security, sample_seconds: float
) -> ClusterSnapshot:
    """Read the state of a cluster; log sizes are read twice, `sample_seconds` apart.

    Raises:
        ServerError: the cluster does not respond.
    """
    connection = await connect_any(servers, security, _CONNECT_SECONDS_MAX)
    try:
        cluster = await _send(connection, metadata.all_topics())
    finally:
        connection.close()
    connections = {}
    try:
        for broker, host, port in cluster.brokers:
            connections[broker] = await connect_any([Address(host, port)], security, _CONNECT_SECONDS_MAX)
        first, began = await _sizes(connections), time.monotonic()
        await asyncio.sleep(sample_seconds)
        second, ended = await _sizes(connections), time.monotonic()
        response_bytes = await _response_bytes(connections)
    finally:
        for connection in connections.values():
            connection.close()
    partitions = {}
    for topic, its in cluster.topics.items():
        for index, one in its.partitions.items():
            holder = one.leader if one.leader in connections else one.replicas[0]
            before, after = (sizes.get(holder, {}).get((topic, index), 0) for sizes in (first, second))
            rate = max(0, after - before) / (ended - began)
            partitions[topic, index] = Replicated(one.replicas, one.leader, after, rate)
    brokers = {broker: (host, port) for broker, host, port in cluster.brokers}
    return ClusterSnapshot(brokers, partitions, response_bytes)


async def _sizes(connections: Mapping[int, Connection]) -> dict[int, dict[Partition, int]]:
    return {
        broker: await _send(connection, replicas.replica_sizes())
        for broker, connection in connections.items()
    }


async def _response_bytes(connections: Mapping[int, Connection]) -> int:
    """Return the largest Fetch response that a follower asks for."""
    largest = 0
    for broker, connection in connections.items():
        request = configs.describe_brokers((broker,), (_RESPONSE_BYTES_KEY,))
        for described in await _send(connection, request):
            value = described.configs.get(_RESPONSE_BYTES_KEY, "")
            largest = max(largest, int(value) if value.isdecimal() else 0)
    return largest or RESPONSE_BYTES


async def _send(connection: Connection, request: Request[T]) -> T:
    try:
        async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
            return request.read(await connection.send(request))
    except ASKING_FAILS as error:
        raise ServerError(f"no response from the cluster: {reason(error, _RESPONSE_SECONDS_MAX)}") from error
