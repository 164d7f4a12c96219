"""A process that runs out of descriptors: it refuses, counts, goes on for those who are connected, and recovers.

The limit is the process's own (RLIMIT_NOFILE); the broker is scripted.
"""

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.process import cpu_seconds
from tests.cluster import HOST
from tests.support.frames import LIST_OFFSETS, request
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.scripted_broker import ScriptedBroker
from tests.support.waiting import until
from tests.support.wire import request as message
from tests.support.wire import wired
from tests.support.workers import one_process

METADATA = 3
DESCRIPTORS = 128
CLIENTS = 200  # each wants two


@pytest.fixture
def sluice(tmp_path: Path) -> Iterator[SluiceProcess]:
    """A proxy that may open few files, in front of a scripted broker."""
    with (
        ScriptedBroker() as broker,
        SluiceProcess.configured(
            SluiceSettings(broker.address), tmp_path, ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"]
        ) as process,
    ):
        yield process


def opened(
    sluice: SluiceProcess, stack: contextlib.ExitStack, first: bytes, meanwhile: Callable[[], object]
) -> None:
    """Connect more clients than there are descriptors for; each sends this at once."""
    for number in range(CLIENTS):
        if number % 10 == 0:
            meanwhile()  # a connection to the admin port is closed when it has been idle for 5 s
        sock = stack.enter_context(socket.socket())
        sock.settimeout(1)
        with contextlib.suppress(OSError):  # closed at once, or left in the listener's queue
            sock.connect((HOST, sluice.ports.bootstrap))
            sock.sendall(first)


@contextlib.contextmanager
def probing(sluice: SluiceProcess) -> Iterator[Callable[[], tuple[int, str]]]:
    """Ask for /readyz over one connection, as long as it is open: without descriptors another is closed at once."""
    connection = http.client.HTTPConnection(HOST, sluice.ports.admin, timeout=10)

    def probe() -> tuple[int, str]:
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0, "closed"

    with contextlib.closing(connection):
        yield probe


@one_process("each has its own descriptors, and the largest number is shown")
@pytest.mark.parametrize(
    "first", [b"", request(LIST_OFFSETS, 7, size=100)], ids=["idle", "each wants a broker"]
)
def test_process_without_descriptors_serves_open_connections_and_recovers(
    sluice: SluiceProcess, first: bytes
) -> None:
    with wired((HOST, sluice.ports.bootstrap)) as neighbour, probing(sluice) as probe:
        neighbour.ask(message(METADATA, 9, topics=[]))
        assert probe() == (200, "ready\n")
        before = sluice.descriptors()
        with contextlib.ExitStack() as stack:
            opened(sluice, stack, first, probe)
            until(lambda: sluice.descriptors() >= DESCRIPTORS - 3, "no descriptor is left")
            if not first:
                until(lambda: probe()[0] != 200, "it says that it is not ready")
            seen = set()
            busy = cpu_seconds(sluice.process_id)
            began = time.monotonic()
            while time.monotonic() - began < 2:
                assert neighbour.ask(message(METADATA, 9, topics=[])).seconds < 1
                seen.add(probe())
                time.sleep(0.05)
            if not first:  # else clients are closed for want of a broker, and others accepted
                said = "not ready: listener 'clients' accepts no connection: Too many open files\n"
                assert seen <= {(503, said), (0, "closed")}
            # A listener that tried to accept all the time would take a whole core.
            assert cpu_seconds(sluice.process_id) - busy < 1.0
            assert sluice.alive()
        until(lambda: sluice.descriptors() <= before + 2, "its descriptors are closed")
        until(lambda: sluice.get("/readyz")[0] == 200, "the cluster is found again")
        assert sluice.metric("sluice_connections_refused_total", cause="descriptors") > 0
        assert neighbour.ask(message(METADATA, 9, topics=[])).frame
    with wired((HOST, sluice.ports.bootstrap)) as again:
        assert again.ask(message(METADATA, 9, topics=[])).frame
