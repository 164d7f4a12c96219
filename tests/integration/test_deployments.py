"""The second way to deploy: brokers that advertise their sidecars; the gateway is what all other tests run.

Three brokers of their own, each with a listener that advertises a port of Sluice: one process stands in front of
broker 1, another in front of brokers 2 and 3. It rewrites no address: they already lead to sidecars.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_ports
from tests.cluster.cluster import CLUSTER_ID
from tests.support.identified import REBOOTSTRAP_REQUIRED, told
from tests.support.numbered import read_all, write_all
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings
from tests.support.raw_topics import FETCH, Topic, batch, create, describe, fetch_request, produce_request
from tests.support.waiting import until
from tests.support.wire import Wire, request, response, wired
from tests.support.workers import one_process

METADATA, DESCRIBE_CLUSTER, PRODUCE = 3, 60, 0
SIDECARS = "SIDECARS"
THROTTLED = "throttled"


@dataclass(slots=True)
class Deployment:
    """Brokers and the sidecars in front of them, by the ports that are advertised."""

    cluster: Cluster
    ports: dict[int, SluicePorts]
    processes: list[SluiceProcess] = field(default_factory=list)

    def sidecar(self, broker: int) -> tuple[str, int]:
        """Where a broker advertises itself."""
        return self.ports[broker].address(broker)

    @property
    def bootstrap(self) -> str:
        """What a client is given."""
        host, port = self.sidecar(1)
        return f"{host}:{port}"


def settings(cluster: Cluster, ports: SluicePorts, brokers: tuple[int, ...]) -> SluiceSettings:
    """A sidecar of these brokers; `throttled` may send 1,000 bytes/s to each."""
    upstreams: dict[str, object] = {
        str(node): f"{HOST}:{cluster.address(node, SIDECARS)[1]}" for node in brokers
    }
    return SluiceSettings(
        ",".join(str(address) for address in upstreams.values()),
        ports,
        client_quotas={THROTTLED: {"producer_byte_rate": 1000}},
        sections={"listeners.upstreams": upstreams},
    )


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Sidecars that started before their brokers, as they should."""
    one, others = SluicePorts.free(), SluicePorts.free()
    ports = {1: one, 2: others, 3: others}
    advertised = tuple(ports[node].address(node) for node in (1, 2, 3))
    real = free_ports(3)
    listener = Listener(SIDECARS, ports=tuple(real), advertised=advertised)
    cluster = Cluster(ClusterOptions(nodes=3, listeners=(listener,)))
    deployment = Deployment(cluster, ports)
    try:
        for place, brokers in ((one, (1,)), (others, (2, 3))):
            directory: Path = tmp_path_factory.mktemp("sidecar")
            process = SluiceProcess.configured(settings(cluster, place, brokers), directory)
            deployment.processes.append(process)
        with cluster:
            for process in deployment.processes:
                process.wait_ready()
            yield deployment
    finally:
        for process in deployment.processes:
            process.stop()


@pytest.fixture(scope="module")
def topic(deployed: Deployment) -> Topic:
    """A topic with a partition at each broker."""
    name = f"sidecar-{os.urandom(4).hex()}"
    create(deployed.cluster, name, partitions=3, replication=1, configs={})
    return describe(deployed.cluster, name)


@pytest.fixture
def wire(deployed: Deployment) -> Iterator[Wire]:
    """A client at the sidecar of broker 1."""
    with wired(deployed.sidecar(1)) as connected:
        yield connected


def test_sidecar_passes_what_its_broker_says_of_the_node_that_is_meant(deployed: Deployment) -> None:
    for node in (1, 2, 3):
        port = deployed.sidecar(node)
        assert told(port, CLUSTER_ID, node) == 0
        assert told(port, CLUSTER_ID, node % 3 + 1) == REBOOTSTRAP_REQUIRED
        assert told(port, CLUSTER_ID, node, version=6) == 35, "UNSUPPORTED_VERSION"


def test_brokers_are_named_at_their_sidecars(deployed: Deployment, wire: Wire, topic: Topic) -> None:
    sidecars = {node: deployed.sidecar(node) for node in (1, 2, 3)}
    seen = response(METADATA, 9, wire.ask(request(METADATA, 9, topics=[])).frame)
    assert {b.node_id: (b.host, b.port) for b in seen.brokers} == sidecars
    seen = response(DESCRIBE_CLUSTER, 1, wire.ask(request(DESCRIBE_CLUSTER, 1, endpoint_type=1)).frame)
    assert {b.broker_id: (b.host, b.port) for b in seen.brokers} == sidecars
    # New leaders, in a response to Produce and in one to Fetch.
    asked = produce_request(topic, topic.led_by(2)[0], batch([b"value"]), version=12)
    (node,) = response(PRODUCE, 12, wire.ask(asked).frame).node_endpoints
    assert (node.node_id, (node.host, node.port)) == (2, sidecars[2])
    asked = fetch_request(topic, {topic.led_by(3)[0]: 0}, version=17)
    (node,) = response(FETCH, 17, wire.ask(asked).frame).node_endpoints
    assert (node.node_id, (node.host, node.port)) == (3, sidecars[3])


def test_records_go_through_sidecars_and_come_back(deployed: Deployment) -> None:
    name = f"sidecar-{os.urandom(4).hex()}"
    create(deployed.cluster, name, partitions=3, replication=1, configs={})
    values = [os.urandom(200_000) for _ in range(6)]
    write_all(deployed.bootstrap, name, values, partitions=3)
    assert sorted(read_all(deployed.bootstrap, name, 3)) == sorted(values)


@one_process("a first throttle time is that of a worker's share")
def test_each_sidecar_holds_its_clients_to_the_quota(deployed: Deployment, topic: Topic) -> None:
    told = []
    for node in (1, 2, 3):
        with wired(deployed.sidecar(node), client_id=THROTTLED) as connected:
            asked = produce_request(topic, topic.led_by(node)[0], batch([bytes(12_000)]))
            told.append(response(PRODUCE, 9, connected.ask(asked).frame).throttle_time_ms)
    # 12 kB and a little more where 10 kB are free, at 1,000 bytes/s; each broker counts by itself.
    assert all(1500 < throttle_ms < 3000 for throttle_ms in told), told


def test_client_of_a_dead_broker_is_closed_as_by_the_broker_and_served_when_it_is_back(
    deployed: Deployment, topic: Topic
) -> None:
    metadata = request(METADATA, 9, topics=[])
    deployed.cluster.kill_broker(1)
    with pytest.raises(ConnectionError), wired(deployed.sidecar(1)) as connected:
        connected.ask(metadata)
    assert deployed.processes[1].get("/readyz")[0] == 200, "the other sidecar"
    deployed.cluster.start_broker(1)
    for node in deployed.cluster.nodes:  # other tests need it to lead what it led before
        until(lambda node=node: describe(deployed.cluster, topic.name, node).leaders == topic.leaders)  # type: ignore[misc]  # bound early
    with wired(deployed.sidecar(1)) as connected:
        assert connected.ask(metadata).frame
