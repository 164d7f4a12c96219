"""Bad input on a live port ends the sender's connection only, and is counted under one cause.

Each kind of nonsense is tried once in the dialogues of tests/unit/proxy/channel; here it meets a running process.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.cluster import HOST, Cluster
from tests.support.frames import LIST_OFFSETS, request
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.wire import Wire, wired
from tests.support.wire import request as message

METADATA, PRODUCE = 3, 0
SECONDS_MAX = 20.0
FRAME_BYTES_MAX = 100 * 1024 * 1024
NONSENSE = {
    "negative length": (struct.pack(">i", -1), "frame_length"),
    "length zero": (struct.pack(">i", 0), "frame_length"),
    "length over the limit": (struct.pack(">i", FRAME_BYTES_MAX + 1), "frame_length"),
    "frame shorter than a header": (struct.pack(">i", 9), "frame_length"),
    "client id longer than its frame": (struct.pack(">ihhih", 20, METADATA, 1, 1, 30), "malformed"),
    "unknown API": (request(999, 0, size=50), "unknown_api"),
    "version that ApiVersions does not offer": (request(METADATA, 99, size=50), "unsupported_version"),
    "Produce without acks": (request(PRODUCE, 9, b"\0\xff"), "malformed"),
    "HTTP": (b"GET /metrics HTTP/1.1\r\nHost: kafka\r\n\r\n", "http_request"),
    "TLS": (bytes.fromhex("16030100c8010000c40303") + bytes(190), "tls_hello"),
}


@pytest.fixture(scope="module")
def sluice(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    """A gateway that has patience with a frame for one second."""
    settings = SluiceSettings(
        kafka.bootstrap(), sections={"limits": {"frame_seconds": 1, "idle_seconds": 60}}
    )
    with SluiceProcess.configured(settings, tmp_path_factory.mktemp("bad-input")) as process:
        yield process


@pytest.fixture(scope="module")
def neighbour(sluice: SluiceProcess) -> Iterator[Wire]:
    """Another client's connection, open throughout."""
    with wired((HOST, sluice.ports.bootstrap)) as wire:
        wire.ask(message(METADATA, 9, topics=[]))
        yield wire


def counted_since(sluice: SluiceProcess, before: dict[str, float]) -> dict[str, float]:
    """What has been counted since then, once anything has."""
    deadline = time.monotonic() + SECONDS_MAX
    while (now := sluice.connection_errors()) == before and time.monotonic() < deadline:
        time.sleep(0.05)
    return {
        cause: count - before.get(cause, 0) for cause, count in now.items() if count != before.get(cause, 0)
    }


def sent(sluice: SluiceProcess, data: bytes) -> bytes:
    """Send it, and give what comes back until the connection is closed."""
    with socket.create_connection((HOST, sluice.ports.bootstrap), timeout=SECONDS_MAX) as client:
        client.sendall(data)
        response = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(4096):
                response += piece
        return response


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_ends_its_connection_under_one_cause_and_no_other(
    sluice: SluiceProcess, neighbour: Wire, what: str
) -> None:
    data, cause = NONSENSE[what]
    before = sluice.connection_errors()
    assert sent(sluice, data) == b""
    assert counted_since(sluice, before) == {cause: 1}
    assert neighbour.ask(message(METADATA, 9, topics=[])).frame


def test_nonsense_is_logged_with_its_cause(sluice: SluiceProcess) -> None:
    for _ in range(10):  # a second has room for so many lines of one kind, and other tests may have taken it
        sent(sluice, NONSENSE["HTTP"][0])
        if "cause=http_request" in sluice.log():
            return
        time.sleep(1)
    raise AssertionError(sluice.log())


@pytest.mark.parametrize("size", [30, 3_000_000])
def test_client_that_closes_mid_frame_is_counted(sluice: SluiceProcess, size: int) -> None:
    before = sluice.connection_errors()
    half = request(LIST_OFFSETS, 7, size=size)[: size // 2 + 8]
    with wired((HOST, sluice.ports.bootstrap)) as wire:
        wire.ask(message(METADATA, 9, topics=[]))  # the broker is connected now: this is no port scan
        wire.send_bytes(half)
    assert counted_since(sluice, before) == {"client_closed_mid_frame": 1}


def test_client_that_sends_a_byte_now_and_then_is_closed(sluice: SluiceProcess) -> None:
    before = sluice.connection_errors()
    with socket.create_connection((HOST, sluice.ports.bootstrap), timeout=SECONDS_MAX) as client:
        for byte in request(LIST_OFFSETS, 7, size=100):
            with contextlib.suppress(OSError):  # closed meanwhile
                client.sendall(bytes((byte,)))
            if sluice.connection_errors() != before:
                break
            time.sleep(0.2)
    assert counted_since(sluice, before) == {"slow_client": 1}


def test_many_bad_clients_leave_no_connection_behind(sluice: SluiceProcess) -> None:
    for _ in range(200):
        sent(sluice, NONSENSE["TLS"][0])
    deadline = time.monotonic() + SECONDS_MAX
    while sluice.metric("sluice_connections") > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sluice.metric("sluice_connections") <= 1  # the neighbour


def test_responses_before_the_nonsense_are_delivered(sluice: SluiceProcess) -> None:
    with wired((HOST, sluice.ports.bootstrap)) as wire:
        assert wire.ask(message(METADATA, 9, topics=[])).frame
        wire.send_bytes(NONSENSE["negative length"][0])
        with pytest.raises(ConnectionResetError):
            wire.receive()
