"""Synthetic record batches of a given size: uncompressed, valid, and all zeros (KIP-98, magic 2).

A batch has the recorded number of records, if they fit and up to `RECORDS_MAX`; the last one takes the rest of the
bytes. The smallest batch is its header and one record without a value. Keys are empty, not null, which compacted topics
refuse. Batches are cached up to `KEPT_BYTES_MAX`.
"""

import struct
from collections import OrderedDict
from functools import lru_cache
from typing import Final

__all__ = ["BATCH_BYTES_MIN", "KEPT_BYTES_MAX", "RECORDS_MAX", "Batches", "batch"]

RECORDS_MAX: Final = 100
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
_SUMMED_FROM: Final = 21  # attributes and all that follows
_RECORD_BYTES_MIN: Final = 8
BATCH_BYTES_MIN: Final = _HEADER.size + _RECORD_BYTES_MIN
_NO_PRODUCER: Final = -1


@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    """A zigzag varint."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _head(offset: int, value_bytes: int) -> bytes:
    """A record up to its value: length, attributes, timestamp and offset deltas, an empty key, the value's length."""
    inner = b"\0\0" + _varint(offset) + _varint(0) + _varint(value_bytes)
    return _varint(len(inner) + value_bytes + 1) + inner


def _fitting(offset: int, size: int) -> int:
    """The size of a record's value with which the record takes `size` bytes, or one byte less if no size fits."""
    value_bytes = max(size - len(_head(offset, size)) - 1, 0)
    while value_bytes and len(_head(offset, value_bytes)) + value_bytes + 1 > size:
        value_bytes -= 1
    while len(_head(offset, value_bytes + 1)) + value_bytes + 2 <= size:
        value_bytes += 1
    return value_bytes


class Batches:
    """Synthetic batches, with a cache of the last used ones."""

    def __init__(self) -> None:
        self.bytes = 0
        self._kept: OrderedDict[tuple[int, int, int], bytes] = OrderedDict()

    def batch(self, size: int, records: int, timestamp_ms: int) -> bytes:
        """Return a batch of `size` bytes; see the function `batch`."""
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
    """Make a batch of `size` bytes, or one byte less if the lengths of fields do not allow it.

    Args:
        records: the number of records, if they fit; below 1: one.
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
