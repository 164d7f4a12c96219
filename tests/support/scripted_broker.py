"""A broker that responds to Metadata with itself as broker 1, and anything else as its script says: wrongly, mostly.

    with ScriptedBroker() as broker:
        broker.script = negative_length          # for what clients ask from now on
        broker.own_script = never                # for what Sluice asks itself

A script is called with each request and writes what it likes to the socket, or closes it. An honest response to
Metadata comes from `honest`, which responds to nothing else but an empty body. Each connection has a thread of its own;
what it does wrong ends with the broker.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from tests.cluster import HOST
from tests.support.frames import filler, frame, some_response
from tests.unit.protocol.kafka_frames import RESPONSES, framed
from tests.unit.protocol.kafka_frames import struct as entry

METADATA: Final = 3
OWN_CLIENT_ID: Final = b"sluice"
_HEAD: Final = struct.Struct(">hhih")
_CHUNK: Final = filler(1 << 16)
_NOT_ASKED_FOR: Final = 999


@dataclass(slots=True)
class Asked:
    """One request that has come, and the means to respond to it.

    Attributes:
        broker: who was asked; `broker.address` is what an honest response names.
        earlier: correlation ids that this connection's script has left for later.
    """

    broker: "ScriptedBroker"
    socket: socket.socket
    key: int
    version: int
    correlation_id: int
    client_id: bytes
    earlier: list[int]

    def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.socket.sendall(data)

    def close(self) -> None:
        """Close the connection in the ordinary way."""
        self.socket.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """End the connection with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def sleep(self) -> None:
        """Say nothing until the other side goes or the broker ends."""
        while not self.broker.ended.wait(0.02):
            try:
                if not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return
                time.sleep(0.02)  # it sends more, which stays where it is
            except BlockingIOError:
                continue


Script = Callable[[Asked], None]


class ScriptedBroker:
    """Listens on loopback from `with` on.

    Attributes:
        script: responds to what clients ask.
        own_script: responds to what Sluice asks on its own connections.
        own_asked: how often it has asked, and the script is through.
        ended: set when the broker ends, so that no script outlives it.
    """

    def __init__(self, port: int = 0) -> None:
        self.script: Script = honest
        self.own_script: Script = honest
        self.own_asked = 0
        self.ended = threading.Event()
        self._server = socket.create_server((HOST, port), backlog=128)
        self.port: int = self._server.getsockname()[1]
        self.address = f"{HOST}:{self.port}"
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, name="scripted broker", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(sock,), daemon=True).start()

    def _talk(self, sock: socket.socket) -> None:
        self._open.add(sock)
        earlier: list[int] = []
        # A script that closes, a proxy that closes first: the end of this connection alone.
        with sock, contextlib.suppress(OSError):
            while head := sock.recv(4, socket.MSG_WAITALL):
                asked = sock.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                key, version, correlation_id, length = _HEAD.unpack_from(asked)
                client_id = asked[_HEAD.size : _HEAD.size + max(0, length)]
                self._respond(Asked(self, sock, key, version, correlation_id, client_id, earlier))
        self._open.discard(sock)

    def _respond(self, asked: Asked) -> None:
        if asked.client_id == OWN_CLIENT_ID:
            try:
                self.own_script(asked)
            finally:
                self.own_asked += 1
        else:
            self.script(asked)


# Scripts.


def honest(asked: Asked) -> None:
    """Respond to Metadata with this broker alone, anything else with a few bytes."""
    if asked.key != METADATA:
        asked.say(some_response(correlation_id=asked.correlation_id))
        return
    cls = RESPONSES[METADATA]
    broker = entry(cls, asked.version, "MetadataResponseBroker", node_id=1, host=HOST, port=asked.broker.port)
    asked.say(
        framed(cls(version=asked.version, brokers=[broker], topics=[]), correlation_id=asked.correlation_id)
    )


def sends(make: Callable[[int], bytes], then: Script = lambda _: None) -> Script:
    """Send what is made of the correlation id, and do something afterwards."""

    def script(asked: Asked) -> None:
        asked.say(make(asked.correlation_id))
        then(asked)

    return script


def without_end(more: Callable[[int], bytes], start: Callable[[int], bytes] = lambda _: b"") -> Script:
    """Send a start, and then more without end."""

    def script(asked: Asked) -> None:
        asked.say(start(asked.correlation_id))
        piece = more(asked.correlation_id)
        while not asked.broker.ended.is_set():
            asked.say(piece)

    return script


def some(size: int = 20) -> Callable[[int], bytes]:
    """A response of this size."""
    return lambda correlation_id: some_response(size, correlation_id=correlation_id)


def half(size: int) -> Callable[[int], bytes]:
    """Half of a response of this size."""
    return lambda correlation_id: some_response(size, correlation_id=correlation_id)[: size // 2]


def length_of(length: int) -> Script:
    """Announce a response of this length, and send twenty bytes of it."""
    return sends(lambda correlation_id: struct.pack(">ii", length, correlation_id) + filler(16))


def closes_within(size: int) -> Script:
    """Close halfway through a response of this size."""
    return sends(half(size), Asked.close)


def reset_later(asked: Asked) -> None:
    """Reset: it overtakes what is on its way, and this one shall come after it."""
    time.sleep(0.05)
    asked.reset()


def responds_in_reverse(asked: Asked) -> None:
    """Respond to the second of two requests before the first."""
    asked.earlier.append(asked.correlation_id)
    if len(asked.earlier) == 2:
        asked.say(b"".join(some_response(correlation_id=number) for number in reversed(asked.earlier)))


never: Final[Script] = Asked.sleep
closes_first: Final[Script] = Asked.close
closes_within_head: Final = sends(lambda correlation_id: some()(correlation_id)[:6], Asked.close)
resets: Final[Script] = Asked.reset
resets_within: Final = sends(half(1000), reset_later)
longer_than_what_follows: Final = sends(half(1000), Asked.sleep)
shorter_than_what_follows: Final = sends(lambda correlation_id: some()(correlation_id) + filler(80))
wrong_correlation_id: Final = sends(lambda _: some_response(correlation_id=_NOT_ASKED_FOR))
responds_twice: Final = sends(lambda correlation_id: 2 * some()(correlation_id))
frames_for_ever: Final = without_end(lambda correlation_id: 1000 * some()(correlation_id))


def for_ever(announced: int) -> Script:
    """Announce that many bytes, and send without end."""
    return without_end(lambda _: _CHUNK, lambda correlation_id: struct.pack(">ii", announced, correlation_id))


def says(body: bytes) -> Script:
    """Respond with this behind the header's correlation id, whatever was asked."""
    return sends(lambda correlation_id: frame(struct.pack(">i", correlation_id) + body))


def brokers_v1(*brokers: tuple[int, bytes, int], count: int | None = None) -> bytes:
    """Return the body of a Metadata response of version 1 that names these brokers, or says that it names `count`."""
    body = struct.pack(">i", len(brokers) if count is None else count)
    for node, host, port in brokers:
        body += struct.pack(">ih", node, len(host)) + host + struct.pack(">ih", port, -1)
    return body + struct.pack(">ii", -1, 0)
