"""Walks through a Produce request and a Fetch answer that note each partition's bytes and records, for capture.

They are `ProduceWalk` and `FetchWalk` with a note taken where a partition's length is read, so all that is said there
holds here; what is more is how many records there are. A batch's header says that (KIP-98), 61 bytes, and those are
looked at only where they are at hand anyway: of a Produce, which has one batch a partition, nearly always; of a Fetch
where the partition's records are all in the buffer. Else, and for messages older than Kafka 0.11, it is not known.

Nobody needs what follows the last partition's header unless addresses are to be rewritten there or topics to be
charged: then the walk is over, and the rest of the frame passes unseen. And headers between large payloads are dear: to
read them those have to be moved one by one. So a frame is walked beyond what is at hand only where that is little, or
was asked for; what is not told apart then is summed, under OTHER_TOPICS and UNCOUNTED.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final

from protocol.errors import WireError
from protocol.messages.endpoints import AddressMap
from protocol.messages.fetch_walk import FetchWalk
from protocol.messages.produce_walk import ProduceWalk
from protocol.messages.walk import NAME_BYTES_MAX, OTHER_TOPICS, PARTITION_TAGS, TOPIC_TAGS, Sizes, Walk
from protocol.primitives import bytes_size, int32, skip, string_span

__all__ = [
    "PARTITIONS_MAX",
    "REST_BYTES_MIN",
    "UNCOUNTED",
    "CapturedFetchWalk",
    "CapturedProduceWalk",
    "Found",
]

UNCOUNTED: Final = -1
"""In place of a number of records that is not known, and of the partition that many are summed under."""

# A frame of 100 MB could name millions; what is beyond is summed, under OTHER_TOPICS and UNCOUNTED.
PARTITIONS_MAX: Final = 2000
# So much of a frame is not at hand that its payload passes by `splice`, unless headers between are to be read.
REST_BYTES_MIN: Final = 32 * 1024
# Of one partition of a Fetch answer; a Produce has one.
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

_ENDPOINTS_SINCE: Final = 16
# In a flexible partition of a Fetch answer, as `fetch_walk` has it.
_ABORTED_AT: Final = 30
_RECORDS_AT: Final = 35
_HEADER_MAX: Final = 40


def _records(buf: bytes | bytearray | memoryview, pos: int, stop: int, limit: int) -> int:
    """How many records lie in buf[pos:stop], as the headers at hand before `limit` say."""
    total = 0
    for _ in range(_BATCHES_MAX):
        if pos + _BATCH_HEADER > limit:
            # A broker cuts the last batch of an answer wherever max_bytes ends.
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


class _Noted(Walk):
    """What both walks share.

    Attributes:
        found: the partitions, growing as it goes.
        whole: whether it goes to the end of a frame that is large, and not at hand.
    """

    __slots__ = ()

    found: list[Found]
    whole: bool

    def needed(self) -> bool:
        """Whether more than notes is taken."""
        return self.sizes is not None

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """As `Walk.feed`, and where nothing but notes is taken two things end the walk and not the connection.

        What is not as it should be: the broker, or the client, will say so, and nothing that was noted of such a frame
        is believed. And a large rest that is not at hand,
        unless the frame is one of those that are walked to their end: its bytes are summed.
        """
        frame_end = start + self._left
        try:
            passed = super().feed(buf, start, end, address_map)
            if self.done or self.whole or frame_end - end < REST_BYTES_MIN or self.needed():
                return passed
            _note(self.found, OTHER_TOPICS, UNCOUNTED, self._left, UNCOUNTED)
        except WireError:
            self.found.clear()  # a length may have been larger than the frame
            if self.needed():
                raise
        self.done = True
        self.unseen = max(0, frame_end - end)
        return min(frame_end, end) - start


def _note(found: list[Found], topic: bytes, partition: int, size: int, records: int) -> None:
    """Add one partition."""
    if len(found) < PARTITIONS_MAX:
        found.append((topic, partition, size, records))
        return
    rest = found[-1]
    if rest[0] != OTHER_TOPICS:
        rest = (OTHER_TOPICS, UNCOUNTED, rest[2], UNCOUNTED)
    found[-1] = (OTHER_TOPICS, UNCOUNTED, rest[2] + size, UNCOUNTED)


class CapturedProduceWalk(_Noted, ProduceWalk):
    """A walk through a Produce request."""

    __slots__ = ("found", "whole")

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None = None, *, whole: bool = True
    ) -> None:
        super().__init__(version, frame_length, sizes)
        self.found = []
        self.whole = whole

    def _partition(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        partition = int32(buf, pos, limit)
        size, start = bytes_size(buf, pos + 4, limit, self._compact)
        after = start + max(size, 0)
        records = _records(buf, start, after, min(after, limit)) if size > 0 else 0
        _note(self.found, self._topic_key or OTHER_TOPICS, partition, after - start, records)
        if self._partitions == self._topics == 1 and self.sizes is None and after <= self._frame_end:
            self.done = True
            return self._frame_end
        if self._compact:
            self._state = PARTITION_TAGS
        else:
            self._end_partition()
        return after

    STEPS: ClassVar[tuple[Callable[[Any, bytearray | memoryview, int, int], int], ...]] = (
        *ProduceWalk.STEPS[:2],
        _partition,
        *ProduceWalk.STEPS[3:],
    )


class CapturedFetchWalk(_Noted, FetchWalk):
    """A walk through a Fetch answer."""

    __slots__ = ("_index", "_topic_name", "found", "whole")

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None = None, *, whole: bool = True
    ) -> None:
        super().__init__(version, frame_length, sizes)
        self.found = []
        self.whole = whole
        self._topic_name = OTHER_TOPICS
        self._index = 0

    def needed(self) -> bool:
        """Whether more than notes is taken: topics to charge, addresses to rewrite."""
        return self.sizes is not None or (self._address_map is not None and self._version >= _ENDPOINTS_SINCE)

    def _over(self, after: int, left: int) -> bool:
        """Whether what follows the records that end at `after` is of no interest."""
        if left != 1 or self._topics != 1 or after > self._frame_end or self.needed():
            return False
        self.done = True
        return True

    def _named_topic(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        after = FetchWalk._topic(self, buf, pos, limit)
        start, stop = (pos, pos + 16) if self.by_id else string_span(buf, pos, limit, self._compact)
        name = bytes(buf[start:stop]) if stop - start <= NAME_BYTES_MAX else OTHER_TOPICS
        self._topic_name = name
        return after

    def _plain_partitions(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """As `FetchWalk` does, with a note of each."""
        left = self._partitions
        safe = limit - _HEADER_MAX
        topic, found = self._topic_name, self.found
        while left and pos <= safe and buf[pos + _ABORTED_AT] <= 1:
            last = pos + _RECORDS_AT
            size = buf[last]
            if size > 127:
                last += 1
                byte = buf[last]
                size += (byte << 7) - 128
                if byte > 127:
                    last += 1
                    byte = buf[last]
                    if byte > 127:
                        break
                    size += (byte << 14) - (128 << 7)
            if not size:
                break
            # The varint is one more than the length, and `last` is its last byte.
            after = last + size
            counted = _records(buf, last + 1, after, min(after, limit)) if size > 1 else 0
            _note(found, topic, _INT32(buf, pos)[0], size - 1, counted)
            if self._over(after, left):
                return self._frame_end
            if after >= limit or buf[after]:
                self._partitions = left
                self._state = PARTITION_TAGS
                return after
            pos = after + 1
            left -= 1
        if not left:
            self._state = TOPIC_TAGS
        self._partitions = left
        return pos

    def _careful_partition(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        self._index = int32(buf, pos, limit)
        return super()._careful_partition(buf, pos, limit)

    def _noted_records(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        start = skip(pos, 4, limit) if self._version >= 11 else pos
        size, start = bytes_size(buf, start, limit, self._compact)
        after = start + max(size, 0)
        counted = _records(buf, start, after, min(after, limit)) if size > 0 else 0
        _note(self.found, self._topic_name, self._index, after - start, counted)
        if self._over(after, self._partitions):
            return self._frame_end
        return super()._records(buf, pos, limit)

    STEPS: ClassVar[tuple[Callable[[Any, bytearray | memoryview, int, int], int], ...]] = (
        FetchWalk.STEPS[0],
        _named_topic,
        FetchWalk._partition,
        *FetchWalk.STEPS[3:7],
        _noted_records,
    )
