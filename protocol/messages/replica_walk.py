"""The walk through a leader's Fetch answer that notes where each replica stands (KIP-73, KIP-227).

Of every partition: the error, the high watermark, how many bytes of records there are and how large the first batch
is (from its own first bytes). Everything passes as it came. Versions 12 to 18; how to feed it: `walk`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from protocol.messages.fetch import TopicPartition
from protocol.messages.fetch_walk import FetchWalk
from protocol.messages.walk import PARTITION_TAGS, FullError, Walk
from protocol.primitives import bytes_size, skip, streamed_count, string_span

__all__ = ["FOUND_MAX", "ReplicaWalk", "Standing"]

_TOPIC_IDS = 13
# Index, error code, high watermark.
_HEAD = Struct(">ihq").unpack_from
# A batch's base offset, and the bytes that follow its length.
_BATCH = Struct(">qi").unpack_from
_BATCH_HEAD_BYTES = 12
# Partitions that are found before they have to be taken away: one costs up to 6 us where it counts against two rates.
FOUND_MAX: Final = 250


class Standing(NamedTuple):
    """What an answer says of one partition; `batch_bytes` 0 where there are no records."""

    key: TopicPartition
    error_code: int
    high_watermark: int
    records_bytes: int
    batch_bytes: int


class ReplicaWalk(FetchWalk):
    """One walk; `found` grows with every partition whose header was seen, and is its reader's to empty: with FOUND_MAX
    of them the walk is `full`.
    """

    __slots__ = ("_error_code", "_high_watermark", "_index", "_topic_named", "found")

    def __init__(self, version: int, frame_length: int) -> None:
        """Take an answer by its request's version and the number in its length prefix."""
        super().__init__(version, frame_length)
        self.found: list[Standing] = []
        self._topic_named = b""
        self._index = self._error_code = 0
        self._high_watermark = -1

    def _topic_seen(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        if self._version >= _TOPIC_IDS:
            start, stop = pos, skip(pos, 16, limit)
        else:
            start, stop = string_span(buf, pos, limit, self._compact)
            stop = max(start, stop)
        partitions, after = streamed_count(buf, stop, limit, self._compact)
        self._topic_named = bytes(buf[start:stop])
        self._begin_partitions(partitions)
        return after

    def _partition_seen(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        if len(self.found) >= FOUND_MAX:
            raise FullError
        after = self._careful_partition(buf, pos, limit)
        self._index, self._error_code, self._high_watermark = _HEAD(buf, pos)
        return after

    def _records_seen(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        # Behind the preferred read replica.
        size, at = bytes_size(buf, skip(pos, 4, limit), limit, self._compact)
        batch_bytes = 0
        if size >= _BATCH_HEAD_BYTES:
            skip(at, _BATCH_HEAD_BYTES, limit)
            batch_bytes = max(0, _BATCH(buf, at)[1]) + _BATCH_HEAD_BYTES
        key = (self._topic_named, self._index)
        self.found.append(Standing(key, self._error_code, self._high_watermark, max(size, 0), batch_bytes))
        self._state = PARTITION_TAGS
        return at + max(size, 0)

    STEPS: ClassVar[tuple[Callable[[Any, bytearray | memoryview, int, int], int], ...]] = (
        FetchWalk._head,
        _topic_seen,
        _partition_seen,
        Walk._partition_tags,
        Walk._topic_tags,
        FetchWalk._tail,
        FetchWalk._aborted_transactions,
        _records_seen,
    )
