"""Requests and responses as bytes, written by hand: only what a proxy looks at is there, the rest is filler.

Whole frames with their length prefix. `filler` bytes are all different from zero, so that nothing of them can be
taken for an empty field. For messages with all their fields see `tests.unit.protocol.kafka_frames`.
"""

import struct
from collections.abc import Callable
from typing import Final

from protocol.api import API_VERSIONS, FETCH, HEARTBEAT, JOIN_GROUP, PRODUCE, flexible
from protocol.primitives import count_bytes, string_bytes

LIST_OFFSETS: Final = 2
_NO_LIMIT: Final = 0x7FFFFFFF


def filler(size: int) -> bytes:
    """So many bytes that mean nothing."""
    return (bytes(range(1, 251)) * (size // 250 + 1))[:size]


def frame(body: bytes) -> bytes:
    """Put the length in front."""
    return struct.pack(">i", len(body)) + body


def request(
    api_key: int,
    version: int,
    body: bytes = b"",
    *,
    correlation_id: int = 1,
    client_id: str | None = "a",
    size: int = 0,
) -> bytes:
    """A request whose frame is `size` bytes long without the prefix, filled up behind `body`; 0: as long as it is."""
    name = b"" if client_id is None else client_id.encode()
    head = (
        struct.pack(">hhih", api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    )
    if flexible(api_key, version):
        head += b"\0"
    whole = head + body
    assert not size or size >= len(whole), f"the fields alone are {len(whole)} bytes"
    return frame(whole + filler(size - len(whole)) if size else whole)


def produce(
    version: int, size: int, *, correlation_id: int = 1, client_id: str | None = "a", acks: int = -1
) -> bytes:
    """A Produce request whose records are filler."""
    transactional_id = b"\0" if version >= 9 else b"\xff\xff" if version >= 3 else b""
    body = transactional_id + struct.pack(">hi", acks, 30_000)
    return request(PRODUCE, version, body, correlation_id=correlation_id, client_id=client_id, size=size)


def produce_response(version: int, *, correlation_id: int = 1, throttle_ms: int = 0) -> bytes:
    """A Produce response without topics."""
    if version >= 9:
        return frame(struct.pack(">ixbix", correlation_id, 1, throttle_ms))
    return frame(struct.pack(">iii", correlation_id, 0, throttle_ms)[: 12 if version >= 1 else 8])


def fetch(
    version: int,
    *,
    correlation_id: int = 1,
    client_id: str | None = "a",
    max_bytes: int = _NO_LIMIT,
    min_bytes: int = 1,
    session_id: int = 0,
    session_epoch: int = -1,
    replica_id: int = -1,
    max_wait_ms: int = 500,
    topics: bytes | None = None,
) -> bytes:
    """A Fetch request; `topics` are the bytes of the topics and all that follows, by default none."""
    body = b"" if version >= 15 else struct.pack(">i", replica_id)
    body += struct.pack(">ii", max_wait_ms, min_bytes)
    body += struct.pack(">i", max_bytes) if version >= 3 else b""
    body += b"\0" if version >= 4 else b""
    body += struct.pack(">ii", session_id, session_epoch) if version >= 7 else b""
    if topics is None:
        array = b"\1" if version >= 12 else b"\0\0\0\0"
        # Topics; forgotten topics since 7; the rack since 11; tags where flexible.
        topics = array + (array if version >= 7 else b"")
        topics += (b"\1\0" if version >= 12 else b"\0\0") if version >= 11 else b""
    return request(FETCH, version, body + topics, correlation_id=correlation_id, client_id=client_id)


def fetch_response(
    version: int,
    size: int,
    *,
    correlation_id: int = 1,
    throttle_ms: int = 0,
    error: int = 0,
    session_id: int = 0,
) -> bytes:
    """A Fetch response whose frame is `size` bytes long without the prefix; what follows the session id is filler."""
    head = struct.pack(">i", correlation_id) + (b"\0" if version >= 12 else b"")
    head += struct.pack(">i", throttle_ms) if version >= 1 else b""
    head += struct.pack(">hi", error, session_id) if version >= 7 else b""
    return frame(head + filler(size - len(head)))


def some_response(size: int = 20, *, correlation_id: int = 1) -> bytes:
    """A response to anything, whose frame is `size` bytes long without the prefix."""
    return frame(struct.pack(">i", correlation_id) + filler(size - 4))


def join_group(
    version: int, session_timeout_ms: int, *, correlation_id: int = 1, client_id: str = "a"
) -> bytes:
    """A JoinGroup request of the group `g`."""
    group = b"\2g" if flexible(JOIN_GROUP, version) else b"\0\1g"
    body = group + struct.pack(">i", session_timeout_ms)
    return request(JOIN_GROUP, version, body, correlation_id=correlation_id, client_id=client_id, size=60)


def heartbeat(*, correlation_id: int = 1, client_id: str = "a") -> bytes:
    """A Heartbeat request, version 4."""
    return request(HEARTBEAT, 4, correlation_id=correlation_id, client_id=client_id, size=40)


def api_versions(
    version: int = 3,
    *,
    correlation_id: int = 1,
    client_id: str | None = "a",
    software: tuple[str, str] = ("x", "y"),
) -> bytes:
    """An ApiVersions request; from version 3 on with the name and version of the client's software."""
    body = b"".join(string_bytes(one, True) for one in software) + b"\0" if version >= 3 else b""
    return request(API_VERSIONS, version, body, correlation_id=correlation_id, client_id=client_id)


def with_throttle_time(frame_bytes: bytes, throttle_at: int, throttle_ms: int) -> bytes:
    """The same frame with another throttle time."""
    out = bytearray(frame_bytes)
    struct.pack_into(">i", out, throttle_at, throttle_ms)
    return bytes(out)


def topic_id(topic: str) -> bytes:
    """An id for a topic: its name, filled up."""
    return topic.encode().ljust(16, b"#")


def produce_to(
    version: int,
    topics: dict[str, list[int]],
    *,
    correlation_id: int = 1,
    client_id: str | None = "a",
    acks: int = -1,
    transactional_id: str | None = None,
) -> bytes:
    """A whole Produce request with records of these sizes, one number a partition; ids since version 13."""
    body = string_bytes(transactional_id, version >= 9) if version >= 3 else b""
    body += struct.pack(">hi", acks, 30_000)
    body += _topics(version, 9, topics, lambda partition: struct.pack(">i", partition))
    return request(PRODUCE, version, body, correlation_id=correlation_id, client_id=client_id)


def fetched_from(
    version: int,
    topics: dict[str, list[int]],
    *,
    correlation_id: int = 1,
    lags: dict[str, list[int]] | None = None,
) -> bytes:
    """A whole Fetch response with records of these sizes, one number a partition; ids since version 13.

    Args:
        lags: how many offsets before the high watermark each partition's records begin; by default behind it.
    """
    head = struct.pack(">i", correlation_id) + (b"\0" if version >= 12 else b"")
    head += struct.pack(">i", 0) if version >= 1 else b""
    head += struct.pack(">hi", 0, 0) if version >= 7 else b""

    # The records are filler, whose first eight bytes are their first offset.
    (first,) = struct.unpack(">q", filler(8))
    marks = iter([lag + first for name in topics for lag in lags[name]] if lags is not None else ())

    def partition(index: int) -> bytes:
        fields = struct.pack(">ihq", index, 0, next(marks, 0))  # error, high watermark
        fields += bytes(8 * (version >= 4) + 8 * (version >= 5))  # last stable and log start offset
        fields += (b"\0" if version >= 12 else struct.pack(">i", -1)) if version >= 4 else b""  # none aborted
        return fields + (struct.pack(">i", -1) if version >= 11 else b"")  # preferred replica

    return frame(head + _topics(version, 12, topics, partition))


def _topics(
    version: int, flexible_since: int, topics: dict[str, list[int]], fields: Callable[[int], bytes]
) -> bytes:
    compact = version >= flexible_since
    body = count_bytes(len(topics), compact)
    for topic, sizes in topics.items():
        body += topic_id(topic) if version >= 13 else string_bytes(topic, compact)
        body += count_bytes(len(sizes), compact)
        for index, size in enumerate(sizes):
            body += fields(index) + count_bytes(size, compact) + filler(size) + bytes(compact)
        body += bytes(compact)
    return body + bytes(compact)
