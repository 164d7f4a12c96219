"""docs/how-to/secure-the-admin-port.md: its commands, configurations and scrape file, carried out as printed."""

import ssl
import tomllib
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.cluster import HOST, Cluster, free_ports
from tests.packaging.conftest import ROOT
from tests.support.printed import PrintedShell, commands, fenced, section
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(240)
PAGE = (ROOT / "docs" / "how-to" / "secure-the-admin-port.md").read_text(encoding="utf-8")
GATEWAY = (
    '[cluster]\nbootstrap = "{kafka}"\n[[listeners]]\nbootstrap_port = {port}\nfirst_broker_port = {first}\n'
)


def run(shell: PrintedShell, heading: str) -> list[str]:
    """Carry out the commands below a heading; return what each has printed."""
    blocks = fenced(section(PAGE, f"## {heading}"))
    return [shell.run(command) for block in blocks for command in commands(block)]


def configure(shell: PrintedShell, heading: str, gateway: str) -> str:
    """Write the configuration that is printed below a heading, and serve with it; return what `check` says of it."""
    (printed,) = fenced(section(PAGE, f"## {heading}"), "toml")
    assert "0.0.0.0:19080" in printed
    (shell.directory / "sluice.toml").write_text(gateway + shell.here(printed))
    shell.stop_serving()
    checked = shell.run("sluice check --config sluice.toml")
    shell.run("sluice serve --config sluice.toml")
    return checked


def test_page_on_the_admin_port(kafka: Cluster, tmp_path: Path) -> None:
    row = free_ports(66)
    where = f"{HOST}:{row[-1]}"
    gateway = GATEWAY.format(kafka=kafka.bootstrap(), port=row[0], first=row[1])
    with PrintedShell(tmp_path, {"gw-1:19080": where, "0.0.0.0:19080": f"0.0.0.0:{row[-1]}"}) as shell:
        run(shell, "Make a certificate")
        run(shell, "Make a token")
        checked = configure(shell, "Configure the port", gateway)
        assert f"admin: https://0.0.0.0:{row[-1]}/, a token\n" in checked
        assert "warning: admin" not in checked
        top, enforcement, status = run(shell, "Ask")
        assert "0 clients" in top
        assert "quotas are enforced" in enforcement
        assert '"mode":"enforce"' in status.replace(" ", "")

        scraped(shell, where)
        probed(shell, where)

        replaced = section(PAGE, "## Replace a token or a certificate")
        add, remove = (command for block in fenced(replaced) for command in commands(block))
        ask = commands(fenced(section(PAGE, "## Ask"))[0])[1]
        old = (tmp_path / "admin.token").read_text()
        shell.run(add)
        assert (tmp_path / "admin.token").read_text().endswith(old)
        until(lambda: "quotas are enforced" in shell.run(ask, exits=(0, 1)))
        shell.run(remove)
        assert old not in (tmp_path / "admin.token").read_text()
        (tmp_path / "old.token").touch(0o600)
        (tmp_path / "old.token").write_text(old)
        with_old = ask.replace("admin.token", "old.token")
        until(lambda: "wrong token" in shell.run(with_old, exits=(0, 1)))
        assert "quotas are enforced" in shell.run(ask)

        configure(shell, "Client certificates", gateway)
        *_, shown = run_with_code(shell, "Client certificates")
        assert "is no member of a fleet" in shown


def run_with_code(shell: PrintedShell, heading: str) -> list[str]:
    """As `run`; the last command may be answered with no."""
    *before, last = (
        command for block in fenced(section(PAGE, f"## {heading}")) for command in commands(block)
    )
    return [*map(shell.run, before), shell.run(last, exits=(1,))]


def scraped(shell: PrintedShell, where: str) -> None:
    """Ask for /metrics as the scrape configuration has Prometheus ask."""
    (text,) = fenced(section(PAGE, "## Prometheus"), "yaml")
    (job,) = yaml.safe_load(shell.here(text))["scrape_configs"]
    assert job["static_configs"] == [{"targets": [where]}]
    shell.run(f"head -n 1 admin.token > {job['authorization']['credentials_file']}")
    token = (shell.directory / job["authorization"]["credentials_file"]).read_text().strip()
    context = ssl.create_default_context(cafile=shell.directory / job["tls_config"]["ca_file"])
    request = urllib.request.Request(
        f"{job['scheme']}://{where}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=20, context=context) as response:
        assert b"sluice_admin_refused_total" in response.read()


def probed(shell: PrintedShell, where: str) -> None:
    """Ask as the probes have a kubelet ask: it checks no certificate, and shows no token."""
    (text,) = fenced(section(PAGE, "## Kubernetes"), "yaml")
    kubelet = ssl.create_default_context()
    kubelet.check_hostname, kubelet.verify_mode = False, ssl.CERT_NONE
    for probe in yaml.safe_load(text).values():
        get = probe["httpGet"]
        url = f"{get['scheme'].lower()}://{where}{get['path']}"
        with urllib.request.urlopen(url, timeout=20, context=kubelet) as response:
            assert response.status == 200


def test_configurations_of_the_page_have_the_keys_that_they_are_said_to_have() -> None:
    first, second = (tomllib.loads(text) for text in fenced(PAGE, "toml"))
    assert second["admin"].pop("tls") == {
        **first["admin"].pop("tls"),
        "client_ca_file": "admin-ca.pem",
        "client_auth": "requested",
    }
    assert first == second
