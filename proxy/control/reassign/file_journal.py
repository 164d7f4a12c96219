"""The journal in a file: requests and steps, on disk before they are executed (KIP-435).

One file, `journal`, in a directory that the proxies of a cluster share. An append holds a lock for milliseconds, reads
what other processes have appended, and returns when the data is on disk. An incomplete last line was left by a killed
process: it was never acknowledged, and the next append removes it. Any other invalid line means a damaged journal: it
is renamed, and its readable entries are kept as unsure, for the executor to confirm with the cluster. When most lines
are history, the file is rewritten.
"""

import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.control.reassign.api import Decisions
from proxy.control.reassign.journal import (
    LINE_BYTES_MAX,
    AsyncJournal,
    ConflictError,
    Contents,
    DamagedError,
    Entry,
    FencedError,
    JournalError,
    JournalState,
    LineError,
    Record,
    read_line,
    write_line,
)
from proxy.metrics.families import Family
from proxy.system.files import lock, open_file, sync_directory, try_lock

_NAME: Final = "journal"
_LOCK: Final = "journal.lock"
_NEW: Final = ".journal.new"
_BYTES_MAX: Final = 1024**3
# The size at which the file is rewritten if most of it is history.
COMPACT_BYTES_MIN: Final = 1024**2
_LINES_PER_MOVE: Final = 8
_DAMAGED_FILES_MAX: Final = 1000
LOCK_SECONDS_MAX: Final = 5.0


class FileJournal:
    """The journal of moves in a file, which several processes share; see `proxy.control.reassign.journal.Journal`.

    Args:
        directory: the directory of the file; it is created if it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _NAME
        self._state: JournalState | None = None
        self._reset()

    def read(self) -> JournalState:
        """Read the records that all processes have appended; returns the journal's contents.

        Raises:
            DamagedError: the journal contains damaged lines.
            JournalError: the journal cannot be read.
        """
        try:
            self._catch_up()
        except OSError as error:
            raise JournalError(f"{self._path}: cannot be read: {error.strerror or error}") from None
        return self._current_state()

    def append(
        self, records: Sequence[Record], *, expected: int | None = None, term: int | None = None
    ) -> JournalState:
        """Append records; when this returns they are on disk.

        Args:
            expected: the `JournalState.sequence` that the caller has decided on; None: any sequence is accepted.
            term: the number of the executor's term; None: the caller need not be the executor.

        Raises:
            ConflictError: the sequence is not `expected`, since other records were appended.
            FencedError: the term is over, since another process executes.
            DamagedError, JournalError: the journal cannot be written; no record was written.
        """
        try:
            with self._locked():
                self._catch_up()
                if expected is not None and self._contents.sequence != expected:
                    raise ConflictError
                if term is not None and self._contents.term.number != term:
                    raise FencedError(self._contents.term.executor)
                self._write(records)
                self._compact()
        except OSError as error:
            self._reset()
            raise JournalError(f"{self._path}: cannot be written: {error.strerror or error}") from None
        return self._current_state()

    def recover(self) -> tuple[JournalState, str]:
        """Rename a damaged journal, and begin a new one with its readable entries, marked as unsure.

        Returns: the new journal's contents, and the path of the renamed one.

        Raises:
            JournalError: the journal cannot be moved.
        """
        try:
            with self._locked():
                try:
                    self._reset()
                    self._catch_up()
                except DamagedError:
                    pass
                else:
                    return self._current_state(), ""  # another process was faster
                with open_file(self._path) as file:
                    content = file.read(_BYTES_MAX)
                aside = self._damaged_path()
                self._reset()
                for line in content.split(b"\n"):
                    try:
                        sequence, record = read_line(line)
                    except LineError:
                        continue
                    self._contents.apply(record)
                    # The new file continues the old one's sequence, so that no number is used twice.
                    self._contents.sequence = max(self._contents.sequence, sequence)
                self._rewrite(
                    [replace(entry, unsure=True) for entry in self._contents.entries.values()], aside
                )
                return self._current_state(), str(aside)
        except OSError as error:
            self._reset()
            raise JournalError(f"{self._path}: cannot be set aside: {error.strerror or error}") from None

    def _current_state(self) -> JournalState:
        """Return the contents; the same object as before if nothing has changed."""
        if self._state is None or self._state.sequence != self._contents.sequence:
            self._state = self._contents.state()
        return self._state

    def _reset(self) -> None:
        self._contents = Contents()
        self._lines = 0
        self._inode = 0
        self._offset = 0
        self._state = None

    def _catch_up(self) -> None:
        """Read on from the last position, or from the start if the file was replaced."""
        try:
            with open_file(self._path) as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    self._reset()
                    self._inode = found.st_ino
                if found.st_size == self._offset:
                    return
                if found.st_size > _BYTES_MAX:
                    raise DamagedError(f"{self._path}: has {found.st_size} bytes, more than {_BYTES_MAX}")
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            self._reset()
            return
        try:
            for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
                self._read_line(line)
        except DamagedError:
            self._reset()  # another process may set it aside; then everything is read again
            raise

    def _read_line(self, line: bytes) -> None:
        where = f"{self._path}: line {self._lines + 1}, byte {self._offset}"
        if len(line) > LINE_BYTES_MAX:
            raise DamagedError(f"{where}: has {len(line)} bytes, more than {LINE_BYTES_MAX}")
        try:
            sequence, record = read_line(line[:-1])
        except LineError as error:
            raise DamagedError(f"{where}: {error}") from None
        if self._lines and sequence != self._contents.sequence + 1:
            raise DamagedError(f"{where}: has number {sequence} after {self._contents.sequence}")
        self._contents.apply(record)
        self._contents.sequence = sequence
        self._lines += 1
        self._offset += len(line)

    def _write(self, records: Sequence[Record]) -> None:
        if not records:
            return
        lines = [
            write_line(self._contents.sequence + 1 + index, record) for index, record in enumerate(records)
        ]
        if max(map(len, lines)) > LINE_BYTES_MAX:
            raise JournalError(f"a move of {max(map(len, lines))} bytes is longer than {LINE_BYTES_MAX}")
        fresh = not self._path.exists()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The incomplete line of a killed process is removed before new lines are written.
            os.ftruncate(descriptor, self._offset)
            _write_all(descriptor, b"".join(lines), self._offset)
            os.fsync(descriptor)
            self._inode = os.fstat(descriptor).st_ino
            if fresh:
                sync_directory(self._directory)
        except OSError:
            # A full disk may have taken some of the lines: they are removed, since none was acknowledged.
            with suppress(OSError):
                os.ftruncate(descriptor, self._offset)
            raise
        finally:
            os.close(descriptor)
        for line, record in zip(lines, records, strict=True):
            self._contents.apply(record)
            self._contents.sequence += 1
            self._lines += 1
            self._offset += len(line)

    def _compact(self) -> None:
        """Drop history if there is much of it; the append is on disk, so a full disk causes no error here."""
        few = self._lines < _LINES_PER_MOVE * (len(self._contents.entries) + 1)
        if self._offset < COMPACT_BYTES_MIN or few:
            return
        try:
            self._rewrite(self._contents.entries.values())
        except OSError:
            with suppress(OSError):
                (self._directory / _NEW).unlink(missing_ok=True)

    def _rewrite(self, entries: Iterable[Entry], aside: Path | None = None) -> None:
        """Replace the file by one with the current moves only; the old one is kept as `aside` if that is given."""
        sequence = self._contents.sequence + 1
        # The term comes last: the first entry resets the totals.
        records: list[Record] = [*entries, replace(self._contents.term, over=self._contents.ended_totals)]
        lines = [write_line(sequence + index, record) for index, record in enumerate(records)]
        new = self._directory / _NEW
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, b"".join(lines), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if aside is not None:
            os.link(self._path, aside)  # there is a journal at every moment
        new.replace(self._path)
        sync_directory(self._directory)
        self._reset()
        self._catch_up()

    def _damaged_path(self) -> Path:
        for number in range(1, _DAMAGED_FILES_MAX):
            path = self._directory / f"journal.damaged-{number}"
            if not path.exists():
                return path
        raise OSError(f"there are {_DAMAGED_FILES_MAX} damaged journals already")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file lock during the block; the kernel releases it if this process is killed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock(descriptor, LOCK_SECONDS_MAX, "another process has been writing")
            yield
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, offset)
        offset += written
        view = view[written:]


# The choice of the executing process among several proxies: it holds a lock on a file beside the journal.
#
# The kernel releases the lock when the process ends in any way, so a killed proxy is replaced at once, but one that is
# merely stopped is not. On storage shared between machines the file system does the same when it gives up a machine. If
# two processes should ever hold the lock, the journal's term decides: the executor writes to the journal before each
# submission, and sees there that another one has begun (docs/decisions/0008).


_LEADER_LOCK: Final = "executor.lock"
_HOLDER_BYTES_MAX: Final = 200


class LeaderLock:
    """The file lock that chooses which of the processes with this journal executes moves.

    Its methods block for a moment, so call them outside of the event loop.

    Args:
        directory: the journal's directory.
        holder: this process's name, which is written to the file for operators.
    """

    # A process that is paused keeps the lock, and one that is killed has sent what it was about to submit.
    settle_ms = 0

    def __init__(self, directory: Path, holder: str) -> None:
        self._path = directory / _LEADER_LOCK
        self._holder = holder
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """Whether this process holds the lock, so that it may execute reassignments."""
        return self._descriptor >= 0

    def take(self) -> bool:
        """Try once to take the lock; returns whether this process holds it now.

        Raises:
            OSError: the file cannot be opened or locked.
        """
        if self.held:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        taken = False
        try:
            taken = try_lock(descriptor)
        finally:
            if not taken:
                os.close(descriptor)
        if not taken:
            return False
        self._descriptor = descriptor
        # For operators only: without space on disk the name is missing, but the lock works.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._holder.encode(), 0)
        return True

    def holder(self) -> str:
        """Return the name of the process that last took the lock, from the file; "" if there is none."""
        with suppress(OSError), open_file(self._path) as file:
            return file.read(_HOLDER_BYTES_MAX).decode("utf-8", "replace")
        return ""

    def release(self) -> None:
        """Release the lock, so that another process can take it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


# Where a process keeps its journal, and who decides there; on files (`topic_place` has the other one).


_NAME_BYTES: Final = 4


def process_name() -> str:
    """Return a name for this process that no other process has, nor this one after a restart."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(_NAME_BYTES)}"


class FilePlace:
    """One process's access to a journal in a directory that all proxies of a cluster share, and to the executor's lock.

    Each process decides on its own callers' requests.
    """

    def __init__(self, directory: Path) -> None:
        self.process = process_name()
        self.journal = FileJournal(directory)
        self.lock = LeaderLock(directory, self.process)

    def decisions(self, local: Decisions, _executes: Callable[[], bool], _journal: AsyncJournal) -> Decisions:
        """Return `local`, as each process validates its callers' requests and appends them to the journal itself."""
        return local

    def start(self) -> None:
        """Do nothing: a file needs no preparation."""

    def families(self) -> Iterator[Family]:
        """Yield no metrics: a journal in a file has no metrics of its own."""
        return iter(())

    def close(self) -> None:
        """Do nothing: the executor has released the lock."""
