"""A process that runs out of descriptors: it refuses, counts, goes on for those who are connected, and recovers.

The limit is the process's own (RLIMIT_NOFILE); the broker is scripted.
"""

import contextlib
import socket
import time
from collections.abc import Iterator
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


def opened(sluice: SluiceProcess, stack: contextlib.ExitStack, first: bytes = b"") -> None:
    """Connect more clients than there are descriptors for; each sends this at once."""
    for _ in range(CLIENTS):
        sock = stack.enter_context(socket.socket())
        sock.settimeout(1)
        with contextlib.suppress(OSError):  # closed at once, or left in the listener's queue
            sock.connect((HOST, sluice.ports.bootstrap))
            sock.sendall(first)


@one_process("each has its own descriptors, and the largest number is shown")
@pytest.mark.parametrize(
    "first", [b"", request(LIST_OFFSETS, 7, size=100)], ids=["idle", "each wants a broker"]
)
def test_process_without_descriptors_serves_open_connections_and_recovers(
    sluice: SluiceProcess, first: bytes
) -> None:
    with wired((HOST, sluice.ports.bootstrap)) as neighbour:
        neighbour.ask(message(METADATA, 9, topics=[]))
        before = sluice.descriptors()
        with contextlib.ExitStack() as stack:
            opened(sluice, stack, first)
            until(lambda: sluice.descriptors() >= DESCRIPTORS - 3, "no descriptor is left")
            busy = cpu_seconds(sluice.process_id)
            began = time.monotonic()
            while time.monotonic() - began < 2:
                assert neighbour.ask(message(METADATA, 9, topics=[])).seconds < 1
                time.sleep(0.05)
            # A listener that tried to accept all the time would take a whole core.
            assert cpu_seconds(sluice.process_id) - busy < 1.0
            assert sluice.alive()
        until(lambda: sluice.descriptors() <= before + 2, "its descriptors are closed")
        until(lambda: sluice.get("/readyz")[0] == 200, "the cluster is found again")
        assert sluice.metric("sluice_connections_refused_total", cause="descriptors") > 0
        assert neighbour.ask(message(METADATA, 9, topics=[])).frame
    with wired((HOST, sluice.ports.bootstrap)) as again:
        assert again.ask(message(METADATA, 9, topics=[])).frame
