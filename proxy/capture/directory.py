"""The directory of captures: names of files, locks on unfinished ones, and the bound of their total size.

A file is written under a temporary name, and renamed when it is complete and on the disk. Its writer holds a lock on
it meanwhile, so that another process can distinguish a file in use from one that a killed process has left behind,
which is removed at start. Several processes may share a directory; each keeps the sum of all finished files within
`bytes_max` by removing the oldest first; the newest file always stays.

A file's age is its time of modification, and clocks may be set back: a file with a later time than the one that was
just finished counts as the oldest. Only regular files belong to captures; one that cannot be removed stays and counts,
and does not prevent others from being removed.
"""

import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from protocol.capture import FILE_PREFIX, FILE_SUFFIX, UNFINISHED_SUFFIX
from proxy.errors import StartError
from proxy.file_locks import try_lock
from proxy.logs import event

_MODE: Final = 0o640  # captures have principals and addresses
# Files that other processes finish meanwhile may be later by this time.
_LATER_NS_MAX: Final = 5_000_000_000

logger = logging.getLogger(__name__)


class Finished(NamedTuple):
    """A finished file."""

    path: Path
    size: int
    modified_ns: int


class Directory:
    """One kind of files in one directory.

    Args:
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
        """Open a new unfinished file, locked.

        Raises:
            OSError: it cannot be created.
        """
        path = self.path / f"{self._prefix}{name}{self._suffix}{UNFINISHED_SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with suppress(OSError):  # a file system without locks: two processes should not share it
            try_lock(descriptor)
        return path, os.fdopen(descriptor, "wb")

    def finish(self, path: Path, file: BinaryIO) -> Path:
        """Flush a file to the disk and rename it to its final name.

        Raises:
            OSError: it failed; there is no file of the final name then.
        """
        file.flush()
        os.fsync(file.fileno())
        final = path.with_name(path.name.removesuffix(UNFINISHED_SUFFIX))
        path.rename(final)
        file.close()
        with suppress(OSError):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return final

    def finished(self) -> list[Finished]:
        """All finished files, by time of modification."""
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
        """Remove a file, if possible."""
        try:
            path.unlink(missing_ok=True)  # another process may have been quicker
        except OSError as error:
            if path.name not in self._unremovable:
                self._unremovable.add(path.name)
                event(
                    logger,
                    logging.WARNING,
                    "cannot remove an old capture file",
                    file=path.name,
                    problem=error.strerror,
                )
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
        event(
            logger,
            logging.WARNING,
            "cannot remove an unfinished capture file",
            file=path.name,
            problem=error.strerror,
        )
        return False
    return True
