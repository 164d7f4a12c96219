"""`sluice serve` whose admin port asks for a token within TLS: as one process, with workers, and in a fleet."""

import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import HOST, free_ports
from tests.support.admin_papers import OTHER_TOKEN, TOKEN, AdminPapers
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings, fleet_secret
from tests.support.scripted_broker import ScriptedBroker
from tests.support.waiting import until


@pytest.fixture
def papers(tmp_path: Path) -> AdminPapers:
    (tmp_path / "papers").mkdir()
    return AdminPapers(tmp_path / "papers")


@pytest.fixture(params=[1, 2], ids=["one process", "workers"])
def settings(request: pytest.FixtureRequest, papers: AdminPapers, tmp_path: Path) -> Iterator[SluiceSettings]:
    """A fleet of one member; its admin port has a token, and shows a certificate that does not name 127.0.0.1."""
    fleet = f"{HOST}:{free_ports(1)[0]}"
    papers.own = papers.authority.issue("named", names="subjectAltName=DNS:localhost")
    keys = {"cert_file": str(papers.own.cert_file), "key_file": str(papers.own.key_file)}
    sections: dict[str, dict[str, object]] = {
        "process": {"workers": request.param},
        "limits": {"drain_seconds": 2},
        "admin": {"token_file": str(papers.token_file)},
        "admin.tls": {**keys, "client_ca_file": str(papers.authority.cert_file), "client_auth": "requested"},
        "fleet": {"name": "gw-1", "bind": fleet, "holder": fleet, "secret_file": fleet_secret(tmp_path)},
    }
    with ScriptedBroker() as broker:
        yield SluiceSettings(broker.address, sections=sections)


@pytest.fixture
def sluice(settings: SluiceSettings, papers: AdminPapers, tmp_path: Path) -> Iterator[SluiceProcess]:
    process = SluiceProcess.configured(settings, tmp_path)
    process.context = papers.context()
    process.context.check_hostname = False
    process.token = TOKEN
    with process as found:
        yield found


def test_process_asks_for_the_token_counts_refusals_and_takes_new_files_live(
    sluice: SluiceProcess, papers: AdminPapers
) -> None:
    assert sluice.document("/v1/status")["member"] == "gw-1"
    sluice.token = OTHER_TOKEN
    assert sluice.get("/v1/status") == (401, "wrong token: it is not in admin.token_file\n")
    assert sluice.get("/readyz")[0] == 200
    papers.write_tokens(OTHER_TOKEN)
    sluice.signal(signal.SIGHUP)
    until(lambda: sluice.get("/v1/status")[0] == 200)
    assert sluice.metric("sluice_admin_refused_total", reason="wrong_token") >= 1
    assert sluice.metric("sluice_certificate_expiry_timestamp_seconds", tls="admin.tls") > 0
    sluice.token = TOKEN
    assert sluice.get("/metrics")[0] == 401

    later = papers.authority.issue("later", "/CN=later", names="subjectAltName=DNS:localhost")
    shutil.copy(later.cert_file, papers.own.cert_file)  # noticed by itself, when both have stayed the same
    shutil.copy(later.key_file, papers.own.key_file)
    assert sluice.context is not None
    new = later.cert_file.read_text()
    until(lambda: ssl.get_server_certificate((HOST, sluice.ports.admin)).split() == new.split())
    assert TOKEN not in sluice.log()
    assert OTHER_TOKEN not in sluice.log()


def test_check_compares_with_its_own_member_by_the_files_of_the_configuration(sluice: SluiceProcess) -> None:
    """It knows the port by its certificate, whatever names are in it."""
    until(lambda: sluice.document("/v1/fleet")["members"])
    (member,) = sluice.document("/v1/fleet")["members"]
    assert member["admin"] == f"https://{HOST}:{sluice.ports.admin}"
    line = [sys.executable, "-m", "proxy", "check", "--config", str(sluice.directory / "sluice.toml")]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    where = f"https://{HOST}:{sluice.ports.admin}"
    assert f"members of the fleet, by {where}: gw-1\n" in done.stdout, done.stdout + done.stderr
    assert f"admin: {where}/, a token, client certificates requested\n" in done.stdout
