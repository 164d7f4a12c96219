"""A hostile client: raw sockets and requests written by hand, with whatever fields an attack wants in them."""

import socket
import struct
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from protocol.api import METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE, SHARE_FETCH
from protocol.primitives import count_bytes, string_bytes, uvarint_bytes
from tests.cluster import Address
from tests.support import frames
from tests.support.frames import request, topic_id

TOPIC: Final = "t"
RESPONSE_SECONDS_MAX: Final = 40.0
_NO_LIMIT: Final = (1 << 31) - 1


def produce(
    client_id: str,
    records: bytes,
    *,
    version: int = 9,
    acks: int = 1,
    topics: Sequence[str] = (TOPIC,),
    topic_ids: Sequence[bytes] = (),
    transactional_id: str | None = None,
) -> bytes:
    """A Produce whose records all stand in the last topic; the others have an empty partition each."""
    compact = version >= 9
    head = string_bytes(transactional_id, compact) if version >= 3 else b""
    named = (topic_id(name) if version >= 13 else string_bytes(name, compact) for name in topics)
    keys = [*topic_ids] or [*named]
    body = [head, struct.pack(">hi", acks, 30_000), count_bytes(len(keys), compact)]
    tags = b"\0" if compact else b""
    for index, key in enumerate(keys):
        held = records if index == len(keys) - 1 else b""
        body += [key, count_bytes(1, compact), bytes(4), count_bytes(len(held), compact), held, tags, tags]
    return request(PRODUCE, version, b"".join((*body, tags)), client_id=client_id)


def fetch(
    client_id: str,
    *,
    version: int = 12,
    max_bytes: int = _NO_LIMIT,
    partition_max_bytes: int = _NO_LIMIT,
    max_wait_ms: int = 500,
    replica_id: int = -1,
    session: tuple[int, int] = (0, -1),
    key: bytes = b"",
    partition_tags: bytes = b"\0",
) -> bytes:
    """A Fetch of one partition; `replica_id` stands where the version has it; `key` is the topic's name or id."""
    compact = version >= 12
    key = key or (topic_id(TOPIC) if version >= 13 else string_bytes(TOPIC, compact))
    partition = struct.pack(">i", 0) + (struct.pack(">i", -1) if version >= 9 else b"")
    partition += struct.pack(">q", 0) + (struct.pack(">i", -1) if version >= 12 else b"")
    partition += struct.pack(">q", 0) if version >= 5 else b""
    partition += struct.pack(">i", partition_max_bytes) + (partition_tags if compact else b"")
    topics = count_bytes(1, compact) + key + count_bytes(1, compact) + partition + (b"\0" if compact else b"")
    topics += count_bytes(0, compact) if version >= 7 else b""
    topics += string_bytes("", compact) if version >= 11 else b""
    if version >= 15 and replica_id >= 0:
        state = struct.pack(">iqx", replica_id, -1)  # of any epoch
        topics += b"\1\1" + uvarint_bytes(len(state)) + state
    elif compact:
        topics += b"\0"
    sized = partial(frames.fetch, max_bytes=max_bytes, max_wait_ms=max_wait_ms, replica_id=replica_id)
    return sized(version, client_id=client_id, session_id=session[0], session_epoch=session[1], topics=topics)


def share_fetch(client_id: str, *, max_bytes: int, acknowledged: tuple[int, int] | None = None) -> bytes:
    """A ShareFetch of one partition; `acknowledged` are the offsets that it says are done, first and last."""
    body = string_bytes("g", True) + string_bytes("member", True)
    body += struct.pack(">iiiiii", 0, 500, 1, max_bytes, 1 << 30, 1 << 30)
    batches = b"\1" if acknowledged is None else b"\2" + struct.pack(">qq", *acknowledged) + b"\2\1\0"
    body += b"\2" + topic_id(TOPIC) + b"\2" + bytes(4) + batches + b"\0\0" + b"\1\0"
    return request(SHARE_FETCH, 1, body, client_id=client_id)


def announced(size: int, client_id: str) -> bytes:
    """A header of a Produce of `size` bytes, of which no more comes than its acks."""
    name = client_id.encode()
    head = struct.pack(">ihhih", size, PRODUCE, 9, 1, len(name)) + name
    return head + b"\0\0" + struct.pack(">hi", 1, 30_000)


def half(api_key: int, version: int, size: int) -> bytes:
    """The first half of a request of `size` bytes."""
    whole = request(api_key, version, size=size)
    return whole[: len(whole) // 2]


def metadata(client_id: str) -> bytes:
    """A Metadata request for no topic."""
    return request(METADATA, 9, b"\1\0\0\0\0", client_id=client_id)


def api_versions(client_id: str) -> bytes:
    """An ApiVersions request."""
    return frames.api_versions(client_id=client_id)


def sasl_handshake(mechanism: str = "PLAIN") -> bytes:
    """A SaslHandshake request."""
    return request(SASL_HANDSHAKE, 1, string_bytes(mechanism, False))


def sasl_token(token: bytes) -> bytes:
    """A SaslAuthenticate request."""
    return request(SASL_AUTHENTICATE, 2, uvarint_bytes(len(token) + 1) + token + b"\0")


class Client:
    """One connection; what is sent on it is sent as it is.

    Args:
        address: where to.
        until: a moment after which no wait goes on (TimeoutError); 0: each lasts RESPONSE_SECONDS_MAX at most.
        source: the address to come from; "" for any.
    """

    def __init__(self, address: Address, *, until: float = 0.0, source: str = "") -> None:
        self._until = until
        self.socket = socket.socket()
        try:
            if source:
                self.socket.bind((source, 0))
            self._bound()
            self.socket.connect(address)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.socket.close()
            raise

    def send(self, data: bytes) -> None:
        """Send it all."""
        self._bound()
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Wait for one response and return its frame without the length."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def skip(self) -> int:
        """Wait for one response, drop it, and return its length."""
        length = left = int.from_bytes(self._exactly(4), "big")
        while left:
            left -= len(self._piece(left))
        return length

    def ask(self, data: bytes) -> bytes:
        """Send a request and return its response."""
        self.send(data)
        return self.receive()

    def login(self, user: str) -> None:
        """Say who this is, by SASL PLAIN."""
        self.ask(sasl_handshake())
        self.ask(sasl_token(f"\0{user}\0secret".encode()))

    def reset(self) -> None:
        """Close it with a reset: nothing that was sent is waited for."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            piece = self._piece(count)
            parts.append(piece)
            count -= len(piece)
        return b"".join(parts)

    def _piece(self, count: int) -> bytes:
        self._bound()
        piece = self.socket.recv(min(count, 1 << 20))
        if not piece:
            raise ConnectionResetError("closed before its response")
        return piece

    def _bound(self) -> None:
        left = self._until - time.monotonic() if self._until else RESPONSE_SECONDS_MAX
        if left <= 0:
            raise TimeoutError("the attack is over")
        self.socket.settimeout(left)
