"""Kernel pipes for payload bytes that never enter Python: `splice` from a socket to a pipe, and on to a socket.

Pipes are few (`limits.pipes_max`), large (1 MiB if the kernel grants it) and lent for one frame. A process without
privileges has 64 MiB of pipe pages in all (/proc/sys/fs/pipe-user-pages-soft): if a size is refused, a smaller pipe is
used; if a pipe or splice is refused, plain buffers; each case is logged once and counted.
"""

import fcntl
import logging
import os
from typing import Final

from proxy.logs import event
from proxy.stats import Stats

SPLICE_FLAGS: Final = 1 | 2  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK
_WIDTHS: Final = (1 << 20, 1 << 18, 1 << 16)

logger = logging.getLogger(__name__)


class Pipe:
    """One pipe: its two descriptors and its size in bytes."""

    __slots__ = ("read_fd", "width", "write_fd")

    def __init__(self, read_fd: int, write_fd: int, width: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.width = width

    def close(self) -> None:
        """Close both ends; remaining bytes are lost, as their connection has ended."""
        os.close(self.read_fd)
        os.close(self.write_fd)


class Pipes:
    """A bounded pool of pipes."""

    def __init__(self, pipes_max: int, stats: Stats) -> None:
        self._idle: list[Pipe] = []
        self._room = pipes_max if hasattr(os, "splice") else 0
        self._stats = stats
        self._logged: set[str] = set()

    def take(self) -> Pipe | None:
        """Return an empty pipe; None if there is none, and the caller uses its buffer."""
        if self._idle:
            return self._idle.pop()
        if self._room <= 0:
            self._stats.pipe_fallbacks += 1
            return None
        try:
            read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._fall_back("pipe", error)
            return None
        self._room -= 1
        return Pipe(read_fd, write_fd, self._widen(write_fd))

    def give_back(self, pipe: Pipe) -> None:
        """Take back an empty pipe."""
        self._idle.append(pipe)

    def discard(self, pipe: Pipe) -> None:
        """Close a pipe that still contains bytes of a connection."""
        pipe.close()
        self._room += 1

    def splice_refused(self, error: OSError) -> None:
        """Use buffers from now on: the kernel does not splice these sockets."""
        self._room = 0
        self.close()
        self._fall_back("splice", error)

    def close(self) -> None:
        """Close every idle pipe."""
        while self._idle:
            self._idle.pop().close()

    def _widen(self, write_fd: int) -> int:
        for width in _WIDTHS:
            try:
                return fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, width)
            except OSError as error:
                self._fall_back("width", error)
        return _WIDTHS[-1]

    def _fall_back(self, what: str, error: OSError) -> None:
        self._stats.pipe_fallbacks += 1
        if what not in self._logged:
            self._logged.add(what)
            event(logger, logging.WARNING, "kernel pipes refused, falling back", what=what, cause=str(error))
