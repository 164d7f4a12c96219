"""The README's first minute, and the gateway's compose and Kubernetes files.

Their commands are carried out one by one as printed, on real brokers. Addresses, ports and the place of the
installation are replaced: other tests run at the same time. What needs a container engine is left out; what its
containers would run is run.
"""

import secrets
import shlex
import shutil
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import yaml

from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import parse
from tests.cluster import HOST, Cluster, free_ports
from tests.cluster.sasl import SASL, password
from tests.conftest import CreateTopic
from tests.packaging.conftest import ROOT
from tests.packaging.kubernetes.manifests import documents, expanded, named
from tests.support.numbered import write_all
from tests.support.printed import PrintedShell, commands, commented, fenced, overrides, section
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)

BROKER_IDS: Final = 64  # of a listener that does not say how many
SHIPPED: Final = (
    *("protocol", "quotas", "commandline", "kafka_client", "console", "proxy", "offline"),
    *("requirements", "docker", "docs"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without what was built or installed in this one."""
    made = tmp_path / "checkout"
    made.mkdir()
    for name in SHIPPED:
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.*"):
        if path.is_file():
            shutil.copy(path, made)
    shutil.copy(ROOT / "LICENSE", made)
    return made


class Ports:
    """A row of free ports: bootstrap, then a gap, then one a broker, then the pages."""

    def __init__(self, brokers: int = BROKER_IDS) -> None:
        row = free_ports(brokers + 2)
        self.bootstrap, self.first_broker, self.admin = row[0], row[1], row[-1]

    def environment(self) -> dict[str, str]:
        """What overrides the ports of a configuration file."""
        return overrides(self.bootstrap, self.first_broker, self.admin)


def write(bootstrap: str, topic: str, client_id: str, records: int = 1) -> None:
    """Write records of 100 kB through Sluice."""
    write_all(bootstrap, topic, [b"x" * 100_000] * records, settings={"client.id": client_id})


def test_first_minute_of_the_readme(kafka: Cluster, checkout: Path, create_topic: CreateTopic) -> None:
    ports = Ports()
    sluice, pages = f"{HOST}:{ports.bootstrap}", f"{HOST}:{ports.admin}"
    _, start, look = fenced(section((ROOT / "README.md").read_text(), "## The first minute"))
    replaced = {"localhost:9092": kafka.bootstrap(), "127.0.0.1:19090": sluice, "localhost:19080": pages}

    with PrintedShell(checkout, replaced, {"SLUICE_ADMIN__BIND": pages}) as shell:
        for command in commands(start):
            shell.run(command)
        assert "policy=schedule scope=cluster" in shell.log()
        write(sluice, create_topic(), "reports")
        printed = [shell.run(command) for command in commands(look)]

    clients, altered, quotas = printed
    assert "reports" in clients
    assert "Completed updating config" in altered
    assert tomllib.loads(quotas) == {"quota": [{"client_id": "reports", "producer_byte_rate": "4M"}]}


class Container:
    """What a gateway's container would run, in a directory that stands for its places.

    Args:
        directory: gets `etc` and `var`, for /etc/sluice and /var/lib/sluice.
        environment: of the container.
    """

    def __init__(self, directory: Path, cluster: Cluster, environment: dict[str, str]) -> None:
        self.ports = Ports(8)
        self.sluice = f"{HOST}:{self.ports.bootstrap}"
        self.etc, self.var = directory / "etc", directory / "var"
        self.etc.mkdir()
        self.var.mkdir()
        self.quotas = self.var / "quotas.toml"
        places = {"/etc/sluice": str(self.etc), "/var/lib/sluice": str(self.var)}
        self.shell = PrintedShell(
            directory,
            {**places, "127.0.0.1:19090": self.sluice, "sluice:19090": self.sluice},
            {
                **environment,
                **self.ports.environment(),
                "SLUICE_CLUSTER__BOOTSTRAP": cluster.bootstrap(SASL),
                "SLUICE_QUOTAS__FILE": str(self.quotas),
                "SLUICE_STATE__DIRECTORY": str(self.var),
                "ADMIN_PASSWORD": password("admin"),
            },
        )

    def alter_as_printed(self, text: str) -> None:
        """Serve; let the administrator alter a quota as a file's comment says; see it kept."""
        compose = commands(commented((ROOT / "docker" / "compose.yaml").read_text()))
        (properties,) = [command for command in compose if command.startswith("cat > admin.properties")]
        (alter,) = [command for command in commands(commented(text)) if "kafka-configs.sh" in command]
        check, serve = (
            f"sluice {command} --config /etc/sluice/sluice.toml" for command in ("check", "serve")
        )
        assert "altered by user 'admin'\n" in self.shell.run(check)
        self.shell.run(serve)
        self.shell.run(properties)
        assert "Completed updating config" in self.shell.run(alter)
        kept = dict(parse(self.quotas.read_text()).entries())
        assert kept[Entity("reports")]["producer_byte_rate"] == 4_000_000


def test_gateway_of_compose(kafka: Cluster, tmp_path: Path) -> None:
    text = (ROOT / "docker" / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    service, (copy,) = services["sluice"], services["quotas"]["command"]
    copies = shlex.join([sys.executable, "-c", copy])
    given = {"SLUICE_PASSWORD": password("sluice")}
    environment = {name: value.strip("${}") for name, value in service["environment"].items()}
    container = Container(tmp_path, kafka, {name: given[value] for name, value in environment.items()})
    shutil.copytree(ROOT / "docker" / "gateway", container.etc, dirs_exist_ok=True)  # mounted

    with container.shell as shell:
        shell.run(copies)
        container.alter_as_printed(text)
        altered = container.quotas.read_text()
        shell.run(copies)  # a second `up`
        assert container.quotas.read_text() == altered
        others = shell.here((tmp_path / "admin.properties").read_text()).replace("admin", "reports")
        (tmp_path / "admin.properties").write_text(others)
        (alter,) = [command for command in commands(commented(text)) if "kafka-configs.sh" in command]
        with pytest.raises(AssertionError, match=r'To allow it, add "reports" to alter_principals'):
            shell.run(alter)


def test_gateways_of_kubernetes(kafka: Cluster, tmp_path: Path) -> None:
    text = (ROOT / "docker" / "kubernetes-gateway.yaml").read_text()
    manifests = documents(text)
    (container,) = named(manifests, "StatefulSet", "sluice")["spec"]["template"]["spec"]["containers"]
    own = secrets.token_hex(4)
    fleet = {
        "SLUICE_CLUSTER__BOOTSTRAP": kafka.bootstrap(SASL),
        "SLUICE_FLEET__GROUP": f"__sluice-{own}",
        "SLUICE_QUOTAS__TOPIC": f"__sluice-quotas-{own}",
        "SLUICE_QUOTAS__AUDIT_TOPIC": f"__sluice-audit-{own}",
        "ADMIN_PASSWORD": password("admin"),
    }
    with ExitStack() as stack:
        shells = []
        for member in range(2):
            ports, address = Ports(6), f"{HOST}:{free_ports(1)[0]}"
            place = tmp_path / str(member)
            for name in ("etc", "secrets/cluster-password", "secrets/fleet", "var"):
                (place / name).mkdir(parents=True)
            (place / "secrets" / "cluster-password" / "password").write_text(password("sluice"))
            (place / "secrets" / "fleet" / "secret").write_text(own * 8)
            sluice = f"{HOST}:{ports.bootstrap}"
            places = {
                "/etc/sluice-secrets": str(place / "secrets"),
                "/etc/sluice": str(place / "etc"),
                "/var/lib/sluice": str(place / "var"),
                "sluice:19090": sluice,
            }
            pod = expanded(container, {"metadata.name": f"sluice-{member}"})
            at = {"SLUICE_FLEET__BIND": address, "SLUICE_FLEET__ADVERTISED": address}
            environment = {**pod, **fleet, **ports.environment(), **at, "SLUICE": sluice}
            shell = stack.enter_context(PrintedShell(place, places, environment))
            for name, content in named(manifests, "ConfigMap", "sluice")["data"].items():
                (place / "etc" / name).write_text(shell.here(content))
            shell.run(shlex.join(["sluice", *container["args"]]))
            shells.append(shell)
        compose = commands(commented((ROOT / "docker" / "compose.yaml").read_text()))
        (properties,) = [command for command in compose if command.startswith("cat > admin.properties")]
        (alter,) = [command for command in commands(commented(text)) if "kafka-configs.sh" in command]
        for shell in shells:
            shell.run(properties)

        assert "Completed updating config" in shells[0].run(alter)

        export = "sluice quotas export --bootstrap-server $SLUICE --command-config admin.properties"

        def kept() -> object:
            quotas = dict(parse(shells[1].run(export)).entries())
            return quotas.get(Entity("reports"), {}).get("producer_byte_rate")

        until(lambda: kept() == 4_000_000, "the other member has the quota")

        def members() -> str:
            return shells[1].run("sluice fleet --admin $SLUICE_ADMIN__BIND")

        # A member that has just come learns who else there is with its next report to the holder.
        until(lambda: {"sluice-0", "sluice-1"} <= set(members().split()), "each member is listed")
