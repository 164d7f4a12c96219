"""Clients of Kafka 4.4 say which broker they mean (KIP-1242): through Sluice they reach it, also after brokers swapped.

A client that is told REBOOTSTRAP_REQUIRED closes all its connections and begins anew.
"""

import re
import time
from functools import partial
from pathlib import Path
from typing import Final

from protocol.api import API_VERSIONS
from protocol.messages.api_versions import error_code, identifying_body
from tests.cluster import Cluster, ClusterOptions, tools
from tests.cluster.cluster import CLUSTER_ID
from tests.cluster.options import CLIENTS
from tests.conftest import CreateTopic
from tests.support.frames import request
from tests.support.gateway_fixture import gateway_fixture
from tests.support.identified import CLOSED, REBOOTSTRAP_REQUIRED, told
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.waiting import until
from tests.support.wire import wired

OTHER_CLUSTER: Final = "b3RoZXItY2x1c3Rlci1pZA"
# Sluice reads the brokers' addresses every 5 s.
POLL_SECONDS: Final = 5.0

sluice = gateway_fixture()


def test_each_port_of_a_gateway_leads_to_the_broker_that_is_meant(
    kafka: Cluster, sluice: SluiceProcess
) -> None:
    for node in kafka.nodes:
        port = sluice.ports.address(node)
        assert told(kafka.address(node), CLUSTER_ID, node) == told(port, CLUSTER_ID, node) == 0
        other = node % len(kafka.nodes) + 1
        assert told(kafka.address(node), CLUSTER_ID, other) == REBOOTSTRAP_REQUIRED
        assert told(port, CLUSTER_ID, other) is CLOSED, "it would get the same addresses again"
        assert told(port, OTHER_CLUSTER, node) == REBOOTSTRAP_REQUIRED, "it has to begin anew"
    assert sluice.metric("sluice_connection_errors_total", cause="broker_misrouted") == len(kafka.nodes)


def test_next_version_of_api_versions_is_refused_and_the_client_goes_on(
    kafka: Cluster, sluice: SluiceProcess
) -> None:
    """Also as the first request of a connection, for which Sluice connects to the broker."""
    with wired(sluice.ports.address(1)) as wire, wired(kafka.address(1)) as direct:
        for version in (6, 5):
            asked = request(API_VERSIONS, version, identifying_body("5.0.0", CLUSTER_ID, 1))
            wire.send_bytes(asked)
            direct.send_bytes(asked)
            found, expected = wire.receive(), direct.receive()
            if version == 6:
                assert found == expected, "Kafka 4.4 does not know it either"
            assert error_code(found) == error_code(expected) == (35 if version == 6 else 0)


def test_client_of_4_4_is_never_told_to_begin_anew(
    sluice: SluiceProcess, create_topic: CreateTopic, tmp_path: Path
) -> None:
    topic = create_topic(partitions=6)
    config = tmp_path / "client.properties"
    config.write_text("metadata.recovery.rebootstrap.trigger.ms=2000\nmetadata.max.age.ms=500\n")
    printed = tools.run(
        tools.PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "400", "--record-size", "100", "--throughput", "100"),
        *("--bootstrap-server", sluice.bootstrap, "--command-config", str(config)),
    )
    assert "400 records sent" in printed
    assert "ebootstrap" not in printed


def test_brokers_that_swap_their_addresses_are_found_within_one_poll(tmp_path: Path) -> None:
    with Cluster(ClusterOptions(nodes=2)) as cluster:
        settings = SluiceSettings(cluster.bootstrap())
        with SluiceProcess.configured(settings, tmp_path) as sluice:
            for node in cluster.nodes:
                assert told(sluice.ports.address(node), CLUSTER_ID, node) == 0
            swap(cluster)
            started = time.monotonic()
            found: dict[int, list[int | None]] = {node: [] for node in cluster.nodes}
            for node, codes in found.items():
                until(partial(reached, sluice, node, codes), seconds=30)
            elapsed = time.monotonic() - started
            print(f"reached after {elapsed:.1f} s: {found}")
            assert all(set(codes) <= {CLOSED, 0} for codes in found.values()), "never told to begin anew"
            assert elapsed < POLL_SECONDS + 2


def reached(sluice: SluiceProcess, node: int, codes: list[int | None]) -> bool:
    codes.append(told(sluice.ports.address(node), CLUSTER_ID, node))
    return codes[-1] == 0


def swap(cluster: Cluster) -> None:
    """Have brokers 1 and 2 start again, each at the other's address."""
    for node in cluster.nodes:
        cluster.kill_broker(node)
    ports = {node: str(cluster.address(node, CLIENTS)[1]) for node in cluster.nodes}
    for node in cluster.nodes:
        path = cluster.directory / str(node) / "server.properties"
        pattern = rf"\b{ports[node]}\b"
        path.write_text(re.sub(pattern, ports[3 - node], path.read_text()))
    for node in cluster.nodes:
        cluster.start_broker(node, wait=False)
    cluster.wait_ready()
