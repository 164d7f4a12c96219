"""Reads each partition's bytes and records of Produce requests and Fetch responses, for capture.

Two fast readers take what is ordinary, and everything else is walked part by part, however the stream is cut:

- `PlainProduce`, versions 9 to 13. Most requests of a producer differ from the one before only in the partition's index
  and the batch. So the bytes before these are compared with those of the last request, and the fields after them are at
  known offsets: one `unpack`.
- `read_plain_fetch`, versions 12 to 18. A *plain* response has few partitions, no aborted transactions and no tags, and
  the headers of its partitions have arrived together; nearly every response is plain.
- `CapturedProduceWalk` and `CapturedFetchWalk` are walks with a sink (`PartitionRows`).

The number of records is in the header of each batch (KIP-98). Its 61 bytes are read only if they are in the buffer
already: nearly always in a Produce, which has one batch per partition; in a Fetch if all records of the partition are
in the buffer. Otherwise, and for messages older than Kafka 0.11, the number of records is unknown.

The bytes after the last partition's header are needed only to rewrite addresses or to charge topics. If neither is
done, the walk ends there and the rest of the frame passes through. Reading headers between large payloads is expensive,
since each payload must be moved by itself. So a large frame is walked beyond the buffered bytes only if it is sampled
(`whole`). Otherwise its remaining partitions are one row, with OTHER_TOPICS as topic and UNCOUNTED as records.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from protocol.errors import WireError
from protocol.messages.addresses import AddressMap
from protocol.messages.fetch import FLEXIBLE, VERSION_MAX
from protocol.walks.fetch import PartitionsWalk
from protocol.walks.produce import ProduceWalk
from protocol.walks.walk import OTHER_TOPICS, Sizes, Walk

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

_TOPIC_IDS_SINCE: Final = 13
_TOPIC_ID_BYTES: Final = 16
_HEADER_TAGS_AT: Final = 8  # after length and correlation id
_TOPICS_AT: Final = 19  # after those tags, throttle time, error code and session id
# At most 32 topics of 32 partitions, so that the time is bounded; a count is one more than the number.
_COUNT_MAX: Final = 33
# A partition: 30 bytes to the count of aborted transactions, that count, 4 bytes, the length of the records.
_ABORTED_AT: Final = 30
_RECORDS_AT: Final = 35
# After the last partition's records: its tags, those of its topic, and those of the response, all without any.
_TAIL_BYTES: Final = 3
_NOT_PLAIN: Final = -1

_FLEXIBLE_SINCE: Final = 9


# A partition with one batch, by the number of bytes that its size takes: index; length, magic, number of records.
_ONE_BATCH: Final = Struct(">i1x8xi4xb40xi").unpack_from
_ONE_BATCH_SIZE_2: Final = Struct(">i2x8xi4xb40xi").unpack_from
_ONE_BATCH_SIZE_3: Final = Struct(">i3x8xi4xb40xi").unpack_from
_ONE_BATCH_BYTES: Final = 4 + 3 + _BATCH_HEADER


def records_in(buf: bytes | bytearray | memoryview, pos: int, stop: int, limit: int) -> int:
    """Return the number of records in the batches in buf[pos:stop], of which the bytes before `limit` have arrived.

    UNCOUNTED if a batch's header has not arrived, or the batches are older than Kafka 0.11.
    """
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
    """Return `total`, or UNCOUNTED if it is out of range: a batch's header may state any number of records."""
    return total if 0 <= total <= _INT32_MAX else UNCOUNTED


@dataclass(slots=True, eq=False)
class PartitionRows:
    """A sink for a walk (`PartitionSink`) that collects each partition's bytes and number of records.

    Attributes:
        partitions: the partitions so far, at most PARTITIONS_MAX.
    """

    partitions: list[PartitionRecords] = field(default_factory=list)

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
        """Add a partition of `size` bytes; beyond PARTITIONS_MAX partitions, they are summed up in the last entry."""
        partitions = self.partitions
        if len(partitions) < PARTITIONS_MAX:
            partitions.append((topic, partition, size, records))
            return
        rest = partitions[-1]
        if rest[0] != OTHER_TOPICS:
            rest = (OTHER_TOPICS, UNCOUNTED, rest[2], UNCOUNTED)
        partitions[-1] = (OTHER_TOPICS, UNCOUNTED, rest[2] + size, UNCOUNTED)


class _Captured(Walk):
    """A walk for capture; it may end before the end of its frame, and the rest then passes unread.

    Attributes:
        whole: whether a large frame is walked to its end.
    """

    __slots__ = ()

    rows: PartitionRows
    whole: bool

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """Continue the walk as `Walk.feed` does; it may end early, and the rest of the frame then passes unread.

        It ends early if the frame is malformed: its partitions are dropped. It also ends early if a large part has not
        arrived and `whole` is False: that part is captured as one partition. It never does if quotas or addresses need
        the rest.
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
        """The partitions read so far."""
        return self.rows.partitions


class CapturedProduceWalk(_Captured, ProduceWalk):
    """A walk through a Produce request that collects each partition's bytes and number of records."""

    __slots__ = ("rows", "whole")

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None = None, *, whole: bool = True
    ) -> None:
        self.rows = PartitionRows()
        self.whole = whole
        super().__init__(version, frame_length, sizes, self.rows)

    def _rest_is_read(self) -> bool:
        return self.sizes is not None


class CapturedFetchWalk(_Captured, PartitionsWalk):
    """A walk through a Fetch response that collects each partition's bytes and number of records."""

    __slots__ = ("rows", "whole")

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None = None, *, whole: bool = True
    ) -> None:
        self.rows = PartitionRows()
        self.whole = whole
        super().__init__(version, frame_length, sizes, self.rows)


def read_plain_fetch(
    buf: bytes | bytearray, pos: int, end: int, frame_end: int, version: int
) -> list[PartitionRecords] | None:
    """Return the partitions of a plain Fetch response at once; None if it is not plain, and must be walked instead.

    A plain response has few partitions, no aborted transactions and no tags, and nearly all of them are plain.

    Args:
        pos: where the response begins, with its length prefix.
    """
    limit = min(end, frame_end)
    at = pos + _TOPICS_AT
    if not FLEXIBLE <= version <= VERSION_MAX or at >= limit or buf[pos + _HEADER_TAGS_AT]:
        return None
    topics = buf[at]
    at += 1
    if not 1 <= topics <= _COUNT_MAX:
        return None
    found: list[PartitionRecords] = []
    while topics > 1 and at < limit:
        topics -= 1
        name_at = at
        if version >= _TOPIC_IDS_SINCE:
            at += _TOPIC_ID_BYTES
        else:
            name_at += 1
            at += buf[at]
        at = _partitions(buf, name_at, at, limit, frame_end if topics == 1 else 0, found)
        if at == _NOT_PLAIN:
            return None
        if at >= limit:
            break  # the records of the last partition have not arrived
    # Without topics the tags of the response have arrived; otherwise `_partitions` has seen where they are.
    return found if topics == 1 and at == frame_end - 1 and (at >= end or not buf[at]) else None


def _partitions(
    buf: bytes | bytearray, name_at: int, at: int, limit: int, frame_end: int, found: list[PartitionRecords]
) -> int:
    """Read the partitions of a topic whose name ends at `at`; returns where the topic ends, or _NOT_PLAIN.

    Args:
        frame_end: the end of the response if it is the last topic; its last records need not have arrived.
    """
    if not name_at < at <= name_at + 127 or at >= limit or not 1 <= buf[at] <= _COUNT_MAX:
        return _NOT_PLAIN
    name = bytes(buf[name_at:at])
    left = buf[at]
    at += 1
    while left > 1:
        left -= 1
        last = at + _RECORDS_AT
        if last + 2 >= limit or buf[at + _ABORTED_AT] > 1:
            return _NOT_PLAIN
        # One more than the length, in at most three bytes (2 MiB); `last` is the last of them.
        size = buf[last]
        if size > 127:
            last += 1
            byte = buf[last]
            size += (byte << 7) - 128
            if byte > 127:
                last += 1
                byte = buf[last]
                size += (byte << 14) - (128 << 7)
                if byte > 127:
                    return _NOT_PLAIN
        if not size:
            return _NOT_PLAIN
        stop = last + size
        records = records_in(buf, last + 1, stop, min(stop, limit)) if size > 1 else 0
        found.append((name, _INT32(buf, at)[0], size - 1, records))
        if stop >= limit:
            plain = left == 1 and stop + _TAIL_BYTES == frame_end
            return stop + _TAIL_BYTES - 1 if plain else _NOT_PLAIN
        if buf[stop]:
            return _NOT_PLAIN
        at = stop + 1
    return at + 1 if at < limit and not buf[at] else _NOT_PLAIN


@dataclass(slots=True, eq=False)
class PlainProduce:
    """Reads the ordinary Produce requests of one connection, with the same result as a walk.

    An ordinary request has one partition with one batch, whose header has arrived, and begins like the last one: no
    tags, no transactional id, and the same acks, timeout and topic.
    """

    _version: int = UNCOUNTED
    _prefix: bytes = b""
    _name: bytes = b""

    def read(
        self, buf: bytes | bytearray, body: int, end: int, frame_end: int, version: int
    ) -> list[PartitionRecords] | None:
        """Return the request's only partition in a list; None if the request is not ordinary and must be walked.

        Args:
            body: the end of the client id.
        """
        if (version != self._version or not buf.startswith(self._prefix, body)) and not self._learn_prefix(
            buf, body, min(end, frame_end), version
        ):
            return None
        start = body + len(self._prefix)
        if start + _ONE_BATCH_BYTES > end:
            return None
        # Before the batch is its length plus one, as a varint; after it are three counts of tags, all 0.
        unpack = _ONE_BATCH
        size = frame_end - start - 8
        if size > 126:
            unpack = _ONE_BATCH_SIZE_2
            size -= 1
            if size > 0x3FFE:
                unpack = _ONE_BATCH_SIZE_3
                size -= 1
        index, length, magic, records = unpack(buf, start)
        if length + _BATCH_PREFIX == size and magic == _MAGIC and records >= 0:
            return [(self._name, index, size, records)]
        return None

    def _learn_prefix(self, buf: bytes | bytearray, body: int, limit: int, version: int) -> bool:
        """Store the bytes before the partition for the next requests; returns False if the request is not ordinary."""
        self._version = UNCOUNTED
        topic_at = body + 9
        if version < _FLEXIBLE_SINCE or topic_at >= limit or buf[body] or buf[body + 1]:
            return False
        by_id = version >= _TOPIC_IDS_SINCE
        after = topic_at + (16 if by_id else buf[topic_at])
        plain = buf[topic_at - 1] == 2 and after < limit and buf[after] == 2  # one topic, one partition
        if not plain or not (by_id or 1 < buf[topic_at] <= 127):
            return False
        self._version = version
        self._name = bytes(buf[topic_at + (not by_id) : after])
        self._prefix = bytes(buf[body : after + 1])
        return True
