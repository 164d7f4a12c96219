"""A fleet as Kubernetes runs it: processes stand for pods, HAProxy for the Service, this module for the controllers.

Each pod has an address of its own on loopback, another one whenever it is made anew, and the ports that all have. The
Service leads each port to the same port of a pod that is ready. It is no better than kube-proxy: a connection that is
refused is not tried elsewhere, a pod whose deletion has begun gets no new connection, and keeps those that it has.
"""

import contextlib
import csv
import io
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final, Self

from tests.cluster import HOST, free_port
from tests.support.gateways import running_haproxy
from tests.support.proxy_process import (
    BROKER_ID_MAX,
    ROOT,
    SluicePorts,
    SluiceProcess,
    SluiceSettings,
    fleet_secret,
)
from tests.support.quota_client import alter, describe
from tests.support.waiting import until

_READY_SECONDS_MAX: Final = 60.0
_SERVICE: Final = "service"


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How long the parts of a pod's life take, in seconds; the chart's values (deploy/helm/sluice).

    Args:
        pre_stop: from the begin of its deletion, when the Service leaves it out, to SIGTERM.
        grace: from the begin of its deletion to SIGKILL.
        drain: `limits.drain_seconds`.
        min_ready: how long a new one is ready before the next is deleted.
    """

    pre_stop: float = 5.0
    grace: float = 30.0
    drain: float = 20.0
    min_ready: float = 10.0


@dataclass(eq=False, slots=True)
class Pod:
    """One pod: a process of its own, from its start to its end.

    Attributes:
        generation: how many pods with its number there were before.
        began, ended: when its process did, by `time.monotonic`.
    """

    number: int
    generation: int
    address: str
    process: SluiceProcess
    began: float
    ended: float = inf

    @property
    def server(self) -> str:
        """Its name at HAProxy."""
        return server(self.number, self.generation)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What the replacement of one pod took.

    Args:
        held: whether it was the holder of the fleet.
        began: when its deletion began, by `time.monotonic`.
        drain_seconds: from SIGTERM to its end.
        ready_seconds: from the start of the next one until that was ready.
    """

    number: int
    held: bool
    began: float
    drain_seconds: float
    ready_seconds: float


def server(number: int, generation: int) -> str:
    """Return the name of a pod at HAProxy."""
    return f"pod-{number}-{generation}"


def address(number: int, generation: int) -> str:
    """Return the address of a pod.

    >>> address(0, 0), address(2, 1)
    ('127.0.1.2', '127.0.2.4')
    """
    return f"127.0.{generation + 1}.{number + 2}"


def configuration(first_port: int, ports: int, control_port: int, pods: Sequence[tuple[str, str]]) -> str:
    """Return HAProxy's configuration as a Service: no pod is in it at first.

    Args:
        first_port: of the Service's consecutive ports.
        control_port: takes HAProxy's commands.
        pods: server names and addresses of all pods that there will ever be.
    """
    servers = "\n".join(f"    server {name} {host} disabled" for name, host in pods)
    return f"""global
    stats socket ipv4@{HOST}:{control_port} level admin
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    retries 0
listen {_SERVICE}
    bind {HOST}:{first_port}-{first_port + ports - 1}
    balance random
{servers}
"""


@dataclass(slots=True)
class Pods:
    """A fleet of `count` pods behind a Service, for the time of a `with` block.

    Args:
        brokers: the bootstrap servers.
        directory: for configurations and logs.
        name: the Kafka group that chooses the holder; the quotas' topic is named after it.
        trees: the code of each generation of pods: a directory with the packages.

    Attributes:
        pods: those that run, by number.
        ended: those that have ended.
    """

    brokers: str
    directory: Path
    name: str
    trees: Sequence[Path]
    count: int = 3
    life: Lifecycle = field(default_factory=Lifecycle)
    pods: list[Pod] = field(init=False, default_factory=list)
    ended: list[Pod] = field(init=False, default_factory=list)
    _ports: SluicePorts = field(init=False, default_factory=SluicePorts.free)
    _fleet_port: int = field(init=False, default_factory=free_port)
    _control_port: int = field(init=False, default_factory=free_port)
    _stack: contextlib.ExitStack = field(init=False, default_factory=contextlib.ExitStack)

    @property
    def bootstrap(self) -> str:
        """The address of the Service."""
        return f"{HOST}:{self._ports.bootstrap}"

    def __enter__(self) -> Self:
        try:
            self._start_service()
            self.pods = [self._start(number, 0) for number in range(self.count)]
            for pod in self.pods:
                pod.process.wait_ready(_READY_SECONDS_MAX)
                self._lead(pod, "ready")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all of it at once."""
        for pod in self.pods:
            pod.process.kill()
        self._stack.close()

    def set_quota(self, client_id: str, key: str, quota: float) -> None:
        """Set a client id's quota at one pod, and wait until all have it."""
        ((_, code, problem),) = alter(self.bootstrap, ([("client-id", client_id)], [(key, quota)]))
        assert not code, problem
        until(
            lambda: all(
                {key: quota} in describe(f"{pod.address}:{self._ports.bootstrap}").values()
                for pod in self.pods
            ),
            "all pods have the quota",
        )

    def holder(self) -> Pod | None:
        """Return the pod that is the holder of the fleet; None if none, or more than one, is."""
        found = [pod for pod in self.pods if pod.process.metric("sluice_fleet_holder") > 0]
        return found[0] if len(found) == 1 else None

    def replace(self, number: int) -> Replaced:
        """Delete a pod, make it anew with the code of the next generation, and wait until the next may be replaced.

        Raises:
            AssertionError: it would have been killed, did not end with 0, or the new one is not ready in time.
        """
        old, life = self.pods[number], self.life
        held, began = old is self.holder(), time.monotonic()
        self._lead(old, "drain")
        time.sleep(life.pre_stop)
        told = time.monotonic()
        old.process.signal(signal.SIGTERM)
        left = life.grace - life.pre_stop
        until(lambda: not old.process.alive(), f"{old.server} ends before it is killed", left)
        old.ended = time.monotonic()
        code = old.process.stop()
        assert code == 0, f"{old.server} has ended with {code}\n{old.process.log()}"
        self.ended.append(old)
        new = self.pods[number] = self._start(number, old.generation + 1)
        new.process.wait_ready(_READY_SECONDS_MAX)
        ready = time.monotonic()
        self._lead(new, "ready")
        time.sleep(life.min_ready)
        return Replaced(number, held, began, old.ended - told, ready - new.began)

    def upgrade(self) -> list[Replaced]:
        """Replace all pods, the last first, as a StatefulSet does."""
        return [self.replace(number) for number in reversed(range(self.count))]

    def connections(self) -> tuple[int, int]:
        """Return how many connections the Service has led to pods so far, and how many of them failed."""
        rows = csv.DictReader(io.StringIO(self._order("show stat")))
        pods = [row for row in rows if row["svname"].startswith("pod-")]
        return sum(int(row["stot"] or 0) for row in pods), sum(int(row["econ"] or 0) for row in pods)

    def _lead(self, pod: Pod, state: str) -> None:
        """Let the Service lead new connections to a pod, state "ready", or no more, "drain"."""
        said = self._order(f"set server {_SERVICE}/{pod.server} state {state}").strip()
        assert not said, f"HAProxy says of {pod.server}: {said}"

    def _order(self, text: str) -> str:
        """Send HAProxy a command; return its response."""
        with (
            socket.create_connection((HOST, self._control_port), timeout=10) as sock,
            sock.makefile("rw") as file,
        ):
            file.write(f"{text}\n")
            file.flush()
            return file.read()

    def _start_service(self) -> None:
        names = [
            (server(number, generation), address(number, generation))
            for generation in range(len(self.trees))
            for number in range(self.count)
        ]
        text = configuration(self._ports.bootstrap, BROKER_ID_MAX + 2, self._control_port, names)

        def serves() -> bool:
            with contextlib.suppress(OSError):
                return bool(self._order("show info"))
            return False

        self._stack.enter_context(running_haproxy(text, self.directory, serves, seconds=_READY_SECONDS_MAX))

    def _start(self, number: int, generation: int) -> Pod:
        host, tree = address(number, generation), self.trees[generation]
        directory = self.directory / server(number, generation)
        directory.mkdir()
        own = SluicePorts.free()  # its admin port is used
        quotas = {"store": "topic", "topic": f"{self.name}-quotas", "audit_topic": ""}
        quotas |= {"policy": "schedule", "scope": "cluster"}
        fleet: dict[str, object] = {"name": f"sluice-{number}", "bind": f"{host}:{self._fleet_port}"}
        fleet |= {"group": self.name, "members_max": self.count, "secret_file": fleet_secret(self.directory)}
        settings = SluiceSettings(
            self.brokers,
            own,
            quotas=quotas,
            sections={"fleet": fleet, "limits": {"drain_seconds": self.life.drain}},
            listener={
                "bind": host,
                "bootstrap_port": self._ports.bootstrap,
                "first_broker_port": self._ports.first_broker,
                "advertised_host": HOST,
            },
        )
        code = () if tree == ROOT else ("env", f"--chdir={tree}", f"PYTHONPATH={tree}")
        began = time.monotonic()
        return Pod(number, generation, host, SluiceProcess.configured(settings, directory, code), began)
