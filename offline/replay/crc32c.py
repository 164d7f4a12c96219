"""CRC-32C, which record batches carry (KIP-98), of bytes and of runs of zeros without looking at them.

Appending a byte to what was summed is a linear map on 32 bits, so appending n zeros is that map to the n-th power: by
squaring, a megabyte of zeros costs as much as a few hundred bytes. Made-up payloads are zeros for that reason.
"""

from collections.abc import Iterable, Sequence
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


_Map = tuple[tuple[int, ...], ...]  # by nibble, lowest first: what becomes of each of its values


def _map(columns: Sequence[int]) -> _Map:
    """The map of which it is known what becomes of each bit."""
    tables = []
    for place in range(0, _BITS, 4):
        entries = [0]
        for column in columns[place : place + 4]:
            entries += [entry ^ column for entry in entries]
        tables.append(tuple(entries))
    return tuple(tables)


def _apply(tables: _Map, crc: int) -> int:
    a, b, c, d, e, f, g, h = tables
    return (
        a[crc & 15] ^ b[crc >> 4 & 15] ^ c[crc >> 8 & 15] ^ d[crc >> 12 & 15]
        ^ e[crc >> 16 & 15] ^ f[crc >> 20 & 15] ^ g[crc >> 24 & 15] ^ h[crc >> 28]
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _power(count: int) -> _Map:
    """The map of `count` zeros."""
    if count == 1:
        return _map([update(1 << bit, b"\0") for bit in range(_BITS)])
    half = _power(count // 2)
    columns = [_apply(half, entries[1 << bit]) for entries in half for bit in range(4)]
    if count % 2:
        one = _power(1)
        columns = [_apply(one, column) for column in columns]
    return _map(columns)
