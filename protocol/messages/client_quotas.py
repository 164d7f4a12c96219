"""DescribeClientQuotas and AlterClientQuotas, versions 0-1: the broker's side (KIP-546).

Version notes: 1 is flexible, and otherwise the same. Names and keys are returned as text, and validated by
`quotas.definitions.alterations`. The value of an alteration is returned even if it is NaN; that of a removal is
ignored, as in Kafka. Requests and responses may have 100,000 entities, so both are processed one entity at a time, at
the caller's pace. Decoded values are tuples, which Python's garbage collector soon stops visiting: 100,000 lists
would block the process. The client's side is `kafka_client.quotas`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, TypeAlias

from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, flexible
from protocol.errors import MalformedFieldError, TruncatedError, UnknownVersionError
from protocol.header import RESPONSE_HEAD
from protocol.primitives import Buffer, bytes_size, count_bytes, skip_tags, string, string_bytes

Parts: TypeAlias = Sequence[tuple[str, str | None]]
"""An entity: types and names; None is the default entity."""
Alteration: TypeAlias = tuple[Parts, Sequence[tuple[str, float | None]]]
"""An entity, and keys with their new values; None removes the key."""
Component: TypeAlias = tuple[str, int, str | None]
"""Entity type, match type (0 exact, 1 default, 2 any), and the name to match."""

# Arrays longer than these are refused before they are read: an entity and a filter have one part a type, an entity a
# handful of keys, and a KRaft controller takes 10,000 changes at once.
PARTS_MAX: Final = 16
OPS_MAX: Final = 64
ENTRIES_MAX: Final = 10_000

_FLOAT64: Final = Struct(">d")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
# The bytes before a response's first entity: length, correlation id, tags, throttle time, error, no message, count.
_HEAD_ROOM: Final = 32


def read_describe(buf: Buffer, pos: int, end: int, version: int) -> tuple[list[Component], bool]:
    """Decode a DescribeClientQuotas request whose fields begin at `pos`: its filter, and whether it is strict.

    Raises:
        WireError: the fields are not what this version has.
    """
    compact = _compact(DESCRIBE_CLIENT_QUOTAS, version)
    components: list[Component] = []
    size, pos = _array(buf, pos, end, compact, PARTS_MAX)
    for _ in range(size):
        kind, pos = _text(buf, pos, end, compact)
        match_type, pos = _byte(buf, pos, end), pos + 1
        match, pos = string(buf, pos, end, compact)
        if compact:
            pos = skip_tags(buf, pos, end)
        components.append((kind, match_type - 256 if match_type > 127 else match_type, match))
    strict, pos = _byte(buf, pos, end) != 0, pos + 1
    _finish(buf, pos, end, compact)
    return components, strict


class AlterRequest:
    """An AlterClientQuotas request, which decodes one alteration at a time when it is iterated over.

    Attributes:
        validate_only: whether the request is only to be validated; set after the last alteration.
    """

    def __init__(self, buf: Buffer, pos: int, end: int, version: int) -> None:
        self._buf = buf
        self._pos = pos
        self._end = end
        self._compact = _compact(ALTER_CLIENT_QUOTAS, version)
        self.validate_only = False

    def __iter__(self) -> Iterator[Alteration]:
        """Decode the next alteration.

        Raises:
            WireError: the fields are not what this version has.
        """
        buf, end, compact = self._buf, self._end, self._compact
        entries, pos = _array(buf, self._pos, end, compact, ENTRIES_MAX)
        for _ in range(entries):
            parts, pos = read_parts(buf, pos, end, compact)
            ops: list[tuple[str, float | None]] = []  # given as a tuple: see the module
            size, pos = _array(buf, pos, end, compact, OPS_MAX)
            for _ in range(size):
                key, pos = _text(buf, pos, end, compact)
                if pos + 9 > end:
                    raise TruncatedError(f"an alteration at byte {pos} is cut off at {end}")
                value: float = _FLOAT64.unpack_from(buf, pos)[0]
                ops.append((key, None if buf[pos + 8] else value))
                pos = skip_tags(buf, pos + 9, end) if compact else pos + 9
            if compact:
                pos = skip_tags(buf, pos, end)
            yield parts, tuple(ops)
        self.validate_only = _byte(buf, pos, end) != 0
        _finish(buf, pos + 1, end, compact)


def read_parts(buf: Buffer, pos: int, end: int, compact: bool) -> tuple[Parts, int]:
    """Decode the quota entity at `pos`: the types and names of its parts. Returns it with the position after it."""
    parts: list[tuple[str, str | None]] = []
    size, pos = _array(buf, pos, end, compact, PARTS_MAX)
    for _ in range(size):
        kind, pos = _text(buf, pos, end, compact)
        name, pos = string(buf, pos, end, compact)
        if compact:
            pos = skip_tags(buf, pos, end)
        parts.append((kind, name))
    return tuple(parts), pos


def describe_response(
    version: int, correlation_id: int, entries: Iterable[tuple[Parts, Mapping[str, float]]]
) -> bytearray:
    """Encode a DescribeClientQuotas response with these entities and their limits by quota key."""
    compact = _compact(DESCRIBE_CLIENT_QUOTAS, version)
    tags = b"\0" if compact else b""
    body = bytearray(_HEAD_ROOM)
    size = 0
    for parts, values in entries:
        body += _parts_bytes(parts, compact)
        body += count_bytes(len(values), compact)
        for key, value in values.items():
            body += string_bytes(key, compact) + _FLOAT64.pack(value) + tags
        body += tags
        size += 1
    head = _INT32.pack(0) + _INT16.pack(0) + string_bytes(None, compact) + count_bytes(size, compact)
    return _frame(correlation_id, compact, head, body)


def describe_error(version: int, correlation_id: int, error_code: int, message: str) -> bytearray:
    """Encode a DescribeClientQuotas response with an error, and without entities."""
    compact = _compact(DESCRIBE_CLIENT_QUOTAS, version)
    head = (
        _INT32.pack(0) + _INT16.pack(error_code) + string_bytes(message, compact) + count_bytes(-1, compact)
    )
    return _frame(correlation_id, compact, head, bytearray(_HEAD_ROOM))


def alter_response(
    version: int, correlation_id: int, results: Iterable[tuple[Parts, int, str | None]]
) -> bytearray:
    """Encode an AlterClientQuotas response: each entity with its error code (0: success) and message (None: none)."""
    compact = _compact(ALTER_CLIENT_QUOTAS, version)
    tags = b"\0" if compact else b""
    body = bytearray(_HEAD_ROOM)
    size = 0
    for parts, error_code, message in results:
        body += _INT16.pack(error_code) + string_bytes(message, compact) + _parts_bytes(parts, compact) + tags
        size += 1
    return _frame(correlation_id, compact, _INT32.pack(0) + count_bytes(size, compact), body)


def _parts_bytes(parts: Parts, compact: bool) -> bytes:
    """Encode an entity."""
    tags = b"\0" if compact else b""
    return count_bytes(len(parts), compact) + b"".join(
        string_bytes(kind, compact) + string_bytes(name, compact) + tags for kind, name in parts
    )


def _frame(correlation_id: int, compact: bool, head: bytes, body: bytearray) -> bytearray:
    """Encode a whole response; in flexible versions its header and its fields each end with tags.

    The body may have megabytes and is not copied: the head is written into the room reserved before it.
    """
    tags = b"\0" if compact else b""
    body += tags
    length = RESPONSE_HEAD.size - 4 + len(tags) + len(head) + len(body) - _HEAD_ROOM
    front = b"".join((RESPONSE_HEAD.pack(length, correlation_id), tags, head))
    if len(front) > _HEAD_ROOM:  # an error's message
        body[:_HEAD_ROOM] = front
        return body
    unused = _HEAD_ROOM - len(front)
    body[unused:_HEAD_ROOM] = front
    del body[:unused]
    return body


def _compact(key: int, version: int) -> bool:
    if not 0 <= version <= 1:
        raise UnknownVersionError(f"API {key} version {version}")
    return flexible(key, version)


def _array(buf: Buffer, pos: int, end: int, compact: bool, most: int) -> tuple[int, int]:
    size, after = bytes_size(buf, pos, end, compact)
    if size > most:
        raise MalformedFieldError(f"an array of {size} at byte {pos}, at most {most} are accepted")
    if size < 0:
        raise MalformedFieldError(f"a null array at byte {pos}")
    return size, after


def _text(buf: Buffer, pos: int, end: int, compact: bool) -> tuple[str, int]:
    text, after = string(buf, pos, end, compact)
    if text is None:
        raise MalformedFieldError(f"a null string at byte {pos}")
    return text, after


def _byte(buf: Buffer, pos: int, end: int) -> int:
    if pos >= end:
        raise TruncatedError(f"a byte at {pos} is cut off at {end}")
    return buf[pos]


def _finish(buf: Buffer, pos: int, end: int, compact: bool) -> None:
    if compact:
        pos = skip_tags(buf, pos, end)
    if pos != end:
        raise MalformedFieldError(f"{end - pos} bytes after the last field at byte {pos}")
