"""Real brokers that replicate through Sluice: their inter-broker listener is advertised at it (KIP-73).

    with ReplicationRig(directory, {"throttled": "reassignments", "leader_rate": "4M"}) as rig:
        rig.create("t", [[1]])
        rig.fill("t", megabytes=40)
        rig.reassign({"t": [[1, 3]]})
        growth = rig.watch("t", broker=3, until_bytes=40_000_000)

One Sluice stands in front of all brokers, so that a follower's rate holds over all its leaders. What a follower has is
read off its log files, so nothing measured depends on Sluice or on the brokers' own counters.
"""

import json
from collections.abc import ItemsView, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as _NewTopic  # type: ignore[attr-defined]  # theirs

from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_ports, tools
from tests.support.growth import Growth, watch
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings

INTERNAL: Final = "INTERNAL"
RECORD_BYTES: Final = 10_000


class ReplicationRig:
    """A cluster and its Sluice.

    Args:
        directory: for Sluice's files.
        replication: the keys of `[replication]`.
        nodes: brokers, ids from 1.
        proxied: False: brokers replicate from each other directly.
        properties: more settings of the brokers.
        listener: more keys of Sluice's listener.
        protocol: security protocol of the brokers' own listener, and its settings.
        sections: more tables of Sluice's configuration.
        cluster_options: more of the brokers' own.
        bootstrap_internal: Sluice asks its questions at the brokers' own listener too.
        listeners: more listeners of the brokers.
        quotas_text: Sluice's quotas file; with one, clients connect to it as well (`sluice.bootstrap`), by the policy
            `schedule` and with one budget for all brokers.
    """

    def __init__(
        self,
        directory: Path,
        replication: Mapping[str, object] | None = None,
        *,
        nodes: int = 3,
        proxied: bool = True,
        properties: Mapping[str, str] | None = None,
        listener: Mapping[str, object] | None = None,
        protocol: str = "PLAINTEXT",
        listener_properties: Mapping[str, str] | None = None,
        sections: Mapping[str, Mapping[str, object]] | None = None,
        cluster_options: Mapping[str, tuple[str, ...]] | None = None,
        bootstrap_internal: bool = False,
        listeners: tuple[Listener, ...] = (),
        quotas_text: str = "",
    ) -> None:
        self.directory = directory
        self.ports = SluicePorts.free()
        self._replication = dict(replication or {})
        self._listener = {"kind": "replication", "name": "brokers", **(listener or {})}
        self._sections = dict(sections or {})
        self._quotas_text = quotas_text
        self._replicates_at = SluicePorts.free() if quotas_text else self.ports
        if quotas_text:
            clients = {"name": "clients", "bind": HOST, "bootstrap_port": self.ports.bootstrap}
            clients |= {"first_broker_port": self.ports.first_broker, "broker_id_max": nodes}
            self._sections["[listeners]"] = clients
            self._listener["first_broker_port"] = self._replicates_at.first_broker
        real = tuple(free_ports(nodes))
        advertised = tuple((HOST, self.front(node)) for node in range(1, nodes + 1))
        own = Listener(
            INTERNAL,
            ports=real,
            advertised=advertised if proxied else (),
            protocol=protocol,
            properties=listener_properties or {},
        )
        self.cluster = Cluster(
            ClusterOptions(
                nodes=nodes,
                listeners=(own, *listeners),
                properties={"inter.broker.listener.name": INTERNAL, **(properties or {})},
                format_arguments=(cluster_options or {}).get("format_arguments", ()),
            )
        )
        self._proxied = proxied
        self._bootstrap_internal = bootstrap_internal
        self.upstreams = {str(node): f"{HOST}:{port}" for node, port in enumerate(real, 1)}
        self._sluice: SluiceProcess | None = None

    def __enter__(self) -> Self:
        try:
            if self._proxied:
                self.start_sluice()
            self.cluster.start()
            if self._sluice is not None:
                self._sluice.wait_ready()
        except BaseException:
            self.stop()
            raise
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap()})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._sluice is not None:
            print(self._sluice.log())
        self.stop()

    def front(self, node: int) -> int:
        """The port at which other brokers reach this one."""
        return self._replicates_at.first_broker + node

    def stop(self) -> None:
        """End brokers and Sluice."""
        self.cluster.stop()
        if self._sluice is not None:
            self._sluice.stop()

    def start_sluice(self) -> None:
        """Start it, or start it again."""
        self._sluice = SluiceProcess.configured(self.settings(), self.directory)

    @property
    def sluice(self) -> SluiceProcess:
        """The one that throttles replication."""
        assert self._sluice is not None, "brokers replicate through a Sluice"
        return self._sluice

    def reconfigure(self, **replication: object) -> None:
        """Change keys of `[replication]`, and wait until they hold."""
        self.settings(**replication).write(self.directory)
        self.sluice.reload()

    def settings(self, **replication: object) -> SluiceSettings:
        """Sluice's configuration, with these keys of `[replication]` changed."""
        self._replication |= replication
        sections: dict[str, Mapping[str, object]] = {
            "listeners.upstreams": self.upstreams,
            "replication": {
                name: value for name, value in self._replication.items() if not isinstance(value, dict)
            },
            **{
                f"replication.{name}": value
                for name, value in self._replication.items()
                if isinstance(value, dict)
            },
            **self._sections,
        }
        return SluiceSettings(
            self.cluster.bootstrap(INTERNAL) if self._bootstrap_internal else self.cluster.bootstrap(),
            self.ports,
            quotas={"policy": "schedule", "scope": "cluster"} if self._quotas_text else {},
            quotas_text=self._quotas_text,
            listener=self._listener,
            sections=sections,
        )

    def create(self, topic: str, assignment: Sequence[Sequence[int]], **configs: str) -> None:
        """Create a topic with these replicas, a list a partition."""
        replicas = [list(brokers) for brokers in assignment]
        new = _NewTopic(topic, len(replicas), replica_assignment=replicas, config=configs)
        for done in self.admin.create_topics([new]).values():
            done.result(30)

    def fill(self, topic: str, megabytes: float, partitions: int = 1, batch_bytes: int = 100_000) -> None:
        """Write records of 10,000 bytes, as much to each partition."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap(),
                "batch.size": batch_bytes,
                "linger.ms": 20,
                "acks": "all",
                "queue.buffering.max.kbytes": 200_000,
                "log_level": 0,  # brokers come and go here
            }
        )
        value = bytes(RECORD_BYTES)
        for number in range(int(megabytes * 1e6 / RECORD_BYTES)):
            for partition in range(partitions):
                producer.produce(topic, value, partition=partition)
            if number % 500 == 0:
                producer.flush()
        assert producer.flush(60) == 0, "every record is written"

    def reassign(
        self, plan: Mapping[str, Sequence[Sequence[int]]], throttle: int | None = None, *words: str
    ) -> str:
        """Begin a reassignment with Kafka's own tool."""
        path = self.directory / "reassignment.json"
        path.write_text(reassignment_json(plan))
        limits = () if throttle is None else ("--throttle", str(throttle))
        return tools.run(
            tools.REASSIGN_PARTITIONS,
            *("--bootstrap-server", self.cluster.bootstrap(), "--reassignment-json-file", str(path)),
            *(words or ("--execute",)),
            *limits,
        )

    def size(self, topic: str, broker: int) -> int:
        """Bytes of a topic in a broker's log files."""
        data = self.cluster.directory / str(broker) / "data"
        total = 0
        for path in data.glob(f"{topic}-*/*.log"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:  # rolled or deleted meanwhile
                continue
        return total

    def watch(self, topic: str, broker: int, until_bytes: int, seconds: float = 120.0) -> Growth:
        """Watch a follower's log grow until it has so much."""
        return watch(lambda: self.size(topic, broker), lambda size: size >= until_bytes, seconds)

    def copied(self, topic: str, broker: int) -> float:
        """How many bytes of a topic Sluice has seen on their way to a broker."""
        name = "sluice_replication_partition_bytes_total"
        return self.sluice.metric(name, topic=topic, broker=str(broker))

    def in_sync(self, topic: str) -> dict[int, set[int]]:
        """The replicas in sync of each partition."""
        return {number: set(one.isrs) for number, one in self.partitions(topic)}

    def partitions(self, topic: str) -> ItemsView[int, Any]:
        """What brokers say of each partition."""
        (description,) = self.admin.list_topics(topic, timeout=10).topics.values()
        return description.partitions.items()


def reassignment_json(plan: Mapping[str, Sequence[Sequence[int]]]) -> str:
    """Kafka's file of a reassignment."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for topic, assignment in plan.items()
        for number, replicas in enumerate(assignment)
    ]
    return json.dumps({"version": 1, "partitions": partitions})
