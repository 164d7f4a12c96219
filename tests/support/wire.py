"""A client that speaks Kafka's protocol in raw frames, for tests that compare or time single responses.

Requests are kafka-python's message objects or plain bytes; responses stay bytes. It obeys no throttle time and keeps no
session: what it does is what the test says.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from tests.cluster import Address
from tests.cluster.features import lacks_version
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, Message, decoded, framed
from tests.unit.protocol.kafka_frames import struct as message_struct

RESPONSE_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Response:
    """One response frame, length prefix included, and when it came."""

    frame: bytes
    seconds: float


class Wire:
    """One connection, to an address or over a socket that is connected."""

    def __init__(self, address: Address | socket.socket, client_id: str = "wire") -> None:
        self.client_id = client_id
        if not isinstance(address, socket.socket):
            address = socket.create_connection(address, timeout=RESPONSE_SECONDS_MAX)
        self._socket = address
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Message, correlation_id: int | None = None) -> None:
        """Send a request and do not wait for its response."""
        self._correlation += 1
        chosen = self._correlation if correlation_id is None else correlation_id
        self._socket.sendall(framed(message, chosen, self.client_id))

    def send_bytes(self, data: bytes) -> None:
        """Send what is no request of kafka-python's."""
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Wait for one frame and return it whole."""
        head = self._exactly(4)
        (length,) = struct.unpack(">i", head)
        return head + self._exactly(length)

    def ask(self, message: Message, correlation_id: int | None = None) -> Response:
        """Send a request and return its response, with the seconds it took."""
        started = time.monotonic()
        self.send(message, correlation_id)
        return Response(self.receive(), time.monotonic() - started)

    def silent(self, seconds: float) -> bool:
        """Whether nothing arrives for so long."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(RESPONSE_SECONDS_MAX)

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._socket.recv(count)
            if not part:
                raise ConnectionResetError("the connection was closed inside a response")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


@contextmanager
def wired(address: Address | socket.socket, client_id: str = "wire") -> Iterator[Wire]:
    """A connection for the time of a `with`."""
    wire = Wire(address, client_id)
    try:
        yield wire
    finally:
        wire.close()


@contextmanager
def repeating(address: Address, client_id: str, message: Message) -> Iterator[list[float]]:
    """A client that asks the same for the time of a `with`, as fast as it may; yields how long each request took."""
    over = threading.Event()
    took: list[float] = []

    def run() -> None:
        with wired(address, client_id) as wire:
            while not over.is_set():
                took.append(wire.ask(message).seconds)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def request(api_key: int, version: int, **fields: object) -> Message:
    """Make a request of one version; fields that the version lacks are left out.

    The test is skipped where another broker than the newest Kafka lacks the version.
    """
    if lacking := lacks_version(api_key, version):
        pytest.skip(lacking)
    cls = REQUESTS[api_key]
    known = {field.name for field in cls._struct._fields if field.for_version_q(version)}
    return cls[version](**{name: value for name, value in fields.items() if name in known})


def part(api_key: int, version: int, type_name: str, /, **fields: object) -> Message:
    """Make one entry of a request's arrays, by its type's name in Kafka's definitions."""
    return message_struct(REQUESTS[api_key], version, type_name, **fields)


def response(api_key: int, version: int, frame: bytes) -> Message:
    """Decode a response with kafka-python."""
    return decoded(RESPONSES[api_key], version, frame)
