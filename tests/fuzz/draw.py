"""Values out of a fuzzer's bytes: small ones at the front, large frames out of a few bytes.

Everything is defined for every input: what is not there is zero. A fuzzer's inputs are small, and the frames that hurt
are not, so a part of a body may be written many times over (`stretched`), with the right count before it if asked for.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from protocol.primitives import uvarint_bytes

T = TypeVar("T")

# What most stretched bodies have at most: enough for a loop of 5 ns a byte to be seen. A few fill a frame.
STRETCHED_BYTES_MAX: Final = 1024 * 1024
_FRAME_BYTES_MAX: Final = 16 * 1024 * 1024 - 64
_PATTERN_BYTES_MAX: Final = 64
# Which bytes stand for how many copies. Large frames are slow, and one in sixty-four is enough of them; and they are
# none of the bytes that fuzzers like, 0, 127, 128 and 255.
_LARGE: Final = {0x90: 1 << 14, 0x91: 1 << 17, 0x92: 1 << 20, 0x93: 1 << 24}
_WHOLE_FRAME: Final = 0x93
_OFTEN_FROM: Final = 0x94
# What becomes of the count before the copies: it stays, or their count or their bytes take its place; or empty tags do.
_STAYS, _INT32_COUNT, _COMPACT_COUNT, _TAG_COUNT, _INT32_BYTES, _COMPACT_BYTES, _TAG_BYTES, _EMPTY_TAGS = (
    range(8)
)
_INT32S: Final = (_INT32_COUNT, _INT32_BYTES)


class Draw:
    r"""Bytes, taken from the front.

    >>> draw = Draw(b"\x01\x02\x03rest")
    >>> draw.byte(), draw.int16(), draw.take(2), draw.rest(), draw.byte()
    (1, 515, b're', b'st', 0)
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte; 0 where none is left."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def int8(self) -> int:
        """The next byte, as a number that may be negative."""
        found = self.byte()
        return found - 256 if found > 127 else found

    def int16(self) -> int:
        """The next two bytes."""
        high = self.byte()
        return high << 8 | self.byte()

    def pick(self, items: Sequence[T]) -> T:
        """One of these."""
        return items[self.byte() % len(items)]

    def take(self, size: int) -> bytes:
        """So many bytes, or what is left."""
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data))


def stretching(draw: Draw, wanted: int) -> Callable[[bytes], bytes]:
    """Read how a body is stretched, if it is; return what does it."""
    if not wanted:
        return lambda body: body
    how = (draw.int16(), draw.byte(), draw.byte(), draw.byte())
    return lambda body: stretched(body, *how)


def times(byte: int) -> int:
    """How often a pattern is written.

    >>> times(3), times(0xFF), times(0x90), times(0x93)
    (3, 5992, 16384, 16777216)
    """
    if byte in _LARGE:
        return _LARGE[byte]
    return byte if byte < _OFTEN_FROM else 56 * (byte - _OFTEN_FROM)


def stretched(body: bytes, where: int, size: int, often: int, before: int) -> bytes:
    r"""A body in which some bytes are written many times over.

    Args:
        where: at which place they begin, from 0 to 65535, of the whole.
        size: how many they are.
        often: which `times`; one of them as much as a frame holds, the others a megabyte at most.
        before: what the bytes before the copies become: their count, in one of Kafka's forms, or what it was.

    >>> stretched(b"a\x02bc", 1 << 15, 1, 3, 0), stretched(b"a\x02bc", 1 << 15, 1, 3, 2)
    (b'a\x02bbbc', b'a\x04bbbc')
    >>> stretched(b"a\0", 0xFFFF, 1, 2, 7)
    b'a\x02\x00\x00\x00\x00'
    """
    kind = before % 8
    at = (len(body) + 1) * where >> 16
    pattern = b"\0\0" if kind == _EMPTY_TAGS else body[at : at + 1 + (size - 1) % _PATTERN_BYTES_MAX] or b"\0"
    behind = at if kind == _EMPTY_TAGS else at + len(pattern)
    most = (_FRAME_BYTES_MAX if often == _WHOLE_FRAME else STRETCHED_BYTES_MAX) - len(body)
    count = max(0, min(times(often), most // len(pattern)))
    kept = at if kind == _STAYS else max(0, at - (4 if kind in _INT32S else 1))
    return body[:kept] + _prefix(kind, count, count * len(pattern)) + pattern * count + body[behind:]


def _prefix(kind: int, count: int, size: int) -> bytes:
    if kind == _STAYS:
        return b""
    if kind in _INT32S:
        return struct.pack(">i", count if kind == _INT32_COUNT else size)
    if kind in (_COMPACT_COUNT, _COMPACT_BYTES):
        return uvarint_bytes((count if kind == _COMPACT_COUNT else size) + 1)
    return uvarint_bytes(size if kind == _TAG_BYTES else count)
