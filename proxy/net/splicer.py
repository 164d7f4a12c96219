"""The payload of a large frame in a pump: socket → pipe → socket by `splice`, outside of Python.

Begun if at least SPLICE_BYTES_MIN of the frame are outstanding, when much of that has arrived (SO_RCVLOWAT). What is
left of a request is copied instead if it is here and fits into the buffer. After a splice the next read is short: a
header follows, and the payload after it should be spliced again, not copied. `proxy.net.pump` handles all other bytes.
"""

import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from proxy.channel import Direction
from proxy.net.shared import READ_BYTES_MAX, SPLICE_FLAGS, Pipe, Shared
from proxy.net.sockets import RECORD_BYTES_MAX, Stream

SPLICE_BYTES_MIN: Final = 32 * 1024
_LOW_WATER_BYTES_MAX: Final = 256 * 1024
_SHORT_READ_BYTES: Final = 4 * 1024
_NOT_SPLICEABLE: Final = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))


class Owner(Protocol):
    """The connection, as a pump reports events to it."""

    def signalled(self, pump: object) -> None:
        """Handle an event for the other direction: a mute has begun, or a local response is due."""

    def next_turn(self, pump: object) -> None:
        """Pass the kept bytes again in the next turn of the loop, since this turn is used up."""

    def wait(self, pump: object, now_ms: int) -> None:
        """Carry out the direction's order WAIT, which may have a job, or REFUSE."""

    def ended(self, pump: object) -> None:
        """Handle the source's close of its direction, after all of its bytes were written."""

    def failed(self, pump: object, error: Exception, *, writing: bool = False) -> None:
        """Handle a failure or protocol error of the source; with `writing`, a failure of the destination."""

    def connect_destination(self) -> None:
        """Connect the destination, since there are bytes for it."""

    def kept_changed(self, change: int) -> None:
        """Count a change in the number of kept bytes; this may close any connection, also the owner."""


class Splicer(ABC):
    """The splicing part of a pump."""

    __slots__ = (
        "_buffer",
        "_copied_max",
        "_encrypted",
        "_low_water",
        "_owner",
        "_pipe",
        "_piped",
        "_read_bytes",
        "_reading",
        "_recv_into",
        "_shared",
        "_tuned",
        "_view",
        "bytes_total",
        "direction",
        "dst",
        "dst_fd",
        "src",
        "src_fd",
    )

    def __init__(
        self, owner: Owner, shared: Shared, direction: Direction, encrypted: bool, copied_max: int
    ) -> None:
        self._owner = owner
        self._shared = shared
        self.direction = direction
        self._encrypted = encrypted
        self._copied_max = copied_max
        self._buffer = shared.buffer
        self._view = shared.view
        self._recv_into: Callable[[memoryview, int], int] = nothing_to_read
        self._reading = False
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
    def _show(self, buf: bytearray, view: memoryview, end: int, now_ns: int) -> None:
        """Pass buf[:end] to the direction."""

    @abstractmethod
    def _end(self) -> None:
        """Handle the source's close of its direction."""

    def _go_on(self, filled: bool, now_ns: int) -> None:
        """Continue within or after a large frame, behind a read that may have `filled` its buffer and left more.

        What has arrived of the rest is not spliced at once: a consumer behind a gateway had 320 MB/s then in place of
        540 (decision 0016).
        """
        if (
            filled
            and self._reading
            and SPLICE_BYTES_MIN <= self.direction.verdict.passthrough <= self._copied_max
        ):
            self._copy_rest(now_ns)
        self._tune()

    def _copy_rest(self, now_ns: int) -> None:
        """Pass the arrived part of the frame's rest through the buffer.

        The client has just written it, so it is in the processor's cache, and copying costs less than splicing.
        """
        try:
            count = self._recv_into(self._view, self.direction.verdict.passthrough)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._owner.failed(self, error)
            return
        if not count:
            self._end()
            return
        self.bytes_total += count
        self._show(self._buffer, self._view, count, now_ns)

    def _read_short(self) -> None:
        """Make the next read a short one."""
        self._tuned = True
        self._read_bytes = RECORD_BYTES_MAX

    def _tune(self, spliced: int = 0) -> None:
        """Choose the size of the next read, and how many bytes to wait for.

        Within a large frame, when no more bytes have arrived, the socket becomes readable only when a large part of the
        rest has arrived (SO_RCVLOWAT), since few large splices cost less than many small ones. After the frame the next
        read is short: a header follows, whose payload should be spliced too, unless so few bytes were `spliced` that
        another frame of this size is better copied. In an encrypted stream both would count the wrong bytes.
        """
        passthrough = self.direction.verdict.passthrough
        was_large = spliced > 0 or self._low_water > 1
        large = not self._encrypted and (passthrough >= SPLICE_BYTES_MIN or (passthrough > 0 and was_large))
        # Without a pipe the payload goes through the buffer too.
        short = large or (was_large and not 0 < spliced <= 2 * self._copied_max)
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
        pipe, piped = self._pipe, self._piped
        assert pipe is not None, "bytes are piped through a pipe"
        try:
            self._piped -= os.splice(pipe.read_fd, self.dst_fd, self._piped, flags=SPLICE_FLAGS)
        except BlockingIOError:
            return False
        if self._piped:
            return False
        if self.direction.verdict.passthrough < SPLICE_BYTES_MIN:
            self._return_pipe()
        self._tune(piped)
        return True

    def _return_pipe(self) -> None:
        if self._pipe is not None:
            self._shared.pipes.give_back(self._pipe)
            self._pipe = None


def nothing_to_read(_view: memoryview, _count: int) -> int:
    """Raise BlockingIOError: the `recv_into` of a source that is not connected yet, or closed."""
    raise BlockingIOError("no source is connected")
