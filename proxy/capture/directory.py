"""The directory that captures are written to: names, whose file is whose, and how much of the disk they may use.

A file is written under a name that nobody reads, and renamed when it is whole and on the disk. Its writer holds a lock
on it meanwhile, so that another process can tell what is being written from what a killed one has left behind: the
latter is removed at start. Several processes may share a directory; each keeps the sum of all finished files within
`bytes_max`, oldest first, and the newest file stays whatever its size.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from protocol.capture import FILE_PREFIX, FILE_SUFFIX, UNFINISHED_SUFFIX
from proxy.errors import StartError

__all__ = ["Directory", "Finished"]

_MODE: Final = 0o640  # principals and addresses are nobody else's business


class Finished(NamedTuple):
    """A file that is whole."""

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

    def prepare(self) -> int:
        """Make it, see that it can be written, and remove what a killed process left; returns how many files.

        Raises:
            StartError: it can not be used.
        """
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
            probe = self.path / f".{self._prefix}{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
            return sum(_removed_if_left(path) for path in self._named(self._suffix + UNFINISHED_SUFFIX))
        except OSError as error:
            raise StartError(f"capture.directory: {self.path} can not be used: {error.strerror}") from error

    def create(self, name: str) -> tuple[Path, BinaryIO]:
        """Open a new unfinished file, locked.

        Raises:
            OSError: it can not be made.
        """
        path = self.path / f"{self._prefix}{name}{self._suffix}{UNFINISHED_SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with suppress(OSError):  # a file system without locks: two processes should not share it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path, os.fdopen(descriptor, "wb")

    def finish(self, path: Path, file: BinaryIO) -> Path:
        """Bring it to the disk and give it its name.

        Raises:
            OSError: it can not be; nothing of that name is there then.
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
        """Every whole file, oldest first."""
        found = []
        for path in self._named(self._suffix):
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append(Finished(path, status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda file: (file.modified_ns, file.path.name))

    def make_room(self) -> list[Finished]:
        """Remove the oldest files until the rest is within `bytes_max`; returns those that stay."""
        files = self.finished()
        total = sum(file.size for file in files)
        while total > self.bytes_max and len(files) > 1:
            oldest = files.pop(0)
            total -= oldest.size
            with suppress(FileNotFoundError):  # another process was quicker
                oldest.path.unlink()
        return files

    def _named(self, suffix: str) -> Iterator[Path]:
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            if name.startswith(self._prefix) and name.endswith(suffix):
                yield self.path / name


def _removed_if_left(path: Path) -> bool:
    """Remove an unfinished file unless somebody is writing it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
