"""The gateways of docs/how-to/fleet.md, and docs/how-to/when-sluice-is-gone.md: go round Sluice, and take it out.

Their commands are carried out one by one as printed, on real brokers, to which clients log in. Addresses and places are
replaced, and both gateways run on this machine. What is systemd's is left out. How one goes round a sidecar, and takes
it out: `test_printed_sidecars`.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.cluster import HOST, Cluster, free_ports, tools
from tests.cluster.sasl import SASL, client_properties, password
from tests.conftest import CreateTopic
from tests.packaging.conftest import ROOT
from tests.support.gateways import available_haproxy
from tests.support.printed import PrintedShell, commands, fenced, overrides, section
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)

NODES: Final = (1, 2, 3)
PAGE: Final = ROOT / "docs" / "how-to" / "when-sluice-is-gone.md"
GATEWAYS: Final = ("gw-1", "gw-2")
OWN_TOPICS: Final = {"__sluice", "__sluice-quotas", "__sluice-audit"}


class Gateway:
    """One machine of the two.

    Args:
        directory: its directory.
        replaced: what the printed addresses are here.
    """

    def __init__(self, name: str, directory: Path, cluster: Cluster, ports: list[int]) -> None:
        self.bootstrap, self.pages = f"{HOST}:{ports[0]}", f"localhost:{ports[1]}"
        self.first_broker = ports[3]
        self.directory = directory / name
        self.directory.mkdir()
        self.environment = {
            "SLUICE_CLUSTER__BOOTSTRAP": cluster.bootstrap(SASL),
            **overrides(ports[0], ports[3], ports[1]),
            "SLUICE_LISTENERS__0__BROKER_ID_MAX": "3",
            "SLUICE_FLEET__NAME": name,
            "SLUICE_FLEET__BIND": f"{HOST}:{ports[2]}",
        }


def two_gateways() -> str:
    return section((ROOT / "docs" / "how-to" / "fleet.md").read_text(), "## Two gateways")


@pytest.fixture
def gateways(kafka: Cluster, tmp_path: Path) -> Iterator[dict[str, tuple[Gateway, PrintedShell]]]:
    """Both machines, with the page's file and admin.properties; nothing runs."""
    (configuration,) = fenced(two_gateways(), "toml")
    made = {name: Gateway(name, tmp_path, kafka, free_ports(7)) for name in GATEWAYS}
    first = made["gw-1"]
    with ExitStack() as stack:
        found = {}
        for name, gateway in made.items():
            replaced = {
                "gw-1:19090": first.bootstrap,
                "gw-2:19090": made["gw-2"].bootstrap,
                "sluice:19090": first.bootstrap,
                "localhost:19080": gateway.pages,
                **{f"kafka{node}:9092": "{}:{}".format(*kafka.address(node, SASL)) for node in NODES},
                **{f"bind :{19100 + node}": f"bind {HOST}:{gateway.first_broker + node}" for node in NODES},
                "bind :19090": f"bind {gateway.bootstrap}",
                ".venv/bin/sluice": "sluice",
                ".venv/bin/sluice fleet": f"sluice fleet --admin {gateway.pages}",
                ".venv/bin/sluice fleet secret": "sluice fleet secret",
            }
            shell = stack.enter_context(PrintedShell(gateway.directory, replaced, gateway.environment))
            (gateway.directory / "sluice.toml").write_text(configuration)
            (gateway.directory / "sluice.password").write_text(password("sluice"))
            (gateway.directory / "admin.properties").write_text(client_properties("admin"))
            found[name] = gateway, shell
        yield found


def serve(gateways: dict[str, tuple[Gateway, PrintedShell]]) -> list[str]:
    """Start both as the page says; return its commands that look at them."""
    secret, start, look = fenced(two_gateways())
    (first, shell), (second, _) = gateways.values()
    shell.run(commands(secret)[0])
    (second.directory / "fleet.secret").write_bytes((first.directory / "fleet.secret").read_bytes())
    for _, shell in gateways.values():
        _, check, run = commands(start)  # the first one installs
        assert "sluice.toml is right" in shell.run(check)
        shell.run(run)
    return commands(look)


def writer(bootstrap: str, client_id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "reports",
            "sasl.password": password("reports"),
        }
    )


def write(producer: Producer, topic: str, records: int = 1) -> None:
    """Write records of 100 kB; all are acknowledged."""
    problems: list[object] = []
    for _ in range(records):
        producer.produce(topic, b"x" * 100_000, on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(60) == 0
    assert problems == [None] * records


def printed(heading: str) -> list[str]:
    """Return the commands below a heading of the page."""
    text = section(PAGE.read_text(), heading)
    # The one other block is of a server.properties.
    found = [line for block in fenced(text) if "listeners=" not in block for line in commands(block)]
    return [line for line in found if not line.startswith("systemctl ")]


def of_brokers(kafka: Cluster) -> str:
    """Return the brokers' own quota of the client id `reports`."""
    words = ("--describe", "--entity-type", "clients", "--entity-name", "reports")
    return tools.configs(kafka.bootstrap(), *words)


def topics_of(kafka: Cluster) -> set[str]:
    return set(tools.run(tools.TOPICS, "--bootstrap-server", kafka.bootstrap(), "--list").split())


def listens(address: str) -> bool:
    host, port = address.split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def test_two_gateways_are_taken_out(
    kafka: Cluster, create_topic: CreateTopic, gateways: dict[str, tuple[Gateway, PrintedShell]]
) -> None:
    (first, shell), (_, other) = gateways.values()
    alter, show, fleet = serve(gateways)
    assert "producer_byte_rate" in shell.run(alter)
    until(lambda: "producer_byte_rate=2000000" in other.run(show), "it holds at the other")
    # The group may have the commit of another test's fleet, with another secret: then the holder learns, and `fleet`
    # exits with 3 meanwhile.
    until(lambda: {"gw-1", "gw-2"} <= set(shell.run(fleet, exits=(0, 3)).split()), "both are members", 60)
    topic = create_topic()
    client = writer(first.bootstrap, "reports")
    write(client, topic)
    assert topics_of(kafka) >= OWN_TOPICS

    export, try_out, apply, look, in_sync, *remove = printed("## Take it out for good")
    shell.run(export)
    assert "dry run" in shell.run(try_out)
    assert "producer_byte_rate" not in of_brokers(kafka)
    shell.run(apply)
    assert "producer_byte_rate=2000000" in of_brokers(kafka)
    assert not shell.run(look).strip().endswith(" 0.0")
    del client  # it moves: the next one knows the brokers alone
    until(lambda: shell.run(look).strip().endswith(" 0.0"), "no client is left")
    assert shell.run(in_sync).strip() == ""
    for _, one in gateways.values():
        one.stop_serving()
    for command in remove:
        if "sluice-reassignments" not in command:  # no such topic was used: --if-exists
            shell.run(command)
    until(lambda: not OWN_TOPICS & topics_of(kafka), "Sluice's topics are gone")
    write(writer(kafka.bootstrap(SASL), "reports"), topic)
    assert "2000000" in shell.run(apply.replace("apply", "diff")) or "nothing" in shell.run(apply)
    shell.run(printed("## 4. The way back")[-1])
    assert "producer_byte_rate" not in of_brokers(kafka)


def test_gateway_is_gone_round(
    kafka: Cluster, create_topic: CreateTopic, gateways: dict[str, tuple[Gateway, PrintedShell]]
) -> None:
    first, shell = gateways["gw-1"]
    shell.environment["PATH"] += f"{os.pathsep}{Path(available_haproxy()).parent}"
    serve(gateways)
    topic = create_topic()
    ready, explain, through, beside = (
        command.replace("orders", topic) for command in printed("## 1. Is it Sluice?")
    )
    (off,) = printed("## 2. Restart it")
    apply, write_file, forward = printed("### A gateway")
    end_forwarder, remove = printed("## 4. The way back")
    shell.run(
        f"sluice quotas set --bootstrap-server {first.bootstrap} --command-config admin.properties "
        "--client-id reports producer_byte_rate=100k"
    )
    shell.run(printed("## Take it out for good")[0])
    client = writer(first.bootstrap, "reports")
    write(client, topic, records=10)  # a megabyte, of which a second's quota passes at once
    assert shell.run(ready) == "ready\n"
    assert "producer_byte_rate" in shell.run(explain)
    for probe in (through, beside):
        assert f"Topic: {topic}" in shell.run(probe)
    shell.run(off.replace("orders are late", "a test"))
    began_s = time.monotonic()
    write(client, topic, records=10)
    assert time.monotonic() - began_s < 8  # 10 s with its quota
    for _, one in gateways.values():
        one.kill_serving()

    shell.run(apply)
    assert "producer_byte_rate=100000" in of_brokers(kafka)
    shell.run(write_file)
    shell.run(forward)
    try:
        write(client, topic)  # the same client, which was not restarted
        assert f"Topic: {topic}" in shell.run(through)
        shell.run(remove)
        assert "producer_byte_rate" not in of_brokers(kafka)
    finally:
        shell.run(end_forwarder)
    until(lambda: not listens(first.bootstrap), "the forwarder has freed its ports")
    for name in sorted(OWN_TOPICS - {"__sluice"}):
        tools.run(tools.TOPICS, "--bootstrap-server", kafka.bootstrap(), "--delete", "--topic", name)
