"""Fetch requests, and the empty response to one (KIP-74, KIP-219, KIP-227).

A request's scalars have fixed offsets before its topics, so its first bytes suffice to decide on it. Topics are split
into partition entries, which stay bytes: their fields are not decoded. `protocol.walks.fetch` walks responses with
records; `fetch_session` keeps sessions.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from protocol.errors import MalformedFieldError, TruncatedError, UnknownVersionError
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int32,
    skip,
    skip_string,
    skip_tags,
    string_span,
    uvarint,
)

VERSION_MAX: Final = 18
FLEXIBLE: Final = 12
REPLICA_TAG_SINCE: Final = 15
_TOPIC_IDS: Final = 13

# KIP-227: the epoch that begins a session, and the one that ends it or requests none.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

# A topic's raw name (versions 0-12) or its 16-byte id (13+), and a partition's index.
TopicPartition: TypeAlias = tuple[bytes, int]

_INT32 = Struct(">i")
_THREE = Struct(">iii").unpack_from
_FOUR = Struct(">iiii").unpack_from
_SINCE_7 = Struct(">iiiibii").unpack_from
_SINCE_15 = Struct(">iiibii").unpack_from
_ZERO = b"\x00"


class FetchFields(NamedTuple):
    """The fields of a Fetch request before its topics.

    `*_at` are the positions of fields in the buffer that was read; -1 if the version has no such field.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    max_bytes_at: int
    session_epoch_at: int
    max_wait_at: int


def read_request(buf: Buffer, body_pos: int, end: int, version: int) -> FetchFields | None:
    """Return the fields before the topics of a Fetch request whose body begins at `body_pos`.

    None if they are not complete before `end`, the end of the frame or of its bytes that have arrived. Since version
    15 the id of a follower is in a tag after the topics (`replica_id`); -1 (a consumer) is returned here.
    """
    if version >= REPLICA_TAG_SINCE:
        if body_pos + 21 > end:
            return None
        wait, least, most, _, session, epoch = _SINCE_15(buf, body_pos)
        return FetchFields(-1, wait, least, most, session, epoch, body_pos + 8, body_pos + 17, body_pos)
    if version >= 7:
        if body_pos + 25 > end:
            return None
        replica, wait, least, most, _, session, epoch = _SINCE_7(buf, body_pos)
        return FetchFields(
            replica, wait, least, most, session, epoch, body_pos + 12, body_pos + 21, body_pos + 4
        )
    return _read_old_request(buf, body_pos, end, version)


def _read_old_request(buf: Buffer, body_pos: int, end: int, version: int) -> FetchFields | None:
    """Decode a request before version 7, without a session; before 3 also without a limit on the whole response."""
    if body_pos + _scalars_size(version) > end:
        return None
    if version >= 3:
        replica, wait, least, most = _FOUR(buf, body_pos)
        return FetchFields(replica, wait, least, most, 0, FINAL_EPOCH, body_pos + 12, -1, body_pos + 4)
    replica, wait, least = _THREE(buf, body_pos)
    return FetchFields(replica, wait, least, 0x7FFFFFFF, 0, FINAL_EPOCH, -1, -1, body_pos + 4)


def empty_response(
    version: int, correlation_id: int, session_id: int, throttle_ms: int, error_code: int = 0
) -> bytes:
    """Encode a Fetch response without topics, with which Sluice responds to a throttled client (KIP-219)."""
    if not 0 <= version <= VERSION_MAX:
        raise UnknownVersionError(f"no empty response is known for Fetch version {version}")
    parts = [_INT32.pack(correlation_id)]
    if version >= FLEXIBLE:
        parts.append(_ZERO)
    if version >= 1:
        parts.append(_INT32.pack(throttle_ms))
    if version >= 7:
        parts.append(error_code.to_bytes(2, "big") + _INT32.pack(session_id))
    parts.append(b"\1\0" if version >= FLEXIBLE else bytes(4))  # no topics; no tags
    body = b"".join(parts)
    return _INT32.pack(len(body)) + body


class Topics(NamedTuple):
    """The partitions of a complete Fetch request with their encoded entries, and its forgotten ones, both in order.

    Attributes:
        end: the position after both in the frame.
    """

    partitions: dict[TopicPartition, bytes]
    forgotten: list[TopicPartition]
    end: int


class ReadRequest(bytes):
    """The bytes of a complete Fetch request, with its topics already decoded (`read_ahead`)."""

    topics: Topics
    read_as: tuple[int, int]  # where its body begins, and its version

    def now(self, frame: Buffer) -> "ReadRequest":
        """Return the same request with the bytes of `frame`, whose fields before the topics may have been changed."""
        read = ReadRequest(frame)
        read.topics, read.read_as = self.topics, self.read_as
        return read


def read_ahead(frame: bytes, body_pos: int, version: int) -> ReadRequest:
    """Decode the topics of a complete Fetch request; call it in a thread if the request is large.

    Raises:
        WireError: the request is malformed.
    """
    read = ReadRequest(frame)
    read.topics = _topics(frame, body_pos, version)
    read.read_as = (body_pos, version)
    return read


def full_topics(
    frame: Buffer, body_pos: int, version: int
) -> tuple[dict[TopicPartition, bytes], list[TopicPartition]]:
    """Return a complete Fetch request's partitions with their encoded entries, and its forgotten ones, in order."""
    topics = _topics(frame, body_pos, version)
    return topics.partitions, topics.forgotten


def _topics(frame: Buffer, body_pos: int, version: int) -> Topics:
    if isinstance(frame, ReadRequest) and frame.read_as == (body_pos, version):
        return frame.topics
    end = len(frame)
    partitions: dict[TopicPartition, bytes] = {}
    pos = _read_topics(frame, body_pos + _scalars_size(version), end, version, partitions)
    forgotten: list[TopicPartition] = []
    if version >= 7:
        pos = _read_forgotten(frame, pos, end, version, forgotten)
    return Topics(partitions, forgotten, pos)


def encode_request(
    frame: Buffer,
    body_pos: int,
    version: int,
    session_epoch: int,
    partitions: dict[TopicPartition, bytes],
    forgotten: list[TopicPartition],
) -> bytes:
    """Return a Fetch request with another session epoch and other partitions; all other bytes are unchanged."""
    named, gone = TopicArray(version), TopicArray(version)
    named.extend((topic, entry) for (topic, _), entry in partitions.items())
    gone.extend((topic, _INT32.pack(partition)) for topic, partition in forgotten)
    return join_request(frame, frame, body_pos, version, session_epoch, named, gone)


def join_request(
    frame: Buffer,
    scalars: Buffer,
    body_pos: int,
    version: int,
    session_epoch: int,
    named: "TopicArray",
    forgotten: "TopicArray",
) -> bytes:
    """Return a Fetch request with other fields before the topics, and other partitions; the rest is unchanged.

    Args:
        frame: the complete request.
        scalars: the beginning of a frame, with the new fields before the topics.
        session_epoch: the session epoch, which replaces that in `scalars`.
        named, forgotten: the new partitions to add or update, and to forget.
    """
    assert version >= 7, "sessions began with version 7"
    scalars_end = body_pos + _scalars_size(version)
    rest = _topics(frame, body_pos, version).end
    parts = (
        scalars[4 : scalars_end - 4],
        _INT32.pack(session_epoch),
        *named.parts(),
        *forgotten.parts(),
        frame[rest:],
    )
    return b"".join((_INT32.pack(sum(map(len, parts))), *parts))


def epoch_position(body_pos: int, version: int) -> int:
    """Return the position of the session epoch in a Fetch request (version 7 and later): just before the topics."""
    return body_pos + _scalars_size(version) - 4


def _scalars_size(version: int) -> int:
    """Return the size of a request's fields before its topics, in bytes."""
    if version >= 15:
        return 21
    if version >= 7:
        return 25
    if version >= 4:
        return 17
    return 16 if version == 3 else 12


def _entry_size(version: int) -> int:
    """Return the size of a partition's fixed fields, in bytes: index, offset, limit; leader epoch (9+), last
    fetched epoch (12+), log start (5+).
    """
    return 16 + (4 if version >= 9 else 0) + (4 if version >= 12 else 0) + (8 if version >= 5 else 0)


def _topic_key(buf: Buffer, pos: int, end: int, version: int) -> tuple[bytes, int]:
    if version >= _TOPIC_IDS:
        after = skip(pos, 16, end)
        return bytes(buf[pos:after]), after
    start, stop = string_span(buf, pos, end, version >= FLEXIBLE)
    if stop < start:
        raise MalformedFieldError(f"topic at byte {pos} has no name")
    return bytes(buf[start:stop]), stop


def _read_topics(
    buf: Buffer, pos: int, end: int, version: int, partitions: dict[TopicPartition, bytes]
) -> int:
    compact = version >= FLEXIBLE
    size = _entry_size(version)
    topics, pos = count(buf, pos, end, compact)
    for _ in range(topics):
        topic, pos = _topic_key(buf, pos, end, version)
        entries, pos = count(buf, pos, end, compact)
        for _ in range(entries):
            after = skip(pos, size, end)
            if compact:
                after = skip_tags(buf, after, end)
            partitions[topic, int32(buf, pos, end)] = bytes(buf[pos:after])
            pos = after
        if compact:
            pos = skip_tags(buf, pos, end)
    return pos


def _read_forgotten(buf: Buffer, pos: int, end: int, version: int, forgotten: list[TopicPartition]) -> int:
    compact = version >= FLEXIBLE
    topics, pos = count(buf, pos, end, compact)
    for _ in range(topics):
        topic, pos = _topic_key(buf, pos, end, version)
        entries, pos = count(buf, pos, end, compact)
        for _ in range(entries):
            forgotten.append((topic, int32(buf, pos, end)))
            pos += 4
        if compact:
            pos = skip_tags(buf, pos, end)
    return pos


class TopicArray:
    """Encodes the array of topics and partitions of a Fetch request; consecutive partitions of a topic share an entry.

    The order of partitions is kept, since it is their priority (KIP-74). Thousands are encoded while the event loop is
    blocked, so this is one Python loop that creates no objects for the garbage collector.
    """

    __slots__ = ("_compact", "_count", "_entries", "_named", "_tags", "_topic", "_topics", "_written")

    def __init__(self, version: int) -> None:
        self._compact = version >= FLEXIBLE
        self._named = version < _TOPIC_IDS
        self._tags = _ZERO if self._compact else b""
        self._written = bytearray()
        self._topics = 0
        # The last topic, its partitions, and their number.
        self._topic: bytes | None = None
        self._entries = bytearray()
        self._count = 0

    def extend(self, partitions: Iterable[tuple[bytes, bytes]]) -> None:
        """Append partitions, each given as its topic (name or id) and its encoded entry."""
        last, entries, count = self._topic, self._entries, self._count
        for topic, raw in partitions:
            if topic != last:
                self._count = count
                self._end_topic()
                self._topic = last = topic
                count = 0
            entries += raw
            count += 1
        self._count = count

    def parts(self) -> tuple[bytes, bytearray]:
        """Return the array in two parts, its length and its topics. Call it once, after the last partition."""
        self._end_topic()
        return count_bytes(self._topics, self._compact), self._written

    def _end_topic(self) -> None:
        topic, written = self._topic, self._written
        if topic is None:
            return
        if self._named:
            written += count_bytes(len(topic), True) if self._compact else len(topic).to_bytes(2, "big")
        written += topic
        written += _count_bytes(self._count, self._compact)
        written += self._entries
        written += self._tags
        self._entries.clear()
        self._topics += 1
        self._topic = None


@lru_cache(maxsize=256)
def _count_bytes(size: int, compact: bool) -> bytes:
    return count_bytes(size, compact)


def replica_id(frame: Buffer, body_pos: int, version: int) -> int:
    """Return the replica id in the tags of a complete Fetch request of version 15 or later (KIP-903); -1 if none."""
    end = len(frame)
    # A cheap check for a ReplicaState tag of 13 bytes at the very end; only then is the request parsed.
    if version < REPLICA_TAG_SINCE or end - body_pos < 15 or frame[end - 15] != 1 or frame[end - 14] != 13:
        return -1
    try:
        pos = skip_string(frame, _topics(frame, body_pos, version).end, end, True)
        tags, pos = uvarint(frame, pos, end)
        for _ in range(tags):
            tag, pos = uvarint(frame, pos, end)
            size, pos = uvarint(frame, pos, end)
            if tag == 1 and size >= 4:
                return int32(frame, pos, end)
            pos = skip(pos, size, end)
    except TruncatedError:
        pass
    return -1
