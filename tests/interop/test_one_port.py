"""Seven unmodified client families at one port for every broker: the names in their hellos lead them to each.

The names are known to the drivers alone (`tests.support.one_port`). A topic's partitions are led by all three brokers,
so a record arrives in each of them only if each broker was reached.
"""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import HOST, Cluster, free_ports
from tests.conftest import CreateTopic
from tests.interop.conftest import Target, available
from tests.interop.families import FAMILIES, Family
from tests.interop.runs import Crowd, options
from tests.interop.test_families import PARTITIONS, every_compression, transactions
from tests.support.gateways import ADDRESSES, accepts, available_haproxy, running_haproxy
from tests.support.one_port import BOOTSTRAP, Site, broker_name
from tests.support.proxy_process import ROOT, SluicePorts, SluiceProcess

_SHIPPED: Final = ROOT / "docker" / "haproxy" / "one-port.cfg"
_RUN_SECONDS_MAX: Final = 60.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site.make(tmp_path_factory.mktemp("names"))


@pytest.fixture(scope="module")
def named(kafka: Cluster, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    """One port, and two workers that accept at it."""
    settings = site.settings(kafka.bootstrap(), sections={"process": {"workers": 2}})
    with SluiceProcess.configured(settings, tmp_path_factory.mktemp("gateway")) as sluice:
        yield sluice


def over_names(family: Family, site: Site) -> Family:
    """Return the family with TLS, where the names are known."""
    command = family.build()
    environment = (*command.environment, ("INTEROP_CA_FILE", str(site.authority.cert_file)))
    found = replace(command, words=(*site.words, *command.words), environment=environment)
    return replace(family, build=lambda: found)


def target_of(site: Site, port: int, kafka: Cluster) -> Target:
    """Return where the drivers connect."""
    brokers = tuple(f"{node}@{broker_name(node)}:{port}" for node in kafka.nodes)
    return Target(site.bootstrap(port), brokers)


def test_every_broker_is_reached_by_its_name(
    family: Family, kafka: Cluster, site: Site, named: SluiceProcess, crowd: Crowd, create_topic: CreateTopic
) -> None:
    client, target = over_names(family, site), target_of(site, named.ports.bootstrap, kafka)
    topic = create_topic(partitions=PARTITIONS, replication=3)
    every_compression(client, target, crowd, topic)
    words = options(target.bootstrap, f"admin-{family.name}", topic, partitions=PARTITIONS, replication=3)
    described = crowd.start(client, "admin", *words).wait(_RUN_SECONDS_MAX).last("described")
    assert described.items("brokers") == list(target.brokers)
    assert not {"no_name", "unknown_name", "tls_handshake"} & named.connection_errors().keys()


def test_transactions_find_their_coordinator_by_its_name(
    kafka: Cluster, site: Site, named: SluiceProcess, crowd: Crowd, create_topic: CreateTopic
) -> None:
    java, target = over_names(available(FAMILIES[0]), site), target_of(site, named.ports.bootstrap, kafka)
    transactions(java, target, crowd, create_topic(partitions=PARTITIONS, replication=3))


def configuration(port: int, backend_port: int, admins: dict[str, int]) -> str:
    """Return the shipped configuration with this test's names, addresses and ports; `admins` are ports of /readyz."""
    text = _SHIPPED.read_text()
    assert text.count("kafka.example.org") == 2
    text = text.replace("kafka.example.org", BOOTSTRAP)
    shipped = "    server gateway-1 gateway-1:9093\n    server gateway-2 gateway-2:9093\n"
    servers = "".join(
        f"    server gateway-{number} {address}:{backend_port} check addr {HOST} port {admin}\n"
        for number, (address, admin) in enumerate(admins.items(), 1)
    )
    for old, new in (("    bind :443\n", f"    bind {HOST}:{port}\n"), (shipped, servers)):
        assert text.count(old) == 1, f"{_SHIPPED} has another {old!r}"
        text = text.replace(old, new)
    return text


def test_haproxy_passes_names_on_to_two_gateways(
    kafka: Cluster, site: Site, crowd: Crowd, create_topic: CreateTopic, tmp_path: Path
) -> None:
    """The configuration of docker/haproxy, with PROXY headers; clients see HAProxy's port, not the gateways'."""
    available_haproxy()
    librdkafka = available(FAMILIES[1])
    port, backend_port = free_ports(2)
    running: list[SluiceProcess] = []
    admins: dict[str, int] = {}
    try:
        for address in ADDRESSES:
            listener = {
                "bind": address,
                "bootstrap_port": backend_port,
                "advertised_bootstrap_port": port,
                "proxy_protocol": True,
                "proxy_protocol_sources": f"{HOST}/32",
            }
            settings = site.settings(kafka.bootstrap(), listener, ports=SluicePorts.free())
            directory = tmp_path / address
            directory.mkdir()
            running.append(SluiceProcess.configured(settings, directory))
            admins[address] = settings.ports.admin
        for sluice in running:
            sluice.wait_ready()
        text = configuration(port, backend_port, admins)
        with running_haproxy(text, tmp_path, lambda: accepts(port)):
            topic = create_topic(partitions=PARTITIONS, replication=3)
            client, target = over_names(librdkafka, site), target_of(site, port, kafka)
            every_compression(client, target, crowd, topic)
            # A name that is not among its own is closed by HAProxy, and seen by no gateway.
            with pytest.raises((ssl.SSLError, ConnectionError)):
                site.connect(port, "other.test")
        assert [sluice.connection_errors() for sluice in running] == [{}, {}]
        assert all(sluice.metric("sluice_connections_opened_total") > 0 for sluice in running)
    finally:
        for sluice in running:
            sluice.kill()
