"""Members with workers in front of three brokers, what is counted between them, and what can happen to each.

Each broker has a relay before it that notes what was let through. The records are on one broker; the group of the
holder is coordinated by another, which may end without Kafka's own part of the path. It does not judge.
"""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.accuracy.relay import read_events
from tests.bench.fleet.bound import Life
from tests.bench.fleet.load import RECORD_BYTES
from tests.bench.lanes import wait_for
from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_ports, processes
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings, fleet_secret

GROUP: Final = "__sluice"
_LISTENER: Final = "COUNTED"
_ADMIN_SECONDS: Final = 60.0
_KNOWN_SECONDS: Final = 90.0
_FILL_RECORD_BYTES: Final = 10_000
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
    earlier: list[SluiceProcess] = field(default_factory=list)
    lives: dict[int, list[float]] = field(default_factory=dict)

    @property
    def running(self) -> SluiceProcess:
        """Its process now."""
        assert self.process is not None, "it was started"
        return self.process

    @property
    def bootstrap(self) -> str:
        """Where clients reach it."""
        return self.running.bootstrap

    def start(self) -> None:
        """Start it; do not wait."""
        self.directory.mkdir(exist_ok=True)
        if self.process is not None:
            self.earlier.append(self.process)
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

    def holds(self) -> bool:
        """Whether it is the holder."""
        return self.running.metric("sluice_fleet_holder") > 0

    def kill_worker(self, number: int) -> None:
        """Kill a worker, `kill -9`: that with this number, or the next that runs."""
        alive = [pid for _, pid in sorted(self.relaying().items()) if _alive(pid)]
        os.kill(alive[number % len(alive)], signal.SIGKILL)

    def kill(self) -> None:
        """Kill all its processes."""
        self.running.kill()

    def kill_control(self) -> None:
        """Kill its control process, and nothing else."""
        os.kill(self.running.process_id, signal.SIGKILL)

    def suspend(self, *, workers: bool) -> None:
        """Stop its control process, or all its processes."""
        self._signal(signal.SIGSTOP, workers=workers)

    def resume(self, *, workers: bool) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT, workers=workers)

    def _signal(self, number: signal.Signals, *, workers: bool) -> None:
        pid = self.running.process_id
        if workers:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


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
        end = time.monotonic() + _KNOWN_SECONDS
        while time.monotonic() < end:
            holders = [member for member in self.members if member.holds()]
            if len(holders) == 1:
                return holders[0]
            time.sleep(0.5)
        raise TimeoutError("no member holds, or several do")

    def other(self) -> Member:
        """Return a member that does not hold."""
        holder = self.holder()
        return next(member for member in self.members if member is not holder)

    def settle(self) -> None:
        """Wait until all members have their shares, and know who coordinates them."""
        self.holder()
        end = time.monotonic() + _KNOWN_SECONDS
        while any(member.running.document("/fleet")["learning"] for member in self.members):
            if time.monotonic() > end:
                raise TimeoutError("the holder does not end to learn")
            time.sleep(0.5)
        self.coordinator = self._coordinator()
        self.data_node = next(node for node in self.cluster.nodes if node != self.coordinator)

    def _coordinator(self) -> int:
        described = self._admin.describe_consumer_groups([GROUP])[GROUP].result(_ADMIN_SECONDS)
        return int(described.coordinator.id)

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

    def fill(self, topic: str, size: int) -> None:
        """Put `size` bytes into a topic, in batches that are no larger than what a consumer asks for."""
        client = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap(),
                "acks": 1,
                "linger.ms": 20,
                "batch.num.messages": RECORD_BYTES // _FILL_RECORD_BYTES - 1,
            }
        )
        for _ in range(size // _FILL_RECORD_BYTES):
            while True:
                try:
                    client.produce(topic, bytes(_FILL_RECORD_BYTES), partition=0)
                    break
                except BufferError:
                    client.poll(0.1)
        if left := client.flush(_ADMIN_SECONDS):
            raise ChildProcessError(f"{left} records were not delivered while filling {topic}")

    def look(self) -> None:
        """Note which processes have come and gone."""
        for member in self.members:
            member.look(time.monotonic())

    def lives(self) -> list[Life]:
        """Return when each process that relays began and ended."""
        return [(began, ended) for member in self.members for began, ended in member.lives.values()]

    def events(self, client_id: str) -> list[tuple[float, float, int]]:
        """Return what the relays noted: when its first byte passed, its last one, and its size."""
        found = []
        for node in self.cluster.nodes:
            for _, each in read_events(self.directory / f"events-{node}.txt", client_id):
                found.append((each.began, each.ended, each.size))
        return sorted(found)


@contextmanager
def rig(directory: Path, *, members: int, workers: int, policy: str, quota: int) -> Iterator[Rig]:
    """Start everything for the time of a `with` block."""
    relays = free_ports(3)
    advertised = tuple((HOST, port) for port in relays)
    wanted = ClusterOptions(nodes=3, listeners=(Listener(_LISTENER, advertised=advertised),))
    with Cluster(wanted) as cluster, ExitStack() as stack:
        for node, port in zip(cluster.nodes, relays, strict=True):
            command = [sys.executable, "-m", "tests.bench.accuracy.relay", "--admitted", "--port", str(port)]
            command += ["--broker-port", str(cluster.address(node, _LISTENER)[1])]
            command += ["--events", str(directory / f"events-{node}.txt")]
            log = directory / f"relay-{node}.log"
            child = processes.start(command, log=log)
            stack.callback(processes.end, child)
            wait_for(port, child, log)
        bootstrap = ",".join(f"{HOST}:{port}" for port in relays)
        quotas = {"<default>": {"producer_byte_rate": quota, "consumer_byte_rate": quota}}
        settings = SluiceSettings(
            bootstrap, quotas={"policy": policy, "scope": "cluster"}, client_quotas=quotas
        )
        secret = fleet_secret(directory)  # as the README has it; without one no holder believes a commit
        made = []
        for number in range(members):
            sections: dict[str, dict[str, object]] = {
                "process": {"workers": workers},
                "fleet": {
                    "name": f"m{number}",
                    "members_max": members,
                    "bind": f"{HOST}:{free_ports(1)[0]}",
                    "secret_file": secret,
                },
            }
            own = replace(settings, ports=SluicePorts.free(), sections=sections)
            made.append(Member(own, directory / f"m{number}", workers))
        try:
            for member in made:
                member.start()
            yield Rig(cluster, directory, made)
        finally:
            for member in made:
                member.kill()
