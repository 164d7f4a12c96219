"""What the scripted broker reads of a request, and its answers as bytes; whole frames with their length in front.

Fetch and ShareFetch bring one partition with records of the size that is asked for; they are zeros, and no batch.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.api import FLEXIBLE_SINCE, MAX_VERSION
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
    """An answer that acknowledges nothing."""
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
    """The pieces of a Fetch answer with records of `size` bytes."""
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
    # The tags of the partition, the topic and the answer.
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
    """An answer without topics."""
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
    """An answer that says nothing."""
    return frame(struct.pack(">i", correlation_id) + bytes(16))
