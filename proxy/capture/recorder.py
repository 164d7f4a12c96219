"""The event loop's side of capture: numbers connections, and puts rows into batches and batches into a queue.

Whether a connection is captured is decided once, by a hash of its number in this run: all of its requests or none, so
that a client's reaction to a response is always in the capture.

Waiting rows are bounded by their weight (`proxy.channel.capture`), and frames by their bytes too, including those
of requests without a response yet.
"""

from collections.abc import Callable
from itertools import accumulate
from queue import SimpleQueue
from struct import Struct
from time import time_ns
from typing import Any, Final, NamedTuple
from zlib import crc32

from protocol.walks.captured import PARTITIONS_MAX
from proxy.channel import BATCH_WEIGHT, NOT_KEPT, RowOrigin, Tap
from proxy.system.clock import clock_ns
from proxy.system.stats import CaptureStats
from quotas.definitions.kinds import CLIENT_KINDS


class Column:
    """The positions of a record's 13 numbers in the buffer of `Records`.

    ORIGIN is an index into `Batch.origins`, QUOTA one into QUOTAS, and PARTITIONS the number of partitions.
    """

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
    """The positions of a partition's four numbers in the buffer; TOPIC is an index into `Batch.topics`."""

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
# The values of the column `quota`; "": none was exceeded.
QUOTAS: Final = ("", *(kind.name for kind in CLIENT_KINDS))
_QUOTA_NUMBERS: Final = {name: number for number, name in enumerate(QUOTAS)}

Topic = tuple[bytes, bool]
"""A topic's name or id as bytes of the frame, and whether it is an id."""


class Batch(NamedTuple):
    """Captured requests for the writer: one record for each, as numbers in a buffer. It is no Kafka record batch.

    Attributes:
        records: 13 numbers of 8 bytes for each record (`Column`).
        partitions: four numbers of 8 bytes for each partition (`PartitionColumn`), in the order of the records.
        origins, topics: what the indices in these numbers refer to.
        frames: the kept frame of each record; empty if frames are not captured.
        wall_minus_mono_ns: UTC minus the monotonic clock of the records' times, in ns.
        unfit: an exception for each row that could not be made a record, and is lost.
        weight: how much of QUEUE_WEIGHT_MAX the batch takes while it is queued.
        frame_bytes: how much of FRAMES_BYTES_MAX its frames take.
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
        """The number of captured rows: the records, and the rows that could not be made one."""
        return self.rows + len(self.unfit)

    def column(self, number: int) -> bytes:
        """Return one number (`Column`) of all records, 8 bytes each."""
        return _strided(self.records, number, _RECORD_BYTES)

    def partition_column(self, number: int) -> bytes:
        """Return one number (`PartitionColumn`) of all partitions, 8 bytes each."""
        return _strided(self.partitions, number, _PARTITION_BYTES)

    def partition_offsets(self) -> list[int]:
        """Return the offsets of an Arrow list: the index of each record's first partition, then their total number."""
        return list(accumulate(memoryview(self.column(Column.PARTITIONS)).cast("q"), initial=0))

    def halves(self) -> "tuple[Batch, Batch]":
        """Return two batches, with the first and the second half of the records; each keeps all other attributes."""
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
    """Collects the records of the current batch: one for each captured request.

    A record is 13 numbers in one reused buffer, and each of its partitions is four numbers in another. So no objects of
    rows stay in memory for the garbage collector to visit. Each origin and topic is stored once for a batch; records
    refer to it by its index. A batch is a copy of both buffers; `tables` makes columns of it without a loop over rows.

    Attributes:
        frame_bytes: the bytes reserved for the frames of its rows.
    """

    def __init__(self) -> None:
        # A row weighs at least 1, and as much as it has partitions; the last one may exceed the batch's weight.
        self._records = bytearray(BATCH_WEIGHT * _RECORD_BYTES)
        self._partitions = bytearray((BATCH_WEIGHT + PARTITIONS_MAX) * _PARTITION_BYTES)
        self._begin()

    def _begin(self) -> None:
        self._at = self._partitions_at = 0
        # By identity: the number, and what has the identity.
        self._origins: dict[int, tuple[int, RowOrigin]] = {}
        self._topics: list[Topic] = []
        self._names: dict[bytes, int] = {}
        self._topic_ids: dict[bytes, int] = {}
        self._frames: list[bytes | bytearray] = []
        self._unfit: list[Exception] = []
        self.frame_bytes = 0

    def __len__(self) -> int:
        return self._at // _RECORD_BYTES + len(self._unfit)

    def add(self, row: list[Any]) -> None:
        """Add the finished row of a request (`proxy.channel.capture`).

        Never raises: a row that cannot be made a record is counted in `unfit`.
        """
        try:
            (
                head, origin, seq, handled_ns, _sent_ns, response_bytes, upstream_ns, throttle_ms, delay_ms,
                quota, mutations, partitions,
            ) = row  # fmt: skip
            request_bytes, key, version, _, _ = head
            found = self._origins.get(id(origin))
            number = len(self._origins) if found is None else found[0]
            if found is None:
                self._origins[id(origin)] = number, origin
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
        """Add the finished row of a request; its last item is the request's frame, or NOT_KEPT for a row without it."""
        *fields, frame = row
        at = self._at
        self.add(fields)
        if self._at != at:
            self._frames.append(frame)
        if frame is not NOT_KEPT:
            self.frame_bytes += 4 + fields[0][0]

    def cut(self, wall_minus_mono_ns: int, weight: int) -> Batch:
        """Return the records as a batch, and begin an empty one; for the arguments see `Batch`."""
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
        """Drop the records of the current batch; return their number."""
        count = len(self)
        self._begin()
        return count

    def _intern_topic(self, topics: dict[bytes, int], raw: bytes, by_id: bool) -> int:
        number = topics[raw] = len(self._topics)
        self._topics.append((raw, by_id))
        return number


def _strided(numbers: bytes, column: int, row_bytes: int) -> bytes:
    """Return every number of one column, from rows of `row_bytes` bytes."""
    return memoryview(numbers).cast("q")[column :: row_bytes // _NUMBER_BYTES].tobytes()


# Of all batches that wait or are being converted; 65,536 rows, 9 MB of ordinary ones and at most 64 MB: a disk may
# stand still for a second or two.
QUEUE_WEIGHT_MAX: Final = 64 * BATCH_WEIGHT
# Of all frames that are kept, from when their request begins until their row is written.
FRAMES_BYTES_MAX: Final = 128 * 1024 * 1024
# No rows are heavier. Client ids may be, where thousands of requests owe their rows: they weigh when they are seen, and
# whose rows come next are not dropped for it.
_BATCH_WEIGHT_MAX: Final = 4 * BATCH_WEIGHT
_HASHES: Final = 1 << 32


class Recorder:
    """Collects the rows of one process in batches, and queues full ones for the writer.

    Attributes:
        add: adds the finished row of a request to the current batch.
        left: the weight that still fits into the batch. A row weighs as much as it has partitions, at least 1, and more
            with a frame or a long client id. Channels subtract it, and call `full` when nothing is left.
        queue: batches for the writer; None tells it to end.
    """

    def __init__(
        self,
        process: str,
        sample: float,
        stats: CaptureStats,
        frames: str = "off",
        partition_sample: float = 1.0,
    ) -> None:
        self._process = process
        self._sample = sample
        self._stats = stats
        self._connections = 0
        self._frames = frames
        self._partition_sample = partition_sample
        # Each of these is changed by one thread: what was queued and reserved by the loop, the rest by the writer.
        self._queued = self._taken = 0
        self._reserved = self._released = 0
        self.left = BATCH_WEIGHT
        self._records = Records()
        # Bound once: it is called for every request.
        self.add: Callable[[list[Any]], None] = (
            self._records.add if frames == "off" else self._records.add_with_frame
        )
        self.queue: SimpleQueue[Batch | None] = SimpleQueue()

    def tap(self, ip: str, listener: str) -> Tap | None:
        """Return the tap through which a new connection's requests are captured; None if it is not in the sample."""
        self._connections += 1
        number = self._connections
        if self._sample < 1 and crc32(f"{self._process}/{number}".encode()) >= self._sample * _HASHES:
            return None
        return Tap(self, number, ip, listener, self._frames, self._partition_sample)

    def full(self) -> None:
        """Queue the current batch for the writer, or drop it if the queue is full."""
        records = self._records
        if not records:
            return
        weight = min(BATCH_WEIGHT - self.left, _BATCH_WEIGHT_MAX)
        self.left = BATCH_WEIGHT
        if self._queued - self._taken + weight > QUEUE_WEIGHT_MAX:
            self._reserved -= records.frame_bytes
            self._stats.dropped["queue"] += records.drop()
            return
        self._queued += weight
        self.queue.put(records.cut(time_ns() - clock_ns(), weight))

    def taken(self, batch: Batch) -> None:
        """Free the memory reserved for a batch, which was written or dropped. Called in the writer's thread."""
        self._taken += batch.weight
        self._released += batch.frame_bytes

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes of FRAMES_BYTES_MAX for a frame; False if too few are left, which is counted."""
        if self._reserved - self._released + size > FRAMES_BYTES_MAX:
            self._stats.frames_left_out += 1
            return False
        self._reserved += size
        return True
