"""The thread that writes: batches from the queue into a file, the file rotated, old files removed.

Rows of one file share its fate: they are written when the file has its name, and dropped when it cannot be written, so
the counters say what a reader will find. After such a failure the disk is left alone for a while. What a killed process
has not finished is lost, at most `rotate_seconds` of rows; what has a name is whole.
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
from proxy.capture.recorder import Batch, Recorder
from proxy.capture.tables import Tables
from proxy.logs import event
from proxy.stats import CaptureStats

__all__ = ["Opened", "Writer"]

# Rows are compressed and written so many bytes at a time, as they are in memory.
_GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
RETRY_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


class Opened:
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
    """Writes what a recorder hands over, in a thread of its own.

    Args:
        ask: has the names of topics asked for.
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
        self._file: Opened | None = None
        self._files = 0
        self._in_hand = 0  # rows that are neither queued, nor of a file, nor dropped
        self._silent_until = 0.0  # the disk has failed
        self.thread = Thread(target=self._run, name="capture", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._survey()
        self.thread.start()

    def _run(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Take the next batch, or finish a file whose time has come; False at the end."""
        try:
            try:
                batch = self._recorder.queue.get(timeout=self._time_left())
            except Empty:
                self._rotate()
                return True
            if batch is None:
                self._rotate()
                return False
            self._in_hand = len(batch.rows)
            try:
                self._take(batch)
            finally:
                self._recorder.taken(batch)
            self._in_hand = 0
            if self._time_left() <= 0:
                self._rotate()
        except Exception:  # the edge of the thread: capture goes on with another file
            logger.exception("internal error: cannot write the capture")
            self._stats.dropped["internal"] += self._in_hand
            self._in_hand = 0
            self._give_up("internal")
        return True

    @property
    def unfinished_rows(self) -> int:
        """Rows of the file under way, and those that are being converted; any thread may ask."""
        file = self._file
        return self._in_hand + (0 if file is None else file.rows)

    def _time_left(self) -> float:
        """Until the file under way is to be finished."""
        if self._file is None:
            return self._rotate_seconds
        return max(0.0, self._file.since + self._rotate_seconds - time.monotonic())

    def _take(self, batch: Batch) -> None:
        """Write a batch, or count it as dropped."""
        if time.monotonic() < self._silent_until:
            self._stats.dropped["disk"] += len(batch.rows)
            return
        self._find_names(batch)
        wrong: list[Exception] = []
        converted = self._converted(batch, wrong)
        if wrong:
            logger.error("internal error: cannot convert %d captured rows", len(wrong), exc_info=wrong[0])
            self._stats.dropped["internal"] += len(wrong)
        rows = self._in_hand = sum(piece.num_rows for piece in converted)
        if not rows:
            return
        file = None
        try:
            file = self._file = self._file or self._open()
            file.rows += rows
            self._in_hand = 0
            file.pending += converted
            file.pending_bytes += sum(piece.nbytes for piece in converted)
            if file.pending_bytes >= min(_GROUP_BYTES_MAX, self._rotate_bytes):
                self._write(file)
        except OSError as error:
            self._fail(error, 0 if file is not None else rows)
            return
        if file.file.tell() >= self._rotate_bytes:
            self._rotate()

    def _find_names(self, batch: Batch) -> None:
        """Have topics named, if they can be; a row that is no row is dropped later, alone."""
        try:
            self._naming.find(batch)
        except Exception:
            logger.exception("internal error: cannot name topics")

    def _converted(self, batch: Batch, wrong: list[Exception]) -> list[Any]:
        """Columns of a batch; where that fails, of its halves, down to the rows that are to blame: one `wrong` each."""
        try:
            return [self._tables.convert(batch)]
        except Exception as error:  # noqa: BLE001 - `_take` logs it
            rows = batch.rows
            if len(rows) == 1:
                wrong.append(error)
                return []
            half = len(rows) // 2
            halves = batch._replace(rows=rows[:half]), batch._replace(rows=rows[half:])
            return [piece for part in halves for piece in self._converted(part, wrong)]

    def _open(self) -> Opened:
        self._files += 1
        path, file = self._directory.create(f"{self._name}-{self._files:06}")
        try:
            return Opened(path, file, self._tables.writer(file), time.monotonic())
        except BaseException:
            _discard(path, file)
            raise

    def _write(self, file: Opened) -> None:
        """Compress what is pending, and write it."""
        if file.pending:
            file.writer.write_table(self._tables.joined(file.pending))
            file.pending, file.pending_bytes = [], 0

    def _rotate(self) -> None:
        """Finish the file under way, if there is one, and remove old ones."""
        file = self._file
        if file is None:
            return
        try:
            self._write(file)
            file.writer.close()
            size = file.file.tell()
            final = self._directory.finish(file.path, file.file)
        except OSError as error:
            self._fail(error, 0)
            return
        self._file = None
        self._stats.rows += file.rows
        self._stats.bytes_written += size
        event(logger, logging.INFO, "capture file written", file=final.name, rows=file.rows, bytes=size)
        self._survey(final)

    def _survey(self, newest: Path | None = None) -> None:
        """Keep within the bound, and count what there is."""
        try:
            files = self._directory.make_room(newest)
        except OSError as error:
            event(logger, logging.WARNING, "cannot list the capture files", problem=error.strerror)
            return
        self._stats.files = len(files)
        self._stats.bytes = sum(file.size for file in files)
        self._stats.oldest = files[0].modified_ns / 1e9 if files else 0.0

    def _fail(self, error: OSError, rows: int) -> None:
        """The file cannot be written: give it up, count `rows` more, and leave the disk alone for a while."""
        self._stats.dropped["disk"] += rows
        rows += self._give_up("disk")
        self._silent_until = time.monotonic() + RETRY_SECONDS
        event(
            logger,
            logging.ERROR,
            "cannot write the capture",
            problem=error.strerror or str(error),
            rows_dropped=rows,
            retry_seconds=RETRY_SECONDS,
        )

    def _give_up(self, cause: str) -> int:
        """Remove the file under way; gives how many rows were dropped with it."""
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
