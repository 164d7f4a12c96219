"""Metadata 0-13 (KIP-4, KIP-516): the brokers' addresses, and the topics of requests and responses with their sizes.

The array of brokers precedes the topics, so only the head of a response is read and replaced; topics and partitions,
which may be megabytes, are not changed. They identify brokers by id. Brokers without an address for clients are removed
from the array; clients then treat their partitions as leaderless and retry.

A partition mutation counts existing partitions (KIP-599: deleted ones, or those before an increase), but its request
does not contain their number: so Sluice requests it, with version 4 by name and 12 by id. Neither creates a topic.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol.api import MAX_VERSION, METADATA, flexible
from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, UnknownVersionError
from protocol.header import REQUEST_HEAD, response_body_start
from protocol.messages.addresses import AddressMap
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int16,
    int32,
    skip,
    skip_string,
    skip_tags,
    string,
    string_bytes,
)

_INT32 = Struct(">i")
_THROTTLE_SINCE: Final = 3
_RACK_SINCE: Final = 1

# The first version that can forbid auto-creation: every broker since 0.11 supports it.
BY_NAME_VERSION: Final = 4
# The first version in which brokers accept topic ids (Kafka 3.1; they reject them in 10 and 11).
BY_ID_VERSION: Final = 12


_NO_ID: Final = bytes(16)
_CLUSTER_ID_SINCE: Final = 2
_CONTROLLER_SINCE: Final = 1
_TOPIC_ID_SINCE: Final = 10
_LEADER_EPOCH_SINCE: Final = 7
_OFFLINE_SINCE: Final = 5
_TOPIC_OPERATIONS_SINCE: Final = 8


def rewrite_head(frame: bytes, version: int, address_map: AddressMap) -> tuple[int, bytes]:
    """Return the beginning of a Metadata response, to the end of the brokers, with their addresses for clients.

    Args:
        frame: the bytes of the response that have arrived.

    Returns:
        The number of bytes to replace, and the new ones, which begin with the new length prefix; 0 and b"" if more must
        arrive first.

    Raises:
        WireError: the response is malformed.
    """
    if len(frame) < 4:
        return 0, b""
    length: int = _INT32.unpack_from(frame)[0]
    if length < 0:
        raise MalformedFieldError(f"frame of {length} bytes")
    frame_end = 4 + length
    try:
        return _rewrite(frame, min(len(frame), frame_end), length, version, address_map)
    except TruncatedError:
        if len(frame) >= frame_end:
            raise
        return 0, b""


def _rewrite(buf: bytes, end: int, length: int, version: int, address_map: AddressMap) -> tuple[int, bytes]:
    compact = flexible(METADATA, version)
    pos = response_body_start(buf, 0, end, METADATA, version)
    if version >= _THROTTLE_SINCE:
        pos = skip(pos, 4, end)
    brokers_pos = pos
    brokers, pos = count(buf, pos, end, compact)
    entries: list[bytes] = []
    for _ in range(brokers):
        node_id = int32(buf, pos, end)
        host, pos = string(buf, pos + 4, end, compact)
        port = int32(buf, pos, end)
        pos += 4
        rest = pos
        if version >= _RACK_SINCE:
            pos = skip_string(buf, pos, end, compact)
        if compact:
            pos = skip_tags(buf, pos, end)
        address = address_map(node_id, host or "", port)
        if address is not None:
            head = _INT32.pack(node_id) + string_bytes(address[0], compact) + _INT32.pack(address[1])
            entries.append(head + buf[rest:pos])
    array = count_bytes(len(entries), compact) + b"".join(entries)
    grown = brokers_pos + len(array) - pos
    return pos, _INT32.pack(length + grown) + buf[4:brokers_pos] + array


class TopicsRequest(NamedTuple):
    """The topics that a Metadata request asks for.

    Attributes:
        names: the topics' names; empty if all are requested, or if topics are named by id.
        creates: whether it allows the broker to create missing topics (KIP-204).
        creates_at: the position of that flag in the frame; -1 before version 4, which always allows it.
        by_id: whether any topic is named by id.
    """

    names: tuple[str, ...]
    creates: bool
    creates_at: int
    by_id: bool = False


class TopicMetadata(NamedTuple):
    """A topic in a Metadata response; `partitions` is the number of its partitions, 0 for an unknown topic."""

    error_code: int
    name: str | None
    topic_id: bytes
    partitions: int


def request_by_name(names: Sequence[str], correlation_id: int, client_id: bytes) -> bytes:
    """Encode a Metadata request for topics by name, which does not create missing ones."""
    head = REQUEST_HEAD.pack(0, METADATA, BY_NAME_VERSION, correlation_id, len(client_id))[4:]
    topics = b"".join(len(raw).to_bytes(2, "big") + raw for raw in (name.encode() for name in names))
    body = head + client_id + _INT32.pack(len(names)) + topics + b"\0"
    return _INT32.pack(len(body)) + body


def request_by_id(topic_ids: Sequence[bytes], correlation_id: int, client_id: bytes) -> bytes:
    """Encode a Metadata request for topics by topic id."""
    head = REQUEST_HEAD.pack(0, METADATA, BY_ID_VERSION, correlation_id, len(client_id))[4:]
    # Header tags; per topic its id, a null name, no tags; then: create none, no authorized operations, no tags.
    topics = b"".join(topic_id + b"\0\0" for topic_id in topic_ids)
    body = head + client_id + b"\0" + count_bytes(len(topic_ids), True) + topics + bytes(3)
    return _INT32.pack(len(body)) + body


def read_request(frame: Buffer, body: int, version: int) -> TopicsRequest:
    """Decode a complete Metadata request whose fields begin at `body`.

    Raises:
        WireError: it is not such a request, or its version is unknown.
    """
    _check(version)
    end = len(frame)
    compact = flexible(METADATA, version)
    topics, pos = count(frame, body, end, compact)
    names = []
    by_id = False
    for _ in range(topics):
        if version >= _TOPIC_ID_SINCE:
            after = skip(pos, 16, end)
            by_id |= frame[pos:after] != _NO_ID
            pos = after
        name, pos = string(frame, pos, end, compact)
        if compact:
            pos = skip_tags(frame, pos, end)
        if name is not None:
            names.append(name)
    if version < BY_NAME_VERSION:
        return TopicsRequest(tuple(names), bool(names), -1)
    skip(pos, 1, end)
    return TopicsRequest(tuple(names), bool(frame[pos]), pos, by_id)


def read_topics(frame: Buffer, version: int, most: int | None = None) -> list[TopicMetadata]:
    """Return the topics of a complete Metadata response.

    Args:
        most: the largest accepted number of topics; None for any number.

    Raises:
        WireError: it is malformed, its version is unknown, or it has more topics than `most`.
    """
    _check(version)
    end = len(frame)
    compact = flexible(METADATA, version)
    pos = _skip_brokers(frame, end, version, compact)
    topics, pos = count(frame, pos, end, compact)
    if most is not None and topics > most:
        raise OversizedError(f"{topics} topics in a response about {most}")
    seen = []
    for _ in range(topics):
        error_code = int16(frame, pos, end)
        name, pos = string(frame, pos + 2, end, compact)
        topic_id = _NO_ID
        if version >= _TOPIC_ID_SINCE:
            after = skip(pos, 16, end)
            topic_id, pos = bytes(frame[pos:after]), after
        if version >= 1:  # whether it is internal
            pos = skip(pos, 1, end)
        partitions, pos = count(frame, pos, end, compact)
        for _ in range(partitions):
            pos = _skip_partition(frame, pos, end, version, compact)
        if version >= _TOPIC_OPERATIONS_SINCE:
            pos = skip(pos, 4, end)
        if compact:
            pos = skip_tags(frame, pos, end)
        seen.append(TopicMetadata(error_code, name, topic_id, max(partitions, 0)))
    return seen


def read_sizes(frame: Buffer, version: int, most: int) -> dict[str | bytes, int]:
    """Return the number of partitions of each existing topic in a complete Metadata response, by name and by id.

    Raises:
        WireError: it is malformed, or has more than `most` topics.
    """
    sizes: dict[str | bytes, int] = {}
    for topic in read_topics(frame, version, most):
        if topic.partitions:
            sizes[topic.topic_id] = topic.partitions
            if topic.name is not None:
                sizes[topic.name] = topic.partitions
    return sizes


def _check(version: int) -> None:
    if not 0 <= version <= MAX_VERSION[METADATA]:
        raise UnknownVersionError(f"the layout of Metadata version {version} is not known")


def _skip_brokers(frame: Buffer, end: int, version: int, compact: bool) -> int:
    pos = response_body_start(frame, 0, end, METADATA, version)
    if version >= _THROTTLE_SINCE:
        pos = skip(pos, 4, end)
    brokers, pos = count(frame, pos, end, compact)
    for _ in range(brokers):
        pos = skip(skip_string(frame, skip(pos, 4, end), end, compact), 4, end)
        if version >= _RACK_SINCE:
            pos = skip_string(frame, pos, end, compact)
        if compact:
            pos = skip_tags(frame, pos, end)
    if version >= _CLUSTER_ID_SINCE:
        pos = skip_string(frame, pos, end, compact)
    return skip(pos, 4, end) if version >= _CONTROLLER_SINCE else pos


def _skip_partition(frame: Buffer, pos: int, end: int, version: int, compact: bool) -> int:
    # Error, index, leader; then the leader's epoch, and lists of replicas.
    pos = skip(pos, 14 if version >= _LEADER_EPOCH_SINCE else 10, end)
    for _ in range(3 if version >= _OFFLINE_SINCE else 2):
        replicas, pos = count(frame, pos, end, compact)
        pos = skip(pos, 4 * max(replicas, 0), end)
    return skip_tags(frame, pos, end) if compact else pos
