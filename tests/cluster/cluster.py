"""A real Kafka cluster in KRaft mode on loopback, for tests, demo and benchmarks.

    with Cluster(ClusterOptions(nodes=3)) as cluster:
        connect_to(cluster.bootstrap())

Brokers write under a temporary directory that is removed when the cluster ends.
They never outlive this process (`processes`).
"""

import re
import secrets
import shutil
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from tests.cluster import processes, readiness
from tests.cluster.jars import LOG4J, class_archive, class_path, java
from tests.cluster.options import CLIENTS, ClusterOptions, Listener, NodeAddresses, server_properties
from tests.cluster.ports import free_ports
from tests.cluster.readiness import Address

# 16 bytes in Kafka's base64; the same always, so that runs can be compared.
CLUSTER_ID: Final = "c2x1aWNlLXRlc3QtY2x1c3"
_FORMAT_SECONDS_MAX: Final = 120
_LOG_BYTES_SHOWN: Final = 4000


class ClusterError(RuntimeError):
    """A broker did not do what it was told; the message holds the end of its log."""


class Cluster:
    """The brokers 1 to N of one cluster; started by `start` or `with`, ended by `stop`."""

    def __init__(self, options: ClusterOptions | None = None) -> None:
        self.options = options or ClusterOptions()
        self.nodes = tuple(range(1, self.options.nodes + 1))
        self.directory = Path(tempfile.mkdtemp(prefix="sluice-kafka-"))
        self._addresses = dict(zip(self.nodes, _addresses(self.options), strict=True))
        self._kafka = dict.fromkeys(self.nodes, self.options.kafka)
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Format every node, start all brokers, and wait until each names all of them."""
        try:
            self._format()
            for node in self.nodes:
                self._launch(node)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all brokers (their data is thrown away, so without ceremony) and remove the directory."""
        for node in list(self._running):
            self.kill_broker(node)
        shutil.rmtree(self.directory, ignore_errors=True)

    def address(self, node: int, listener: str = CLIENTS) -> Address:
        """Return where a broker really listens."""
        return (self.options.host(node).address, self._addresses[node].ports[listener])

    def bootstrap(self, listener: str = CLIENTS) -> str:
        """Return `host:port,...` of all brokers' real addresses, as Kafka's clients want it."""
        return ",".join(
            f"{host}:{port}" for host, port in (self.address(node, listener) for node in self.nodes)
        )

    def process_id(self, node: int) -> int:
        """Return the process id of a running broker."""
        return self._running[node].pid

    def is_running(self, node: int) -> bool:
        """Return whether the broker's process lives."""
        return node in self._running and self._running[node].poll() is None

    def kill_broker(self, node: int) -> None:
        """End one broker as `kill -9` does."""
        processes.kill(self._running.pop(node))

    def stop_broker(self, node: int, *, seconds: float = 40.0) -> int:
        """End one broker as an operator does, leaders move away first; return its exit code, below 0 if killed."""
        return processes.end(self._running.pop(node), seconds=seconds)

    def start_broker(self, node: int, *, wait: bool = True, kafka: str | None = None) -> None:
        """Start one broker again on its old data, and wait until every running broker names it.

        It ends with the thread that starts it.

        Args:
            kafka: another release, at which the broker stays.
        """
        if self.is_running(node):
            raise ClusterError(f"broker {node} is already running")
        self._kafka[node] = kafka or self._kafka[node]
        self._launch(node)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every running broker responds to Metadata with all running brokers in it."""
        wanted = set(self._running)
        deadline = time.monotonic() + self.options.ready_seconds_max
        waiting = set(wanted)
        while waiting:
            for node in sorted(waiting):
                if self._running[node].poll() is not None:
                    raise ClusterError(f"broker {node} ended by itself\n{self.log(node)}")
                if wanted <= _named_by(self.address(node)):
                    waiting.discard(node)
            if waiting and time.monotonic() > deadline:
                logs = "".join(f"--- broker {node}\n{self.log(node)}" for node in sorted(waiting))
                raise ClusterError(f"brokers {sorted(waiting)} are not ready\n{logs}")
            if waiting:
                time.sleep(0.1)

    def log(self, node: int, bytes_max: int = _LOG_BYTES_SHOWN) -> str:
        """Return the end of one broker's log."""
        path = self._log_path(node)
        return path.read_bytes()[-bytes_max:].decode(errors="replace") if path.exists() else ""

    def _log_path(self, node: int) -> Path:
        return self.directory / f"broker-{node}.log"

    def _format(self) -> None:
        """Write each node's properties, and have Kafka format the first one's directory; the others get copies of it.

        They differ in the node's id, and in the directory's, which is random.
        """
        voters = dict(zip(self.nodes, free_ports(len(self.nodes)), strict=True))
        for node in self.nodes:
            home = self.directory / str(node)
            home.mkdir()
            text = server_properties(node, self._addresses[node], voters, home, self.options)
            (home / "server.properties").write_text(text)
        first, *others = self.nodes
        home = self.directory / str(first)
        command = [
            *_java_command(self.options.kafka, "-Xmx128m", "-XX:TieredStopAtLevel=1"),
            "kafka.tools.StorageTool",
            *("format", "--cluster-id", CLUSTER_ID, "--config", str(home / "server.properties")),
            *self.options.format_arguments,
        ]
        if processes.start(command, log=self._log_path(first)).wait(_FORMAT_SECONDS_MAX) != 0:
            raise ClusterError(f"broker {first} could not be formatted\n{self.log(first)}")
        for node in others:
            copied = shutil.copytree(home / "data", self.directory / str(node) / "data")
            properties = copied / "meta.properties"
            text = re.sub(r"(?m)^node\.id=.*", f"node.id={node}", properties.read_text())
            properties.write_text(re.sub(r"(?m)^directory\.id=.*", f"directory.id={_directory_id()}", text))

    def _launch(self, node: int) -> None:
        command = [
            *self.options.host(node).command,
            *_java_command(self._kafka[node], *self.options.jvm_options, classes=self.options.classes),
            "kafka.Kafka",
        ]
        properties = str(self.directory / str(node) / "server.properties")
        self._running[node] = processes.start([*command, properties], log=self._log_path(node))


def _java_command(kafka: str, *options: str, classes: Sequence[Path] = ()) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={LOG4J}"
    path = ":".join((class_path(kafka), *map(str, classes)))
    return [java(), *class_archive(kafka), *options, logging, "-cp", path]


def _directory_id() -> str:
    """Return a random id as Kafka writes it: 16 bytes in base64, which do not begin with a hyphen."""
    return "A" + urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]


def _named_by(address: Address) -> set[int]:
    try:
        return set(readiness.brokers(address))
    except (OSError, ValueError):
        return set()


def _addresses(options: ClusterOptions) -> Iterator[NodeAddresses]:
    listeners = (Listener(CLIENTS), *options.listeners)
    ports = {listener.name: listener.ports or tuple(free_ports(options.nodes)) for listener in listeners}
    for listener in listeners:
        for given in (ports[listener.name], listener.advertised or ports[listener.name]):
            if len(given) != options.nodes:
                raise ValueError(
                    f"listener {listener.name}: {len(given)} addresses for {options.nodes} brokers"
                )
    for index in range(options.nodes):
        host = options.host(index + 1).address
        own = {name: of_nodes[index] for name, of_nodes in ports.items()}
        advertised = {
            listener.name: listener.advertised[index] if listener.advertised else (host, own[listener.name])
            for listener in listeners
        }
        yield NodeAddresses(own, advertised)
