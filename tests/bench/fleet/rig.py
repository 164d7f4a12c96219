"""Members with workers in front of three brokers, what is counted between them, and what can happen to each.

Each broker has a relay before it that notes what was let through. The records are on one broker; the group of the
holder is coordinated by another, which may end without Kafka's own part of the path. It does not judge.
"""

import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.accuracy.relay import read_events, relayed
from tests.bench.fleet.bound import Life
from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_port, free_ports
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings, fleet_secret
from tests.support.waiting import until

GROUP: Final = "__sluice"
_LISTENER: Final = "COUNTED"
_EVENTS: Final = "events-{}.txt"  # of a broker
_ADMIN_SECONDS: Final = 60.0
_KNOWN_SECONDS: Final = 90.0
_NOTICED_SECONDS: Final = 1.0  # how much later than it began a process is seen, at most
_RETENTION_BYTES: Final = 4_000_000_000


@dataclass(eq=False)
class Member:
    """One member's processes, over all of its starts.

    Attributes:
        lives: of its processes that relay, by process id: when each began and ended.
    """

    settings: SluiceSettings
    directory: Path
    workers: int
    process: SluiceProcess | None = None
    lives: dict[int, list[float]] = field(default_factory=dict)

    @property
    def running(self) -> SluiceProcess:
        """Its process now."""
        assert self.process is not None, "it was started"
        return self.process

    def start(self) -> None:
        """Start it; do not wait."""
        self.directory.mkdir(exist_ok=True)
        self.process = SluiceProcess.configured(self.settings, self.directory)

    def relaying(self) -> dict[int, int]:
        """Return the ids of the processes that relay now, by number of the worker."""
        if self.workers == 1:
            return {1: self.running.process_id}
        text = self.running.log(1 << 24)
        found = re.findall(r"worker ready worker=(\d+) pid=(\d+)", text)
        return {int(number): int(pid) for number, pid in found}

    def look(self, now: float) -> None:
        """Note which processes have come and gone."""
        for pid in self.relaying().values():
            self.lives.setdefault(pid, [now - _NOTICED_SECONDS, float("inf")])
        for pid, life in self.lives.items():
            if life[1] == float("inf") and not _alive(pid):
                life[1] = now

    def kill_worker(self, number: int) -> None:
        """Kill a worker, `kill -9`: that with this number, or the next that runs."""
        alive = [pid for _, pid in sorted(self.relaying().items()) if _alive(pid)]
        os.kill(alive[number % len(alive)], signal.SIGKILL)

    def kill(self) -> None:
        """Kill all its processes."""
        if self.process is not None:
            self.process.kill()

    def signal(self, number: signal.Signals, *, workers: bool) -> None:
        """Send a signal to its control process, or to all its processes."""
        (os.killpg if workers else os.kill)(self.running.process_id, number)


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


class Rig:
    """The cluster, its relays, the members.

    Attributes:
        data_node: the broker that has the records.
        members: all of them.
    """

    def __init__(self, cluster: Cluster, directory: Path, members: Sequence[Member]) -> None:
        self.cluster = cluster
        self.directory = directory
        self.members = members
        self.data_node = 0
        self.coordinator = 0
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap(), "log_level": 0})

    def holder(self) -> Member:
        """Return the member that holds."""
        for member in self.members:
            member.running.wait_ready(_KNOWN_SECONDS)
        holders: list[Member] = []

        def one_holds() -> bool:
            holders[:] = [
                member for member in self.members if member.running.metric("sluice_fleet_holder") > 0
            ]
            return len(holders) == 1

        until(one_holds, "one member holds", _KNOWN_SECONDS, pause=0.5)
        return holders[0]

    def other(self) -> Member:
        """Return a member that does not hold."""
        holder = self.holder()
        return next(member for member in self.members if member is not holder)

    def settle(self) -> None:
        """Wait until all members have their shares, and know who coordinates them."""
        self.holder()
        until(
            lambda: not any(member.running.document("/fleet")["learning"] for member in self.members),
            "the holder ends to learn",
            _KNOWN_SECONDS,
            pause=0.5,
        )
        described = self._admin.describe_consumer_groups([GROUP])[GROUP].result(_ADMIN_SECONDS)
        self.coordinator = int(described.coordinator.id)
        self.data_node = next(node for node in self.cluster.nodes if node != self.coordinator)

    def create_topic(self, name: str, *, copies: int) -> None:
        """Create a topic of one partition on the broker of the records; a second copy is not at the coordinator's."""
        others = [node for node in self.cluster.nodes if node not in (self.data_node, self.coordinator)]
        replicas = [self.data_node, *others][:copies]
        topic = NewTopic(
            name,
            num_partitions=1,
            replica_assignment=[replicas],
            config={"retention.bytes": str(_RETENTION_BYTES)},
        )
        for created in self._admin.create_topics([topic], request_timeout=_ADMIN_SECONDS).values():
            created.result(_ADMIN_SECONDS)

    def look(self) -> None:
        """Note which processes have come and gone."""
        for member in self.members:
            member.look(time.monotonic())

    def lives(self) -> list[Life]:
        """Return when each process that relays began and ended."""
        return [(began, ended) for member in self.members for began, ended in member.lives.values()]

    def events(self, client_id: str) -> list[tuple[float, float, int]]:
        """Return what the relays noted: when its first byte passed, its last one, and its size."""
        return noted(self.directory, client_id)


def noted(directory: Path, client_id: str) -> list[tuple[float, float, int]]:
    """Return what the relays of `counted_cluster` noted of a client: first byte, last byte, and size."""
    found = (each for path in directory.glob(_EVENTS.format("*")) for _, each in read_events(path, client_id))
    return sorted((each.began, each.ended, each.size) for each in found)


@contextmanager
def counted_cluster(directory: Path) -> Iterator[tuple[Cluster, str]]:
    """Start three brokers with a relay before each; yield them, and the relays' addresses."""
    relays = free_ports(3)
    advertised = tuple((HOST, port) for port in relays)
    wanted = ClusterOptions(nodes=3, listeners=(Listener(_LISTENER, advertised=advertised),))
    with Cluster(wanted) as cluster, ExitStack() as stack:
        for node, port in zip(cluster.nodes, relays, strict=True):
            events = directory / _EVENTS.format(node)
            stack.enter_context(relayed(port, cluster.address(node, _LISTENER)[1], events, "--admitted"))
        yield cluster, ",".join(f"{HOST}:{port}" for port in relays)


@contextmanager
def rig(directory: Path, *, members: int, workers: int, **quotas: Any) -> Iterator[Rig]:
    """Start everything for the time of a `with` block; `quotas` are fields of the members' settings."""
    with counted_cluster(directory) as (cluster, relays), ExitStack() as stack:
        settings = SluiceSettings(relays, quotas={"policy": "schedule", "scope": "cluster"}, **quotas)
        secret = fleet_secret(directory)  # as the README has it; without one no holder believes a commit
        made = []
        for number in range(members):
            fleet: dict[str, object] = {"name": f"m{number}", "members_max": members, "secret_file": secret}
            fleet["bind"] = f"{HOST}:{free_port()}"
            sections: dict[str, dict[str, object]] = {"process": {"workers": workers}, "fleet": fleet}
            own = replace(settings, ports=SluicePorts.free(), sections=sections)
            made.append(Member(own, directory / f"m{number}", workers))
            stack.callback(made[-1].kill)
        for member in made:
            member.start()
        yield Rig(cluster, directory, made)
