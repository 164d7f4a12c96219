"""The sidecars of docker/compose.sidecar.yaml and docker/kubernetes-sidecar.yaml, in front of real brokers.

What their containers would run is run, with their configuration and variables; addresses and places are replaced.
Three brokers advertise the sidecars on a listener of their own for each of the two files. Those of Kubernetes are a
fleet: the test waits until each has its share.
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_ports
from tests.packaging.conftest import ROOT
from tests.packaging.kubernetes.manifests import documents, expanded, named, of_kind
from tests.support.gateways import available_haproxy
from tests.support.numbered import write_all
from tests.support.printed import PrintedShell, commands, fenced, overrides, section
from tests.support.raw_topics import create
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

NODES: Final = (1, 2, 3)
PRINTED_UPSTREAM: Final = "127.0.0.1:29392"
PAGE: Final = ROOT / "docs" / "how-to" / "when-sluice-is-gone.md"
SERVE: Final = "sluice serve --config /etc/sluice/sluice.toml"  # what the image runs


@dataclass(frozen=True, slots=True)
class Ports:
    """The row of ports of three sidecars: three bootstrap ports, three brokers', three of pages."""

    first: int

    def environment(self, node: int) -> dict[str, str]:
        """What overrides one sidecar's ports."""
        return overrides(self.first + node, self.first_broker, self.pages(node))

    def fleet(self, node: int) -> dict[str, str]:
        """What overrides one sidecar's place in the fleet; the first is the holder."""
        return {
            "SLUICE_FLEET__NAME": f"kafka-{node}",
            "SLUICE_FLEET__BIND": f"{HOST}:{self.first + 10}",
            "SLUICE_FLEET__HOLDER": f"{HOST}:{self.first + 10}",
            "SLUICE_FLEET__ADVERTISED": f"{HOST}:{self.first + 9 + node}",
            "SLUICE_FLEET__SECRET_FILE": "../secret",
        }

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.first + 1}"

    @property
    def first_broker(self) -> int:
        return self.first + 3

    def pages(self, node: int) -> int:
        return self.first + 6 + node


@pytest.fixture(scope="module")
def ports() -> dict[str, Ports]:
    """Those of each file's sidecars, by the brokers' listener."""
    return {name: Ports(free_ports(11)[0]) for name in ("COMPOSE", "KUBERNETES")}


@pytest.fixture(scope="module")
def brokers(ports: dict[str, Ports]) -> Iterator[Cluster]:
    """Brokers that advertise their sidecars."""
    listeners = tuple(
        Listener(name, advertised=tuple((HOST, row.first_broker + node) for node in NODES))
        for name, row in ports.items()
    )
    with Cluster(ClusterOptions(nodes=3, listeners=listeners)) as cluster:
        yield cluster


def sidecar(directory: Path, environment: dict[str, str], upstream: str) -> PrintedShell:
    """The container of one sidecar, not started."""
    etc = directory / "etc"
    return PrintedShell(directory, {"/etc/sluice": str(etc), PRINTED_UPSTREAM: upstream}, environment)


def write_through(brokers: Cluster, row: Ports, shells: list[PrintedShell]) -> None:
    """Write to each broker through its sidecar; each of them is ready, and relayed something."""
    create(brokers, f"sidecars-{row.first}", partitions=6, replication=1, configs={})
    write_all(
        row.bootstrap, f"sidecars-{row.first}", [b"x"] * 6, partitions=6, settings={"client.id": "writer"}
    )
    for node, shell in zip(NODES, shells, strict=True):
        retry = "--retry 30 --retry-delay 1"  # a member is ready when it has its first shares, 15 s after its start
        assert shell.run(f"curl --fail --silent {retry} {HOST}:{row.pages(node)}/readyz") == "ready\n"
        assert "writer" in shell.run(f"curl --fail --silent {HOST}:{row.pages(node)}/clients")


def test_sidecars_of_compose(brokers: Cluster, ports: dict[str, Ports], tmp_path: Path) -> None:
    row = ports["COMPOSE"]
    services = yaml.safe_load((ROOT / "docker" / "compose.sidecar.yaml").read_text())["services"]
    shells: list[PrintedShell] = []
    with ExitStack() as stack:
        for node in NODES:
            upstream = "{}:{}".format(*brokers.address(node, "COMPOSE"))
            environment = {
                name: value.replace(PRINTED_UPSTREAM, upstream)
                for name, value in services[f"sluice-{node}"]["environment"].items()
            }
            place = tmp_path / str(node)
            shutil.copytree(ROOT / "docker" / "sidecar", place / "etc")
            shells.append(
                stack.enter_context(sidecar(place, {**environment, **row.environment(node)}, upstream))
            )
            shells[-1].run(SERVE)
        write_through(brokers, row, shells)
        go_round(row, shells[1])
        take_out(brokers, row, shells[0])


def go_round(row: Ports, shell: PrintedShell) -> None:
    """Kill the second sidecar and go round it as the page says; then start it again."""
    (block,) = fenced(section(PAGE.read_text(), "### A sidecar"))
    write_file, forward = commands(block)
    end_forwarder = fenced(section(PAGE.read_text(), "## 4. The way back"))[0]
    shell.environment["PATH"] += f"{os.pathsep}{Path(available_haproxy()).parent}"
    here = {"bind :9092": f"bind {HOST}:{row.first + 2}", "bind :9101": f"bind {HOST}:{row.first_broker + 2}"}
    for printed, ours in here.items():
        assert printed in write_file
        write_file = write_file.replace(printed, ours)
    shell.kill_serving()
    shell.run(write_file)
    shell.run(forward)
    try:
        # Through another sidecar's bootstrap port, and through the forwarder's.
        for bootstrap in (row.bootstrap, f"{HOST}:{row.first + 2}"):
            write_all(bootstrap, f"sidecars-{row.first}", [b"z"] * 6, partitions=6)
    finally:
        shell.run(end_forwarder)
    shell.run(SERVE)


def take_out(brokers: Cluster, row: Ports, shell: PrintedShell) -> None:
    """Take the first sidecar out as the page says; clients find its broker at its own address.

    The brokers' listener is bound where clients are already: on loopback.
    """
    properties = brokers.directory / "1" / "server.properties"
    direct = "{}:{}".format(*brokers.address(1, "COMPOSE"))
    sidecar_of_1 = f"COMPOSE://{HOST}:{row.first_broker + 1}"
    assert sidecar_of_1 in properties.read_text()
    properties.write_text(properties.read_text().replace(sidecar_of_1, f"COMPOSE://{direct}"))
    brokers.stop_broker(1)
    brokers.start_broker(1)
    text = section(PAGE.read_text(), "## Take it out for good")
    (in_sync,) = [line for block in fenced(text) for line in commands(block) if "under-replicated" in line]
    in_sync = in_sync.replace("kafka2:9092", brokers.bootstrap()).replace(
        "--command-config admin.properties", ""
    )
    until(lambda: not shell.run(in_sync).strip(), "all replicas are in sync")
    shell.stop_serving()
    bootstrap = f"{HOST}:{row.first + 2}"
    write_all(bootstrap, f"sidecars-{row.first}", [b"y"] * 6, partitions=6, settings={"client.id": "writer"})


def test_sidecars_of_kubernetes(brokers: Cluster, ports: dict[str, Ports], tmp_path: Path) -> None:
    row = ports["KUBERNETES"]
    manifests = documents((ROOT / "docker" / "kubernetes-sidecar.yaml").read_text())
    (statefulset,) = of_kind(manifests, "StatefulSet")
    (container,) = statefulset["spec"]["template"]["spec"]["initContainers"]
    shells: list[PrintedShell] = []
    with ExitStack() as stack:
        for node in NODES:
            upstream = "{}:{}".format(*brokers.address(node, "KUBERNETES"))
            (tmp_path / str(node) / "etc").mkdir(parents=True)
            for name, content in named(manifests, "ConfigMap", "sluice")["data"].items():
                (tmp_path / str(node) / "etc" / name).write_text(content)
            label = "metadata.labels['apps.kubernetes.io/pod-index']"
            pod = expanded(container, {"metadata.name": f"kafka-{node}", label: str(node)})
            own = {name: value.replace(PRINTED_UPSTREAM, upstream) for name, value in pod.items()}
            environment = {**own, **row.environment(node), **row.fleet(node)}
            (tmp_path / str(node) / "secret").write_text("word" * 8)
            shells.append(stack.enter_context(sidecar(tmp_path / str(node), environment, upstream)))
            shells[-1].run(shlex.join(["sluice", *container["args"]]))
        write_through(brokers, row, shells)
        until(
            lambda: members(shells[-1], row.pages(3)) == ["kafka-1", "kafka-2", "kafka-3"], "all are members"
        )


def members(shell: PrintedShell, pages: int) -> list[str]:
    """The fleet's members, as one of them says."""
    said = shell.run(f"curl --silent {HOST}:{pages}/fleet")
    return [member["name"] for member in json.loads(said)["members"]]
