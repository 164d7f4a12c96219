"""One port for every broker, on real brokers: what responses name, where names lead, and who joins."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import HOST, Cluster, readiness
from tests.conftest import CreateTopic
from tests.support.hellos import hello
from tests.support.one_port import BOOTSTRAP, Site, broker_name
from tests.support.proxy_process import SluiceProcess
from tests.support.waiting import until
from tests.support.wire import Wire, part, request, response, wired

METADATA, LIST_OFFSETS, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 2, 10, 60
NOT_LEADER = 6
ADVERTISED_PORT = 443
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site.make(tmp_path_factory.mktemp("names"))


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two workers"])
def sluice(
    request: pytest.FixtureRequest, kafka: Cluster, site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SluiceProcess]:
    """A gateway whose clients see another port than the one that is bound, as behind a balancer."""
    settings = site.settings(
        kafka.bootstrap(),
        {"advertised_bootstrap_port": ADVERTISED_PORT},
        {"process": {"workers": request.param}},
    )
    with SluiceProcess.configured(settings, tmp_path_factory.mktemp("gateway")) as process:
        yield process


@contextlib.contextmanager
def at(site: Site, sluice: SluiceProcess, name: str) -> Iterator[Wire]:
    """A connection whose hello has this name."""
    with site.connect(sluice.ports.bootstrap, name) as sock, wired(sock) as wire:
        yield wire


def error_of(wire: Wire, topic: str, partition: int) -> int:
    """Ask for a partition's offsets, which its leader alone has; return the error code."""
    wanted = part(
        LIST_OFFSETS,
        7,
        "ListOffsetsTopic",
        name=topic,
        partitions=[
            part(
                LIST_OFFSETS,
                7,
                "ListOffsetsPartition",
                partition_index=partition,
                current_leader_epoch=-1,
                timestamp=-1,
            )
        ],
    )
    asked = request(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[wanted])
    found = response(LIST_OFFSETS, 7, wire.ask(asked).frame)
    return int(found.topics[0].partitions[0].error_code)


def leaders(wire: Wire, topic: str) -> dict[int, int]:
    """Return the leader of each partition."""
    named = part(METADATA, 9, "MetadataRequestTopic", name=topic)
    found = response(METADATA, 9, wire.ask(request(METADATA, 9, topics=[named])).frame)
    return {one.partition_index: one.leader_id for one in found.topics[0].partitions}


def test_responses_name_every_broker_at_the_advertised_port(
    site: Site, sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    wanted = {node: (broker_name(node), ADVERTISED_PORT) for node in NODES}
    with at(site, sluice, BOOTSTRAP) as wire:
        metadata = response(METADATA, 12, wire.ask(request(METADATA, 12, topics=[])).frame)
        assert {one.node_id: (one.host, one.port) for one in metadata.brokers} == wanted
        cluster = response(DESCRIBE_CLUSTER, 1, wire.ask(request(DESCRIBE_CLUSTER, 1, endpoint_type=1)).frame)
        assert {one.broker_id: (one.host, one.port) for one in cluster.brokers} == wanted
        asked = request(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[f"g-{os.urandom(4).hex()}"])
        found: list[tuple[str, int]] = []

        def coordinated() -> bool:
            (one,) = response(FIND_COORDINATOR, 4, wire.ask(asked).frame).coordinators
            found[:] = [(one.host, one.port)]
            return not one.error_code

        until(coordinated, "there is a coordinator")
        assert found[0] in wanted.values()


def test_each_name_leads_to_its_broker_and_to_no_other(
    site: Site, sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    """Of ten connections to each name, whichever worker accepts them, all are at that broker."""
    before = sluice.connection_errors()
    topic = create_topic(partitions=6, replication=1)
    with at(site, sluice, BOOTSTRAP) as wire:
        until(lambda: set(leaders(wire, topic).values()) == set(NODES), "each broker leads a partition")
        led = leaders(wire, topic)
    for node in NODES:
        for _ in range(10):
            with at(site, sluice, broker_name(node).upper()) as wire:
                for partition, leader in led.items():
                    assert error_of(wire, topic, partition) == (0 if leader == node else NOT_LEADER)
    assert sluice.connection_errors() == before


def test_what_names_nothing_is_closed_and_counted_and_logged_in_lines(
    site: Site, sluice: SluiceProcess
) -> None:
    before = sluice.connection_errors()
    for name in (None, b"other.test", "b\u00fc.kafka.test".encode()):
        with socket.create_connection((HOST, sluice.ports.bootstrap), timeout=20) as sock:
            sock.sendall(hello(name))
            assert sock.recv(100)[:1] == b"\x15"  # an alert
            assert sock.recv(100) == b""
    with at(site, sluice, broker_name(77)) as wire, pytest.raises(ConnectionError):
        wire.ask(request(METADATA, 12, topics=[]))

    def counted() -> dict[str, float]:
        return {cause: count - before.get(cause, 0) for cause, count in sluice.connection_errors().items()}

    until(lambda: counted() == {"no_name": 1, "unknown_name": 2, "broker_unknown": 1}, "all are counted")
    log = sluice.log()
    assert "exception without a caller" in log
    assert "Traceback" not in log


def test_broker_that_joins_is_reachable_without_a_restart(
    kafka: Cluster, site: Site, tmp_path: Path, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=3)
    kafka.kill_broker(3)
    try:
        until(lambda: 3 not in readiness.brokers(kafka.address(1)), "the cluster has lost it", 60)
        seeds = ",".join(f"{host}:{port}" for host, port in map(kafka.address, (1, 2)))
        with SluiceProcess.configured(site.settings(seeds), tmp_path) as sluice:
            with at(site, sluice, broker_name(3)) as wire, pytest.raises(ConnectionError):
                wire.ask(request(METADATA, 12, topics=[]))
            assert sluice.connection_errors() == {"broker_unknown": 1}
            kafka.start_broker(3)

            def reached() -> bool:
                with contextlib.suppress(OSError), at(site, sluice, broker_name(3)) as wire:
                    led = [one for one, leader in leaders(wire, topic).items() if leader == 3]
                    return bool(led) and error_of(wire, topic, led[0]) == 0
                return False

            until(reached, "broker 3 is reached by its name")
    finally:
        if not kafka.is_running(3):
            kafka.start_broker(3)
