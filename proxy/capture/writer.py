"""The thread that writes batches from the queue into files, rotates them, and removes old ones.

Rows count as written when their file has its final name, and as dropped when it cannot be written, so the counters
agree with what a reader finds. After such a failure nothing is written for a while. A killed process loses its
unfinished file, at most `rotate_seconds` of rows; a file with its final name is complete.
"""

import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from queue import Empty
from threading import Thread
from typing import Any, BinaryIO, Final, NamedTuple

from protocol.capture import FILE_PREFIX, FILE_SUFFIX, UNFINISHED_SUFFIX
from proxy.capture.recorder import Batch, Recorder
from proxy.capture.tables import Ask, Names, Naming, Tables
from proxy.system.errors import StartError
from proxy.system.files import sync_directory, try_lock
from proxy.system.logs import event
from proxy.system.stats import CaptureStats

logger = logging.getLogger(__name__)


_MODE: Final = 0o640  # captures have principals and addresses
# Files that other processes finish meanwhile may be later by this time.
_LATER_NS_MAX: Final = 5_000_000_000


class Finished(NamedTuple):
    """A finished file of a capture, with its size and age."""

    path: Path
    size: int
    modified_ns: int


class Directory:
    """The files of one kind in one directory: creates, finishes and removes them.

    A file is written under a temporary name, and renamed when it is complete and on the disk. Its writer holds a lock
    on it meanwhile, so that another process can distinguish a file in use from one that a killed process has left
    behind, which is removed at start. Several processes may share a directory; each keeps the sum of all finished files
    within `bytes_max` by removing the oldest first; the newest file always stays.

    A file's age is its time of modification, and clocks may be set back: a file with a later time than the one that was
    just finished counts as the oldest. Only regular files belong to captures; one that cannot be removed stays and
    counts, and does not prevent others from being removed.

    Args:
        path: the directory.
        bytes_max: the largest size of all finished files together.
        prefix, suffix: how the names of these files begin and end.
    """

    def __init__(
        self, path: Path, bytes_max: int, prefix: str = FILE_PREFIX, suffix: str = FILE_SUFFIX
    ) -> None:
        self.path = path
        self.bytes_max = bytes_max
        self._prefix = prefix
        self._suffix = suffix
        self._unremovable: set[str] = set()  # files that cannot be removed, which was logged

    def prepare(self) -> int:
        """Create the directory, check that it can be written to, and remove files of killed processes.

        Returns: the number of removed files.

        Raises:
            StartError: the directory cannot be used.
        """
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
            # Containers that share a directory all have the same process id.
            probe = self.path / f".{self._prefix}{os.getpid()}.{secrets.token_hex(8)}"
            probe.write_bytes(b"")
            probe.unlink()
            return sum(_remove_abandoned(path) for path in self._named(self._suffix + UNFINISHED_SUFFIX))
        except OSError as error:
            raise StartError(f"capture.directory: {self.path} cannot be used: {error.strerror}") from error

    def create(self, name: str) -> tuple[Path, BinaryIO]:
        """Create a new file under a temporary name, and lock it; return its path, and the file.

        Args:
            name: the part of the file's name between prefix and suffix.

        Raises:
            OSError: it cannot be created.
        """
        path = self.path / f"{self._prefix}{name}{self._suffix}{UNFINISHED_SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with suppress(OSError):  # a file system without locks: two processes should not share it
            try_lock(descriptor)
        return path, os.fdopen(descriptor, "wb")

    def finish(self, path: Path, file: BinaryIO) -> Path:
        """Flush a file to the disk, rename it to its final name, and close it; return its final path.

        Raises:
            OSError: it failed; there is no file of the final name then.
        """
        file.flush()
        os.fsync(file.fileno())
        final = path.with_name(path.name.removesuffix(UNFINISHED_SUFFIX))
        path.rename(final)
        file.close()
        with suppress(OSError):
            sync_directory(self.path)
        return final

    def finished(self) -> list[Finished]:
        """Return all finished files, by their time of modification, the oldest first."""
        found = []
        for path in self._named(self._suffix):
            with suppress(OSError):  # another process was quicker
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append(Finished(path, status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda file: (file.modified_ns, file.path.name))

    def make_room(self, newest: Path | None = None) -> list[Finished]:
        """Remove the oldest files until the rest is within `bytes_max`; returns the remaining ones, oldest first.

        Args:
            newest: the file that was just finished, and stays; None: the one with the latest time.
        """
        files = self.finished()
        now_ns = max([file.modified_ns for file in files if file.path == newest], default=0)
        latest_ns = max(now_ns, time.time_ns()) + _LATER_NS_MAX
        files.sort(key=lambda file: (file.path == newest, file.modified_ns <= latest_ns))
        total = sum(file.size for file in files)
        staying = []
        for file in files[:-1]:
            if total > self.bytes_max and self._remove(file.path):
                total -= file.size
            else:
                staying.append(file)
        return staying + files[-1:]

    def _remove(self, path: Path) -> bool:
        """Remove a file; returns whether it is gone. A failure is logged."""
        try:
            path.unlink(missing_ok=True)  # another process may have been quicker
        except OSError as error:
            if path.name not in self._unremovable:
                self._unremovable.add(path.name)
                said = "cannot remove an old capture file"
                event(logger, logging.WARNING, said, file=path.name, problem=error.strerror)
            return False
        return True

    def _named(self, suffix: str) -> Iterator[Path]:
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            if name.startswith(self._prefix) and name.endswith(suffix):
                yield self.path / name


def _remove_abandoned(path: Path) -> bool:
    """Remove an unfinished file unless it is locked by its writer; a failure does not prevent the start."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not try_lock(descriptor):
                return False  # another process writes it
            path.unlink()
        finally:
            os.close(descriptor)
    except FileNotFoundError:  # another process has finished or removed it
        return False
    except OSError as error:  # without locks, files in use cannot be distinguished
        said = "cannot remove an unfinished capture file"
        event(logger, logging.WARNING, said, file=path.name, problem=error.strerror)
        return False
    return True


# Rows are compressed and written so many bytes at a time, as they are in memory.
_GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
RETRY_SECONDS: Final = 5.0


@dataclass(eq=False)
class OpenFile:
    """The file that is being written, which has no final name yet."""

    path: Path
    file: BinaryIO
    writer: Any
    since: float
    rows: int = 0
    pending: list[Any] = field(default_factory=list)
    pending_bytes: int = 0


@dataclass(eq=False)
class Writer:
    """Writes a recorder's batches into files, in a separate thread.

    Args:
        name: the name of this process, with which its files' names begin.
        rotate_bytes, rotate_seconds: the size and the age at which a file is finished, and another one begun.
        known: returns a topic's name by its id; None if it is not known.
        ask: requests the names of topic ids from the cluster.
    """

    recorder: Recorder
    directory: Directory
    tables: Tables
    stats: CaptureStats
    name: str
    rotate_bytes: int
    rotate_seconds: float
    known: InitVar[Names]
    ask: InitVar[Ask]
    _file: OpenFile | None = field(init=False, default=None)
    _files: int = field(init=False, default=0)
    _unwritten_rows: int = field(init=False, default=0)  # neither queued, nor of a file, nor dropped
    _retry_at: float = field(init=False, default=0.0)  # the disk has failed

    def __post_init__(self, known: Names, ask: Ask) -> None:
        self._naming = Naming(known, ask, self.recorder.queue.qsize)
        self.thread = Thread(target=self._run, name="capture", daemon=True)

    def start(self) -> None:
        """Remove old files above the limit of the directory, and start the thread."""
        self._enforce_size_limit()
        self.thread.start()

    def _run(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Write the next batch, or finish a file that is due; False when the queue has ended."""
        try:
            try:
                batch = self.recorder.queue.get(timeout=self._time_left())
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
                self.recorder.taken(batch)
            self._unwritten_rows = 0
            if self._time_left() <= 0:
                self._rotate()
        except Exception:  # the edge of the thread: capture goes on with another file
            logger.exception("internal error: cannot write the capture")
            self.stats.dropped["internal"] += self._unwritten_rows
            self._unwritten_rows = 0
            self._drop_file("internal")
        return True

    @property
    def unfinished_rows(self) -> int:
        """The number of rows in the unfinished file and in the batch that is being converted. Thread-safe."""
        file = self._file
        return self._unwritten_rows + (0 if file is None else file.rows)

    def _time_left(self) -> float:
        """The time until the current file is due, in seconds."""
        if self._file is None:
            return self.rotate_seconds
        return max(0.0, self._file.since + self.rotate_seconds - time.monotonic())

    def _write_batch(self, batch: Batch) -> None:
        """Write a batch, or count it as dropped."""
        if time.monotonic() < self._retry_at:
            self.stats.dropped["disk"] += batch.all_rows
            return
        self._resolve_names(batch)
        failures = list(batch.unfit)
        converted = self._convert(batch, failures) if batch.rows else []
        if failures:
            logger.error(
                "internal error: cannot convert %d captured rows", len(failures), exc_info=failures[0]
            )
            self.stats.dropped["internal"] += len(failures)
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
            if file.pending_bytes >= min(_GROUP_BYTES_MAX, self.rotate_bytes):
                self._write(file)
        except OSError as error:
            self._write_failed(error, 0 if file is not None else rows)
            return
        if file.file.tell() >= self.rotate_bytes:
            self._rotate()

    def _resolve_names(self, batch: Batch) -> None:
        """Find the names of a batch's topics, if possible; a row that is invalid is dropped later."""
        try:
            self._naming.resolve(batch)
        except Exception:
            logger.exception("internal error: cannot name topics")

    def _convert(self, batch: Batch, failures: list[Exception]) -> list[Any]:
        """Return the columns of a batch with records; if that fails, of its halves, down to each row at fault."""
        try:
            return [self.tables.convert(batch)]
        except Exception as error:  # noqa: BLE001 - `_write_batch` logs it
            if batch.rows == 1:
                failures.append(error)
                return []
            return [piece for part in batch.halves() for piece in self._convert(part, failures)]

    def _open(self) -> OpenFile:
        self._files += 1
        path, file = self.directory.create(f"{self.name}-{self._files:06}")
        try:
            return OpenFile(path, file, self.tables.writer(file), time.monotonic())
        except BaseException:
            _discard(path, file)
            raise

    def _write(self, file: OpenFile) -> None:
        """Compress and write the pending rows."""
        if file.pending:
            file.writer.write_table(self.tables.concatenate(file.pending))
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
            final = self.directory.finish(file.path, file.file)
        except OSError as error:
            self._write_failed(error, 0)
            return
        self._file = None
        self.stats.rows += file.rows
        self.stats.bytes_written += size
        event(logger, logging.INFO, "capture file written", file=final.name, rows=file.rows, bytes=size)
        self._enforce_size_limit(final)

    def _enforce_size_limit(self, newest: Path | None = None) -> None:
        """Remove the oldest files above the size limit, and count the remaining ones."""
        try:
            files = self.directory.make_room(newest)
        except OSError as error:
            event(logger, logging.WARNING, "cannot list the capture files", problem=error.strerror)
            return
        self.stats.files = len(files)
        self.stats.bytes = sum(file.size for file in files)
        self.stats.oldest = files[0].modified_ns / 1e9 if files else 0.0

    def _write_failed(self, error: OSError, rows: int) -> None:
        """Drop the file that cannot be written and `rows` further rows; write nothing for a while."""
        self.stats.dropped["disk"] += rows
        rows += self._drop_file("disk")
        self._retry_at = time.monotonic() + RETRY_SECONDS
        said, problem = "cannot write the capture", error.strerror or str(error)
        fields = {"rows_dropped": rows, "retry_seconds": RETRY_SECONDS}
        event(logger, logging.ERROR, said, problem=problem, **fields)

    def _drop_file(self, cause: str) -> int:
        """Remove the current file; returns the number of dropped rows."""
        file, self._file = self._file, None
        if file is None:
            return 0
        with suppress(Exception):  # it wants to write a footer
            file.writer.close()
        _discard(file.path, file.file)
        self.stats.dropped[cause] += file.rows
        return file.rows


def _discard(path: Path, file: BinaryIO) -> None:
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        path.unlink()
