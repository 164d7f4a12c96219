"""Walks through a Produce request and a Fetch answer that note each partition's bytes and records, for capture.

They are `ProduceWalk` and `FetchWalk` with a note taken where a partition's length is read, so all that is said there
holds here; what is more is how many records there are. A batch's header says that (KIP-98), 61 bytes, and those are
looked at only where they are at hand anyway: of a Produce, which has one batch a partition, nearly always; of a Fetch
where the partition's records are all in the buffer. Else, and for messages older than Kafka 0.11, it is not known.

Nobody needs what follows the last partition's header unless addresses are to be rewritten there or topics to be
charged: then the walk is over, and the rest of the frame passes unseen.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final

from protocol.errors import WireError
from protocol.messages.endpoints import AddressMap
from protocol.messages.fetch_walk import FetchWalk
from protocol.messages.produce_walk import ProduceWalk
from protocol.messages.walk import NAME_BYTES_MAX, OTHER_TOPICS, PARTITION_TAGS, TOPIC_TAGS, Sizes, Walk
from protocol.primitives import count, int32, skip, string_span

__all__ = [
    "PARTITIONS_MAX",
    "UNCOUNTED",
    "CapturedFetchWalk",
    "CapturedProduceWalk",
    "Found",
    "produced_at_hand",
]

UNCOUNTED: Final = -1
"""In place of a number of records that is not known, and of the partition that many are summed under."""

# A frame of 100 MB could name millions; what is beyond is summed, under OTHER_TOPICS and UNCOUNTED.
PARTITIONS_MAX: Final = 2000
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

_WHOLE_BATCH: Final = Struct(">8xi4xb40xi").unpack_from  # length, magic, records

_FLEXIBLE_PRODUCE_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 13
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
            return total if limit >= stop else UNCOUNTED
        length, magic = _BATCH(buf, pos + _BATCH_LENGTH_AT)
        if magic != _MAGIC or length < _BATCH_HEADER - _BATCH_PREFIX:
            return UNCOUNTED
        total += _INT32(buf, pos + _COUNT_AT)[0]
        pos += _BATCH_PREFIX + length
        if pos >= stop:
            return total if 0 <= total <= 0x7FFFFFFF else UNCOUNTED
    return UNCOUNTED


def _given_up(walk: Walk, start: int, end: int) -> int:
    """Let the rest of the frame pass unseen."""
    frame_end = start + walk.left
    walk.done = True
    walk.unseen = max(0, frame_end - end)
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


def produced_at_hand(  # noqa: C901, PLR0912 - one pass without calls: it is done for every Produce
    buf: bytes | bytearray | memoryview, body: int, limit: int, frame_end: int, version: int
) -> list[Found] | None:
    """What a walk would find, where everything up to the last partition's header lies before `limit`.

    Nearly every Produce is as plain as is read here: flexible, no tags, no transaction, each number in few bytes. None
    where it is not, or not at hand.

    Args:
        body: where the client id ends.
    """
    if version < _FLEXIBLE_PRODUCE_SINCE or body + 9 > limit or buf[body] or buf[body + 1]:
        return None
    topics = buf[body + 8]
    if topics > 127:
        return None
    found: list[Found] = []
    named_bytes = 17 if version >= _TOPIC_IDS_SINCE else 2
    pos = body + 9
    while topics > 1:
        if pos + named_bytes > limit:
            return None
        if version >= _TOPIC_IDS_SINCE:
            at = pos + 16
            name = bytes(buf[pos:at])
        else:
            size = buf[pos]
            at = pos + size
            if size > 127 or at >= limit:
                return None
            name = bytes(buf[pos + 1 : at])
        partitions = buf[at]
        if partitions > 127 or len(found) + partitions > PARTITIONS_MAX:
            return None
        pos = at + 1
        while partitions > 1:
            if pos + 8 > limit:
                return None
            index = _INT32(buf, pos)[0]
            size = buf[pos + 4]
            start = pos + 5
            if size > 127:
                size += (buf[start] << 7) - 128
                start += 1
                if size > 0x3FFF:
                    size += (buf[start] << 14) - 0x4000
                    start += 1
                    if size > 0x1FFFFF:
                        return None
            stop = start + size - 1
            records = UNCOUNTED
            if start + _BATCH_HEADER <= limit and size > _BATCH_HEADER:
                length, magic, records = _WHOLE_BATCH(buf, start)
                if magic != _MAGIC or start + _BATCH_PREFIX + length != stop or records < 0:
                    records = _records(buf, start, stop, min(stop, limit))
            elif size <= _BATCH_HEADER:
                records = 0
                stop = max(stop, start)
            found.append((name, index, stop - start, records))
            pos = stop + 1
            if pos > limit:
                return found if topics == partitions == 2 and stop <= frame_end else None
            if buf[stop]:
                return None
            partitions -= 1
        if pos >= limit or buf[pos]:
            return found if topics == 2 else None
        pos += 1
        topics -= 1
    return found


class CapturedProduceWalk(ProduceWalk):
    """A walk through a Produce request; `found` grows as it goes."""

    __slots__ = ("found",)

    def __init__(self, version: int, frame_length: int, sizes: Sizes | None = None) -> None:
        super().__init__(version, frame_length, sizes)
        self.found: list[Found] = []

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """As `Walk.feed`; what is not as it should be ends the walk and not the connection: the broker will say so."""
        try:
            return super().feed(buf, start, end, address_map)
        except WireError:
            if self.sizes is not None:
                raise
            return _given_up(self, start, end)

    def _partition(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        partition = int32(buf, pos, limit)
        size, start = count(buf, pos + 4, limit, self._compact)
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


class CapturedFetchWalk(FetchWalk):
    """A walk through a Fetch answer; `found` grows as it goes."""

    __slots__ = ("_index", "_topic_name", "found")

    def __init__(self, version: int, frame_length: int, sizes: Sizes | None = None) -> None:
        super().__init__(version, frame_length, sizes)
        self.found: list[Found] = []
        self._topic_name = OTHER_TOPICS
        self._index = 0

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """As `Walk.feed`; where nothing but notes is taken, what can not be read ends the walk and no more."""
        try:
            return super().feed(buf, start, end, address_map)
        except WireError:
            if self.sizes is not None or (address_map is not None and self._version >= _ENDPOINTS_SINCE):
                raise
            return _given_up(self, start, end)

    def _over(self, after: int, left: int) -> bool:
        """Whether what follows the records that end at `after` is of no interest."""
        if left != 1 or self._topics != 1 or self.sizes is not None or after > self._frame_end:
            return False
        if self._address_map is not None and self._version >= _ENDPOINTS_SINCE:
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
        size, start = count(buf, start, limit, self._compact)
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
