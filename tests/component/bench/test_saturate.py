"""The two ends of `make saturate`, without a proxy between them."""

import json
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.api import API_VERSIONS, FETCH, PRODUCE
from tests.bench.lanes import wait_for
from tests.bench.process import Child
from tests.bench.saturate import __main__ as saturate
from tests.bench.saturate import canned
from tests.cluster import HOST, free_ports, processes
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
