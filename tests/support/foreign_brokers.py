"""Brokers that are not Apache's, in the place of `Cluster`: nodes that start and end together, without SASL.

`SLUICE_KAFKA=kfake` has the fixture `kafka` start them (tests/cluster/features.py has the names).
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from tests.cluster import (
    HOST,
    Address,
    Cluster,
    ClusterError,
    ClusterOptions,
    free_ports,
    processes,
    readiness,
)
from tests.cluster.jars import NEWEST
from tests.interop.families import KFAKE, TANSU

READY_SECONDS_MAX: Final = 20.0


def kfake(ports: Sequence[int]) -> list[str]:
    """Return the command line of franz-go's kfake, a program of Go."""
    return [*KFAKE().words, *map(str, ports)]


def tansu(ports: Sequence[int]) -> list[str]:
    """Return the command line of Tansu, a program of Rust: of one node, since nodes would share a store outside."""
    (port,) = ports
    urls = (f"--{name}-url=tcp://{HOST}:{port}" for name in ("listener", "advertised-listener"))
    return [*TANSU().words, "broker", "--silent", "--storage-engine=memory://tansu/", *urls]


COMMANDS: Final[dict[str, tuple[Sequence[int], Callable[[Sequence[int]], list[str]]]]] = {
    "kfake": ((0, 1, 2), kfake),
    "tansu": ((111,), tansu),
}
"""Node ids, and the command line for as many ports."""


class ForeignCluster(Cluster):
    """One of COMMANDS; single nodes are not ended and started."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes, self._command = COMMANDS[name]
        super().__init__(ClusterOptions(nodes=len(self._nodes), kafka=NEWEST))
        self._process: subprocess.Popen[bytes] | None = None
        self._at: dict[int, Address] = {}

    def start(self) -> Self:
        """Start all nodes, and wait until each names all."""
        try:
            ports = free_ports(len(self._nodes))
            self._at = {node: (HOST, port) for node, port in zip(self._nodes, ports, strict=True)}
            self.nodes = tuple(self._at)
            self._process = processes.start(self._command(ports), log=self.directory / "log")
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all nodes and remove the directory."""
        if self._process is not None:
            processes.kill(self._process)
        super().stop()

    def address(self, node: int, listener: str = "CLIENTS") -> Address:
        """Return where a node listens; there is one listener."""
        return self._at[node]

    def wait_ready(self) -> None:
        """Wait until each node names all."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        for address in self._at.values():
            while _named_by(address) != self._at.keys():
                if time.monotonic() > deadline:
                    raise ClusterError(f"{self._name} at {address} is not ready\n{self.log(0)}")
                time.sleep(0.05)

    def log(self, node: int, bytes_max: int = 4000) -> str:
        """Return the end of the log that all nodes share."""
        path = self.directory / "log"
        return path.read_bytes()[-bytes_max:].decode(errors="replace") if path.exists() else ""


def _named_by(address: Address) -> set[int]:
    try:
        return set(readiness.brokers(address))
    except (OSError, ValueError):
        return set()
