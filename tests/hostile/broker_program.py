"""A scripted broker as a program: it responds at once, stores nothing, and counts by client id.

    python -m tests.hostile.broker_program PORT

Known: ApiVersions, Metadata, Produce, Fetch, ShareFetch, ShareAcknowledge, SASL (every name and password is right);
anything else gets its correlation id and zeros. Fetch and ShareFetch bring one partition with records of the size that
is asked for; they are zeros, and no batch. Bytes of a Produce count when they are read, those of a Fetch's response
when they are written, each in buckets of 10 ms. Orders and their responses are lines of JSON.
"""

import itertools
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from protocol.api import (
    API_VERSIONS,
    FETCH,
    MAX_VERSION,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    flexible,
)
from protocol.errors import WireError
from protocol.messages import fetch, produce
from protocol.primitives import count, count_bytes, skip_string, skip_tags, string, string_bytes
from tests.support.frames import frame, produce_response, topic_id

_ZEROS: Final = memoryview(bytes(1 << 26))
_sessions: Final = itertools.count(1)
_TOPIC_KEPT: Final = "t"


class FetchFields(NamedTuple):
    """What matters of a Fetch or a ShareFetch; `max_bytes` is 0 where it leaves no room for records (max_records)."""

    max_wait_ms: int
    max_bytes: int
    session: tuple[int, int]  # its id and epoch


def read_fetch(data: bytes, at: int, version: int) -> FetchFields:
    """Read a Fetch's head."""
    fields = fetch.read_request(data, at, len(data), version)
    assert fields is not None, "all of the head is kept"
    return FetchFields(fields.max_wait_ms, fields.max_bytes, (fields.session_id, fields.session_epoch))


def read_share_fetch(data: bytes, at: int, version: int) -> FetchFields:
    """Read a ShareFetch's head."""
    for _ in range(2):  # group, member
        at = skip_string(data, at, len(data), True)
    epoch, max_wait_ms, _, max_bytes, max_records = struct.unpack_from(">iiiii", data, at)
    return FetchFields(max_wait_ms, max_bytes if max_records else 0, (0, epoch))


def fetched(version: int, correlation_id: int, fields: FetchFields, size: int) -> Iterator[memoryview]:
    """The pieces of a Fetch response with records of `size` bytes."""
    compact = version >= 12
    head = struct.pack(">i", correlation_id) + (b"\0" if compact else b"")
    head += struct.pack(">i", 0) if version >= 1 else b""
    head += struct.pack(">hi", 0, _session_id(*fields.session)) if version >= 7 else b""
    head += count_bytes(1, compact)
    head += topic_id(_TOPIC_KEPT) if version >= 13 else string_bytes(_TOPIC_KEPT, compact)
    head += count_bytes(1, compact) + struct.pack(">ihq", 0, 0, 1 << 40)
    head += bytes(8 * (version >= 4) + 8 * (version >= 5))
    head += (b"\0" if compact else struct.pack(">i", -1)) if version >= 4 else b""
    head += struct.pack(">i", -1) if version >= 11 else b""
    head += count_bytes(size, compact)
    # The tags of the partition, the topic and the response.
    return _pieces(head, size, bytes(3) if compact else b"")


def _session_id(session_id: int, epoch: int) -> int:
    """A new session's id, the same of one that is there, or 0 for none."""
    return next(_sessions) if epoch == 0 else session_id if epoch > 0 else 0


def share_fetched(version: int, correlation_id: int, fields: FetchFields, size: int) -> Iterator[memoryview]:
    """The pieces of a ShareFetch answer with records of `size` bytes."""
    head = struct.pack(">ixih", correlation_id, 0, 0) + b"\0" + struct.pack(">i", 30_000)
    head += b"\2" + topic_id(_TOPIC_KEPT) + b"\2"
    head += struct.pack(">ih", 0, 0) + b"\0" + struct.pack(">h", 0) + b"\0" + struct.pack(">iix", 1, 1)
    head += count_bytes(size, True)
    # No records acquired; tags of the partition and the topic; no endpoints; tags.
    return _pieces(head, size, b"\1\0\0\1\0")


def _pieces(head: bytes, size: int, tail: bytes) -> Iterator[memoryview]:
    yield memoryview(struct.pack(">i", len(head) + size + len(tail)) + head)
    if size:
        yield _ZEROS[:size]
    if tail:
        yield memoryview(tail)


def share_acknowledged(version: int, correlation_id: int) -> bytes:
    """A response without topics."""
    lock = struct.pack(">i", 30_000) if version >= 2 else b""
    return frame(struct.pack(">ixih", correlation_id, 0, 0) + b"\0" + lock + b"\1\1\0")


def metadata(
    version: int, correlation_id: int, data: bytes, at: int, brokers: Sequence[tuple[int, str, int]]
) -> bytes:
    """Brokers (id, host, port); topics only where their ids may be told (version 12)."""
    compact = version >= 9
    body = struct.pack(">i", correlation_id) + (b"\0" if compact else b"")
    body += struct.pack(">i", 0) if version >= 3 else b""
    body += count_bytes(len(brokers), compact)
    for node, host, port in brokers:
        body += struct.pack(">i", node) + string_bytes(host, compact) + struct.pack(">i", port)
        body += (b"\0" if compact else b"\xff\xff") if version >= 1 else b""  # rack
        body += b"\0" if compact else b""
    body += string_bytes("hostile", compact) if version >= 2 else b""
    body += struct.pack(">i", brokers[0][0]) if version >= 1 else b""
    body += _topics_by_id(data, at) if version >= 12 else count_bytes(0, compact)
    body += struct.pack(">i", -(1 << 31)) if 8 <= version <= 10 else b""
    return frame(body + (b"\0" if compact else b""))


def _topics_by_id(data: bytes, at: int) -> bytes:
    end = len(data)
    asked, at = count(data, at, end, True)
    found = []
    for _ in range(max(0, asked)):
        if at + 17 > end:
            break
        key = data[at : at + 16]
        name, at = string(data, at + 16, end, True)
        at = skip_tags(data, at, end)
        if name:
            key = topic_id(name)
        told = string_bytes(name or key.rstrip(b"#").decode(errors="replace"), True)
        found.append(struct.pack(">h", 0) + told + key + b"\0\1" + struct.pack(">i", -(1 << 31)) + b"\0")
    return count_bytes(len(found), True) + b"".join(found)


def api_versions(version: int, correlation_id: int) -> bytes:
    """Every API that is known, all versions."""
    compact = version >= 3
    body = struct.pack(">ih", correlation_id, 0) + count_bytes(len(MAX_VERSION), compact)
    for key, newest in MAX_VERSION.items():
        body += struct.pack(">hhh", key, 0, newest) + (b"\0" if compact else b"")
    return frame(body + (struct.pack(">i", 0) if version >= 1 else b"") + (b"\0" if compact else b""))


def sasl_handshake(correlation_id: int) -> bytes:
    """PLAIN and OAUTHBEARER are spoken."""
    names = b"".join(string_bytes(name, False) for name in ("PLAIN", "OAUTHBEARER"))
    return frame(struct.pack(">ihi", correlation_id, 0, 2) + names)


def sasl_authenticate(version: int, correlation_id: int) -> bytes:
    """Success."""
    if version >= 2:
        return frame(struct.pack(">ixh", correlation_id, 0) + b"\0\1" + struct.pack(">qx", 0))
    lifetime = struct.pack(">q", 0) if version >= 1 else b""
    return frame(struct.pack(">ihh", correlation_id, 0, -1) + struct.pack(">i", 0) + lifetime)


def anything(correlation_id: int) -> bytes:
    """A response that says nothing."""
    return frame(struct.pack(">i", correlation_id) + bytes(16))


NODE: Final = 1
BUCKET_SECONDS: Final = 0.01
PARKED: Final = "parked-"
RELEASED_SECONDS: Final = 0.5
_HEAD_BYTES_KEPT: Final = 72 * 1024  # a client id of 32 KiB, and the fields behind it
_BATCH_BYTES: Final = 100_000  # no Fetch brings less than one batch, whatever it allows
_FETCH_BYTES_MAX: Final = 5_000_000
_READ_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 256 * 1024
_TURN_SECONDS: Final = 0.005

Counts = defaultdict[str, defaultdict[int, int]]


def _counts() -> Counts:
    return defaultdict(lambda: defaultdict(int))


class Script:
    """What the broker does and has counted; the orders change it.

    Attributes:
        released: client id -> until when there are records for it; matters to those that begin with PARKED.
        hosts: of further brokers that Metadata names.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.released: dict[str, float] = {}
        self.hosts: list[str] = []
        self.produce = _counts()
        self.fetch = _counts()

    def order(self, line: bytes) -> str:
        """Carry out one order and return its response."""
        words = json.loads(line)
        self.hosts = words.get("hosts", self.hosts)
        if "release" in words:
            self.released[words["release"]] = time.monotonic() + RELEASED_SECONDS
        if words.get("reset"):
            self.produce, self.fetch = _counts(), _counts()
        found = {"produce": self.produce, "fetch": self.fetch}
        return json.dumps(found if words.get("report") else {})

    def empty(self, client: str) -> bool:
        """Whether there are no records for a client now."""
        return client.startswith(PARKED) and self.released.get(client, 0.0) < time.monotonic()

    def records(self, max_bytes: int) -> int:
        """The size of a Fetch response's records."""
        return max(1, min(max_bytes, _FETCH_BYTES_MAX) // _BATCH_BYTES) * _BATCH_BYTES


class Peer:
    """One connection of the proxy."""

    def __init__(self, sock: socket.socket, script: Script) -> None:
        self.socket = sock
        self.script = script
        self.out: deque[tuple[memoryview, str]] = deque()
        self.parked: deque[tuple[float, str, Callable[..., None]]] = deque()
        self.wanted = int(select.EPOLLIN)
        self._head = bytearray()
        self._left = 0
        self._size = 0
        # Bytes of a frame, its length aside as in Kafka, that came before its client id was known.
        self._early = 0
        self._produces_for: str | None = None

    def receive(self, data: memoryview) -> None:
        """Take what came."""
        pos, end = 0, len(data)
        while pos < end:
            if self._left:
                taken = min(self._left, end - pos)
                room = _HEAD_BYTES_KEPT - len(self._head)
                if room > 0:
                    self._head += data[pos : pos + min(taken, room)]
                self._count(taken)
                self._left -= taken
                pos += taken
                if not self._left:
                    self._handle(bytes(self._head))
                    self._head.clear()
                continue
            taken = min(4 - len(self._head), end - pos)
            self._head += data[pos : pos + taken]
            pos += taken
            if len(self._head) == 4:
                self._left = self._size = int.from_bytes(self._head, "big")
                self._head.clear()
                self._produces_for, self._early = None, 0

    def _count(self, taken: int) -> None:
        """Count a Produce's bytes as they come."""
        bucket = int(time.monotonic() / BUCKET_SECONDS)
        if self._produces_for is not None:
            self.script.produce[self._produces_for][bucket] += taken
            return
        self._early += taken
        head = self._head
        if len(head) >= 2 and int.from_bytes(head[:2], "big") != PRODUCE:
            return
        if len(head) >= 10:
            length = max(0, int.from_bytes(head[8:10], "big", signed=True))
            if len(head) >= 10 + length:
                self._produces_for = bytes(head[10 : 10 + length])[:64].decode(errors="replace")
                self.script.produce[self._produces_for][bucket] += self._early

    def _handle(self, head: bytes) -> None:
        key, version, correlation_id, length = struct.unpack_from(">hhih", head)
        at = 10 + max(0, length)
        client = head[10:at][:64].decode(errors="replace")
        if flexible(key, version) and at < len(head):
            at = skip_tags(head, at, len(head))
        if key == PRODUCE:
            if produce.acks(head, at, len(head), version):
                self.say(produce_response(version, correlation_id=correlation_id))
        elif key in {FETCH, SHARE_FETCH}:
            self._fetch(key, version, correlation_id, head, at, client)
        elif key == SHARE_ACKNOWLEDGE:
            self.say(share_acknowledged(version, correlation_id))
        elif key == METADATA:
            brokers = [(NODE, "127.0.0.1", self.script.port)]
            brokers += [(NODE + 1 + index, host, 9092) for index, host in enumerate(self.script.hosts)]
            self.say(metadata(version, correlation_id, head, at, brokers))
        elif key == API_VERSIONS:
            self.say(api_versions(version, correlation_id))
        elif key == SASL_HANDSHAKE:
            self.say(sasl_handshake(correlation_id))
        elif key == SASL_AUTHENTICATE:
            self.say(sasl_authenticate(version, correlation_id))
        else:
            self.say(anything(correlation_id))

    def _fetch(self, key: int, version: int, correlation_id: int, head: bytes, at: int, client: str) -> None:
        read = read_fetch if key == FETCH else read_share_fetch
        fields = read(head, at, version)

        def say(*, empty: bool = False) -> None:
            size = 0 if empty or not fields.max_bytes else self.script.records(fields.max_bytes)
            build = fetched if key == FETCH else share_fetched
            for piece in build(version, correlation_id, fields, size):
                self.say(piece, client)

        if self.script.empty(client):
            self.parked.append((time.monotonic() + fields.max_wait_ms / 1000, client, say))
        else:
            say()

    def unpark(self, now: float) -> None:
        """Respond to Fetches that have waited long enough, or all once there are records."""
        while self.parked:
            until, client, say = self.parked[0]
            empty = self.script.empty(client)
            if empty and until > now:
                return
            self.parked.popleft()
            say(empty=empty)

    def say(self, piece: bytes | memoryview, fetched_by: str = "") -> None:
        """Send this behind what waits; bytes of a Fetch are counted for `fetched_by`."""
        self.out.append((memoryview(piece), fetched_by))
        if len(self.out) == 1:
            self.write()

    def write(self) -> None:
        """Write what the socket takes."""
        while self.out:
            view, client = self.out[0]
            try:
                sent = self.socket.send(view[:_WRITE_BYTES])
            except BlockingIOError:
                return
            except OSError:
                self.out.clear()
                return
            if client:
                self.script.fetch[client][int(time.monotonic() / BUCKET_SECONDS)] += sent
            if sent == len(view):
                self.out.popleft()
            else:
                self.out[0] = (view[sent:], client)


class Server:
    """All connections, and the orders on standard input."""

    def __init__(self, port: int, connected: Callable[[socket.socket, Script], Peer] = Peer) -> None:
        self.script = Script(port)
        self._connected = connected
        self._poller = select.epoll()
        self._peers: dict[int, Peer] = {}
        self._buffer = bytearray(_READ_BYTES)
        self._clients = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._clients.setblocking(False)
        self._poller.register(self._clients, select.EPOLLIN)
        self._orders = os.fdopen(sys.stdin.fileno(), "rb", buffering=0)
        self._poller.register(self._orders, select.EPOLLIN)

    def run(self) -> None:
        """Serve until standard input ends."""
        print("ready", flush=True)
        while True:
            for descriptor, _ in self._poller.poll(_TURN_SECONDS):
                if descriptor == self._clients.fileno():
                    self._accept()
                elif descriptor == self._orders.fileno():
                    line = self._orders.readline()
                    if not line:
                        return
                    print(self.script.order(line), flush=True)
                else:
                    self._serve(self._peers[descriptor])
            now = time.monotonic()
            for peer in [peer for peer in self._peers.values() if peer.parked]:
                peer.unpark(now)
                self._watch(peer)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._clients.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[sock.fileno()] = self._connected(sock, self.script)
            self._poller.register(sock, select.EPOLLIN)

    def _serve(self, peer: Peer) -> None:
        peer.write()
        try:
            count = peer.socket.recv_into(self._buffer)
        except BlockingIOError:
            self._watch(peer)
            return
        except OSError:
            count = 0
        if count:
            try:
                peer.receive(memoryview(self._buffer)[:count])
                self._watch(peer)
                return
            except (WireError, IndexError, struct.error):
                pass  # what it cannot read ends a connection, as at any broker
        descriptor = peer.socket.fileno()
        self._poller.unregister(descriptor)
        del self._peers[descriptor]
        peer.socket.close()

    def _watch(self, peer: Peer) -> None:
        wanted = select.EPOLLIN | (select.EPOLLOUT if peer.out else 0)
        if wanted != peer.wanted:
            peer.wanted = wanted
            self._poller.modify(peer.socket, wanted)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Server(int(sys.argv[1])).run()
