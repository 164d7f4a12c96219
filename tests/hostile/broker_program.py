"""A scripted broker as a program: it responds at once, stores nothing, and counts by client id.

    python -m tests.hostile.broker_program PORT CONTROL_PORT

Known: ApiVersions, Metadata, Produce, Fetch, ShareFetch, ShareAcknowledge, SASL (every name and password is right);
anything else gets its correlation id and zeros. Fetch and ShareFetch bring one partition with records of the size that
is asked for; they are zeros, and no batch. Bytes of a Produce count when they are read, those of a Fetch's response
when they are written, each in buckets of 10 ms. Orders and their responses are lines of JSON on the control port.
"""

import itertools
import json
import resource
import select
import socket
import struct
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.api import (
    API_NAMES,
    API_VERSIONS,
    FETCH,
    FLEXIBLE_SINCE,
    MAX_VERSION,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    flexible,
)
from protocol.primitives import count_bytes, string_bytes
from tests.support.frames import frame, topic_id

_ZEROS: Final = memoryview(bytes(1 << 26))
_sessions: Final = itertools.count(1)
_TOPIC_KEPT: Final = "t"


@dataclass(frozen=True, slots=True)
class FetchFields:
    """What matters of a Fetch or a ShareFetch; `max_bytes` is 0 where it leaves no room for records (max_records)."""

    max_wait_ms: int
    max_bytes: int
    session: tuple[int, int]  # its id and epoch


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint: its value, and where it ends.

    >>> varint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def past_tags(data: bytes, at: int) -> int:
    """Where a tag section ends."""
    count, at = varint(data, at)
    for _ in range(count):
        _, at = varint(data, at)
        size, at = varint(data, at)
        at += size
    return at


def produce_acks(data: bytes, at: int, version: int) -> tuple[int, int]:
    """The acks of a Produce, and where its topics begin."""
    if version >= FLEXIBLE_SINCE[0]:
        length, at = varint(data, at)
        at += max(0, length - 1)
    elif version >= 3:
        at += 2 + max(0, int.from_bytes(data[at : at + 2], "big", signed=True))
    return int.from_bytes(data[at : at + 2], "big", signed=True), at + 6


def produced(version: int, correlation_id: int, data: bytes, at: int) -> bytes:
    """A response that acknowledges nothing."""
    if version >= 9:
        return frame(struct.pack(">ixbix", correlation_id, 1, 0))
    return frame(struct.pack(">iii", correlation_id, 0, 0)[: 12 if version >= 1 else 8])


def read_fetch(data: bytes, at: int, version: int) -> FetchFields:
    """Read a Fetch's head."""
    if version < 15:
        at += 4  # replica_id
    max_wait_ms, _ = struct.unpack_from(">ii", data, at)
    at += 8
    max_bytes, session = 1 << 30, (0, -1)
    if version >= 3:
        (max_bytes,) = struct.unpack_from(">i", data, at)
        at += 4
    at += version >= 4
    if version >= 7:
        session = struct.unpack_from(">ii", data, at)
    return FetchFields(max_wait_ms, max_bytes, session)


def read_share_fetch(data: bytes, at: int, version: int) -> FetchFields:
    """Read a ShareFetch's head."""
    for _ in range(2):  # group, member
        length, at = varint(data, at)
        at += max(0, length - 1)
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
    count, at = varint(data, at)
    found = []
    for _ in range(max(0, count - 1)):
        if at + 17 > len(data):
            break
        key = data[at : at + 16]
        length, at = varint(data, at + 16)
        asked = data[at : at + max(0, length - 1)].decode()
        at = past_tags(data, at + max(0, length - 1))
        if asked:
            key = topic_id(asked)
        name = string_bytes(asked or key.rstrip(b"#").decode(errors="replace"), True)
        found.append(struct.pack(">h", 0) + name + key + b"\0\1" + struct.pack(">i", -(1 << 31)) + b"\0")
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
_READ_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 256 * 1024
_TURN_SECONDS: Final = 0.005

Counts = defaultdict[str, defaultdict[int, int]]


def _counts() -> Counts:
    return defaultdict(lambda: defaultdict(int))


class Script:
    """What the broker does and has counted; the orders change it.

    Attributes:
        batch_bytes: size of one batch: no Fetch brings less than one, whatever it allows.
        fetch_bytes_max: what one response holds at most.
        released: client id -> until when there are records for it; matters to those that begin with PARKED.
        hosts: of further brokers that Metadata names.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.batch_bytes = 100_000
        self.fetch_bytes_max = 5_000_000
        self.released: dict[str, float] = {}
        self.hosts: list[str] = []
        self.produce = _counts()
        self.fetch = _counts()
        self.requests: defaultdict[str, int] = defaultdict(int)

    def order(self, line: bytes) -> bytes:
        """Carry out one order and return its response."""
        words = json.loads(line)
        for name in ("batch_bytes", "fetch_bytes_max", "hosts"):
            if name in words:
                setattr(self, name, words[name])
        if "release" in words:
            self.released[words["release"]] = time.monotonic() + RELEASED_SECONDS
        if words.get("reset"):
            self.produce, self.fetch = _counts(), _counts()
            self.requests.clear()
        found = {"produce": self.produce, "fetch": self.fetch, "requests": self.requests}
        return json.dumps(found if words.get("report") else {}).encode() + b"\n"

    def empty(self, client: str) -> bool:
        """Whether there are no records for a client now."""
        return client.startswith(PARKED) and self.released.get(client, 0.0) < time.monotonic()

    def records(self, max_bytes: int) -> int:
        """The size of a Fetch response's records."""
        allowed = min(max_bytes, self.fetch_bytes_max)
        return max(1, allowed // self.batch_bytes) * self.batch_bytes


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
        self._early = (
            0  # bytes of a frame, its length aside as in Kafka, that came before its client id was known
        )
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
        self.script.requests[API_NAMES.get(key, str(key))] += 1
        if flexible(key, version) and at < len(head):
            at = past_tags(head, at)
        if key == PRODUCE:
            acks, topics_at = produce_acks(head, at, version)
            if acks:
                self._say(produced(version, correlation_id, head, topics_at))
        elif key in {FETCH, SHARE_FETCH}:
            self._fetch(key, version, correlation_id, head, at, client)
        elif key == SHARE_ACKNOWLEDGE:
            self._say(share_acknowledged(version, correlation_id))
        elif key == METADATA:
            brokers = [(NODE, "127.0.0.1", self.script.port)]
            brokers += [(NODE + 1 + index, host, 9092) for index, host in enumerate(self.script.hosts)]
            self._say(metadata(version, correlation_id, head, at, brokers))
        elif key == API_VERSIONS:
            self._say(api_versions(version, correlation_id))
        elif key == SASL_HANDSHAKE:
            self._say(sasl_handshake(correlation_id))
        elif key == SASL_AUTHENTICATE:
            self._say(sasl_authenticate(version, correlation_id))
        else:
            self._say(anything(correlation_id))

    def _fetch(self, key: int, version: int, correlation_id: int, head: bytes, at: int, client: str) -> None:
        read = read_fetch if key == FETCH else read_share_fetch
        fields = read(head, at, version)

        def say(*, empty: bool = False) -> None:
            size = 0 if empty or not fields.max_bytes else self.script.records(fields.max_bytes)
            build = fetched if key == FETCH else share_fetched
            for piece in build(version, correlation_id, fields, size):
                self._say(piece, client)

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

    def _say(self, piece: bytes | memoryview, fetched_by: str = "") -> None:
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
    """All connections, and the control port."""

    def __init__(self, port: int, control_port: int) -> None:
        self.script = Script(port)
        self._poller = select.epoll()
        self._peers: dict[int, Peer] = {}
        self._control: dict[int, socket.socket] = {}
        self._buffer = bytearray(_READ_BYTES)
        self._clients = self._listen(port, 4096)
        self._orders = self._listen(control_port, 8)

    def _listen(self, port: int, backlog: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=backlog)
        listener.setblocking(False)
        self._poller.register(listener, select.EPOLLIN)
        return listener

    def run(self) -> None:
        """Serve until the control connection says `end`, or this process is ended."""
        while True:
            for descriptor, _ in self._poller.poll(_TURN_SECONDS):
                if descriptor == self._clients.fileno():
                    self._accept()
                elif descriptor == self._orders.fileno():
                    control, _ = self._orders.accept()
                    self._poller.register(control, select.EPOLLIN)
                    self._control[control.fileno()] = control
                elif descriptor in self._control:
                    self._obey(descriptor)
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
            self._peers[sock.fileno()] = Peer(sock, self.script)
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
            except (IndexError, struct.error):
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

    def _obey(self, descriptor: int) -> None:
        control = self._control[descriptor]
        line = b""
        while not line.endswith(b"\n"):
            piece = control.recv(65536)
            if not piece:
                self._poller.unregister(descriptor)
                del self._control[descriptor]
                control.close()
                return
            line += piece
        control.sendall(self.script.order(line))


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Server(int(sys.argv[1]), int(sys.argv[2])).run()
