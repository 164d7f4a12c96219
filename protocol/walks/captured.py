"""Walks through Produce requests and Fetch responses that collect each partition's bytes and records, for capture.

They are `ProduceWalk` and `FetchWalk` with a sink (`PartitionRows`). The number of records is in the header of each
batch (KIP-98). Its 61 bytes are read only if they are in the buffer already: nearly always in a Produce, which has one
batch per partition; in a Fetch if all records of the partition are in the buffer. Otherwise, and for messages older
than Kafka 0.11, the number of records is unknown.

The bytes after the last partition's header are needed only to rewrite addresses or to charge topics. If neither is
done, the walk ends there and the rest of the frame passes through. Reading headers between large payloads is expensive,
since each payload must be moved by itself. So a large frame is walked beyond the buffered bytes only if it is sampled
(`whole`). Otherwise its remaining partitions are one row, with OTHER_TOPICS as topic and UNCOUNTED as records.
"""

from struct import Struct
from typing import Final

from protocol.errors import WireError
from protocol.messages.endpoints import AddressMap
from protocol.walks.fetch import ENDPOINTS_SINCE, FetchWalk
from protocol.walks.produce import ProduceWalk
from protocol.walks.walk import OTHER_TOPICS, Sizes, Walk

__all__ = [
    "PARTITIONS_MAX",
    "REST_BYTES_MIN",
    "UNCOUNTED",
    "CapturedFetchWalk",
    "CapturedProduceWalk",
    "PartitionRecords",
    "PartitionRows",
    "records_in",
]

UNCOUNTED: Final = -1
"""The number of records if it is unknown; the partition index of a sum over many partitions."""

# A frame of 100 MB could name millions of partitions; further ones are summed under OTHER_TOPICS and UNCOUNTED.
PARTITIONS_MAX: Final = 2000
# If this many bytes of a frame are outstanding, they pass by `splice`, unless headers among them must be read.
REST_BYTES_MIN: Final = 32 * 1024
# The most batches read in one partition of a Fetch response; a Produce has one.
_BATCHES_MAX: Final = 64

PartitionRecords = tuple[bytes, int, int, int]
"""The topic's name or id as bytes of the frame, the partition, the size of its records in bytes, their number."""

_BATCH: Final = Struct(">i4xb").unpack_from  # length, leader epoch, magic; after the base offset
_BATCH_LENGTH_AT: Final = 8
_BATCH_PREFIX: Final = 12  # base offset and length, not included in the length
_COUNT_AT: Final = 57
_BATCH_HEADER: Final = 61
_MAGIC: Final = 2
_INT32: Final = Struct(">i").unpack_from
_INT32_MAX: Final = 0x7FFFFFFF


def records_in(buf: bytes | bytearray | memoryview, pos: int, stop: int, limit: int) -> int:
    """Return the number of records in buf[pos:stop], from the batch headers before `limit`."""
    total = 0
    for _ in range(_BATCHES_MAX):
        if pos + _BATCH_HEADER > limit:
            # A broker cuts off the last batch of a response at max_bytes.
            return _plausible(total) if limit >= stop else UNCOUNTED
        length, magic = _BATCH(buf, pos + _BATCH_LENGTH_AT)
        if magic != _MAGIC or length < _BATCH_HEADER - _BATCH_PREFIX:
            return UNCOUNTED
        total += _INT32(buf, pos + _COUNT_AT)[0]
        pos += _BATCH_PREFIX + length
        if pos >= stop:
            return _plausible(total)
    return UNCOUNTED


def _plausible(total: int) -> int:
    """Return the number of records, or UNCOUNTED if it is out of range: a batch's header may state any number."""
    return total if 0 <= total <= _INT32_MAX else UNCOUNTED


class PartitionRows:
    """A sink that collects each partition's bytes and number of records.

    Attributes:
        partitions: the partitions so far, at most PARTITIONS_MAX.
    """

    __slots__ = ("partitions",)

    def __init__(self) -> None:
        self.partitions: list[PartitionRecords] = []

    def partition(
        self,
        topic: bytes,
        index: int,
        _error_code: int,
        _high_watermark: int,
        buf: bytearray | memoryview,
        records_at: int,
        size: int,
        limit: int,
    ) -> None:
        """Add a partition of the frame (see `PartitionSink`)."""
        if size > 0:
            stop = records_at + size
            self.add(topic, index, size, records_in(buf, records_at, stop, min(stop, limit)))
        else:
            self.add(topic, index, 0, 0)

    def add(self, topic: bytes, partition: int, size: int, records: int) -> None:
        """Add a partition; from PARTITIONS_MAX on, all are summed in the last entry."""
        partitions = self.partitions
        if len(partitions) < PARTITIONS_MAX:
            partitions.append((topic, partition, size, records))
            return
        rest = partitions[-1]
        if rest[0] != OTHER_TOPICS:
            rest = (OTHER_TOPICS, UNCOUNTED, rest[2], UNCOUNTED)
        partitions[-1] = (OTHER_TOPICS, UNCOUNTED, rest[2] + size, UNCOUNTED)


class _Captured(Walk):
    """A walk for capture, which may end before the end of its frame."""

    __slots__ = ()

    rows: PartitionRows
    whole: bool

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """Continue the walk as `Walk.feed` does; it ends early in two cases, unless the rest is needed otherwise.

        A malformed frame ends the walk instead of the connection, without any partition: the receiver will reject it.
        A large rest that has not arrived is summed as one partition, unless the whole frame is walked (`whole`).
        """
        frame_end = start + self._left
        try:
            passed = super().feed(buf, start, end, address_map)
            if self.done or self.whole or frame_end - end < REST_BYTES_MIN or self._rest_is_read():
                return passed
            self.rows.add(OTHER_TOPICS, UNCOUNTED, self._left, UNCOUNTED)
        except WireError:
            self.rows.partitions.clear()  # a length may have been larger than the frame
            if self._rest_is_read():
                raise
        self.done = True
        self.passthrough = max(0, frame_end - end)
        return min(frame_end, end) - start

    @property
    def partitions(self) -> list[PartitionRecords]:
        """The partitions so far."""
        return self.rows.partitions


class CapturedProduceWalk(_Captured, ProduceWalk):
    """A walk through a captured Produce request.

    Attributes:
        whole: whether a large frame is walked to its end.
    """

    __slots__ = ("rows", "whole")

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None = None, *, whole: bool = True
    ) -> None:
        self.rows = PartitionRows()
        self.whole = whole
        super().__init__(version, frame_length, sizes, self.rows)

    def _rest_is_read(self) -> bool:
        return self.sizes is not None


class CapturedFetchWalk(_Captured, FetchWalk):
    """A walk through a captured Fetch response.

    Attributes:
        whole: whether a large frame is walked to its end.
    """

    __slots__ = ("rows", "whole")

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None = None, *, whole: bool = True
    ) -> None:
        self.rows = PartitionRows()
        self.whole = whole
        super().__init__(version, frame_length, sizes, self.rows)

    def _rest_is_read(self) -> bool:
        return self.sizes is not None or (self._address_map is not None and self._version >= ENDPOINTS_SINCE)
