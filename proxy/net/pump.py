"""One direction of one connection: reads, shows the bytes to the channel's side, carries out its order, writes.

Two movers share this class. Bytes that must be looked at go through the process's one read buffer and leave
in one `send` a run of unchanged frames. The rest of a large frame goes socket → pipe → socket by `splice`, as
long as at least SPLICE_BYTES_MIN of it are outstanding. After a splice the next read is short: what follows
is a header, and the payload behind it is to be spliced again rather than copied.

Flow control: while anything read is not yet written, the source is not read. What is kept is bounded by one
read, or by what `proxy.channel.bounds` says where a side asks for a whole frame.
"""

import errno
import os
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import Final, Protocol

from proxy.channel import PASS, REPLACE, WAIT, Side
from proxy.net.pipes import SPLICE_FLAGS, Pipe
from proxy.net.shared import READ_BYTES_MAX, Shared
from proxy.net.stream import Stream

__all__ = ["Owner", "Pump"]

SPLICE_BYTES_MIN: Final = 32 * 1024
_MSG_MORE: Final = socket.MSG_MORE if hasattr(socket, "MSG_MORE") else 0
_LOW_WATER_BYTES_MAX: Final = 256 * 1024
_SHORT_READ_BYTES: Final = 4 * 1024
_NOT_SPLICEABLE: Final = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
# One relay in sixteen is timed for the latency histogram: those that begin within 4 us of each 65 us of the clock.
_SAMPLE_MASK_NS: Final = 0xF000


class Owner(Protocol):
    """What a pump tells the connection it belongs to."""

    def signalled(self, pump: "Pump", now_ms: int) -> None:
        """The side has something for the other one: a mute has begun, an answer made here is due."""

    def wait(self, pump: "Pump", now_ms: int) -> None:
        """The side has ordered to wait, or to do its job first; or it has refused what follows."""

    def ended(self, pump: "Pump") -> None:
        """The source has closed its direction, and all that it sent is written."""

    def failed(self, pump: "Pump", error: Exception, *, writing: bool = False) -> None:
        """The source has failed or broke the protocol; or, writing, the destination has failed."""

    def unconnected(self) -> None:
        """There are bytes for a destination that is not connected yet."""


class Pump:
    """One direction. `paused` is set by the owner: nothing is read while it holds (mute, hold, not connected).

    `at_end` tells that the source has closed its direction; with `encrypted` all goes through the buffer.
    """

    __slots__ = (
        "_buffer",
        "_encrypted",
        "_kept",
        "_low_water",
        "_owner",
        "_pipe",
        "_piped",
        "_read_bytes",
        "_reading",
        "_recv_into",
        "_send_now",
        "_shared",
        "_state",
        "_tuned",
        "_unsent",
        "_view",
        "at_end",
        "bytes_total",
        "dst",
        "dst_fd",
        "paused",
        "side",
        "src",
        "src_fd",
    )

    def __init__(self, owner: Owner, shared: Shared, side: Side, encrypted: bool = False) -> None:
        self._owner = owner
        self._shared = shared
        self.side = side
        self._state = side.state
        self._encrypted = encrypted
        self.src: Stream | None = None
        self.dst: Stream | None = None
        self.src_fd = self.dst_fd = -1
        self._kept: bytearray | None = None
        self._unsent: bytearray | None = None
        self._pipe: Pipe | None = None
        self._piped = 0
        self._low_water = 1
        self._read_bytes = READ_BYTES_MAX
        self._tuned = False  # within a large frame, or right behind one
        self._recv_into: Callable[[memoryview, int], int] = _nothing_to_read
        self._send_now: Callable[..., int] = _not_connected
        self._buffer = shared.buffer
        self._view = shared.view
        self._reading = False
        self.at_end = False
        self.paused = False
        self.bytes_total = 0

    def read_from(self, src: Stream) -> None:
        """Begin to read."""
        self.src = src
        self.src_fd = src.fileno()
        self.side.moved_ns = monotonic_ns()
        self._recv_into = src.recv_into
        self.update_reading()

    def write_to(self, dst: Stream) -> None:
        """The destination is connected: write what waits for it."""
        self.dst = dst
        self.dst_fd = dst.fileno()
        self._send_now = dst.send
        if self._unsent:
            self._shared.loop.add_writer(self.dst_fd, self._on_writable)
        self.update_reading()

    @property
    def blocked(self) -> bool:
        """Whether something read waits to be written."""
        return bool(self._unsent) or self._piped > 0

    @property
    def kept_bytes(self) -> int:
        """Bytes read that wait for their frame's rest, for the end of a mute, or for a hold."""
        return len(self._kept) if self._kept else 0

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and is not over."""
        return self.side.unseen != 0 or bool(self._kept)

    def update_reading(self) -> None:
        """Read exactly while somebody is there, nothing waits to be written, and the owner has not paused."""
        wanted = self.src is not None and not (self.paused or self._unsent or self._piped or self.at_end)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._shared.loop.add_reader(self.src_fd, self._on_readable)
            else:
                self._shared.loop.remove_reader(self.src_fd)

    def resume(self, now_ms: int) -> None:
        """End a pause: show again what was kept, then read on."""
        self.paused = False
        self.show_kept(now_ms)
        self.update_reading()

    def show_kept(self, now_ms: int) -> None:
        """Show the side what is kept, though nothing new was read: its answer may have changed."""
        if self.blocked:
            return
        self._state.now_ns = monotonic_ns()
        kept = self._kept or bytearray()
        self._show(kept, memoryview(kept), len(kept), now_ms)

    def close(self) -> None:
        """Stop reading and writing; what was not written is lost with the connection."""
        loop = self._shared.loop
        if self._reading:
            loop.remove_reader(self.src_fd)
            self._reading = False
        if self.blocked and self.dst is not None:
            loop.remove_writer(self.dst_fd)
        if self._pipe is not None:
            if self._piped:
                self._shared.pipes.discard(self._pipe)
            else:
                self._shared.pipes.give_back(self._pipe)
            self._pipe = None
        self.src = self.dst = self._kept = self._unsent = None
        self._recv_into = _nothing_to_read
        self._send_now = _not_connected
        self._piped = 0

    def _on_readable(self) -> None:
        side = self.side
        if side.unseen >= SPLICE_BYTES_MIN:
            if side.arriving is not None and side.arriving.lost:
                self.show_kept(monotonic_ns() // 1_000_000)  # it is charged again, and may have to wait
            if self.paused or self._splice():
                return
        try:
            count = self._recv_into(self._view, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._owner.failed(self, error)
            return
        if not count:
            self._end()
            return
        self._state.now_ns = started_ns = monotonic_ns()
        self.bytes_total += count
        if self._kept is None:
            self._show(self._buffer, self._view, count, started_ns // 1_000_000)
        else:
            self._show_more(self._kept, self._view[:count], started_ns // 1_000_000)
        if self._tuned or side.unseen >= SPLICE_BYTES_MIN:
            self._tune()
        if not started_ns & _SAMPLE_MASK_NS:
            self._shared.stats.observe_latency((monotonic_ns() - started_ns) // 1000)

    def _show_more(self, kept: bytearray, more: memoryview, now_ms: int) -> None:
        """Show what was kept together with what has come, once that is as much as the side needs."""
        kept += more
        if len(kept) >= self.side.need:
            self._show(kept, memoryview(kept), len(kept), now_ms)

    def _tune(self) -> None:
        """Choose how much to wait for and to read next.

        Within a large frame the socket stays quiet until much of the rest is there (SO_RCVLOWAT): few large
        splices cost less than many small ones. After it a short read: what follows is a header, and its payload
        is to be spliced too. Of an encrypted stream both would count the wrong bytes.
        """
        unseen = self.side.unseen
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

    def _show(self, buf: bytearray, view: memoryview, end: int, now_ms: int) -> None:
        """Show buf[:end] to the side and carry out its orders until it wants more, or to wait; `view` is of `buf`."""
        side = self.side
        start = 0
        try:
            while True:
                count = side.receive(buf, start, end, now_ms)
                if count:
                    # More of a large frame follows at once: one packet with its beginning.
                    flags = _MSG_MORE if side.unseen >= SPLICE_BYTES_MIN else 0
                    self._send(view[start : start + count], count, flags)
                order = side.order
                if order == PASS:
                    self._kept = None
                    break
                start += count
                if order == REPLACE:
                    if side.insert:
                        self._send(side.insert, len(side.insert), 0)
                    start += side.drop
                    continue
                self._kept = bytearray(buf[start:end]) if start < end else None
                if order >= WAIT:
                    self._owner.wait(self, now_ms)
                break
        except OSError as error:
            self._owner.failed(self, error, writing=True)
            return
        except Exception as error:  # noqa: BLE001 - the edge of a connection: whatever it is ends this one alone
            self._owner.failed(self, error)
            return
        if side.signal:
            side.signal = False
            self._owner.signalled(self, now_ms)

    def _send(self, data: memoryview | bytes | bytearray, count: int, flags: int) -> None:
        """Write the `count` bytes of `data`, or keep for when the destination can take them.

        Raises:
            OSError: the destination has failed.
        """
        if self._unsent is not None:
            self._unsent += data
            return
        try:
            sent = self._send_now(data, flags)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == count:
            return
        if self.dst is not None:
            self._shared.loop.add_writer(self.dst_fd, self._on_writable)
        self._unsent = bytearray(data[sent:])
        self.update_reading()
        if self.dst is None:
            self._owner.unconnected()

    def _on_writable(self) -> None:
        try:
            if self._unsent is not None:
                assert self.dst is not None, "only a connected destination is written"
                sent = self.dst.send(self._unsent)
                if sent < len(self._unsent):
                    del self._unsent[:sent]
                    return
                self._unsent = None
            elif not self._unpipe():
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._owner.failed(self, error, writing=True)
            return
        self._shared.loop.remove_writer(self.dst_fd)
        if self.at_end:
            self._owner.ended(self)
            return
        self.update_reading()
        self.side.moved_ns = now_ns = monotonic_ns()
        self._frame_may_be_over(now_ns // 1_000_000)

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
            count = os.splice(self.src_fd, pipe.write_fd, min(side.unseen, pipe.width), flags=SPLICE_FLAGS)
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
        self._state.now_ns = now_ns = monotonic_ns()
        side.passed(count)
        self._piped = count
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
        self._frame_may_be_over(now_ns // 1_000_000)
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
        if self.side.unseen < SPLICE_BYTES_MIN:
            self._return_pipe()
        self._tune()
        return True

    def _return_pipe(self) -> None:
        if self._pipe is not None:
            self._shared.pipes.give_back(self._pipe)
            self._pipe = None

    def _frame_may_be_over(self, now_ms: int) -> None:
        """Let the side act on what it could not before: a frame that ended by splice, a wait that ended meanwhile."""
        if self.side.unseen <= 0 and not self.paused:
            self.show_kept(now_ms)

    def _end(self) -> None:
        """The source has closed its direction."""
        self.at_end = True
        self.update_reading()
        if not self.blocked:
            self._owner.ended(self)


def _nothing_to_read(_view: memoryview, _count: int) -> int:
    raise BlockingIOError("no source is connected")


def _not_connected(_data: object, _flags: int) -> int:
    raise BlockingIOError("no destination is connected")
