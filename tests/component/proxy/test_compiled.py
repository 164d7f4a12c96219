"""The compiled form of the data path in real processes: which one runs is said, and both are the same program."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from proxy.system import compiled
from proxy.system.compiled import COMPILED, INTERPRETED
from tests.cluster import HOST
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings
from tests.support.scripted_broker import ScriptedBroker, says
from tests.support.wire import request, wired
from tests.support.workers import worker_ids

SMALL: Final = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\nbroker_id_max = 3\n'
PRODUCE: Final = 0
WORKERS: Final = 2


@pytest.fixture
def made() -> None:
    """Skip where the data path was not compiled; CI compiles it before all tests."""
    if compiled.problem() is None:
        return
    assert os.environ.get("CI") != "true", "CI compiles the data path before all tests"
    pytest.skip("the data path is not compiled, or not from these sources: `make compiled`")


def checked(directory: Path, *more: str, environment: Mapping[str, str]) -> str:
    """What `sluice check --offline` says in a process of its own."""
    path = directory / "sluice.toml"
    path.write_text(SMALL)
    ended = subprocess.run(
        [sys.executable, "-m", "proxy", "check", "--offline", "--config", str(path), *more],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if name != "SLUICE_PURE"}, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stdout


def data_path(directory: Path, **environment: str) -> Any:
    """What `sluice check` says of the data path."""
    return json.loads(checked(directory, "--format", "json", environment=environment))["data_path"]


def test_check_says_that_the_data_path_is_interpreted(tmp_path: Path) -> None:
    assert data_path(tmp_path, SLUICE_PURE="1") == INTERPRETED
    lines = checked(tmp_path, environment={"SLUICE_PURE": "1"}).splitlines()
    assert [line for line in lines if line.startswith("data path")] == ["data path: interpreted"]


@pytest.mark.usefixtures("made")
def test_check_says_that_the_data_path_is_compiled(tmp_path: Path) -> None:
    assert data_path(tmp_path) == COMPILED
    lines = checked(tmp_path, environment={}).splitlines()
    assert [line for line in lines if line.startswith(("data path", "warning"))] == ["data path: compiled"]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(("pure", "form"), [("0", COMPILED), ("1", INTERPRETED)])
def test_workers_run_the_data_path_as_control_does_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pure: str, form: str
) -> None:
    monkeypatch.setenv("SLUICE_PURE", pure)
    with ScriptedBroker() as broker:
        settings = SluiceSettings(broker.address, sections={"process": {"workers": WORKERS}})
        with SluiceProcess.configured(settings, tmp_path) as sluice:
            assert sluice.metric("sluice_build_info", data_path=form) == 1
            processes = [sluice.process_id, *worker_ids(sluice).values()]
            found = ["sluice__mypyc" in Path(f"/proc/{pid}/maps").read_text() for pid in processes]
            assert found == [form == COMPILED] * (1 + WORKERS)


@pytest.mark.usefixtures("made")
def test_control_reads_what_compiled_workers_tell_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with a quota and without one: msgspec reads the types of their figures while the process runs."""
    monkeypatch.delenv("SLUICE_PURE", raising=False)
    with ScriptedBroker() as broker:
        broker.script = says(bytes(4 + 4))  # no topics, no throttle time
        settings = SluiceSettings(
            broker.address,
            sections={"process": {"workers": WORKERS}},
            client_quotas={"limited": {"producer_byte_rate": 1000}},
        )
        with SluiceProcess.configured(settings, tmp_path) as sluice, contextlib.ExitStack() as stack:
            for name in ("limited", "free") * 4:
                wire = stack.enter_context(wired((HOST, sluice.ports.bootstrap), name))
                wire.ask(request(PRODUCE, 3, transactional_id=None, acks=1, timeout=1000, topics=[]))
            text = sluice.get("/clients")[1]
            assert ("missing" in text, "limited" in text, "free" in text) == (False, True, True), text
            assert sluice.metric("sluice_worker_up") == WORKERS
            assert sluice.metric("sluice_worker_exits_total") == 0
