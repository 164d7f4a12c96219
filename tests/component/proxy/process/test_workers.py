"""`[process] workers`: several processes as one, and what happens when one of them ends, stops, or cannot start."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import HOST
from tests.support.proxy_process import ROOT, SluiceError, SluicePorts, SluiceProcess, SluiceSettings
from tests.support.quota_client import describe, set_rates
from tests.support.scripted_broker import ScriptedBroker
from tests.support.wire import request, wired
from tests.support.workers import is_ready, until_of, worker_ids

METADATA = 3
WORKERS = 2
CONNECTIONS = 32  # the chance that one of two workers has none of them is 2 / 2**32
SECONDS_MAX = 20.0


@pytest.fixture
def settings() -> Iterator[SluiceSettings]:
    """Two workers in front of a broker that responds to Metadata."""
    with ScriptedBroker() as broker:
        sections = {"process": {"workers": WORKERS}, "limits": {"drain_seconds": 5}}
        yield SluiceSettings(broker.address, sections=sections)


@pytest.fixture
def sluice(settings: SluiceSettings, tmp_path: Path) -> Iterator[SluiceProcess]:
    """Two workers that the test itself may end."""
    process = SluiceProcess.configured(settings, tmp_path)
    try:
        yield process.wait_ready()
    finally:
        process.kill()


def connected(sluice: SluiceProcess) -> list[socket.socket]:
    """Open idle connections at the bootstrap port."""
    return [socket.create_connection((HOST, sluice.ports.bootstrap)) for _ in range(CONNECTIONS)]


def is_open(sock: socket.socket) -> bool:
    """Whether the other side has not closed the connection."""
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_connections_are_spread_and_a_killed_worker_ends_its_own_only_and_is_replaced(
    sluice: SluiceProcess,
) -> None:
    connections = connected(sluice)
    until_of(lambda: sluice.metric("sluice_connections") == CONNECTIONS, sluice)
    until_of(lambda: sluice.metric("sluice_worker_connections") == CONNECTIONS, sluice)
    of_other = int(sluice.metric("sluice_worker_connections", worker="2"))
    assert 0 < of_other < CONNECTIONS
    opened = sluice.metric("sluice_connections_opened_total")
    os.kill(worker_ids(sluice)[1], signal.SIGKILL)
    until_of(lambda: sluice.metric("sluice_worker_exits_total", cause="killed") == 1, sluice)
    until_of(lambda: is_ready(sluice), sluice)
    assert sum(map(is_open, connections)) == of_other
    assert sluice.metric("sluice_connections") == of_other
    assert sluice.metric("sluice_connections_opened_total") == opened  # of a dead process too
    for sock in connections:
        sock.close()
    assert sluice.stop() == 0


def test_workers_drain_and_end_when_control_is_killed(sluice: SluiceProcess) -> None:
    children = worker_ids(sluice)
    assert len(children) == WORKERS
    os.kill(sluice.process_id, signal.SIGKILL)

    def runs(pid: int) -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"

    until_of(lambda: not any(map(runs, children.values())), sluice)
    assert "the control process has ended; draining" in sluice.log()


def test_scrape_does_not_wait_for_a_worker_that_is_stopped(sluice: SluiceProcess) -> None:
    stopped = worker_ids(sluice)[2]
    before = sluice.metric("sluice_connections_opened_total")
    os.kill(stopped, signal.SIGSTOP)
    try:
        began = time.monotonic()
        text = sluice.get("/metrics")[1]
        assert time.monotonic() - began < 8  # two questions of 2 s each, and a busy machine
        assert 'sluice_worker_up{worker="1"} 1' in text
        assert 'sluice_worker_up{worker="2"} 0' in text
        assert sluice.metric("sluice_connections_opened_total") == before
    finally:
        os.kill(stopped, signal.SIGCONT)
    until_of(lambda: sluice.metric("sluice_worker_up") == WORKERS, sluice)
    assert sluice.metric("sluice_worker_exits_total") == 0


OF_WORKERS = (
    "/v1/clients",
    "/v1/rules",
    "/v1/brokers",
    "/v1/client?client_id=a",
    "/v1/client?client_id=a&user=",
)
OF_CONTROL = ("/v1/status", "/v1/events", "/v1/fleet", "/v1/capacities")


def missing(sluice: SluiceProcess, path: str) -> tuple[int, list[int]]:
    """Return a document's status, and the numbers of the workers that it lacks."""
    status, text = sluice.get(path)
    found = json.loads(text)["missing"]
    assert all(one["problem"] for one in found)
    return status, [one["worker"] for one in found]


def test_every_page_says_which_workers_it_lacks_and_is_503_without_any(sluice: SluiceProcess) -> None:
    workers = worker_ids(sluice)
    paths = (*OF_WORKERS, *OF_CONTROL)
    assert [missing(sluice, path) for path in paths] == [(200, [])] * 3 + [(404, [])] * 2 + [(200, [])] * 4
    with contextlib.ExitStack() as stack:
        stack.callback(os.kill, workers[2], signal.SIGCONT)
        os.kill(workers[2], signal.SIGSTOP)
        # None knows the client, so it may be one of the missing worker's.
        assert [missing(sluice, path) for path in OF_WORKERS] == [(200, [2])] * 3 + [(503, [2])] * 2
        assert [missing(sluice, path) for path in OF_CONTROL] == [(200, [2])] * 4
        for path in ("/", "/clients"):
            status, text = sluice.get(path)
            assert (status, "worker 2 is missing (silent for " in text) == (200, True)
        assert is_ready(sluice)
        began = time.monotonic()
        for path in (*OF_WORKERS, "/clients", "/metrics"):
            sluice.get(path)
        assert time.monotonic() - began < 2  # what is known to be silent is not waited for
        stack.callback(os.kill, workers[1], signal.SIGCONT)
        os.kill(workers[1], signal.SIGSTOP)
        assert [missing(sluice, path) for path in OF_WORKERS] == [(503, [1, 2])] * 5
        assert missing(sluice, "/clients") == (503, [1, 2])
        assert [missing(sluice, path) for path in OF_CONTROL] == [(200, [1, 2])] * 4
        assert "workers 1 (silent for " in sluice.get("/")[1]
        status, text = sluice.get("/metrics")  # control's own figures, of which these are
        assert status == 200
        assert 'sluice_worker_up{worker="1"} 0' in text
        assert sluice.metric("sluice_worker_missed_total", worker="1") >= len(OF_WORKERS)
        assert sluice.get("/readyz") == (503, "not ready: no worker responds\n")
    until_of(lambda: missing(sluice, "/v1/clients") == (200, []), sluice)
    until_of(lambda: is_ready(sluice), sluice)


def test_worker_without_descriptors_makes_it_not_ready_until_it_has_some(
    settings: SluiceSettings, tmp_path: Path
) -> None:
    limit = ["prlimit", "--nofile=128:128"]
    with SluiceProcess.configured(settings, tmp_path, limit) as sluice, contextlib.ExitStack() as stack:
        for _ in range(300):
            sock = stack.enter_context(socket.socket())
            sock.settimeout(1)
            with contextlib.suppress(OSError):  # left in the listener's queue
                sock.connect((HOST, sluice.ports.bootstrap))
        until_of(lambda: not is_ready(sluice), sluice)
        status, text = sluice.get("/readyz")
        assert status == 503
        assert "listener 'clients' accepts no connection: Too many open files" in text
        assert json.loads(sluice.get("/v1/status")[1])["ready"] in text
        stack.close()
        until_of(lambda: is_ready(sluice), sluice)


def test_port_in_use_is_an_error_as_with_one_process(settings: SluiceSettings, tmp_path: Path) -> None:
    with socket.create_server((HOST, settings.ports.bootstrap)):
        process = SluiceProcess.configured(settings, tmp_path)
        with pytest.raises(
            SluiceError, match=r"ended by itself with 1\n(.|\n)*cannot be bound: Address already"
        ):
            process.wait_ready()


def test_worker_that_cannot_be_executed_ends_the_start(settings: SluiceSettings, tmp_path: Path) -> None:
    program = "import sys; from proxy.cli import main; sys.executable = '/none'; sys.exit(main(sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", program, "serve", "--config", str(settings.write(tmp_path))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "cannot be started: [Errno 2] No such file or directory" in ended.stderr.splitlines()[-1]


def test_ports_of_another_sluice_with_workers_are_in_use(
    sluice: SluiceProcess, settings: SluiceSettings, tmp_path: Path
) -> None:
    admin = SluicePorts.free()
    second = tmp_path / "second"
    second.mkdir()
    path = replace(settings, sections={"process": {"workers": 2}}).write(second)
    path.write_text(path.read_text().replace(str(settings.ports.admin), str(admin.admin)))
    process = SluiceProcess(["--config", str(path)], admin, second)
    with pytest.raises(SluiceError, match="cannot be bound: Address already in use"):
        process.wait_ready()


def test_worker_that_cannot_start_ends_the_process_with_its_reason(
    settings: SluiceSettings, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    sections = {**settings.sections, "capture": {"directory": str(blocked / "capture")}}
    process = SluiceProcess.configured(replace(settings, sections=sections), tmp_path)
    with pytest.raises(SluiceError, match=r"ended by itself with 1\n(.|\n)*sluice: capture.directory"):
        process.wait_ready()


def test_quota_that_is_altered_through_one_worker_holds_in_all(sluice: SluiceProcess) -> None:
    for rate in (1000.0, 2000.0):
        assert set_rates(sluice.bootstrap, a=rate) == [(0, "")]
        for _ in range(8):  # whichever worker responds
            assert rate in rates(sluice)


def rates(sluice: SluiceProcess) -> list[float]:
    """All quotas that a description shows."""
    found = describe(sluice.bootstrap).values()
    return [limits["producer_byte_rate"] for limits in found if "producer_byte_rate" in limits]


def test_switch_reaches_all_workers(sluice: SluiceProcess) -> None:
    assert sluice.metric("sluice_enforcing") == 1
    sluice.signal(signal.SIGUSR1)
    until_of(lambda: sluice.metric("sluice_enforcing") == 0, sluice)
    sluice.signal(signal.SIGUSR1)
    until_of(lambda: sluice.metric("sluice_enforcing") == 1, sluice)


def test_workers_ignore_the_signals_that_are_for_control(sluice: SluiceProcess) -> None:
    for pid in worker_ids(sluice).values():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            os.kill(pid, number)
    with wired((HOST, sluice.ports.bootstrap)) as wire:
        wire.ask(request(METADATA, 1, topics=[]))
    assert is_ready(sluice)
    assert sluice.metric("sluice_worker_exits_total") == 0
    assert sluice.stop() == 0
