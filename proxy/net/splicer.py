"""The payload of a large frame in a pump: socket → pipe → socket by `splice`, outside of Python.

Begun if at least SPLICE_BYTES_MIN of the frame are outstanding. What has arrived is spliced in the turn that has read
the header. After a splice the next read is short: a header follows, and the payload after it should be spliced again,
not copied. `proxy.net.pump` handles all other bytes.
"""

import errno
import os
import socket
from abc import ABC, abstractmethod
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
    """The events that a pump reports to its connection."""

    def signalled(self, pump: object, now_ms: int) -> None:
        """The direction has an event for the other one: a mute has begun, or a local response is due."""

    def next_turn(self, pump: object) -> None:
        """This turn of the loop is used up: pass the kept bytes again in the next one."""

    def wait(self, pump: object, now_ms: int) -> None:
        """The direction has ordered WAIT, perhaps with a job, or REFUSE."""

    def ended(self, pump: object) -> None:
        """The source has closed its direction, and all of its bytes are written."""

    def failed(self, pump: object, error: Exception, *, writing: bool = False) -> None:
        """The source has failed or violated the protocol; with `writing`, the destination has failed."""

    def connect_destination(self) -> None:
        """There are bytes for a destination that is not connected yet."""

    def kept(self, change: int) -> None:
        """The number of kept bytes has changed; this may close any connection, also the owner."""


class Splicer(ABC):
    """The splicing part of a pump."""

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
        "direction",
        "dst",
        "dst_fd",
        "src",
        "src_fd",
    )

    def __init__(self, owner: Owner, shared: Shared, direction: Direction, encrypted: bool) -> None:
        self._owner = owner
        self._shared = shared
        self.direction = direction
        self._encrypted = encrypted
        self.src: Stream | None = None
        self.dst: Stream | None = None
        self.src_fd = self.dst_fd = -1
        self._pipe: Pipe | None = None
        self._piped = 0
        self._low_water = 1
        self._read_bytes = READ_BYTES_MAX
        self._tuned = False  # within a large frame, or directly after one or after a wait
        self.bytes_total = 0

    @abstractmethod
    def update_reading(self) -> None:
        """Read if and only if there is a source, no output is pending, and the owner has not paused."""

    @abstractmethod
    def _on_writable(self) -> None:
        """Write more: the destination accepts it."""

    @abstractmethod
    def _frame_may_be_over(self, now_ns: int) -> None:
        """Let the direction handle a frame that may have ended."""

    @abstractmethod
    def _end(self) -> None:
        """Handle the source's close of its direction."""

    def _spliced(self) -> bool:
        """Whether the rest of the frame is to be spliced."""
        return self.direction.verdict.passthrough >= SPLICE_BYTES_MIN

    def _read_short(self) -> None:
        """Make the next read a short one."""
        self._tuned = True
        self._read_bytes = RECORD_BYTES_MAX

    def _tune(self, spliced: bool = False) -> None:
        """Choose the size of the next read, and how many bytes to wait for.

        Within a large frame of which no more is here the socket stays quiet until much of the rest has arrived
        (SO_RCVLOWAT): few large splices cost less than many small ones. After the frame, a short read: a header
        follows, whose payload should be spliced too. In an encrypted stream both would count the wrong bytes.
        """
        passthrough = self.direction.verdict.passthrough
        was_large = spliced or self._low_water > 1
        large = not self._encrypted and (passthrough >= SPLICE_BYTES_MIN or (passthrough > 0 and was_large))
        # Without a pipe the payload goes through the buffer too.
        short = large or was_large
        self._tuned = short
        self._read_bytes = min(passthrough + _SHORT_READ_BYTES, READ_BYTES_MAX) if short else READ_BYTES_MAX
        low_water = min(passthrough, _LOW_WATER_BYTES_MAX) if large else 1
        if low_water != self._low_water and self.src is not None:
            self._low_water = low_water
            self.src.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def _splice(self, now_ns: int) -> bool:
        """Move payload through a pipe; False if that is impossible and a buffer must be used."""
        if self._encrypted:
            return False
        shared = self._shared
        pipe = self._pipe = self._pipe or shared.pipes.take()
        if pipe is None:
            return False
        direction = self.direction
        try:
            count = os.splice(
                self.src_fd, pipe.write_fd, min(direction.verdict.passthrough, pipe.width), flags=SPLICE_FLAGS
            )
        except BlockingIOError:
            self._tune()
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
        self._piped = count  # set first: from here on the pipe contains bytes
        direction.passed(count, now_ns)
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
        self._frame_may_be_over(now_ns)
        return True

    def _unpipe(self) -> bool:
        """Move the pipe's contents to the destination; False if it cannot take all of them now.

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
        if self.direction.verdict.passthrough < SPLICE_BYTES_MIN:
            self._return_pipe()
        self._tune(spliced=True)
        return True

    def _return_pipe(self) -> None:
        if self._pipe is not None:
            self._shared.pipes.give_back(self._pipe)
            self._pipe = None
