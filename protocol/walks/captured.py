"""Walks through a Produce request and a Fetch response that note each partition's bytes and records, for capture.

They are `ProduceWalk` and `FetchWalk` with a sink (`PartitionRows`). A batch's header says how many records it has
(KIP-98), 61 bytes, and those are looked at only where they are at hand anyway: of a Produce, which has one batch a
partition, nearly always; of a Fetch where the partition's records are all in the buffer. Else, and for messages older
than Kafka 0.11, the number is not known.

What follows the last partition's header is needed only to rewrite addresses or to charge topics; otherwise the walk is
over there, and the rest of the frame passes unseen. And headers between large payloads are dear: to read them those
have to be moved one by one. So a frame is walked beyond what is at hand only where that is little, or was asked for;
what is not told apart then is summed, under OTHER_TOPICS and UNCOUNTED.
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
    "Found",
    "PartitionRows",
]

UNCOUNTED: Final = -1
"""In place of a number of records that is not known, and of the partition that many are summed under."""

# A frame of 100 MB could name millions; what is beyond is summed, under OTHER_TOPICS and UNCOUNTED.
PARTITIONS_MAX: Final = 2000
# So much of a frame is not at hand that its payload passes by `splice`, unless headers between are to be read.
REST_BYTES_MIN: Final = 32 * 1024
# Of one partition of a Fetch response; a Produce has one.
_BATCHES_MAX: Final = 64

Found = tuple[bytes, int, int, int]
"""Topic's name as it stands, or its id; partition; bytes of its records; how many."""

_BATCH: Final = Struct(">i4xb").unpack_from  # length, leader epoch, magic; behind the base offset
_BATCH_LENGTH_AT: Final = 8
_BATCH_PREFIX: Final = 12  # base offset and length, which the length does not count
_COUNT_AT: Final = 57
_BATCH_HEADER: Final = 61
_MAGIC: Final = 2
_INT32: Final = Struct(">i").unpack_from
_INT32_MAX: Final = 0x7FFFFFFF


def _records(buf: bytes | bytearray | memoryview, pos: int, stop: int, limit: int) -> int:
    """How many records lie in buf[pos:stop], as the headers at hand before `limit` say."""
    total = 0
    for _ in range(_BATCHES_MAX):
        if pos + _BATCH_HEADER > limit:
            # A broker cuts the last batch of a response wherever max_bytes ends.
            return _believed(total) if limit >= stop else UNCOUNTED
        length, magic = _BATCH(buf, pos + _BATCH_LENGTH_AT)
        if magic != _MAGIC or length < _BATCH_HEADER - _BATCH_PREFIX:
            return UNCOUNTED
        total += _INT32(buf, pos + _COUNT_AT)[0]
        pos += _BATCH_PREFIX + length
        if pos >= stop:
            return _believed(total)
    return UNCOUNTED


def _believed(total: int) -> int:
    """The number of records if it can be one: batches may say anything."""
    return total if 0 <= total <= _INT32_MAX else UNCOUNTED


class PartitionRows:
    """A sink that notes each partition's bytes and records.

    Attributes:
        found: the partitions, growing as the walk goes.
    """

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Found] = []

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
        """`PartitionSink.partition`."""
        if size > 0:
            stop = records_at + size
            self.note(topic, index, size, _records(buf, records_at, stop, min(stop, limit)))
        else:
            self.note(topic, index, 0, 0)

    def note(self, topic: bytes, partition: int, size: int, records: int) -> None:
        """Add one partition."""
        found = self.found
        if len(found) < PARTITIONS_MAX:
            found.append((topic, partition, size, records))
            return
        rest = found[-1]
        if rest[0] != OTHER_TOPICS:
            rest = (OTHER_TOPICS, UNCOUNTED, rest[2], UNCOUNTED)
        found[-1] = (OTHER_TOPICS, UNCOUNTED, rest[2] + size, UNCOUNTED)


class _Captured(Walk):
    """A walk for the sake of notes, which may end early."""

    __slots__ = ()

    rows: PartitionRows
    whole: bool

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """As `Walk.feed`, and where nothing but notes is taken two things end the walk and not the connection.

        A frame that is not as it should be: the broker or the client will say so, and no note of it is kept. And a
        large rest that is not at hand, unless the frame is one of those that are walked to their end (`whole`): its
        bytes are summed.
        """
        frame_end = start + self._left
        try:
            passed = super().feed(buf, start, end, address_map)
            if self.done or self.whole or frame_end - end < REST_BYTES_MIN or self._rest_is_read():
                return passed
            self.rows.note(OTHER_TOPICS, UNCOUNTED, self._left, UNCOUNTED)
        except WireError:
            self.rows.found.clear()  # a length may have been larger than the frame
            if self._rest_is_read():
                raise
        self.done = True
        self.unseen = max(0, frame_end - end)
        return min(frame_end, end) - start

    @property
    def found(self) -> list[Found]:
        """The partitions that are noted."""
        return self.rows.found


class CapturedProduceWalk(_Captured, ProduceWalk):
    """A walk through a Produce request that is captured.

    Attributes:
        whole: whether it goes to the end of a frame that is large, and not at hand.
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
    """A walk through a Fetch response that is captured.

    Attributes:
        whole: whether it goes to the end of a frame that is large, and not at hand.
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
