"""The requests that a replay sends, their record batches, and the outcome in their responses, as bytes.

Each request has one flexible version that Kafka has known since 2.8: Produce 9 to 12, Fetch 12 without a session,
Metadata 9 and ApiVersions 3. Any of them can be made longer by an unknown tagged field, which brokers skip (KIP-482).
The requests of the preparation are in `kafka_client`.

Record batches are synthetic: of a given size, uncompressed, valid, and all zeros (KIP-98, magic 2). A batch has the
recorded number of records, if they fit and up to `RECORDS_MAX`; the last one takes the rest of the bytes. The smallest
batch is its header and one record without a value. Keys are empty, not null, which compacted topics refuse. Batches are
cached up to `KEPT_BYTES_MAX`.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from protocol import throttle
from protocol.api import API_VERSIONS, FETCH, METADATA, PRODUCE
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD
from protocol.primitives import (
    count,
    count_bytes,
    int16,
    int32,
    skip,
    skip_string,
    skip_tags,
    string_bytes,
    uvarint_bytes,
)

# What a target has to speak; of Produce the highest that it does, up to the one that names topics.
VERSIONS: Final = {PRODUCE: 9, FETCH: 12, METADATA: 9, API_VERSIONS: 3}
_CONSUMER: Final = -1
_NO_EPOCH: Final = -1
_TIMEOUT_MS: Final = 30_000
_TAG_OF_NOBODY: Final = 9999
RECORDS_MAX: Final = 100
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
_SUMMED_FROM: Final = 21  # attributes and all that follows
_RECORD_BYTES_MIN: Final = 8
BATCH_BYTES_MIN: Final = _HEADER.size + _RECORD_BYTES_MIN
_NO_PRODUCER: Final = -1
NONE: Final = 0  # no error
_BODY: Final = 9  # length, correlation id, an empty tag section
_INT64: Final = 8


class Broker(NamedTuple):
    """The address of a broker of the target cluster."""

    host: str
    port: int


class Topic(NamedTuple):
    """A topic in a Metadata response: its error code, and the leader by partition; -1 for no leader."""

    error: int
    leaders: dict[int, int]


def request(
    api_key: int, version: int, correlation_id: int, client_id: str, body: bytes, size: int = 0
) -> bytes:
    """Return a whole request frame with its length prefix, in a flexible version (KIP-482).

    Args:
        body: the request's fields without the tagged fields at their end.
        size: the smallest size of the frame without its length prefix; a tagged field fills it up.
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


def produce(acks: int, topics: Iterable[tuple[str, Sequence[tuple[int, bytes]]]]) -> bytes:
    """Return the fields of a Produce request, with these record batches by topic and partition."""
    entries = list(topics)
    out = [b"\0", struct.pack(">hi", acks, _TIMEOUT_MS), count_bytes(len(entries), True)]
    for topic, partitions in entries:
        out += (string_bytes(topic, True), count_bytes(len(partitions), True))
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
        out += (string_bytes(topic, True), count_bytes(len(partitions), True))
        for partition, offset, size in partitions:
            out.append(struct.pack(">iiqiqix", partition, _NO_EPOCH, offset, _NO_EPOCH, -1, size))
        out.append(b"\0")
    out += (b"\1", string_bytes("", True))  # nothing forgotten; no rack
    return b"".join(out)


def metadata(topics: Sequence[str] | None) -> bytes:
    """Return the fields of a Metadata request for these topics, None for all; it creates no topic."""
    names = b"\0" if topics is None else count_bytes(len(topics), True)
    return names + b"".join(string_bytes(topic, True) + b"\0" for topic in topics or ()) + b"\0\0\0"


def api_versions() -> bytes:
    """Return the fields of an ApiVersions request: the name and version of this software."""
    return string_bytes("sluice-replay", True) + string_bytes("1", True)


def outcome(frame: bytes, api_key: int, version: int) -> tuple[int, int]:
    """Return a response's first error code (0 if it has none) and throttle time in ms; (-1, 0) if it is malformed."""
    end = len(frame)
    try:
        throttle_at = throttle.locate(frame, api_key, version)
        throttle_ms = 0 if throttle_at == throttle.NONE else int32(frame, throttle_at, end)
        if api_key == PRODUCE:
            return _produced(frame, end), throttle_ms
        if api_key == FETCH:
            return int16(frame, _BODY + 4, end) or _fetched(frame, end), throttle_ms
    except WireError:
        return -1, 0
    return NONE, throttle_ms


def _produced(frame: bytes, end: int) -> int:
    topics, pos = count(frame, _BODY, end, True)
    for _ in range(topics):
        pos = skip_string(frame, pos, end, True)
        partitions, pos = count(frame, pos, end, True)
        for _ in range(partitions):
            error = int16(frame, pos + 4, end)
            if error:
                return error
            # Index, error; base offset, append time, log start offset; errors of records, message, tags.
            pos = skip(pos, 6 + 3 * _INT64, end)
            records, pos = count(frame, pos, end, True)
            for _ in range(records):
                pos = skip_tags(frame, skip_string(frame, skip(pos, 4, end), end, True), end)
            pos = skip_tags(frame, skip_string(frame, pos, end, True), end)
        pos = skip_tags(frame, pos, end)
    return NONE


def _fetched(frame: bytes, end: int) -> int:
    """Return the error code of the first partition: those of one response are of one broker and mostly fail
    together.
    """
    topics, pos = count(frame, _BODY + 4 + 2 + 4, end, True)
    if topics <= 0:
        return NONE
    partitions, pos = count(frame, skip_string(frame, pos, end, True), end, True)
    return int16(frame, pos + 4, end) if partitions > 0 else NONE


class Batches:
    """Makes synthetic record batches, and keeps the last used ones, KEPT_BYTES_MAX together.

    Attributes:
        bytes: the size of the kept batches together.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._kept: OrderedDict[tuple[int, int, int], bytes] = OrderedDict()

    def batch(self, size: int, records: int, timestamp_ms: int) -> bytes:
        """Return a record batch as the function `batch` makes it; one made earlier with equal arguments is reused."""
        key = (size, records, timestamp_ms)
        made = self._kept.get(key)
        if made is not None:
            self._kept.move_to_end(key)
            return made
        made = self._kept[key] = batch(*key)
        self.bytes += len(made)
        while self.bytes > KEPT_BYTES_MAX:
            self.bytes -= len(self._kept.popitem(last=False)[1])
        return made


def batch(size: int, records: int, timestamp_ms: int) -> bytes:
    """Make a record batch of `size` bytes, or one byte less, since a longer value may need a longer length field.

    Args:
        records: the number of records; fewer if they do not fit, and one if it is below 1.
        timestamp_ms: the timestamp of all records.
    """
    room = max(size, BATCH_BYTES_MIN) - _HEADER.size
    count = max(1, min(records, RECORDS_MAX, room // _RECORD_BYTES_MIN))
    each = room // count
    parts: list[tuple[bytes, int]] = []
    body_bytes = 0
    fitting: dict[
        int, int
    ] = {}  # value's size by that of the offset: finding it takes longer than all the rest
    for offset in range(count):
        if offset == count - 1:
            value_bytes = _fitting(offset, room - body_bytes)
        else:
            width = len(_varint(offset))
            if width not in fitting:
                fitting[width] = _fitting(offset, each)
            value_bytes = fitting[width]
        head = _head(offset, value_bytes)
        parts.append((head, value_bytes))
        body_bytes += len(head) + value_bytes + 1
    import google_crc32c  # an extra: the commands are there without it

    fields = (0, count - 1, timestamp_ms, timestamp_ms, _NO_PRODUCER, -1, -1, count)
    header = bytearray(_HEADER.pack(0, _HEADER.size - 12 + body_bytes, 0, 2, 0, *fields))
    records_bytes = b"".join(head + bytes(value_bytes + 1) for head, value_bytes in parts)  # and no headers
    crc = google_crc32c.extend(google_crc32c.value(bytes(header[_SUMMED_FROM:])), records_bytes)
    struct.pack_into(">I", header, _CRC_AT, crc)
    return bytes(header) + records_bytes


@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    """Encode a signed varint (zigzag)."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _head(offset: int, value_bytes: int) -> bytes:
    """Encode a record up to its value: length, attributes, timestamp and offset deltas, an empty key, value's
    length.
    """
    inner = b"\0\0" + _varint(offset) + _varint(0) + _varint(value_bytes)
    return _varint(len(inner) + value_bytes + 1) + inner


def _fitting(offset: int, size: int) -> int:
    """Return the size of a record's value with which the record takes `size` bytes, or one byte less if none fits."""
    value_bytes = max(size - len(_head(offset, size)) - 1, 0)
    while value_bytes and len(_head(offset, value_bytes)) + value_bytes + 1 > size:
        value_bytes -= 1
    while len(_head(offset, value_bytes + 1)) + value_bytes + 2 <= size:
        value_bytes += 1
    return value_bytes
