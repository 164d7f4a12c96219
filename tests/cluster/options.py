"""What a test cluster is to look like, and the `server.properties` that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.jars import release
from tests.cluster.ports import HOST
from tests.cluster.readiness import Address

CLIENTS: Final = "CLIENTS"
_CONTROLLER: Final = "CONTROLLER"

# One compiler and one collector thread: brokers of tests live for minutes, and three of them are ready in half the time
# and CPU that the full set takes. One that runs out of memory drops single responses and goes on: it is to end instead.
# Benchmarks bring their own.
JVM_OPTIONS: Final = (
    *("-Xms128m", "-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-XX:+ExitOnOutOfMemoryError",
)


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of every broker.

    Args:
        name: in capitals, as Kafka's listener names are.
        ports: one a broker, in the order of node ids; empty: free ones are chosen.
        advertised: where clients are sent, one a broker; empty: to the broker itself.
            A HAProxy or a sidecar stands there, and the listener is only reached through it.
        protocol: Kafka's security protocol.
        properties: the broker's settings for this listener alone, without their prefix.
    """

    name: str
    ports: tuple[int, ...] = ()
    advertised: tuple[Address, ...] = ()
    protocol: str = "PLAINTEXT"
    properties: Mapping[str, str] = field(default_factory=dict)


class Host(NamedTuple):
    """Where a broker runs.

    Args:
        address: what it listens at.
        command: the words that run a command there, as in a network namespace.
    """

    address: str = HOST
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """A KRaft cluster of `nodes` brokers, ids 1 to `nodes`, each also a controller.

    Brokers reach each other, and tests reach them directly, on the listener CLIENTS.

    Args:
        hosts: one a broker, in the order of node ids; empty: all are on loopback.
        kafka: the release of the brokers (`jars.RELEASES`).
        classes: directories of further classes, as of plugins.
    """

    nodes: int = 3
    hosts: tuple[Host, ...] = ()
    listeners: tuple[Listener, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    format_arguments: tuple[str, ...] = ()
    jvm_options: tuple[str, ...] = JVM_OPTIONS
    ready_seconds_max: float = 90.0
    kafka: str = field(default_factory=release)
    classes: tuple[Path, ...] = ()

    def host(self, node: int) -> Host:
        """Return where a broker runs."""
        return self.hosts[node - 1] if self.hosts else Host()


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Where one broker listens: port by listener name, advertised address by listener name."""

    ports: Mapping[str, int]
    advertised: Mapping[str, Address]


def defaults(nodes: int) -> dict[str, str]:
    """Return the properties that fit a small cluster which must be ready soon."""
    replication = str(min(3, nodes))
    in_sync = str(min(2, nodes))
    return {
        "offsets.topic.replication.factor": replication,
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "6",
        "share.coordinator.state.topic.replication.factor": replication,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "6",
        # A group waits this long for more members before its first assignment; tests have all theirs at hand.
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # Two cores for three brokers and everything else.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "num.recovery.threads.per.data.dir": "1",
        # Shutting down must not wait for leadership to move when the others are being shut down too.
        "controlled.shutdown.enable": "true",
        # Every five minutes leaders, and group coordinators with them, would move back to where they were before a test
        # stopped a broker: in the middle of another test.
        "auto.leader.rebalance.enable": "false",
        # The controller writes a record each half second into an idle cluster, which each broker copies and applies: a
        # fifth of what three idle brokers use.
        "metadata.max.idle.interval.ms": "5000",
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "4000",
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
    }


def server_properties(
    node: int, addresses: NodeAddresses, voters: Mapping[int, int], directory: Path, options: ClusterOptions
) -> str:
    """Return one broker's `server.properties`; `voters` are the controllers' ports by node id."""
    controller_port = voters[node]
    protocols = {_CONTROLLER: "PLAINTEXT", CLIENTS: "PLAINTEXT"}
    protocols.update({listener.name: listener.protocol for listener in options.listeners})
    own = options.host(node).address
    listeners = [f"{name}://{own}:{port}" for name, port in addresses.ports.items()]
    advertised = [f"{name}://{host}:{port}" for name, (host, port) in addresses.advertised.items()]
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{voter}@{options.host(voter).address}:{port}" for voter, port in voters.items()
        ),
        "controller.listener.names": _CONTROLLER,
        "inter.broker.listener.name": CLIENTS,
        "listeners": ",".join([*listeners, f"{_CONTROLLER}://{own}:{controller_port}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(":".join(pair) for pair in protocols.items()),
        "log.dirs": str(directory / "data"),
    }
    settings.update(defaults(options.nodes))
    for listener in options.listeners:
        prefix = f"listener.name.{listener.name.lower()}."
        settings.update({prefix + key: value for key, value in listener.properties.items()})
    settings.update(options.properties)
    return "".join(f"{key}={value}\n" for key, value in settings.items())
