"""Real brokers that replicate through a Sluice each, which are one fleet and share followers' quotas (KIP-73).

As `replication_rig`, with three processes instead of one. The last one is the holder; it may be killed without harm to
a move from the other two to its own broker, since a follower's fetches go through its leaders' sidecars.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from tests.cluster import HOST, free_ports
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings
from tests.support.replication_rig import ReplicationRig

NODES: Final = 3
HOLDER: Final = NODES
LEASE_SECONDS: Final = 15


class SidecarRig(ReplicationRig):
    """Three brokers, a sidecar each.

    Args:
        directory: for the sidecars' files.
        replication: the keys of `[replication]`, the same for all.
    """

    def __init__(self, directory: Path, replication: Mapping[str, object]) -> None:
        self.fronts = {node: SluicePorts.free() for node in range(1, NODES + 1)}
        self.sidecars: dict[int, SluiceProcess] = {}
        self._holder = f"{HOST}:{free_ports(1)[0]}"
        super().__init__(directory, replication, nodes=NODES)

    def __enter__(self) -> Self:
        super().__enter__()
        for sidecar in self.sidecars.values():
            sidecar.wait_ready()
        return self

    def front(self, node: int) -> int:
        return self.fronts[node].first_broker + node

    def start_sluice(self) -> None:
        for node in self.fronts:
            self.start_sidecar(node)

    def start_sidecar(self, node: int) -> None:
        """Start one, or start it again."""
        directory = self.directory / f"sidecar-{node}"
        directory.mkdir(exist_ok=True)
        self.sidecars[node] = SluiceProcess.configured(self.of_sidecar(node), directory)

    def of_sidecar(self, node: int) -> SluiceSettings:
        """One sidecar's configuration."""
        settings = self.settings()
        fleet: dict[str, object] = {"name": f"sidecar-{node}", "members_max": NODES, "holder": self._holder}
        if node == HOLDER:
            fleet["bind"] = self._holder
        upstream = {str(node): self.upstreams[str(node)]}
        sections = {**settings.sections, "listeners.upstreams": upstream, "fleet": fleet}
        return replace(settings, ports=self.fronts[node], sections=sections)

    def stop(self) -> None:
        self.cluster.stop()
        for sidecar in self.sidecars.values():
            sidecar.stop()
