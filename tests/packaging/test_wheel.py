"""The wheel in an environment without other packages, away from the checkout."""

import contextlib
import http.client
import json
import signal
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import HOST, free_ports, processes
from tests.packaging.conftest import ROOT, bare_environment, run

pytestmark = pytest.mark.timeout(400)

_HEALTHY_SECONDS_MAX: Final = 30.0
_STOP_SECONDS_MAX: Final = 30.0


def _project() -> dict[str, object]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(project, dict)
    return project


def test_wheel_has_the_seven_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    tops = {name.split("/")[0] for name in names}
    packages = {"protocol", "quotas", "commandline", "kafka_client", "console", "proxy", "offline"}
    assert tops == packages | {f"kafka_sluice-{_project()['version']}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith((".pyc", ".toml"))]


def test_version_is_the_projects(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "sluice", "--version", cwd=tmp_path).strip() == f"sluice {_project()['version']}"


def test_base_install_is_the_proxy_alone(installed: Path, tmp_path: Path) -> None:
    pip = (installed / "python", "-m", "pip", "--disable-pip-version-check")  # its advice is not JSON
    listed = json.loads(run(*pip, "list", "--format", "json", cwd=tmp_path))
    names = {package["name"].lower().replace("_", "-") for package in listed}

    assert names - {"pip", "setuptools"} == {
        "kafka-python",
        "kafka-sluice",
        "msgspec",
        "prometheus-client",
        "uvloop",
    }


def test_check_judges_the_example_configuration(installed: Path, tmp_path: Path) -> None:
    said = run(
        *(installed / "sluice", "check", "--offline", "--config", ROOT / "sluice.example.toml"), cwd=tmp_path
    )

    assert "is right" in said


def test_pipeline_names_the_missing_packages(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "sluice-offline", "demand", "--input", "x"],
        cwd=tmp_path,
        env=dict(bare_environment()),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("-m pip install --require-hashes -r requirements/offline.txt\n")


def test_serve_responds_to_healthz_without_a_cluster_and_stops_when_told(
    installed: Path, tmp_path: Path
) -> None:
    bootstrap, *_, admin, unused = free_ports(80)  # no process listens at the last one
    log = tmp_path / "serve.log"
    command = [
        *(str(installed / "sluice"), "serve", "--bootstrap-server", f"{HOST}:{unused}"),
        *("--listen", f"{HOST}:{bootstrap}", "--admin", f"{HOST}:{admin}"),
        *("--quota", "client-id=a,producer_byte_rate=2000000"),
    ]
    child = processes.start(command, log=log, cwd=tmp_path, env=bare_environment())
    try:
        assert _wait_healthy(admin) == 200, log.read_text()
        assert _status(admin, "/readyz") == 503  # alive, but there is no cluster to be ready for
        child.send_signal(signal.SIGTERM)
        assert child.wait(_STOP_SECONDS_MAX) == 0, log.read_text()
    finally:
        processes.kill(child)


def _wait_healthy(port: int) -> int:
    deadline = time.monotonic() + _HEALTHY_SECONDS_MAX
    status = 0
    while status != 200 and time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status = _status(port, "/healthz")
        time.sleep(0.1)
    return status


def _status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
