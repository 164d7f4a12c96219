"""The thread that writes batches from the queue into files, rotates them, and removes old ones.

Rows count as written when their file has its final name, and as dropped when it cannot be written, so the counters
agree with what a reader finds. After such a failure nothing is written for a while. A killed process loses its
unfinished file, at most `rotate_seconds` of rows; a file with its final name is complete.
"""

import logging
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty
from threading import Thread
from typing import Any, BinaryIO, Final

from proxy.capture.directory import Directory
from proxy.capture.naming import Ask, Naming, Topics
from proxy.capture.recorder import Recorder
from proxy.capture.records import Batch
from proxy.capture.tables import Tables
from proxy.logs import event
from proxy.stats import CaptureStats

# Rows are compressed and written so many bytes at a time, as they are in memory.
_GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
RETRY_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


class OpenFile:
    """One file under way."""

    def __init__(self, path: Path, file: BinaryIO, writer: Any, now: float) -> None:
        self.path = path
        self.file = file
        self.writer = writer
        self.since = now
        self.rows = 0
        self.pending: list[Any] = []
        self.pending_bytes = 0


class Writer:
    """Writes a recorder's batches, in a separate thread.

    Args:
        ask: requests the names of topics.
    """

    def __init__(
        self,
        recorder: Recorder,
        directory: Directory,
        tables: Tables,
        stats: CaptureStats,
        name: str,
        rotate_bytes: int,
        rotate_seconds: float,
        topics: Topics,
        ask: Ask,
    ) -> None:
        self._recorder = recorder
        self._directory = directory
        self._tables = tables
        self._stats = stats
        self._name = name
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        self._naming = Naming(topics, ask, recorder.queue.qsize)
        self._file: OpenFile | None = None
        self._files = 0
        self._unwritten_rows = 0  # rows that are neither queued, nor of a file, nor dropped
        self._retry_at = 0.0  # the disk has failed
        self.thread = Thread(target=self._run, name="capture", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._enforce_size_limit()
        self.thread.start()

    def _run(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Write the next batch, or finish a file that is due; False at the end."""
        try:
            try:
                batch = self._recorder.queue.get(timeout=self._time_left())
            except Empty:
                self._rotate()
                return True
            if batch is None:
                self._rotate()
                return False
            self._unwritten_rows = batch.all_rows
            try:
                self._write_batch(batch)
            finally:
                self._recorder.taken(batch)
            self._unwritten_rows = 0
            if self._time_left() <= 0:
                self._rotate()
        except Exception:  # the edge of the thread: capture goes on with another file
            logger.exception("internal error: cannot write the capture")
            self._stats.dropped["internal"] += self._unwritten_rows
            self._unwritten_rows = 0
            self._drop_file("internal")
        return True

    @property
    def unfinished_rows(self) -> int:
        """The rows of the unfinished file and those being converted. Thread-safe."""
        file = self._file
        return self._unwritten_rows + (0 if file is None else file.rows)

    def _time_left(self) -> float:
        """The time until the current file is due, in seconds."""
        if self._file is None:
            return self._rotate_seconds
        return max(0.0, self._file.since + self._rotate_seconds - time.monotonic())

    def _write_batch(self, batch: Batch) -> None:
        """Write a batch, or count it as dropped."""
        if time.monotonic() < self._retry_at:
            self._stats.dropped["disk"] += batch.all_rows
            return
        self._resolve_names(batch)
        failures = list(batch.unfit)
        converted = self._convert(batch, failures) if batch.rows else []
        if failures:
            logger.error(
                "internal error: cannot convert %d captured rows", len(failures), exc_info=failures[0]
            )
            self._stats.dropped["internal"] += len(failures)
        rows = self._unwritten_rows = sum(piece.num_rows for piece in converted)
        if not rows:
            return
        file = None
        try:
            file = self._file = self._file or self._open()
            file.rows += rows
            self._unwritten_rows = 0
            file.pending += converted
            file.pending_bytes += sum(piece.nbytes for piece in converted)
            if file.pending_bytes >= min(_GROUP_BYTES_MAX, self._rotate_bytes):
                self._write(file)
        except OSError as error:
            self._write_failed(error, 0 if file is not None else rows)
            return
        if file.file.tell() >= self._rotate_bytes:
            self._rotate()

    def _resolve_names(self, batch: Batch) -> None:
        """Resolve the names of topics, if possible; an invalid row is dropped later."""
        try:
            self._naming.resolve(batch)
        except Exception:
            logger.exception("internal error: cannot name topics")

    def _convert(self, batch: Batch, failures: list[Exception]) -> list[Any]:
        """Return the columns of a batch with records; if that fails, of its halves, down to each row at fault."""
        try:
            return [self._tables.convert(batch)]
        except Exception as error:  # noqa: BLE001 - `_write_batch` logs it
            if batch.rows == 1:
                failures.append(error)
                return []
            return [piece for part in batch.halves() for piece in self._convert(part, failures)]

    def _open(self) -> OpenFile:
        self._files += 1
        path, file = self._directory.create(f"{self._name}-{self._files:06}")
        try:
            return OpenFile(path, file, self._tables.writer(file), time.monotonic())
        except BaseException:
            _discard(path, file)
            raise

    def _write(self, file: OpenFile) -> None:
        """Compress and write the pending rows."""
        if file.pending:
            file.writer.write_table(self._tables.concatenate(file.pending))
            file.pending, file.pending_bytes = [], 0

    def _rotate(self) -> None:
        """Finish the current file, if there is one, and remove old ones."""
        file = self._file
        if file is None:
            return
        try:
            self._write(file)
            file.writer.close()
            size = file.file.tell()
            final = self._directory.finish(file.path, file.file)
        except OSError as error:
            self._write_failed(error, 0)
            return
        self._file = None
        self._stats.rows += file.rows
        self._stats.bytes_written += size
        event(logger, logging.INFO, "capture file written", file=final.name, rows=file.rows, bytes=size)
        self._enforce_size_limit(final)

    def _enforce_size_limit(self, newest: Path | None = None) -> None:
        """Remove the oldest files above the size limit, and count the remaining ones."""
        try:
            files = self._directory.make_room(newest)
        except OSError as error:
            event(logger, logging.WARNING, "cannot list the capture files", problem=error.strerror)
            return
        self._stats.files = len(files)
        self._stats.bytes = sum(file.size for file in files)
        self._stats.oldest = files[0].modified_ns / 1e9 if files else 0.0

    def _write_failed(self, error: OSError, rows: int) -> None:
        """Drop the file that cannot be written and `rows` further rows; write nothing for a while."""
        self._stats.dropped["disk"] += rows
        rows += self._drop_file("disk")
        self._retry_at = time.monotonic() + RETRY_SECONDS
        event(
            logger,
            logging.ERROR,
            "cannot write the capture",
            problem=error.strerror or str(error),
            rows_dropped=rows,
            retry_seconds=RETRY_SECONDS,
        )

    def _drop_file(self, cause: str) -> int:
        """Remove the current file; returns the number of dropped rows."""
        file, self._file = self._file, None
        if file is None:
            return 0
        with suppress(Exception):  # it wants to write a footer
            file.writer.close()
        _discard(file.path, file.file)
        self._stats.dropped[cause] += file.rows
        return file.rows


def _discard(path: Path, file: BinaryIO) -> None:
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        path.unlink()
