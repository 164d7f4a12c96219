"""A scripted broker that is as quick as Python can be: it acknowledges each Produce, and keeps nothing.

    python -m tests.bench.fleet.quick_broker PORT TOPIC

A Produce gets a response from its first bytes; anything else as by the scripted broker of `tests/hostile`.
"""

import socket
import struct
import sys
from functools import partial
from typing import Final

from protocol.api import PRODUCE
from protocol.primitives import string_bytes
from tests.hostile.broker_program import Peer, Script, Server

_HEAD: Final = struct.Struct(">ihhi")


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


class QuickPeer(Peer):
    """One connection of the proxy."""

    def __init__(self, sock: socket.socket, script: Script, *, topic: str) -> None:
        super().__init__(sock, script)
        self._before, self._behind = produced(topic)
        self._held = bytearray()

    def receive(self, data: memoryview) -> None:
        """Take what came."""
        held, said = self._held, []
        held += data
        while len(held) >= _HEAD.size:
            length, key, _, correlation_id = _HEAD.unpack_from(held)
            if len(held) < 4 + length:
                break
            if key == PRODUCE:
                said.append(self._before + correlation_id.to_bytes(4) + self._behind)
            else:
                super().receive(memoryview(bytes(held[: 4 + length])))
            del held[: 4 + length]
        if said:
            self.say(b"".join(said))


if __name__ == "__main__":
    Server(int(sys.argv[1]), partial(QuickPeer, topic=sys.argv[2])).run()
