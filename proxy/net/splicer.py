"""What a pump does with the payload of a large frame: socket → pipe → socket by `splice`, past Python.

It is done as long as at least SPLICE_BYTES_MIN of the frame are outstanding. After a splice the next read is short:
what follows is a header, and the payload behind it is to be spliced again rather than copied. The rest of a pump, which
is what goes through the buffer, is `proxy.net.pump`.
"""

import errno
import os
import socket
from abc import ABC, abstractmethod
from time import monotonic_ns
from typing import Final, Protocol

from proxy.channel import Direction
from proxy.net.pipes import SPLICE_FLAGS, Pipe
from proxy.net.shared import READ_BYTES_MAX, Shared
from proxy.net.stream import Stream
from proxy.net.tls_socket import RECORD_BYTES_MAX

__all__ = ["SPLICE_BYTES_MIN", "Owner", "Splicer"]

SPLICE_BYTES_MIN: Final = 32 * 1024
_LOW_WATER_BYTES_MAX: Final = 256 * 1024
_SHORT_READ_BYTES: Final = 4 * 1024
_NOT_SPLICEABLE: Final = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))


class Owner(Protocol):
    """What a pump tells the connection it belongs to."""

    def signalled(self, pump: object, now_ms: int) -> None:
        """The side has something for the other one: a mute has begun, an answer made here is due."""

    def next_turn(self, pump: object) -> None:
        """Enough was done in this turn of the loop: what is kept is to be shown in the next one."""

    def wait(self, pump: object, now_ms: int) -> None:
        """The side has ordered to wait, or to do its job first; or it has refused what follows."""

    def ended(self, pump: object) -> None:
        """The source has closed its direction, and all that it sent is written."""

    def failed(self, pump: object, error: Exception, *, writing: bool = False) -> None:
        """The source has failed or broke the protocol; or, writing, the destination has failed."""

    def unconnected(self) -> None:
        """There are bytes for a destination that is not connected yet."""

    def kept(self, change: int) -> None:
        """So many more bytes are kept in memory, or fewer; this may close any connection, the owner's own too."""


class Splicer(ABC):
    """The part of a pump that splices."""

    __slots__ = (
        "_encrypted",
        "_low_water",
        "_owner",
        "_pipe",
        "_piped",
        "_read_bytes",
        "_shared",
        "_tuned",
        "bytes_total",
        "dst",
        "dst_fd",
        "side",
        "src",
        "src_fd",
    )

    def __init__(self, owner: Owner, shared: Shared, side: Direction, encrypted: bool) -> None:
        self._owner = owner
        self._shared = shared
        self.side = side
        self._encrypted = encrypted
        self.src: Stream | None = None
        self.dst: Stream | None = None
        self.src_fd = self.dst_fd = -1
        self._pipe: Pipe | None = None
        self._piped = 0
        self._low_water = 1
        self._read_bytes = READ_BYTES_MAX
        self._tuned = False  # within a large frame, or right behind one or a wait
        self.bytes_total = 0

    @abstractmethod
    def update_reading(self) -> None:
        """Read exactly while there is a source, nothing waits to be written, and the owner has not paused."""

    @abstractmethod
    def _on_writable(self) -> None:
        """The destination takes more."""

    @abstractmethod
    def _frame_may_be_over(self) -> None:
        """Let the side act on a frame that may have ended."""

    @abstractmethod
    def _end(self) -> None:
        """The source has closed its direction."""

    def _read_short(self) -> None:
        """Take little with the next read, and as much as ever with the one after it."""
        self._tuned = True
        self._read_bytes = RECORD_BYTES_MAX

    def _tune(self) -> None:
        """Choose how much to wait for and to read next.

        Within a large frame the socket stays quiet until much of the rest is there (SO_RCVLOWAT): few large
        splices cost less than many small ones. After it a short read: what follows is a header, and its payload
        is to be spliced too. Of an encrypted stream both would count the wrong bytes.
        """
        unseen = self.side.verdict.unseen
        was_large = self._low_water > 1
        large = not self._encrypted and (unseen >= SPLICE_BYTES_MIN or (unseen > 0 and was_large))
        # Without a pipe it is the buffer that takes the payload too.
        short = large or was_large
        self._tuned = short
        self._read_bytes = min(unseen + _SHORT_READ_BYTES, READ_BYTES_MAX) if short else READ_BYTES_MAX
        low_water = min(unseen, _LOW_WATER_BYTES_MAX) if large else 1
        if low_water != self._low_water and self.src is not None:
            self._low_water = low_water
            self.src.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def _splice(self) -> bool:
        """Move payload through a pipe; False where that is not possible and a buffer has to do."""
        if self._encrypted:
            return False
        shared = self._shared
        pipe = self._pipe = self._pipe or shared.pipes.take()
        if pipe is None:
            return False
        side = self.side
        try:
            count = os.splice(
                self.src_fd, pipe.write_fd, min(side.verdict.unseen, pipe.width), flags=SPLICE_FLAGS
            )
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno in _NOT_SPLICEABLE:
                self._return_pipe()
                shared.pipes.splice_refused(error)
                return False
            self._owner.failed(self, error)
            return True
        if not count:
            self._end()
            return True
        self._piped = count  # first: whatever happens, the pipe has bytes in it
        side.passed(count, monotonic_ns())
        self.bytes_total += count
        shared.stats.spliced_bytes += count
        try:
            if not self._unpipe():
                shared.loop.add_writer(self.dst_fd, self._on_writable)
                self.update_reading()
                return True
        except OSError as error:
            self._owner.failed(self, error, writing=True)
            return True
        self._frame_may_be_over()
        return True

    def _unpipe(self) -> bool:
        """Move what is in the pipe to the destination; False where it can not take all of it now.

        Raises:
            OSError: the destination has failed.
        """
        pipe = self._pipe
        assert pipe is not None, "bytes are piped through a pipe"
        try:
            self._piped -= os.splice(pipe.read_fd, self.dst_fd, self._piped, flags=SPLICE_FLAGS)
        except BlockingIOError:
            return False
        if self._piped:
            return False
        if self.side.verdict.unseen < SPLICE_BYTES_MIN:
            self._return_pipe()
        self._tune()
        return True

    def _return_pipe(self) -> None:
        if self._pipe is not None:
            self._shared.pipes.give_back(self._pipe)
            self._pipe = None
