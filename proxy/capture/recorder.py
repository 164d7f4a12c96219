"""The event loop's side of capture: numbers connections, and puts rows into batches and batches into a queue.

Whether a connection is captured is decided once, by a hash of its number in this run: all of its requests or none, so
that a client's reaction to a response is always in the capture.

Waiting rows are bounded by their weight (`proxy.channel.capture_rows`), and frames by their bytes too, including those
of requests without a response yet.
"""

from collections.abc import Callable
from queue import SimpleQueue
from time import time_ns
from typing import Any, Final
from zlib import crc32

from proxy.capture.records import Batch, Records
from proxy.channel import BATCH_WEIGHT, Tap
from proxy.clock import clock_ns
from proxy.stats import CaptureStats

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
    """Collects the rows of one process.

    Attributes:
        add: adds a finished row to the current batch.
        left: the weight that still fits into it.
        queue: batches for the writer; None tells it to end.
    """

    __slots__ = (
        "_connections",
        "_frames",
        "_partition_sample",
        "_process",
        "_queued",
        "_records",
        "_released",
        "_reserved",
        "_sample",
        "_stats",
        "_taken",
        "add",
        "left",
        "queue",
    )

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
        """Register a connection; returns None if its requests are not captured."""
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
        """Release the weight of a batch that was written or dropped; called by the writer's thread."""
        self._taken += batch.weight
        self._released += batch.frame_bytes

    def reserve(self, size: int) -> bool:
        """Reserve memory for a frame; returns False, and counts it, if there is none left."""
        if self._reserved - self._released + size > FRAMES_BYTES_MAX:
            self._stats.frames_left_out += 1
            return False
        self._reserved += size
        return True
