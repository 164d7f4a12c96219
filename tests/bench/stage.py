"""The stage every section plays on: one real broker, the lanes to it, its topics, and progress on the screen."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from tests.bench.lanes import (
    HAPROXY_LISTENER,
    HAPROXY_SASL_LISTENER,
    NODE,
    SIDECAR_LISTENER,
    LanePorts,
    Lanes,
)
from tests.bench.options import Options
from tests.bench.process import Child, module_process
from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_port
from tests.cluster.sasl import SASL_LISTENERS
from tests.support.proxy_process import SluicePorts
from tests.support.waiting import until

_ADMIN_SECONDS: Final = 120.0
_BROKER: Final = {
    # What is deleted between rounds must be gone before the next one is measured.
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "3600000",
    "socket.listen.backlog.size": "1024",
}
_HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class Stage:
    """A running broker and what sections need of it."""

    def __init__(
        self, options: Options, cluster: Cluster, lanes: Lanes, directory: Path, console: Console
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.lanes = lanes
        self.directory = directory
        self.console = console
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap(), "log_level": 2})

    def say(self, text: str) -> None:
        """Show progress."""
        self.console.print(f"[dim]·[/dim] {text}", highlight=False, soft_wrap=True)

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic of one replica and wait until it is there."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        for created in self._admin.create_topics([topic], request_timeout=_ADMIN_SECONDS).values():
            created.result(_ADMIN_SECONDS)

    def wait_for_partitions(self, prefix: str, count: int) -> None:
        """Wait until the broker names that many partitions of the topics with this prefix, all of them led."""

        def led() -> bool:
            topics = self._admin.list_topics(timeout=_ADMIN_SECONDS).topics.items()
            mine = [topic.partitions.values() for name, topic in topics if name.startswith(prefix)]
            return sum(partition.leader >= 0 for partitions in mine for partition in partitions) >= count

        until(led, f"{count} partitions of {prefix}* are there", _ADMIN_SECONDS, pause=0.5)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, so that its segments do not fill the disk."""
        for deleted in self._admin.delete_topics([name], request_timeout=_ADMIN_SECONDS).values():
            deleted.result(_ADMIN_SECONDS)

    def generator(
        self, port: int, topic: str, *more: str, size: int, connections: int
    ) -> AbstractContextManager[Child]:
        """Start a load generator, connected and waiting for orders; `more` are arguments of its own."""
        words = ("--port", port, "--topic", topic, "--size", size, "--connections", connections, *more)
        return module_process("tests.bench.generator", *words, log=self.directory / "generator.log")


@contextmanager
def stage(options: Options, console: Console) -> Iterator[Stage]:
    """Start the broker; its listeners lead to HAProxy and to the sidecar, which are started by those who need them."""
    ports = LanePorts(free_port(), SluicePorts.free(), SluicePorts.free(), SluicePorts.free())
    haproxy = ((HOST, ports.haproxy),)
    listeners = (
        Listener(HAPROXY_LISTENER, advertised=haproxy),
        Listener(SIDECAR_LISTENER, advertised=((HOST, ports.sidecar.first_broker + NODE),)),
        replace(SASL_LISTENERS[0], name=HAPROXY_SASL_LISTENER, advertised=haproxy),
        SASL_LISTENERS[0],
    )
    wanted = ClusterOptions(nodes=1, listeners=listeners, properties=_BROKER, jvm_options=_HEAP)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, Cluster(wanted) as cluster:
        directory = Path(name)
        directory.chmod(0o755)  # the proxy that runs as an ordinary user reads its configuration here
        lanes = Lanes(cluster, ports, directory, capture=options.capture, python=options.python)
        yield Stage(options, cluster, lanes, directory, console)
