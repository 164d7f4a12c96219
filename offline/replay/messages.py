"""The requests that a replay sends, as bytes; each in one flexible version that Kafka has known since 2.8.

Produce 9 to 12, Fetch 12 without a session, Metadata 9 and ApiVersions 3. Any of them can be made longer by an unknown
tagged field, which brokers skip (KIP-482). The requests of the preparation are in `kafka_client`.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from protocol.api import API_VERSIONS, FETCH, METADATA, PRODUCE
from protocol.header import REQUEST_HEAD
from protocol.primitives import count_bytes, string_bytes, uvarint_bytes

__all__ = [
    "VERSIONS",
    "api_versions",
    "fetch",
    "metadata",
    "produce",
    "request",
]

# What a target has to speak; of Produce the highest that it does, up to the one that names topics.
VERSIONS: Final = {PRODUCE: 9, FETCH: 12, METADATA: 9, API_VERSIONS: 3}
_CONSUMER: Final = -1
_NO_EPOCH: Final = -1
_TIMEOUT_MS: Final = 30_000
_TAG_OF_NOBODY: Final = 9999


def request(
    api_key: int, version: int, correlation_id: int, client_id: str, body: bytes, size: int = 0
) -> bytes:
    """Return a whole frame.

    Args:
        body: the fields without the tag section at their end.
        size: the least size of the frame without its length prefix; the tag section fills it up.
    """
    name = client_id.encode("utf-8", "backslashreplace")[:32767]
    head = struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + b"\0"
    short = size - len(head) - len(body) - 1
    frame = head + body + _tags(short)
    assert REQUEST_HEAD.size - 4 == struct.calcsize(">hhih"), "the fixed part of every header"
    return struct.pack(">i", len(frame)) + frame


def _tags(short: int) -> bytes:
    """Return a tag section that is `short` bytes longer than an empty one, or as close to that as possible."""
    key = uvarint_bytes(_TAG_OF_NOBODY)
    for width in range(1, 6):
        size = short - len(key) - width
        if size < 0:
            break
        if len(uvarint_bytes(size)) == width:
            return b"\1" + key + uvarint_bytes(size) + bytes(size)
    return b"\0"


def _text(text: str) -> bytes:
    return string_bytes(text, True)


def produce(acks: int, topics: Iterable[tuple[str, Sequence[tuple[int, bytes]]]]) -> bytes:
    """Return the fields of a Produce; `topics` has the record batches by topic and partition."""
    entries = list(topics)
    out = [b"\0", struct.pack(">hi", acks, _TIMEOUT_MS), count_bytes(len(entries), True)]
    for topic, partitions in entries:
        out += (_text(topic), count_bytes(len(partitions), True))
        for partition, records in partitions:
            out += (struct.pack(">i", partition), count_bytes(len(records), True), records, b"\0")
        out.append(b"\0")
    return b"".join(out)


def fetch(bytes_max: int, topics: Iterable[tuple[str, Sequence[tuple[int, int, int]]]]) -> bytes:
    """Return the fields of a Fetch without a session and without waiting.

    Args:
        bytes_max: max_bytes of the request.
        topics: partition, offset and max_bytes of each partition, by topic.
    """
    entries = list(topics)
    out = [struct.pack(">iiiibii", _CONSUMER, 0, 0, bytes_max, 0, 0, -1), count_bytes(len(entries), True)]
    for topic, partitions in entries:
        out += (_text(topic), count_bytes(len(partitions), True))
        for partition, offset, size in partitions:
            out.append(struct.pack(">iiqiqix", partition, _NO_EPOCH, offset, _NO_EPOCH, -1, size))
        out.append(b"\0")
    out += (b"\1", _text(""))  # nothing forgotten; no rack
    return b"".join(out)


def metadata(topics: Sequence[str] | None) -> bytes:
    """Return the fields of a Metadata request for these topics, None for all; it creates no topic."""
    names = b"\0" if topics is None else count_bytes(len(topics), True)
    return names + b"".join(_text(topic) + b"\0" for topic in topics or ()) + b"\0\0\0"


def api_versions() -> bytes:
    """Return the fields of an ApiVersions request: the name and version of this software."""
    return _text("sluice-replay") + _text("1")
