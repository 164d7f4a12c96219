"""Brokers that die, a cluster that is not there, a proxy that is killed: clients reconnect and lose nothing."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import HOST, Cluster, free_port
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.numbered import NumberedProducer, lost
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.tap import Tap
from tests.support.waiting import until
from tests.support.wire import request as message
from tests.support.wire import wired

METADATA = 3


sluice = gateway_fixture("function")


# Brokers


def test_broker_killed_mid_traffic_loses_nothing(
    kafka: Cluster, sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    name = create_topic(partitions=3, replication=3, configs={"min.insync.replicas": "2"})
    with NumberedProducer(sluice.bootstrap, name, partitions=3) as load:
        load.wait_for(300)
        kafka.kill_broker(2)
        load.wait_for(300)
        kafka.start_broker(2)
        load.wait_for(300)
    assert (load.failed, lost(load, kafka.bootstrap())) == ([], [])


def test_broker_that_joins_later_is_reached_at_its_own_port(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    kafka.stop_broker(3)
    try:
        with SluiceProcess.configured(SluiceSettings(kafka.bootstrap()), tmp_path) as sluice:
            kafka.start_broker(3)
            until(lambda: responds(sluice, 3), "broker 3 responds at its port")
    finally:
        if not kafka.is_running(3):
            kafka.start_broker(3)


def responds(sluice: SluiceProcess, broker: int) -> bool:
    try:
        with wired(sluice.ports.address(broker)) as wire:
            return bool(wire.ask(message(METADATA, 9, topics=[])).frame)
    except OSError:
        return False


# The cluster


@contextmanager
def started(settings: SluiceSettings, directory: Path) -> Iterator[SluiceProcess]:
    """A gateway that need not be ready: only its admin port has to respond."""
    before = _serving(directory)  # of an earlier life, with the same log
    sluice = SluiceProcess.configured(settings, directory)
    try:
        until(sluice.readiness, "the admin port responds")
        until(lambda: _serving(directory) > before, "its ports are bound")
        yield sluice
    finally:
        sluice.stop()


def _serving(directory: Path) -> int:
    """How often a gateway has bound its ports, by its logs."""
    return sum(log.read_text().count(" serving ") for log in directory.glob("sluice-*.log"))


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[tuple[SluiceProcess, int]]:
    """A gateway whose cluster is not there, and the port where it is looked for."""
    port = free_port()
    with started(SluiceSettings(f"{HOST}:{port}"), tmp_path) as sluice:
        yield sluice, port


def test_without_a_cluster_ports_are_bound_and_clients_closed_as_by_a_dead_broker(
    nowhere: tuple[SluiceProcess, int],
) -> None:
    sluice, port = nowhere
    status, text = sluice.get("/readyz")
    assert (status, f"{HOST}:{port}" in text) == (503, True)
    assert sluice.get("/healthz")[0] == 200
    for bound in (sluice.ports.bootstrap, sluice.ports.first_broker, sluice.ports.first_broker + 7):
        socket.create_connection((HOST, bound), timeout=5).close()
    with wired((HOST, sluice.ports.bootstrap)) as wire, pytest.raises(ConnectionResetError):
        wire.ask(message(METADATA, 9, topics=[]))


def test_cluster_that_appears_is_served(kafka: Cluster, nowhere: tuple[SluiceProcess, int]) -> None:
    sluice, port = nowhere
    with Tap({port: kafka.address(1)[1]}):
        until(lambda: sluice.get("/readyz")[0] == 200, "/readyz says yes")
        until(lambda: responds(sluice, 2), "broker 2 responds at its port")


def test_ports_are_bound_while_the_cluster_does_not_respond(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as mute:  # takes connections and says nothing
        settings = SluiceSettings(f"{HOST}:{mute.getsockname()[1]}")
        with started(settings, tmp_path) as sluice:
            socket.create_connection((HOST, sluice.ports.bootstrap), timeout=5).close()
            # A broker is given 5 s to respond to Metadata; then there is a line.
            assert "no response within" not in sluice.log().partition(" serving ")[0]


# The proxy


def test_proxy_killed_mid_traffic_loses_nothing(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    name = create_topic(partitions=3)
    settings = SluiceSettings(kafka.bootstrap())
    first = SluiceProcess.configured(settings, tmp_path).wait_ready()
    with NumberedProducer(first.bootstrap, name, partitions=3) as load:
        load.wait_for(300)
        first.kill()
        with SluiceProcess.configured(settings, tmp_path):
            load.wait_for(300)
            load.stop()
    assert (load.failed, lost(load, kafka.bootstrap())) == ([], [])


def test_restarted_proxy_knows_its_brokers_before_the_cluster_responds(
    kafka: Cluster, tmp_path: Path
) -> None:
    port = free_port()
    state: dict[str, object] = {"directory": str(tmp_path / "state")}
    settings = SluiceSettings(f"{HOST}:{port}", sections={"state": state})
    with Tap({port: kafka.address(1)[1]}), SluiceProcess.configured(settings, tmp_path):
        until((tmp_path / "state" / "brokers.json").exists, "the map is on disk")
    with started(settings, tmp_path) as sluice:
        assert responds(sluice, 2)
