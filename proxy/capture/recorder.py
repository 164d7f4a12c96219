"""The event loop's end of capture: connections get their number here, rows their batch, batches their place in a queue.

Which connections are captured is decided once for each, by a hash of its number in this run: all of a connection's
requests or none, so that what a client did after an answer is always there to be seen.
"""

from queue import SimpleQueue
from time import monotonic_ns, time_ns
from typing import Any, Final, NamedTuple
from zlib import crc32

from proxy.channel import Tap
from proxy.stats import CaptureStats

__all__ = ["QUEUE_BATCHES_MAX", "Batch", "Recorder", "Rows"]

# At 1,024 rows each about 64,000 rows or 50 MB: a disk may stand still for a second or two at full speed.
QUEUE_BATCHES_MAX: Final = 64
_HASHES: Final = 1 << 32
# Frames that a batch holds at most; with as many batches as may wait, 128 MiB.
_FRAME_BYTES_MAX: Final = 2 * 1024 * 1024

Rows = list[list[Any]]


class Batch(NamedTuple):
    """Rows, and what has to be added to their monotonic times to get UTC."""

    rows: Rows
    wall_minus_mono_ns: int


class Recorder:
    """Takes rows; one of these a process.

    Attributes:
        rows: of the batch under way.
        queue: batches for the writer; None tells it to end.
    """

    __slots__ = (
        "_connections",
        "_frame_bytes",
        "_frames",
        "_partition_sample",
        "_process",
        "_sample",
        "_stats",
        "queue",
        "rows",
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
        self._frame_bytes = 0
        self.rows: Rows = []
        self.queue: SimpleQueue[Batch | None] = SimpleQueue()

    def tap(self, ip: str, listener: str) -> Tap | None:
        """Take another connection; None where its requests are not captured."""
        self._connections += 1
        number = self._connections
        if self._sample < 1 and crc32(f"{self._process}/{number}".encode()) >= self._sample * _HASHES:
            return None
        return Tap(self, number, ip, listener, self._frames, self._partition_sample)

    def full(self) -> None:
        """Hand the batch under way over, or drop it."""
        rows, self.rows = self.rows, []
        self._frame_bytes = 0
        if not rows:
            return
        if self.queue.qsize() >= QUEUE_BATCHES_MAX:
            self._stats.dropped["queue"] += len(rows)
            return
        self.queue.put(Batch(rows, time_ns() - monotonic_ns()))

    def kept(self, size: int) -> None:
        """A frame of so many bytes is kept: the batch may be heavy before it is long."""
        self._frame_bytes += size
        if self._frame_bytes >= _FRAME_BYTES_MAX:
            self.full()
