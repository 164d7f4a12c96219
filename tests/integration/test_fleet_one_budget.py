"""A sidecar before each of three brokers, all one fleet: each client has one budget over all brokers.

Without the fleet the client would have it three times, as with Kafka's own quotas.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_ports
from tests.support.load import Load, rate
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings
from tests.support.raw_topics import create, describe
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

NODES: Final = (1, 2, 3)
HOLDER: Final = 1
SIDECARS: Final = "SIDECARS"
CLIENT: Final = "hot"
QUOTA: Final = 2_000_000.0
LEARNING_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 5.0
MEASURED_SECONDS: Final = 10.0
# In ten seconds there may be the burst of one, and a request of 1 MB at each of three members.
OVER: Final = 1.2


class Sidecars:
    """The brokers, and what stands before them."""

    def __init__(self, directory: Path) -> None:
        self.ports = {node: SluicePorts.free() for node in NODES}
        advertised = tuple((HOST, self.ports[node].first_broker + node) for node in NODES)
        listener = Listener(SIDECARS, ports=tuple(free_ports(len(NODES))), advertised=advertised)
        self.cluster = Cluster(ClusterOptions(nodes=len(NODES), listeners=(listener,)))
        self.processes: dict[int, SluiceProcess] = {}
        self._holder = f"{HOST}:{free_ports(1)[0]}"
        self._directory = directory

    def start(self, node: int) -> None:
        """Start the sidecar of a broker."""
        upstream = f"{HOST}:{self.cluster.address(node, SIDECARS)[1]}"
        fleet: dict[str, object] = {
            "name": f"kafka-{node}",
            "members_max": len(NODES),
            "holder": self._holder,
        }
        if node == HOLDER:
            fleet["bind"] = self._holder
        settings = SluiceSettings(
            upstream,
            self.ports[node],
            quotas={"policy": "schedule", "scope": "cluster"},
            client_quotas={CLIENT: {"producer_byte_rate": QUOTA}},
            sections={"listeners.upstreams": {str(node): upstream}, "fleet": fleet},
        )
        directory = self._directory / str(node)
        directory.mkdir()
        self.processes[node] = SluiceProcess.configured(settings, directory)

    def wait_leased(self) -> None:
        """Wait until every sidecar has its default share."""
        for node, process in self.processes.items():
            process.wait_ready()
            until(
                lambda: process.metric("sluice_fleet_default_share") > 0.3,  # noqa: B023 - called at once
                f"a share of {node}",
                LEARNING_SECONDS,
            )

    @property
    def bootstrap(self) -> str:
        """What clients are given."""
        return f"{HOST}:{self.ports[1].first_broker + 1}"


@pytest.fixture
def sidecars(tmp_path: Path) -> Iterator[Sidecars]:
    found = Sidecars(tmp_path)
    try:
        for node in NODES:
            found.start(node)
        with found.cluster:
            found.wait_leased()
            yield found
    finally:
        for process in found.processes.values():
            process.stop()


def test_client_has_its_quota_once_over_all_brokers_and_at_any_of_them(sidecars: Sidecars) -> None:
    create(sidecars.cluster, "spread", partitions=3, replication=1, configs={})
    leaders = describe(sidecars.cluster, "spread", partitions=3)
    everywhere = [
        Load(sidecars.bootstrap, "spread", CLIENT, leaders.led_by(node)[0])
        for node in NODES
        for _ in range(2)
    ]
    try:
        rate(everywhere, SETTLE_SECONDS)
        assert 0.7 * QUOTA <= rate(everywhere, MEASURED_SECONDS) <= OVER * QUOTA
        passed = [
            process.metric("sluice_client_bytes_total", client_id=CLIENT, type="Produce")
            for process in sidecars.processes.values()
        ]
        assert all(size > 0.5 * QUOTA for size in passed), passed
        for load in everywhere[2:]:
            load.stop()
        at_one = everywhere[:2]
        # What the others had sent before they stopped still waits for its turn, and has its part meanwhile.
        until(lambda: sidecars.processes[1].metric("sluice_fleet_share") > 0.9, "the whole share")
        assert 0.7 * QUOTA <= rate(at_one, MEASURED_SECONDS) <= OVER * QUOTA
    finally:
        for load in everywhere:
            load.stop()
