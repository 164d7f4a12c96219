"""Finished rows as fixed-size records: what the event loop keeps of a row until the writer makes columns of it.

A record is 13 numbers in one reused buffer, and each of its partitions is four in another, so a row leaves no object
behind for the garbage collector and the writer to visit. What rows share is interned for a batch and named by a number:
origins, and topics by name or id. A batch is a copy of both buffers; columns are made of it without a loop over rows
(`tables`).
"""

from itertools import accumulate
from struct import Struct
from typing import Any, Final, NamedTuple

from protocol.capture import QUOTAS
from protocol.walks.captured import PARTITIONS_MAX
from proxy.channel import BATCH_WEIGHT, NOT_KEPT, RowOrigin


class Column:
    """The numbers of a record, by position. ORIGIN and QUOTA are indices; PARTITIONS is how many it has."""

    (
        HANDLED_NS,
        SEQ,
        API_KEY,
        API_VERSION,
        REQUEST_BYTES,
        RESPONSE_BYTES,
        UPSTREAM_NS,
        THROTTLE_MS,
        DELAY_MS,
        MUTATIONS,
        QUOTA,
        ORIGIN,
        PARTITIONS,
    ) = range(13)


class PartitionColumn:
    """The numbers of a partition, by position. TOPIC is an index."""

    TOPIC, INDEX, BYTES, RECORDS = range(4)


# In native order: `struct` packs it in half the time, and the writer is in the same process.
_RECORD: Final = Struct("13q")
_PARTITION: Final = Struct("4q")
_PACK: Final = _RECORD.pack_into
_PACK_PARTITION: Final = _PARTITION.pack_into
_RECORD_BYTES: Final = _RECORD.size
_PARTITION_BYTES: Final = _PARTITION.size
_NUMBER_BYTES: Final = 8
_TOPIC_IDS_SINCE: Final = 13  # Produce and Fetch alike
_QUOTA_NUMBERS: Final = {name: number for number, name in enumerate(QUOTAS)}

Topic = tuple[bytes, bool]
"""A topic's name or id as bytes of the frame, and whether it is an id."""


class Batch(NamedTuple):
    """Records, and the difference between UTC and their monotonic times.

    Attributes:
        records, partitions: numbers of 8 bytes; the partitions are in the order of the records they belong to.
        origins, topics: what the numbers name.
        frames: a kept frame for each record; empty where frames are not captured.
        unfit: for each row that could not be made a record, and is lost, why.
        weight: the weight for the recorder's bound.
        frame_bytes: the bytes reserved for their frames.
    """

    records: bytes
    partitions: bytes
    origins: tuple[RowOrigin, ...]
    topics: tuple[Topic, ...]
    frames: tuple[bytes | bytearray, ...]
    wall_minus_mono_ns: int
    unfit: tuple[Exception, ...] = ()
    weight: int = 0
    frame_bytes: int = 0

    @property
    def rows(self) -> int:
        """The number of records."""
        return len(self.records) // _RECORD_BYTES

    @property
    def all_rows(self) -> int:
        """The number of rows that were captured, with the unfit ones."""
        return self.rows + len(self.unfit)

    def column(self, number: int) -> bytes:
        """Return a column of the records."""
        return _strided(self.records, number, _RECORD_BYTES)

    def partition_column(self, number: int) -> bytes:
        """Return a column of the partitions."""
        return _strided(self.partitions, number, _PARTITION_BYTES)

    def partition_offsets(self) -> list[int]:
        """Return the index of each record's first partition; last, the number of partitions."""
        return list(accumulate(memoryview(self.column(Column.PARTITIONS)).cast("q"), initial=0))

    def halves(self) -> "tuple[Batch, Batch]":
        """Return the first and the second half of the records as batches."""
        half = self.rows // 2
        at, cut = half * _RECORD_BYTES, self.partition_offsets()[half] * _PARTITION_BYTES
        first = self._replace(
            records=self.records[:at], partitions=self.partitions[:cut], frames=self.frames[:half]
        )
        second = self._replace(
            records=self.records[at:], partitions=self.partitions[cut:], frames=self.frames[half:]
        )
        return first, second


class Records:
    """The records of the current batch.

    Attributes:
        frame_bytes: the bytes reserved for the frames of its rows.
    """

    __slots__ = (
        "_at",
        "_frames",
        "_names",
        "_origins",
        "_partitions",
        "_partitions_at",
        "_records",
        "_topic_ids",
        "_topics",
        "_unfit",
        "frame_bytes",
    )

    def __init__(self) -> None:
        # A row weighs at least 1, and as much as it has partitions; the last one may exceed the batch's weight.
        self._records = bytearray(BATCH_WEIGHT * _RECORD_BYTES)
        self._partitions = bytearray((BATCH_WEIGHT + PARTITIONS_MAX) * _PARTITION_BYTES)
        self._begin()

    def _begin(self) -> None:
        self._at = self._partitions_at = 0
        self._origins: dict[
            int, tuple[int, RowOrigin]
        ] = {}  # by identity: the number, and what has the identity
        self._topics: list[Topic] = []
        self._names: dict[bytes, int] = {}
        self._topic_ids: dict[bytes, int] = {}
        self._frames: list[bytes | bytearray] = []
        self._unfit: list[Exception] = []
        self.frame_bytes = 0

    def __len__(self) -> int:
        return self._at // _RECORD_BYTES + len(self._unfit)

    def add(self, row: list[Any]) -> None:
        """Add a finished row (`proxy.channel.capture_rows`). The data path goes on if it is unfit for a record."""
        try:
            (
                head, origin, seq, handled_ns, _sent_ns, response_bytes, upstream_ns, throttle_ms, delay_ms,
                quota, mutations, partitions,
            ) = row  # fmt: skip
            request_bytes, key, version, _, _ = head
            found = self._origins.get(id(origin))
            number = self._intern_origin(origin) if found is None else found[0]
            partitions_at = self._partitions_at
            for raw, index, size, records in partitions:
                topics = self._topic_ids if version >= _TOPIC_IDS_SINCE else self._names
                topic = topics.get(raw)
                if topic is None:
                    topic = self._intern_topic(topics, raw, version >= _TOPIC_IDS_SINCE)
                _PACK_PARTITION(self._partitions, partitions_at, topic, index, size, records)
                partitions_at += _PARTITION_BYTES
            _PACK(
                self._records, self._at, handled_ns, seq, key, version, request_bytes, response_bytes,
                upstream_ns, throttle_ms, delay_ms, mutations, _QUOTA_NUMBERS[quota], number, len(partitions),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - the writer counts and logs it
            self._unfit.append(error)
        else:
            self._at += _RECORD_BYTES
            self._partitions_at = partitions_at

    def add_with_frame(self, row: list[Any]) -> None:
        """Add a finished row that ends with its frame."""
        *fields, frame = row
        at = self._at
        self.add(fields)
        if self._at != at:
            self._frames.append(frame)
        if frame is not NOT_KEPT:
            self.frame_bytes += 4 + fields[0][0]

    def cut(self, wall_minus_mono_ns: int, weight: int) -> Batch:
        """Return the records as a batch, and begin another one."""
        batch = Batch(
            bytes(memoryview(self._records)[: self._at]),
            bytes(memoryview(self._partitions)[: self._partitions_at]),
            tuple(origin for _, origin in self._origins.values()),
            tuple(self._topics),
            tuple(self._frames),
            wall_minus_mono_ns,
            tuple(self._unfit),
            weight,
            self.frame_bytes,
        )
        self._begin()
        return batch

    def drop(self) -> int:
        """Drop the records; returns their number."""
        count = len(self)
        self._begin()
        return count

    def _intern_origin(self, origin: RowOrigin) -> int:
        number = len(self._origins)
        self._origins[id(origin)] = number, origin
        return number

    def _intern_topic(self, topics: dict[bytes, int], raw: bytes, by_id: bool) -> int:
        number = topics[raw] = len(self._topics)
        self._topics.append((raw, by_id))
        return number


def _strided(numbers: bytes, column: int, row_bytes: int) -> bytes:
    """Return one column of rows of numbers."""
    return memoryview(numbers).cast("q")[column :: row_bytes // _NUMBER_BYTES].tobytes()
