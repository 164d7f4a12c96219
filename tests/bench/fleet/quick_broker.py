"""A scripted broker that is as quick as Python can be: it acknowledges each Produce, and keeps nothing.

    python -m tests.bench.fleet.quick_broker PORT TOPIC

A Produce gets a response from its first bytes; Metadata and ApiVersions as by the scripted broker of `tests/hostile`.
"""

import select
import socket
import struct
import sys
from typing import Final

from protocol.api import API_VERSIONS, METADATA, PRODUCE, flexible
from protocol.primitives import string_bytes
from tests.hostile import broker_program

NODE: Final = 1
_HEAD: Final = struct.Struct(">ihhih")
_READ_BYTES: Final = 1 << 18


def produced(topic: str) -> tuple[bytes, bytes]:
    """Return what stands before and behind the correlation id in a response to Produce 12.

    >>> from tests.bench import wire
    >>> before, behind = produced("t")
    >>> response = before + bytes(4) + behind
    >>> len(response) - 4 == int.from_bytes(response[:4]), wire.produce_failed(response, "t")
    (True, 0)
    """
    # index, error, base offset, append time, log start offset; no record errors, no message, no tags
    partition = struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\1\0\0"
    topics = b"\2" + string_bytes(topic, True) + b"\2" + partition + b"\0"
    behind = b"\0" + topics + struct.pack(">i", 0) + b"\0"
    return struct.pack(">i", 4 + len(behind)), behind


class Broker:
    """Listens until it is ended by a signal."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._before, self._behind = produced(topic)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._poller = select.epoll()
        self._poller.register(self._listener, select.EPOLLIN)
        self._peers: dict[int, tuple[socket.socket, bytearray]] = {}

    def run(self) -> None:
        """Serve."""
        while True:
            for descriptor, _ in self._poller.poll():
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._serve(descriptor)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[sock.fileno()] = (sock, bytearray())
        self._poller.register(sock, select.EPOLLIN)

    def _serve(self, descriptor: int) -> None:
        sock, held = self._peers[descriptor]
        try:
            data = sock.recv(_READ_BYTES)
            if data:
                held += data
                said = b"".join(self._responses(held))
                if said:
                    sock.sendall(said)
                return
        except OSError:
            pass
        self._poller.unregister(descriptor)
        del self._peers[descriptor]
        sock.close()

    def _responses(self, held: bytearray) -> list[bytes]:
        found = []
        while len(held) >= _HEAD.size:
            length, key, version, correlation_id, name = _HEAD.unpack_from(held)
            if len(held) < 4 + length:
                break
            if key == PRODUCE:
                found.append(self._before + correlation_id.to_bytes(4) + self._behind)
            else:
                found.append(self._other(bytes(held[4 : 4 + length]), key, version, correlation_id, name))
            del held[: 4 + length]
        return found

    def _other(self, request: bytes, key: int, version: int, correlation_id: int, name: int) -> bytes:
        at = 10 + max(0, name)
        if flexible(key, version) and at < len(request):
            at = broker_program.past_tags(request, at)
        if key == METADATA:
            brokers = [(NODE, "127.0.0.1", self._port)]
            return broker_program.metadata(version, correlation_id, request, at, brokers)
        if key == API_VERSIONS:
            return broker_program.api_versions(version, correlation_id)
        return broker_program.anything(correlation_id)


if __name__ == "__main__":
    Broker(int(sys.argv[1]), sys.argv[2]).run()
