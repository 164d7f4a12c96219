"""Kafka's primitive types on a buffer: numbers, strings, arrays' counts and tag sections (KIP-482); work in portions.

Readers take `(buf, pos, end)` and return the value and the position after it; `end` is the end of the readable bytes,
which in a shared buffer is before the buffer's end. They raise TruncatedError at `end`, so that a caller with a part of
a frame can wait for more bytes. Writers return bytes. Only strings that are returned are copied. Messages are in
`protocol.messages`.

Thousands of items are worked on in portions, so that the caller can do other work between them:

    | def written(self, replicas: dict[Key, Replica]) -> Portions[int]:
    |     yield from for_each(replicas.items(), self._write)  # called with lists of at most PORTION items
    |     return 1

The caller iterates, one portion in each turn of its event loop, and uses the value returned at the end. A small number
of items is one portion. The collection must not be changed by others meanwhile.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from struct import Struct, pack, unpack_from
from typing import Any, Final, TypeAlias, TypeVar

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError

Buffer: TypeAlias = bytes | bytearray | memoryview

_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from

# Kafka's strings carry an int16 length; compact ones could carry more, but no Kafka class writes more.
_STRING_MAX: Final = 32767
# The bounds of Kafka's own readers (since 4.4) for elements of an array and fields of a tag section.
ELEMENTS_MAX: Final = 1_000_000
TAGS_MAX: Final = 10_000

# A replica costs up to 10 us in one turn.
PORTION: Final = 400

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
T = TypeVar("T")

Portions: TypeAlias = Generator[None, None, R]


def int16(buf: Buffer, pos: int, end: int) -> int:
    """Return the big-endian int16 at `pos`."""
    if pos + 2 > end:
        raise TruncatedError(f"int16 at byte {pos} is cut off at {end}")
    value: int = _INT16(buf, pos)[0]
    return value


def int32(buf: Buffer, pos: int, end: int) -> int:
    """Return the big-endian int32 at `pos`."""
    if pos + 4 > end:
        raise TruncatedError(f"int32 at byte {pos} is cut off at {end}")
    value: int = _INT32(buf, pos)[0]
    return value


def uvarint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    r"""Return the unsigned varint at `pos` and the position after it; at most 32 bits in five bytes, as in Kafka.

    >>> uvarint(b"\xac\x02", 0, 2)
    (300, 2)
    """
    value = shift = 0
    while pos < end:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise MalformedFieldError(f"varint before byte {pos} has more than 32 bits")
            return value, pos
        shift += 7
        if shift > 28:
            raise MalformedFieldError(f"varint before byte {pos} has more than five bytes")
    raise TruncatedError(f"varint is cut off at {end}")


def skip(pos: int, size: int, end: int) -> int:
    """Return the position after `size` bytes; TruncatedError if it is beyond `end`."""
    pos += size
    if pos > end:
        raise TruncatedError(f"{size} bytes before byte {pos} are cut off at {end}")
    return pos


def bytes_size(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[int, int]:
    """Return the length of a field of bytes or records (-1 for null), and the position after the length."""
    if flexible:
        value, pos = uvarint(buf, pos, end)
        return value - 1, pos
    value = int32(buf, pos, end)
    if value < -1:
        raise MalformedFieldError(f"length {value} at byte {pos}")
    return value, pos + 4


def streamed_count(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[int, int]:
    """Return an array's length (-1 for null), and the position after it, even if elements have not arrived."""
    if flexible:
        value, after = uvarint(buf, pos, end)
        value -= 1
    else:
        value, after = int32(buf, pos, end), pos + 4
        if value < -1:
            raise MalformedFieldError(f"length {value} at byte {pos}")
    if value > ELEMENTS_MAX:
        raise OversizedError(
            f"an array of {value} elements at byte {pos}, at most {ELEMENTS_MAX} are accepted"
        )
    return value, after


def count(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[int, int]:
    """Return an array's length (-1 for null), and the position after it; TruncatedError if the elements cannot fit."""
    value, after = streamed_count(buf, pos, end, flexible)
    if value > end - after:
        raise TruncatedError(f"an array of {value} elements at byte {pos} is cut off at {end}")
    return value, after


def string_span(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[int, int]:
    """Return where the text of the string at `pos` begins and ends; for a null string, the end is the beginning - 1."""
    if flexible:
        size, pos = uvarint(buf, pos, end)
        size -= 1
        if size > _STRING_MAX:
            raise MalformedFieldError(f"string of {size} bytes before byte {pos}")
    else:
        size = int16(buf, pos, end)
        if size < -1:
            raise MalformedFieldError(f"string of {size} bytes at byte {pos}")
        pos += 2
    if pos + size > end:
        raise TruncatedError(f"string of {size} bytes at byte {pos} is cut off at {end}")
    return pos, pos + size


def string(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[str | None, int]:
    """Return a string's text, None for null, and the position after it."""
    start, stop = string_span(buf, pos, end, flexible)
    if stop < start:
        return None, start
    try:
        return str(buf[start:stop], "utf-8"), stop
    except UnicodeDecodeError as error:
        raise MalformedFieldError(f"string at byte {start} is not UTF-8") from error


def skip_string(buf: Buffer, pos: int, end: int, flexible: bool) -> int:
    """Return the position after a string or null."""
    start, stop = string_span(buf, pos, end, flexible)
    return max(start, stop)


def skip_bytes(buf: Buffer, pos: int, end: int, flexible: bool) -> int:
    """Return the position after bytes, records or null."""
    size, pos = bytes_size(buf, pos, end, flexible)
    return skip(pos, max(size, 0), end)


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """Return the position after a tag section."""
    if pos < end and not buf[pos]:
        return pos + 1
    tags, after = uvarint(buf, pos, end)
    if tags > TAGS_MAX:
        raise OversizedError(f"{tags} tagged fields at byte {pos}, at most {TAGS_MAX} are accepted")
    return skip_tagged_fields(buf, after, end, tags)


def skip_tagged_fields(buf: Buffer, pos: int, end: int, tags: int) -> int:
    """Return the position after this number of tagged fields, the first of which is at `pos`."""
    last = end - 1
    for _ in range(tags):
        if pos < last and buf[pos] < 128 and (size := buf[pos + 1]) < 128:  # nearly always one byte each
            pos += size + 2
            continue
        _, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        pos += size
        if pos > end:
            break
    if pos > end:
        raise TruncatedError(f"a tagged field before byte {pos} is cut off at {end}")
    return pos


def uvarint_bytes(value: int) -> bytes:
    """Encode `value` as the shortest varint.

    >>> uvarint_bytes(300).hex()
    'ac02'
    """
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def count_bytes(value: int, flexible: bool) -> bytes:
    """Encode an array's length; -1 for null."""
    return uvarint_bytes(value + 1) if flexible else value.to_bytes(4, "big", signed=True)


def string_bytes(text: str | None, flexible: bool) -> bytes:
    """Encode a string with its length; None for null."""
    raw = b"" if text is None else text.encode()
    size = -1 if text is None else len(raw)
    return (uvarint_bytes(size + 1) if flexible else size.to_bytes(2, "big", signed=True)) + raw


def nullable_int32s(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[tuple[int, ...] | None, int]:
    """Return an array of int32, None for null, and the position after it."""
    size, pos = count(buf, pos, end, flexible)
    if size < 0:
        return None, pos
    after = skip(pos, 4 * size, end)
    return unpack_from(f">{size}i", buf, pos), after


def int32s(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[tuple[int, ...], int]:
    """Return an array of int32 and the position after it; null is returned as an empty one."""
    found, pos = nullable_int32s(buf, pos, end, flexible)
    return found or (), pos


def int32s_bytes(values: Sequence[int] | None, flexible: bool) -> bytes:
    """Encode an array of int32 with its length; None for null."""
    if values is None:
        return count_bytes(-1, flexible)
    return count_bytes(len(values), flexible) + pack(f">{len(values)}i", *values)


def for_each(items: Iterable[T], work: Callable[[list[T]], object]) -> Portions[None]:
    """Call `work` with all items, in lists of at most PORTION; the caller iterates over the portions."""
    iterator = iter(items)
    while portion := list(islice(iterator, PORTION)):
        work(portion)
        if len(portion) == PORTION:
            yield


def drain(items: dict[K, V], work: Callable[[list[tuple[K, V]]], object]) -> Portions[None]:
    """Remove all items, the last first, and pass them to `work` in portions, since freeing thousands takes long."""
    while items:
        portion = [items.popitem() for _ in range(min(PORTION, len(items)))]
        work(portion)
        if len(portion) == PORTION:
            yield


def clear(items: dict[Any, Any] | list[Any]) -> Portions[None]:
    """Remove all items in portions, since freeing thousands takes long."""
    if isinstance(items, dict):
        yield from drain(items, _nothing)
        return
    while items:
        full = len(items) >= PORTION
        del items[-PORTION:]
        if full:
            yield


def _nothing(_portion: object) -> None:
    """Do nothing: the work of `clear`."""
