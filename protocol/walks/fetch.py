"""The walk through a Fetch response, versions 0 to 18, and that of a leader's response to a follower.

The walk rewrites the addresses at the end (KIP-951), and counts the bytes of each topic if topics have quotas. Only the
partitions' headers and the tag sections are read; records are skipped by their length. Only responses since version 16
may end with addresses, and only these are changed. A sink reads further fields of each partition.

`ReplicaWalk` collects the status of each replica (KIP-73, KIP-227), versions 12 to 18: of every partition the error,
the high watermark, the size of the records, and the size of the first batch, from its header. Nothing is changed.

`protocol.walks.walk` describes how to feed a walk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from protocol.api import FETCH
from protocol.errors import TruncatedError, UnknownVersionError, WireError
from protocol.header import response_body_start
from protocol.messages.addresses import fit_tags
from protocol.messages.fetch import FLEXIBLE, VERSION_MAX, TopicPartition
from protocol.primitives import bytes_size, skip, skip_string, skip_tags, streamed_count
from protocol.walks.walk import PARTITION_TAGS, TOPIC_TAGS, FullError, PartitionSink, Sizes, Walk

ENDPOINTS_SINCE: Final = 16
_TOPIC_IDS_SINCE: Final = 13

# The states in addition to those of every walk.
_ABORTED, _RECORDS = 6, 7

# A flexible partition: 30 bytes to the count of aborted transactions, that count, the preferred replica's 4
# bytes, the length of the records in at most 3 bytes here, and the count of tags.
_ABORTED_AT: Final = 30
_RECORDS_AT: Final = 35
_HEADER_MAX: Final = 40
_HEAD: Final = Struct(">ihq").unpack_from  # index, error code, high watermark
_HEAD_BYTES: Final = 14

# A batch's base offset, and the bytes that follow its length.
_BATCH: Final = Struct(">qi").unpack_from
_BATCH_HEAD_BYTES: Final = 12
_OFFSET: Final = Struct(">q").unpack_from
_OFFSET_BYTES: Final = 8
# Where the fields of a flexible response are if its header has no tags and its counts take one byte.
_HEADER_TAGS_AT: Final = 8
_FIRST_TOPIC_AT: Final = 20
_FIRST_BATCH_END_MAX: Final = _RECORDS_AT + 5 + _BATCH_HEAD_BYTES  # from the partition on
# The most topics, and the most partitions without records, that are read to find the first batch.
PARTITIONS_READ_MAX: Final = 64
# The most statuses before the reader must take them: one costs up to 6 us if it counts against two rates.
STATUSES_MAX: Final = 250


class FetchWalk(Walk):
    """A walk through one Fetch response, which can count each topic's bytes and rewrite brokers' addresses."""

    __slots__ = ("_aborted", "_fixed", "_partition_head", "_version")

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None = None, sink: PartitionSink | None = None
    ) -> None:
        """Create a walk from the request's version and the response's length prefix."""
        if not 0 <= version <= VERSION_MAX:
            raise UnknownVersionError(f"the layout of Fetch version {version} is not known")
        super().__init__(frame_length + 4, version >= FLEXIBLE, sizes, sink, version >= _TOPIC_IDS_SINCE)
        self._version = version
        # Index, error code, high watermark; last stable offset since version 4, log start offset since 5.
        self._fixed = _HEAD_BYTES + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
        self._aborted = 0
        self._partition_head = (0, 0, -1)  # the current partition's index, error code, high watermark

    def _head(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        version = self._version
        pos = response_body_start(buf, pos, limit, FETCH, version)
        # Throttle time since version 1; error code and session id since 7.
        pos = skip(pos, 10 if version >= 7 else 4 if version >= 1 else 0, limit)
        topics, pos = streamed_count(buf, pos, limit, self._compact)
        self._begin_topics(topics)
        return pos

    def _partition(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        after = self._fast_partitions(buf, pos, limit) if self._compact else pos
        return after if after != pos else self._slow_partition(buf, pos, limit)

    def _fast_partitions(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """Pass all buffered partitions without aborted transactions and tags; returns `pos` if there is none.

        Most of a walk's time is spent here, so the length of the records is decoded inline, up to three bytes (2 MiB).
        """
        began = pos
        left = self._partitions
        safe = limit - _HEADER_MAX
        sink = self.sink
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
            if sink is not None and not self._report(
                buf, pos, last + 1, size - 1, limit, pos == began, left == 1
            ):
                break
            if after >= limit or buf[after]:
                self._partitions = left
                self._state = PARTITION_TAGS
                return after
            pos = after + 1
            left -= 1
        if self.done:
            return self._frame_end
        if not left:
            self._state = TOPIC_TAGS
        self._partitions = left
        return pos

    def _report(
        self,
        buf: bytearray | memoryview,
        pos: int,
        records_at: int,
        size: int,
        limit: int,
        first: bool,
        last: bool,
    ) -> bool:
        """Report the partition at `pos` to the sink; returns whether to continue.

        Args:
            first: whether it is the first partition of this step, so that an error of the sink ends the step.
            last: whether it is the last partition of its topic.
        """
        assert self.sink is not None, "checked by the caller"
        index, error_code, high_watermark = _HEAD(buf, pos)
        try:
            self.sink.partition(self._name, index, error_code, high_watermark, buf, records_at, size, limit)
        except (FullError, TruncatedError):
            if first:
                raise
            return False
        return not (last and self._ends_early(records_at + size))

    def _slow_partition(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """Pass one partition's fields up to its aborted transactions; any field may be cut off at `limit`."""
        start, pos = pos, skip(pos, self._fixed, limit)
        self._partition_head = _HEAD(buf, start)
        self._aborted = 0
        if self._version >= 4:
            self._aborted, pos = streamed_count(buf, pos, limit, self._compact)
        self._state = _ABORTED if self._aborted > 0 else _RECORDS
        return pos

    def _aborted_transactions(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """Pass aborted transactions (producer id, first offset, tags in flexible versions); there may be thousands."""
        left = self._aborted
        if not self._compact:
            self._state = _RECORDS
            return pos + 16 * left
        while left and pos + 17 <= limit and not buf[pos + 16]:
            pos += 17
            left -= 1
        if left == self._aborted:
            pos = skip_tags(buf, skip(pos, 16, limit), limit)
            left -= 1
        self._aborted = left
        if not left:
            self._state = _RECORDS
        return pos

    def _records(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        if self._version >= 11:
            pos = skip(pos, 4, limit)
        size, pos = bytes_size(buf, pos, limit, self._compact)
        return self._records_at(self._partition_head, buf, pos, size, limit)

    def _tail(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        if self._version < ENDPOINTS_SINCE or not buf[pos]:
            self.done = True
            return self._frame_end
        return self._replace_tail(buf, pos, limit, fit_tags)

    STEPS: ClassVar[tuple[Callable[[Any, bytearray | memoryview, int, int], int], ...]] = (
        _head,
        Walk._topic_at,
        _partition,
        Walk._partition_tags,
        Walk._topic_tags,
        _tail,
        _aborted_transactions,
        _records,
    )


@dataclass(slots=True, eq=False)
class BytesBehind:
    """A sink that adds up the records of a consumer's Fetch response that are behind the log's end, and all others.

    Records are *behind* if the first record that the broker sent of a partition is more than `lag` offsets before the
    partition's high watermark. That is the offset that was read, whatever the client had asked for, in this request or
    in an earlier one of its fetch session: so nothing is kept of requests. Its batch may begin before it, by less than
    a batch; of a compacted log, or of messages older than Kafka 0.11, it may be later.

    Args:
        lag: in records.
        sink: an object that gets the partitions as well; None without one.

    Attributes:
        behind, ahead: the bytes of records so far that are behind, and that are not.
    """

    lag: int
    sink: PartitionSink | None = None
    behind: int = field(default=0, init=False)
    ahead: int = field(default=0, init=False)

    def partition(
        self,
        topic: bytes,
        index: int,
        error_code: int,
        high_watermark: int,
        buf: bytearray | memoryview,
        records_at: int,
        size: int,
        limit: int,
    ) -> None:
        """Add a partition of the frame (see `PartitionSink`)."""
        is_behind = False
        if size >= _OFFSET_BYTES:
            skip(records_at, _OFFSET_BYTES, limit)
            is_behind = high_watermark - _OFFSET(buf, records_at)[0] > self.lag
        if self.sink is not None:
            self.sink.partition(topic, index, error_code, high_watermark, buf, records_at, size, limit)
        if is_behind:
            self.behind += size
        elif size > 0:
            self.ahead += size


class PartitionsWalk(FetchWalk):
    """A walk that ends at the last partition's records, unless topics' bytes are counted or addresses rewritten."""

    __slots__ = ()

    def _rest_is_read(self) -> bool:
        return self.sizes is not None or (self._address_map is not None and self._version >= ENDPOINTS_SINCE)


def first_batch_bytes(buf: bytearray | memoryview, pos: int, end: int, version: int) -> int:
    """Return the size of the first batch in a Fetch response whose length prefix is at `pos`.

    Returns 0 if there is none before `end`, nor in the first PARTITIONS_READ_MAX topics and partitions.
    """
    if (  # the usual one, for a seventh of the time
        version >= FLEXIBLE
        and end - pos > _FIRST_TOPIC_AT
        and not buf[pos + _HEADER_TAGS_AT]
        and 1 < buf[pos + _FIRST_TOPIC_AT - 1] < 128
    ):
        topic = (
            16 if version >= _TOPIC_IDS_SINCE else buf[pos + _FIRST_TOPIC_AT]
        )  # the bytes of its id or name
        partition = pos + _FIRST_TOPIC_AT + topic + 1
        if (
            topic < 128
            and end - partition > _FIRST_BATCH_END_MAX
            and 1 < buf[partition - 1] < 128
            and buf[partition + _ABORTED_AT] <= 1
            and buf[partition + _RECORDS_AT] > 127  # more than 127 bytes
        ):
            records = partition + _RECORDS_AT + 1
            last = records + 3
            while buf[records] > 127 and records < last:
                records += 1
            following: int = _BATCH(buf, records + 1)[1]
            return max(0, following) + _BATCH_HEAD_BYTES
    try:
        return _first_batch_bytes(buf, pos, end, version)
    except WireError:
        return 0


def _first_batch_bytes(buf: bytearray | memoryview, pos: int, end: int, version: int) -> int:
    compact = version >= FLEXIBLE
    # Throttle time since version 1; error code and session id since 7.
    pos = response_body_start(buf, pos, end, FETCH, version) + (10 if version >= 7 else 4 if version else 0)
    # Index, error code, high watermark; last stable offset since version 4, log start offset since 5.
    fixed = _HEAD_BYTES + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
    topics, pos = streamed_count(buf, pos, end, compact)
    left = PARTITIONS_READ_MAX
    for _ in range(min(topics, left)):
        pos = pos + 16 if version >= _TOPIC_IDS_SINCE else skip_string(buf, pos, end, compact)
        partitions, pos = streamed_count(buf, pos, end, compact)
        for _ in range(min(partitions, left)):
            pos += fixed
            if version >= 4:
                aborted, pos = streamed_count(buf, pos, end, compact)
                pos += max(0, aborted) * (17 if compact else 16)  # brokers give them no tags
            size, pos = bytes_size(buf, pos + 4 if version >= 11 else pos, end, compact)
            if size >= _BATCH_HEAD_BYTES:
                skip(pos, _BATCH_HEAD_BYTES, end)
                following: int = _BATCH(buf, pos)[1]
                return max(0, following) + _BATCH_HEAD_BYTES
            pos += max(0, size)
            if compact:
                pos = skip_tags(buf, pos, end)
        left -= partitions
        if left <= 0:  # the rest of this topic was not read, so no next one is found
            break
        if compact:
            pos = skip_tags(buf, pos, end)
    return 0


class ReplicaStatus(NamedTuple):
    """The status of one partition in a leader's Fetch response to a follower.

    Attributes:
        records_bytes: the size of its records; 0 if it has none.
        batch_bytes: the size of its first batch; 0 if it has none.
    """

    key: TopicPartition
    error_code: int
    high_watermark: int
    records_bytes: int
    batch_bytes: int


@dataclass(slots=True, eq=False)
class ReplicaStatuses:
    """A sink that collects the status of each replica.

    Attributes:
        statuses: the partitions so far, at most STATUSES_MAX; the caller must empty the list before more can be added.
    """

    statuses: list[ReplicaStatus] = field(default_factory=list)

    def partition(
        self,
        topic: bytes,
        index: int,
        error_code: int,
        high_watermark: int,
        buf: bytearray | memoryview,
        records_at: int,
        size: int,
        limit: int,
    ) -> None:
        """Add a partition of the frame (see `PartitionSink`)."""
        if len(self.statuses) >= STATUSES_MAX:
            raise FullError
        batch_bytes = 0
        if size >= _BATCH_HEAD_BYTES:
            skip(records_at, _BATCH_HEAD_BYTES, limit)
            batch_bytes = max(0, _BATCH(buf, records_at)[1]) + _BATCH_HEAD_BYTES
        self.statuses.append(
            ReplicaStatus((topic, index), error_code, high_watermark, max(size, 0), batch_bytes)
        )


class ReplicaWalk(FetchWalk):
    """A walk through a leader's Fetch response to a follower that collects the status of each partition.

    Attributes:
        statuses: the partitions since the caller last emptied the list.
    """

    __slots__ = ("statuses",)

    def __init__(self, version: int, frame_length: int) -> None:
        """Create a walk from the request's version and the response's length prefix."""
        statuses = ReplicaStatuses()
        self.statuses = statuses.statuses
        super().__init__(version, frame_length, sink=statuses)
