"""The wheel in an environment without other packages, away from the checkout."""

import contextlib
import json
import signal
import subprocess
import sys
import tomllib
import zipfile
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import HOST, free_ports, processes
from tests.packaging.conftest import ROOT, bare_environment, run
from tests.support.waiting import until

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
    data = "proxy/commands/costs.toml"  # what `sluice size` computes with
    assert [name for name in names if name.endswith((".pyc", ".toml"))] == [data]


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
        "tzdata",
        "uvloop",
    }


def test_check_judges_the_example_configuration(installed: Path, tmp_path: Path) -> None:
    said = run(
        *(installed / "sluice", "check", "--offline", "--config", ROOT / "sluice.example.toml"), cwd=tmp_path
    )

    assert "is right" in said


def test_wheel_with_the_compiled_data_path_runs_in_both_forms(installed: Path, tmp_path: Path) -> None:
    env = {**bare_environment(), "SLUICE_COMPILE": "1"}
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path)
    run(*build, cwd=ROOT, env=env)
    (built,) = tmp_path.glob("*.whl")
    assert not built.stem.endswith("-py3-none-any")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(unpacked)

    # The packages of the bare environment, this wheel's modules before its own.
    check = (installed / "sluice", "check", "--offline", "--config", ROOT / "sluice.example.toml")
    env = {**bare_environment(), "PYTHONPATH": str(unpacked)}
    said = {pure: run(*check, cwd=tmp_path, env={**env, "SLUICE_PURE": pure}) for pure in ("0", "1")}
    assert "data path: compiled\n" in said["0"]
    assert "data path: interpreted\n" in said["1"]


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
        until(lambda: _status(admin, "/healthz") == 200, log.read_text, _HEALTHY_SECONDS_MAX, 0.1)
        assert _status(admin, "/readyz") == 503  # alive, but there is no cluster to be ready for
        child.send_signal(signal.SIGTERM)
        assert child.wait(_STOP_SECONDS_MAX) == 0, log.read_text()
    finally:
        processes.kill(child)


def _status(port: int, path: str) -> int:
    """Return the status of a page; 0 before the port is open."""
    with (
        contextlib.suppress(OSError),
        contextlib.closing(HTTPConnection(HOST, port, timeout=5)) as connection,
    ):
        connection.request("GET", path)
        return connection.getresponse().status
    return 0
