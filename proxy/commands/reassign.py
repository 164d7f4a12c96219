"""`sluice reassign estimate`: the moved replicas, the duration, and the necessary throttle (KIP-73).

It changes nothing. The exit code is 0 even if the move would never finish, since the command has succeeded; a warning
says so, which `--format json` has under `warnings`. The other commands of `sluice reassign` are added here.
"""

import argparse
import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, TypeVar

from commandline import amounts
from commandline.arguments import add_format, print_result
from commandline.program import OK
from kafka_client import ASKING_FAILS, Connection, Request, Security, metadata
from proxy.commands import reassign_plan, reassign_status
from proxy.commands.reassign_plan import add_file_arguments, read_reassignment
from proxy.commands.servers import brokers_of, connect_any
from proxy.config import Address
from proxy.config.schema import Rate, number, read_value
from proxy.system.errors import ServerError, UsageError, reason
from quotas.reassignment.estimate import (
    RESPONSE_BYTES,
    WINDOW_SECONDS,
    Estimate,
    Partition,
    Replicated,
    estimate,
)

DESCRIPTION: Final = (
    "Plan reassignments: what a file of kafka-reassign-partitions moves, how long that takes at a throttle, "
    "which throttle a wanted duration needs, and which steps it is carried out in."
)
_LOADS_SHOWN_MAX: Final = 50
_SAMPLE_SECONDS: Final = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `sluice reassign`, its subcommands and their arguments."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "Show what a reassignment moves, how long it takes, and whether it ends."
    command = commands.add_parser("estimate", help=text, description=text)
    command.set_defaults(command=run)
    add_file_arguments(command)
    command.add_argument("--throttle", metavar="BYTES", help="bytes/s of each broker, for example 4M")
    command.add_argument("--duration", metavar="SECONDS", help="suggest a throttle that takes this long")
    command.add_argument("--network", metavar="BYTES", help="network bandwidth of a broker, bytes/s")
    command.add_argument(
        "--sample-seconds",
        metavar="SECONDS",
        default=str(_SAMPLE_SECONDS),
        help="time over which growth is measured",
    )
    add_format(command, json_was=True)
    reassign_plan.add_arguments(commands)
    reassign_status.add_arguments(commands)


def run(options: argparse.Namespace) -> int:
    """Run `sluice reassign estimate`: print what a reassignment moves, and how long it takes; return the exit code."""
    throttle = None if options.throttle is None else read_value("--throttle", Rate, options.throttle)
    network = None if options.network is None else read_value("--network", Rate, options.network)
    duration = (
        None
        if options.duration is None
        else read_value("--duration", Annotated[float, number(1, 1e9)], options.duration)
    )
    sample = read_value("--sample-seconds", Annotated[float, number(0, 3600)], options.sample_seconds)
    plan = read_reassignment(options.reassignment_json_file)
    servers, security = brokers_of(options)
    found = asyncio.run(read_cluster(servers, security, sample))
    check_plan(plan, found.partitions, found.brokers)
    moved = estimate(found.partitions, plan, len(found.brokers))
    report = describe(moved, throttle, duration, network, found.response_bytes)
    print_result(options.format, report, table(report))
    return OK


def check_plan(
    plan: Mapping[Partition, Sequence[int]],
    partitions: Mapping[Partition, Replicated],
    brokers: Mapping[int, object],
) -> None:
    """Check that the cluster has the plan's partitions and brokers.

    Raises:
        UsageError: the cluster lacks a partition, or a broker is not alive.
    """
    unknown = [f"{topic}-{number}" for topic, number in plan if (topic, number) not in partitions]
    if unknown:
        raise UsageError(f"the cluster has no partition {', '.join(unknown[:5])}")
    unknown_brokers = sorted({broker for replicas in plan.values() for broker in replicas} - set(brokers))
    if unknown_brokers:
        raise UsageError(
            f"the cluster has no broker {', '.join(map(str, unknown_brokers[:5]))} that is alive"
        )


def describe(
    moved: Estimate,
    throttle: float | None,
    duration: float | None,
    network: float | None,
    response_bytes: int,
) -> dict[str, object]:
    """Return the estimate as a JSON document.

    Args:
        throttle: the replication throttle in bytes/s; None without one.
        duration: the wanted duration in seconds; None if none was given.
        network: a broker's network throughput in bytes/s; None if it is not known.
        response_bytes: the largest size of a follower's Fetch response.
    """
    lower, upper = moved.bounds(network)
    report: dict[str, object] = {
        "partitions_moved": moved.partitions_moved,
        "partitions": moved.partitions,
        "move_ratio": moved.move_ratio,
        "replicas_added": moved.replicas_added,
        "bytes_moved": moved.size,
        "bytes_in_per_second_max": moved.bytes_in_max,
        "throttle_over": lower,
        "throttle_under": upper,
        "brokers": [
            {"broker": load.broker, "side": load.role, "bytes": load.size, "bytes_in_per_second": load.rate}
            for load in moved.loads
        ],
    }
    if throttle is not None:
        report["throttle"] = throttle
        report["move_time_seconds"] = _finite(moved.move_seconds(throttle))
        report["seconds"] = _finite(moved.seconds(throttle))
        report["response_seconds"] = moved.response_seconds(throttle, response_bytes, network)
    if duration is not None:
        report["duration_seconds"] = duration
        report["suggested_throttle"] = math.ceil(moved.throttle_for(duration))
    report["warnings"] = list(_warnings(moved, throttle, network, response_bytes))
    return report


def _warnings(
    moved: Estimate, throttle: float | None, network: float | None, response_bytes: int
) -> Iterator[str]:
    if throttle is None:
        return
    for load in moved.stuck(throttle)[:_LOADS_SHOWN_MAX]:
        yield (
            f"the move never finishes: broker {load.broker} as a {load.role} gets {amounts.rate(load.rate)} of new "
            f"data for the moved partitions, and the throttle is {amounts.rate(throttle)}"
        )
    lower, upper = moved.bounds(network)
    if throttle <= lower and not moved.stuck(throttle):
        yield f"the throttle is not above the largest inbound rate of a broker, {amounts.rate(lower)} (IN < T)"
    if upper is not None and throttle >= upper:
        yield (
            f"the throttle leaves too little for clients: it should be below {amounts.rate(upper)} (T < N - IN/R)"
        )
    response = moved.response_seconds(throttle, response_bytes, network)
    if response >= WINDOW_SECONDS:
        yield (
            f"the first responses of {amounts.size(response_bytes)} take {amounts.duration(response)}, longer than "
            f"Kafka's windows of {WINDOW_SECONDS:.0f} s: lower replica.fetch.response.max.bytes, or use Sluice's "
            "policy schedule"
        )


def table(report: Mapping[str, object]) -> Iterator[str]:
    """Yield the lines of the estimate for people."""
    for name, (label, written) in _LINES.items():
        if name in report:
            yield f"{label}: {_written(report[name], written)}"
    brokers, warnings = report["brokers"], report["warnings"]
    assert isinstance(brokers, list), "made above"
    assert isinstance(warnings, list), "made above"
    yield f"{'broker':>8} {'side':>9} {'bytes':>10} {'written':>12}"
    for load in brokers[:_LOADS_SHOWN_MAX]:
        moved, grown = amounts.size(load["bytes"]), amounts.rate(load["bytes_in_per_second"])
        yield f"{load['broker']:>8} {load['side']:>9} {moved:>10} {grown:>12}"
    if len(brokers) > _LOADS_SHOWN_MAX:
        yield f"         and {len(brokers) - _LOADS_SHOWN_MAX} more"
    yield from (f"warning: {warning}" for warning in warnings)


def _written(value: object, written: Callable[[float], str]) -> str:
    if value is None:
        return "unknown"
    return written(value) if isinstance(value, int | float) else str(value)


def _share(value: float) -> str:
    return f"{value:.1%}"


# The lines of the text report, in this order: label and format of each amount.
_LINES: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = {
    "partitions_moved": ("partitions moved", str),
    "partitions": ("partitions of the cluster", str),
    "move_ratio": ("move ratio", _share),
    "replicas_added": ("replicas added", str),
    "bytes_moved": ("bytes moved", amounts.size),
    "bytes_in_per_second_max": ("largest inbound rate of a broker", amounts.rate),
    "throttle_over": ("throttle must be above", amounts.rate),
    "throttle_under": ("throttle should be below", amounts.rate),
    "throttle": ("throttle", amounts.rate),
    "move_time_seconds": ("move time by the formula of KIP-73", amounts.duration),
    "seconds": ("move time by brokers", amounts.duration),
    "response_seconds": ("time of the first responses", amounts.duration),
    "duration_seconds": ("wanted duration", amounts.duration),
    "suggested_throttle": ("suggested throttle", amounts.rate),
}


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "never"


# ----------------------------------------------------------------------------------------------------
# The requests to the cluster: one connection per broker, one request at a time. Growth is measured: log sizes are read
# twice, some seconds apart.


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
        broker: await _send(connection, metadata.replica_sizes())
        for broker, connection in connections.items()
    }


async def _response_bytes(connections: Mapping[int, Connection]) -> int:
    """Return the size of the largest Fetch response that a follower asks for, in bytes."""
    largest = 0
    for broker, connection in connections.items():
        request = metadata.describe_brokers((broker,), (_RESPONSE_BYTES_KEY,))
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
