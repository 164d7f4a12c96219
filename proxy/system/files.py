"""Operators' files, which others change too: bounded reading, change detection, atomic replacement.

Only regular files are read, and no more of them than they may have: a FIFO, a device or a directory in a file's place
is an error at once, where reading it would never end. A name is followed through symbolic links both ways: a
ConfigMap's link that Kubernetes swaps is seen, and a replaced file is the link's target, so that the link stays. All of
it blocks: call it off the loop.
"""

import errno
import fcntl
import io
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# ----------------------------------------------------------------------------------------------------
# Exclusive locks on files between processes (flock): the kernel releases them when the process ends in any
# way.
#
# All of it blocks for a moment, and is called off the loop. On file systems without locks each call raises
# OSError.


_STEP_SECONDS: Final = 0.005


def try_lock(descriptor: int) -> bool:
    """Lock an open file; return False, without waiting, if another process has locked it.

    Raises:
        OSError: it cannot be locked.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(descriptor: int, seconds: float, problem: str) -> None:
    """Lock an open file; wait up to `seconds` while another process has it locked.

    Args:
        seconds: how long to wait.
        problem: the message of the TimeoutError, to which the time is added.

    Raises:
        TimeoutError: another process has it locked for longer.
        OSError: it cannot be locked.
    """
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{problem} for {seconds:g} s")
        time.sleep(_STEP_SECONDS)


LOCK_SECONDS_MAX: Final = 5.0
SECRET_BYTES_MIN: Final = 32
_SECRET_BYTES_MAX: Final = 64 * 1024
_WRITABLE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def read(path: Path, bytes_max: int) -> bytes:
    """Read a whole regular file.

    Raises:
        OSError: it cannot be opened, is not a regular file, or is larger than `bytes_max`; `strerror` says which.
    """
    with _Bounded(open_file(path), path, bytes_max) as file:
        return file.readall()


def read_secret(path: Path, key: str) -> bytes:
    """Read a shared secret, without white space around it.

    A short one is refused: a peer with one signature that was made with it could find it by trying.

    Args:
        key: the key of the configuration that names the file, for the error.

    Raises:
        OSError: the file cannot be read, is empty, or has fewer than SECRET_BYTES_MIN bytes.
    """
    secret = read(path, _SECRET_BYTES_MAX).strip()
    if not secret:
        raise OSError(f"{key}: {path} is empty")
    if len(secret) < SECRET_BYTES_MIN:
        raise OSError(
            f"{key}: the secret in {path} has {len(secret)} bytes, and at least {SECRET_BYTES_MIN} are needed; "
            "make one with: sluice fleet secret FILE"
        )
    return secret


def write_secret(path: Path, secret: str) -> None:
    """Write a secret to a new file, with a line feed behind it, that only its owner may read.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    with _create(path, 0o600) as file:
        file.write(f"{secret}\n".encode("ascii"))
        _sync(file)


@contextmanager
def open_text(path: Path, bytes_max: int) -> Iterator[TextIO]:
    """Open a regular file of UTF-8 for reading, for the block; only a line feed ends a line.

    Raises:
        OSError: as `read`, here or while it is read.
        UnicodeDecodeError: while it is read: it is not UTF-8.
    """
    with (
        _Bounded(open_file(path), path, bytes_max) as raw,
        io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8", newline="\n") as text,
    ):
        yield text


def open_file(path: Path) -> io.FileIO:
    """Open a regular file for reading.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    # Without O_NONBLOCK the opening of a FIFO would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"is {_kind(mode)}, not a regular file", str(path))
    return io.FileIO(descriptor)


class _Bounded(io.RawIOBase):
    """A regular file that is read up to a maximum size: another process may be writing it."""

    def __init__(self, file: io.FileIO, path: Path, bytes_max: int) -> None:
        # The file is open already: an object without one could not be closed when it is collected.
        self._file = file
        self._path = path
        self._bytes_max = self._left = bytes_max
        if os.fstat(file.fileno()).st_size > bytes_max:
            self.close()
            raise self._too_large()

    def readable(self) -> bool:
        """Return True: the file is open for reading."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read the next bytes into the buffer; returns their number, 0 at the end."""
        count = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise self._too_large()
        return count

    def _too_large(self) -> OSError:
        return OSError(errno.EFBIG, f"is larger than {self._bytes_max} bytes", str(self._path))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a FIFO" if stat.S_ISFIFO(mode) else "a device"


class Signature(NamedTuple):
    """Inode, size and times of a file, by which a change is noticed; all zero if the file does not exist."""

    device: int = 0
    inode: int = 0
    size: int = 0
    modified_ns: int = 0
    changed_ns: int = 0


def signature(path: Path) -> Signature:
    """Return the signature of a file; a symbolic link is followed."""
    try:
        return _of(path.stat())
    except OSError:
        return Signature()


def signatures(paths: Iterable[Path]) -> tuple[Signature, ...]:
    """Return the signatures of several files."""
    return tuple(signature(path) for path in paths)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file's directory during the block, so that no other Sluice process replaces a file in it.

    The directory is locked, since the file itself is replaced. Editors, and file systems without locks, ignore the
    lock, so callers still check whether a file has changed before they replace it.

    Raises:
        OSError: the directory cannot be opened, or is locked for too long.
    """
    directory = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            lock(directory, LOCK_SECONDS_MAX, "another process has locked its directory")
        except TimeoutError:
            raise
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(directory)


def replace(path: Path, pieces: Iterable[str], bytes_max: int) -> Signature:
    """Replace a file atomically; when this returns, the new one is on disk.

    Args:
        pieces: the new text.

    Returns: the new file's signature.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    target = path.resolve(strict=True)
    before = target.stat()
    # A rename does not need the permission to write the file, so this checks it; root may write all files.
    if not before.st_mode & _WRITABLE or not os.access(target, os.W_OK):
        raise PermissionError(f"{target} is read-only")
    # One name, so that what a killed process left behind does not pile up.
    temporary = target.with_name(f".{target.name}.new")
    with suppress(FileNotFoundError):
        temporary.unlink()
    with _create(temporary, 0o600) as file:
        written = sum(file.write(piece.encode()) for piece in pieces)
        if written > bytes_max:
            raise OSError(f"{target} would have {written} bytes, over {bytes_max}")
        with suppress(PermissionError):  # another's file stays readable for its group, at least
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        _sync(file)
        temporary.replace(target)
        sync_directory(target.parent)
        return _of(os.fstat(file.fileno()))


def store(path: Path, pieces: Iterable[bytes], mode: int) -> None:
    """Replace or create a file of Sluice's own atomically; when this returns, it is on disk.

    The file's directory is created if needed.

    Args:
        pieces: the new contents.
        mode: the permissions of the file.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with suppress(FileNotFoundError):
        temporary.unlink()  # whatever it is: opening a FIFO would wait for a reader
    with _create(temporary, mode) as file:
        file.writelines(pieces)
        _sync(file)
        temporary.replace(path)
        sync_directory(path.parent)


@contextmanager
def _create(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Create a file, which must not exist, and remove it if the block raises."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        try:
            yield file
        except BaseException:
            with suppress(FileNotFoundError):
                path.unlink()
            raise


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush a directory to the disk, so that files that were created or renamed in it survive a crash.

    Raises:
        OSError: it failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _of(found: os.stat_result) -> Signature:
    # ctime beside mtime: cp -p and rsync -t set the latter to whatever it was elsewhere.
    return Signature(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
