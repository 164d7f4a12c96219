"""The group's clients go to the fleet's own cluster, with its login and its certificates."""

import asyncio
import socket
from pathlib import Path
from unittest.mock import Mock

from proxy.config import ClusterOptions, Config
from proxy.control.quotas.quota_topic import access_of
from proxy.control.reload import Certificates
from proxy.fleet.elected import FleetGroup
from proxy.system.clock import now_ms
from proxy.system.stats import Stats
from proxy.topics.clients import client_options
from proxy.topics.records import Problem
from proxy.topics.topic import Access
from tests.component.proxy.fleet.rig import until
from tests.support.certificates import Authority
from tests.support.configurations import parsed

THROTTLED = (
    '[cluster]\nbootstrap = "kafka:9092"\nsasl_mechanism = "PLAIN"\nusername = "sluice"\npassword = "never"\n'
)


def configured(directory: Path, bootstrap: str) -> Config:
    (directory / "password").write_text("first\n")
    text = (
        f'{THROTTLED}[[listeners]]\n[fleet]\nbind = "127.0.0.1:7000"\nbootstrap = "{bootstrap}"\n'
        f'[fleet.cluster]\nsasl_mechanism = "SCRAM-SHA-256"\nusername = "ops"\npassword_file = "password"\n'
        f'[fleet.cluster.tls]\nca_file = "{Authority.make(directory, "ops").cert_file}"\n'
    )
    return parsed(text, directory)


def way(config: Config) -> Access:
    return access_of(config.fleet_cluster, Certificates(config, Stats()).fleet_tls)


async def test_client_has_address_login_and_trust_of_the_fleets_cluster(tmp_path: Path) -> None:
    access = way(configured(tmp_path, "ops1:9092, ops2:9092"))
    options = await client_options(access)
    trust = options.pop("ssl_context")
    assert options == {
        "bootstrap_servers": ["ops1:9092", "ops2:9092"],
        "client_id": "sluice",
        "request_timeout_ms": 10_000,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "ops",
        "sasl_plain_password": "first",
    }
    assert [one["subject"] for one in trust.get_ca_certs()] == [((("commonName", "ops"),),)]
    (tmp_path / "password").write_text("second\n")
    assert (await client_options(access))["sasl_plain_password"] == "second"
    assert access_of(ClusterOptions(), None).login is None, "without SASL"


async def test_group_asks_the_fleets_cluster_and_says_why_it_cannot(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        config = configured(tmp_path, f"127.0.0.1:{port}")
        heard = Mock()
        group = FleetGroup(way(config), config.fleet.group, "a", 5000, 20_310, heard, now_ms)
        running = asyncio.create_task(group.run())
        taken, _ = await asyncio.to_thread(server.accept)
        with taken:
            taken.settimeout(10)
            first = await asyncio.to_thread(taken.recv, 1)
        assert first == b"\x16", "a handshake begins: the fleet's cluster has TLS"
        await until(lambda: heard.group_problem.called)
        running.cancel()
    assert len(heard.mock_calls) == heard.group_problem.call_count, "there is no broker that says more"
    problem: Problem = heard.group_problem.call_args_list[0].args[0]
    assert problem.cause == "unreachable"
    assert f"127.0.0.1:{port}" in problem.text
