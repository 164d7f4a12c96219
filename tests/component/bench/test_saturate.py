"""The two ends of `make saturate` and `make latency`, without a proxy between them."""

import json
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protocol.api import API_VERSIONS, FETCH, PRODUCE
from tests.bench import latency
from tests.bench.lanes import wait_for
from tests.bench.process import Child
from tests.bench.saturate import __main__ as saturate
from tests.bench.saturate import canned
from tests.cluster import HOST, free_ports, processes
from tests.support.certificates import Authority
from tests.support.frames import frame


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    saturate.build()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    """The port of a broker whose Fetch responses hold 64 KiB."""
    port = free_ports(1)[0]
    canned.write(tmp_path / "responses", canned.responses(port, 64 * 1024))
    command = [str(saturate.PROGRAM), "broker", str(port), str(tmp_path / "responses")]
    child = processes.start(command, log=tmp_path / "broker.log")
    wait_for(port, child, tmp_path / "broker.log")
    yield port
    processes.end(child)


@pytest.mark.parametrize(("api", "size"), [("produce", 100), ("produce", 300_000), ("fetch", 0)])
def test_generator_counts_the_brokers_responses(broker: int, tmp_path: Path, api: str, size: int) -> None:
    canned.write(tmp_path / "requests", canned.requests(api, size))
    command = [str(saturate.PROGRAM), "generator", str(broker), str(tmp_path / "requests"), "3", "4"]
    with Child(command, tmp_path / "log") as child:
        assert child.hear() == "ready"
        for _ in range(2):
            child.say("0.2")
            assert child.hear() == "begins"
            found = json.loads(child.hear())
            assert found["responses"] > 12  # more than are under way at once
            assert 0.2 <= found["seconds"] < 5
            assert 0 < found["p50_us"] <= found["p99_us"]


def test_response_to_another_request_ends_the_generator(tmp_path: Path) -> None:
    canned.write(tmp_path / "requests", canned.requests("produce", 100)[-1:])

    def respond(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(frame(struct.pack(">i", 77)))
            peer.recv(4096)  # until the generator is gone

    with socket.create_server((HOST, 0)) as server:
        thread = threading.Thread(target=respond, args=(server,))
        thread.start()
        words = (saturate.PROGRAM, "generator", server.getsockname()[1], tmp_path / "requests", 1, 1)
        command = [str(word) for word in words]
        done = subprocess.run(command, input="0.5\n", capture_output=True, text=True, timeout=20, check=False)
        thread.join()
    assert done.returncode == 1
    assert "response 77, expected 0" in done.stderr


def test_every_version_has_a_response_whose_length_is_right() -> None:
    found = canned.responses(9092, 1000)
    assert all(struct.unpack(">i", data[:4])[0] == len(data) - 4 for _, _, data in found)
    keys = {key for key, _, _ in found}
    assert {canned.ANYTHING, API_VERSIONS, PRODUCE, FETCH} <= keys
    sizes = [len(data) for key, _, data in found if key == FETCH]
    assert all(1000 < size < 1200 for size in sizes)  # the records, and fields around them


def test_bars_are_for_shapes_that_are_measured() -> None:
    assert set(saturate.BARS) <= {shape.name for shape in saturate.SHAPES}


def open_loop(port: int, directory: Path, due: NDArray[Any], connections: int, *tls: str) -> NDArray[Any]:
    """Let a generator keep a schedule; return what it found."""
    canned.write(directory / "requests", canned.requests("produce", 100))
    due.tofile(directory / "schedule")
    words = [str(port), str(directory / "requests"), str(connections), "0", *tls]
    with Child([str(saturate.PROGRAM), "generator", *words], directory / "log") as child:
        assert child.hear() == "ready"
        reported = child.ask(f"{directory / 'schedule'} {directory / 'found'}")
    found = np.fromfile(directory / "found", latency.FOUND)
    assert reported["responses"] == len(found)
    return found


def test_open_loop_sends_each_request_when_it_is_due(broker: int, tmp_path: Path) -> None:
    due = latency.schedule(2_000, 3, 0.5, seed=1)
    found = open_loop(broker, tmp_path, due, 3)
    assert sorted(found["due"].tolist()) == pytest.approx(due["at"].tolist(), abs=1e-5)
    assert (found["late"] >= 0).all()


def test_open_loop_sends_while_nothing_comes_back_and_counts_the_wait(tmp_path: Path) -> None:
    due = np.zeros(20, latency.DUE)
    due["at"] = np.arange(20) / 100

    def respond_to_all_at_once(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer, peer.makefile("rb") as stream:
            ids: list[bytes] = []
            while len(ids) < len(due):
                head = stream.read(12)
                stream.read(struct.unpack(">i", head[:4])[0] - 8)
                if not ids and head[4:6] == b"\0\x12":  # ApiVersions, which opens the connection
                    peer.sendall(frame(head[8:]))
                else:
                    ids.append(head[8:])
            peer.sendall(b"".join(map(frame, ids)))
            stream.read()  # until the generator is gone

    with socket.create_server((HOST, 0)) as server:
        thread = threading.Thread(target=respond_to_all_at_once, args=(server,))
        thread.start()
        found = open_loop(server.getsockname()[1], tmp_path, due, 1)
        thread.join()
    # No response came before the last request was sent, so the first one took as long at least.
    waits = due["at"][-1] - due["at"]
    assert (found["latency"] >= waits - 1e-5).all()


def test_latency_counts_from_when_a_request_was_due_though_it_was_sent_late(
    broker: int, tmp_path: Path
) -> None:
    due = np.zeros(5, latency.DUE)
    due["at"] = -1.0  # before the begin, so that each is sent a second late
    found = open_loop(broker, tmp_path, due, 1)
    assert (found["late"] >= 0.99).all()
    assert (found["latency"] > found["late"]).all()


def test_open_loop_to_the_brokers_tls(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    store = Authority.make(tmp_path).issue("broker").store_file
    canned.write(tmp_path / "responses", canned.responses(port, 0))
    command = [str(saturate.PROGRAM), "broker", str(port), str(tmp_path / "responses"), str(store)]
    child = processes.start(command, log=tmp_path / "broker.log")
    wait_for(port, child, tmp_path / "broker.log")  # it closes in the middle of a handshake
    found = open_loop(port, tmp_path, latency.schedule(1_000, 3, 0.2, seed=1), 3, "tls")
    processes.end(child)
    assert len(found) > 100


def test_schedule_with_an_unknown_connection_ends_the_generator(broker: int, tmp_path: Path) -> None:
    due = np.zeros(1, latency.DUE)
    due["connection"] = 3
    with pytest.raises(ChildProcessError, match="no such connection"):
        open_loop(broker, tmp_path, due, 3)
