"""CRC-32C, which record batches carry (KIP-98), of bytes and of runs of zeros without looking at them.

Appending a byte to what was summed is a linear map on 32 bits, so appending n zeros is that map to the n-th power: by
squaring, a megabyte of zeros costs as much as a few hundred bytes. Made-up payloads are zeros for that reason.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["crc32c", "finish", "start", "update", "zeros"]

_POLYNOMIAL: Final = 0x82F63B78  # reversed
_BITS: Final = 32

start: Final = 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    entries = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        entries.append(crc)
    return tuple(entries)


_TABLE: Final = _table()


def update(crc: int, data: Iterable[int]) -> int:
    """Take in more bytes."""
    table = _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc


def zeros(crc: int, count: int) -> int:
    """Take in so many zeros."""
    return _apply(_power(count), crc) if count else crc


def finish(crc: int) -> int:
    """The sum of all that was taken in."""
    return crc ^ 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """The sum of these bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return finish(update(start, data))


def _apply(columns: tuple[int, ...], crc: int) -> int:
    result = 0
    for column in columns:
        if crc & 1:
            result ^= column
        crc >>= 1
    return result


@lru_cache(maxsize=1024)
def _power(count: int) -> tuple[int, ...]:
    """The map of `count` zeros, as what becomes of each bit."""
    if count == 1:
        return tuple(update(1 << bit, b"\0") for bit in range(_BITS))
    half = _power(count // 2)
    squared = tuple(_apply(half, column) for column in half)
    if count % 2:
        one = _power(1)
        squared = tuple(_apply(one, column) for column in squared)
    return squared
