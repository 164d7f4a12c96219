"""One direction of one connection: reads, passes the bytes to the channel, carries out its verdict, writes.

Bytes that must be examined, and smaller frames, go through the process's one read buffer; each run of unchanged frames
leaves it in one `send`. The rest of a large frame bypasses Python: socket → pipe → socket by `splice`. That is begun if
at least SPLICE_BYTES_MIN of the frame are outstanding, when much of that has arrived (SO_RCVLOWAT). What is left of a
request is copied instead if it is here and fits into the buffer. After a splice the next read is short: a header
follows, and the payload after it should be spliced again, not copied.

Flow control: while read bytes are not yet written, the source is not read, and no further local response is inserted.
Kept input is bounded by one read, or by `proxy.channel.errors` if a direction needs a whole frame; pending output by
the same plus one local response. Both count as kept bytes (`proxy.net.kept`) by their allocation: a growing buffer is
up to an eighth larger than its contents.

In a busy turn of the loop a small output is deferred until the turn's other sockets have been read (`Shared.defer`).
Each write wakes its receiver; when all follow one another, the receiver is still awake at the next one.

Non-obvious:

- After a wait a read is short. The bytes read then may have to wait again, and thousands of held connections would
  keep 64 KiB each.
"""

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final, Protocol

from proxy.channel import PASS, REPLACE, Direction
from proxy.net.shared import READ_BYTES_MAX, SPLICE_FLAGS, Deferring, Pipe, Shared
from proxy.net.sockets import RECORD_BYTES_MAX, RECORD_KEPT_BYTES, Stream
from proxy.system.clock import clock_ns

SPLICE_BYTES_MIN: Final = 32 * 1024
_LOW_WATER_BYTES_MAX: Final = 256 * 1024
_SHORT_READ_BYTES: Final = 4 * 1024
_NOT_SPLICEABLE: Final = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
_MSG_MORE: Final = socket.MSG_MORE if hasattr(socket, "MSG_MORE") else 0
# One relay in sixteen is timed for the latency histogram: those that begin within 4 us of each 65 us of the clock.
_SAMPLE_MASK_NS: Final = 0xF000
# The smallest change that is counted: the head of an incomplete frame and the end of a response are below it.
_COUNTED_BYTES_MIN: Final = 512
# A turn of the loop is busy while one read follows another within this time.
_BUSY_NS: Final = 25_000
_DEFERRED_BYTES_MAX: Final = 2 * 1024
# The most frames that are replaced in one turn of the loop; a frame counts once more for each 64 bytes. 64 KiB hold
# 1,600 small responses at about 8 us each, or four that are parsed on the loop at up to 4 ms each.
_REPLACED_MAX: Final = 200
_REPLACED_SHIFT: Final = 6
_NS_PER_MS: Final = 1_000_000


class Owner(Protocol):
    """What a pump calls in its connection; `pump` is the calling one."""

    def signalled(self, pump: object) -> None:
        """Act on an event of the pump's direction: a due mute or local response, or a question for the application."""

    def next_turn(self, pump: object) -> None:
        """Continue with the pump's kept bytes in the next turn of the loop: it has used up this turn."""

    def wait(self, pump: object, now_ms: int) -> None:
        """Stop reading from the pump's source: its direction has ordered WAIT or REFUSE.

        WAIT lasts until a job in a thread, a hold or a mute has ended, or owed responses have arrived. After REFUSE the
        connection closes when all owed responses are sent.
        """

    def ended(self, pump: object) -> None:
        """Handle the close of the pump's source, after all of its bytes were written."""

    def failed(self, pump: object, error: Exception, *, writing: bool = False) -> None:
        """Handle an error of the pump's source, or of its destination if `writing`."""

    def connect_destination(self) -> None:
        """Connect to the pump's destination: there are bytes to write."""

    def kept_changed(self, change: int) -> None:
        """Count a change in the bytes that the pump keeps; above a bound this closes a connection, maybe the owner."""


def _not_connected(_data: object, _flags: int) -> int:
    raise BlockingIOError("no destination is connected")


def _nothing_to_read(_view: memoryview, _count: int) -> int:
    """Raise BlockingIOError: the `recv_into` of a source that is not connected yet, or closed."""
    raise BlockingIOError("no source is connected")


@dataclass(slots=True, eq=False)
class Pump(Deferring):
    """Moves the bytes of one direction of a connection: from the client to the broker, or back.

    Args:
        owner: the connection.
        direction: the channel's logic for this direction, which decides what happens to the bytes.
        encrypted: whether all bytes must pass through the buffer, for TLS or capture; else large frames are spliced.
        copied_max: if at most this many bytes of a large frame remain after its beginning, those that have arrived are
            copied through the buffer, not spliced.

    Attributes:
        at_end: whether the source has closed its side.
        paused: set by the owner, as for a mute or a hold; nothing is read then.
    """

    owner: Owner
    _shared: Shared
    direction: Direction
    _encrypted: bool = False
    _copied_max: int = 0
    _buffer: bytearray = field(init=False)
    _counted: int = field(init=False, default=0)  # bytes reported to the owner
    _deferred: bytes | None = field(init=False, default=None)
    _kept: bytearray | None = field(init=False, default=None)
    _low_water: int = field(init=False, default=1)
    _pipe: Pipe | None = field(init=False, default=None)
    _piped: int = field(init=False, default=0)
    _read_bytes: int = field(init=False, default=READ_BYTES_MAX)
    _reading: bool = field(init=False, default=False)
    _recv_into: Callable[[memoryview, int], int] = field(init=False, default=_nothing_to_read)
    _replaced: int = field(init=False, default=0)  # in this turn of the loop
    _sampled_ns: int = field(
        init=False, default=0
    )  # when its deferred output was read, if that is timed; else 0
    _send_now: Callable[..., int] = field(init=False, default=_not_connected)
    _may_defer: bool = field(init=False, default=False)
    # Within a large frame, or directly after one or after a wait.
    _tuned: bool = field(init=False, default=False)
    _unsent: bytearray | memoryview | None = field(init=False, default=None)
    _view: memoryview = field(init=False)
    at_end: bool = field(init=False, default=False)
    bytes_total: int = field(init=False, default=0)
    dst: Stream | None = field(init=False, default=None)
    dst_fd: int = field(init=False, default=-1)
    paused: bool = field(init=False, default=False)
    src: Stream | None = field(init=False, default=None)
    src_fd: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        self._buffer, self._view = self._shared.buffer, self._shared.view

    def read_from(self, src: Stream, descriptor: int) -> None:
        """Start reading from a source, which is connected now; `descriptor` is its descriptor."""
        self.src = src
        self.src_fd = descriptor
        self.direction.passed(0, clock_ns())
        self._recv_into = src.recv_into
        self.update_reading()

    def write_to(self, dst: Stream, descriptor: int) -> None:
        """Start writing to a destination, which is connected now; `descriptor` is its descriptor."""
        self.dst = dst
        self.dst_fd = descriptor
        self._send_now = dst.send
        if self._unsent:
            self._shared.loop.add_writer(self.dst_fd, self._on_writable)
        self.update_reading()

    @property
    def blocked(self) -> bool:
        """Whether bytes that were read wait until the destination accepts them; deferred ones are written first."""
        data = self._deferred
        if data is not None:
            try:
                self._write_deferred()
            except OSError:  # reported by the next attempt to write, of `_on_writable`
                self._keep_unsent(bytearray(data))
        return bool(self._unsent) or self._piped > 0

    @property
    def kept_bytes(self) -> int:
        """The number of bytes that were read and wait for the rest of their frame, or for the end of a mute or hold."""
        return len(self._kept) if self._kept else 0

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has been read, or forwarded, in part."""
        return self.direction.mid_frame() or bool(self._kept)

    def update_reading(self) -> None:
        """Start or stop reading: it reads while the source is open, no output is pending, and it is not `paused`."""
        wanted = self.src is not None and not (self.paused or self._unsent or self._piped or self.at_end)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._shared.loop.add_reader(self.src_fd, self._on_readable)
            else:
                self._shared.loop.remove_reader(self.src_fd)

    def resume(self) -> None:
        """End a pause: pass the kept bytes again, then read."""
        self.paused = False
        self._read_short()  # it may have to wait again, and further input is then kept
        self.show_kept()
        self.update_reading()
        if self.at_end and not self.paused and not self.blocked:
            self.owner.ended(self)

    def show_kept(self) -> None:
        """Let the direction decide again on the kept bytes, without new input."""
        self._show_kept(clock_ns())

    def close(self) -> None:
        """Stop reading and writing; output that the destination has not accepted is lost with the connection."""
        loop = self._shared.loop
        if self._reading:
            loop.remove_reader(self.src_fd)
            self._reading = False
        if self.blocked and self.dst is not None:  # deferred output is written first
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

    def _on_readable(self) -> None:  # noqa: C901 - a call a read costs some percent
        try:
            verdict = self.direction.verdict
            if verdict.passthrough >= SPLICE_BYTES_MIN and self._pass_payload(clock_ns()):
                if self._shared.deferring:
                    self._shared.write_deferred()
                return
            recv_into = self._recv_into  # called as a method, a slot's value is looked up the slow way
            try:
                count = recv_into(self._view, self._read_bytes)
            except (BlockingIOError, InterruptedError):
                # OpenSSL keeps the part of a record that has arrived.
                self._count_kept(RECORD_KEPT_BYTES * self._encrypted)
                return
            if not count:
                self._end()
                return
            started_ns = clock_ns()
            shared = self._shared
            busy = started_ns - shared.read_ns < _BUSY_NS
            shared.read_ns = started_ns
            self._may_defer = busy
            self.bytes_total += count
            if self._kept is None:
                self._show(self._buffer, self._view, count, started_ns)
            else:
                self._show_more(self._kept, self._view[:count], started_ns)
            if self._tuned or verdict.passthrough >= SPLICE_BYTES_MIN:
                self._go_on(count == self._read_bytes, started_ns)
            self._may_defer = False
            sampled = not started_ns & _SAMPLE_MASK_NS
            if self._deferred is not None:
                self._sampled_ns = started_ns if sampled else 0
                shared.defer(self)
            else:
                if sampled:
                    shared.stats.observe_latency((clock_ns() - started_ns) // 1000)
                if not busy and shared.deferring:  # they do not wait for slow work of others
                    shared.write_deferred()
        except Exception as error:  # noqa: BLE001 - the edge of a callback: the loop would call it again for ever
            self.owner.failed(self, error)

    def _pass_payload(self, now_ns: int) -> bool:
        """Move payload by splice; False if it must be read. A late payload is charged again first, and may wait."""
        direction = self.direction
        if direction.verdict.charged_ahead and direction.recharge_due(now_ns // _NS_PER_MS):
            self._show_kept(now_ns)
        return self.paused or self.src is None or self._splice(now_ns)

    def _show_kept(self, now_ns: int) -> None:
        if not self.blocked:
            kept = self._kept or bytearray()
            self._show(kept, memoryview(kept), len(kept), now_ns)

    def _show_more(self, kept: bytearray, more: memoryview, now_ns: int) -> None:
        """Pass the kept and the new bytes to the direction, once there are as many as it needs."""
        kept += more
        if len(kept) >= self.direction.verdict.need:
            self._show(kept, memoryview(kept), len(kept), now_ns)
        else:
            self._count_kept()

    def _show(self, buf: bytearray, view: memoryview, end: int, now_ns: int) -> None:
        """Pass buf[:end] to the direction and carry out its orders until MORE or WAIT; `view` is a view of `buf`."""
        start = 0
        try:
            while True:
                verdict = self.direction.receive(buf, start, end, now_ns)
                count = verdict.passing
                if count:
                    # The rest of a large frame follows at once: send it in one packet with its beginning.
                    rest = verdict.passthrough
                    flags = _MSG_MORE if rest >= SPLICE_BYTES_MIN and rest > self._copied_max else 0
                    self._send(view[start : start + count], count, flags)
                order = verdict.order
                if order == PASS:
                    self._kept = None
                    if verdict.signal or self._counted or self._unsent is not None:
                        break
                    return
                start += count
                if order == REPLACE:
                    start += verdict.drop
                    self._replaced += 1 + (verdict.drop >> _REPLACED_SHIFT)
                    if self._write_insert(self.direction) and self._replaced < _REPLACED_MAX:
                        continue
                    self._replaced = 0
                    start += self._forward_passthrough(self.direction, view[start:end], now_ns)
                self._kept = buf if buf is self._kept and not start else buf[start:end] or None
                if order >= REPLACE:
                    self._postpone(order, now_ns)
                break
        except OSError as error:
            self.owner.failed(self, error, writing=True)
            return
        except Exception as error:  # noqa: BLE001 - the edge of a connection: any error ends only this one
            self.owner.failed(self, error)
            return
        self._report()

    def _postpone(self, order: int, now_ns: int) -> None:
        """Ask the owner to pass the kept bytes later: in the loop's next turn, or when the wait is over."""
        if order == REPLACE:  # enough was replaced in this turn
            self.owner.next_turn(self)
        else:
            self.owner.wait(self, now_ns // _NS_PER_MS)

    def _report(self) -> None:
        """Report the kept bytes to the owner, and whether the direction has an event for the other one."""
        self._count_kept()
        if self.direction.verdict.signal:
            self.owner.signalled(self)

    def _write_insert(self, direction: Direction) -> bool:
        """Write the direction's insert; False if further inserts must wait until the destination has taken it.

        Raises:
            OSError: the destination has failed.
        """
        insert = direction.verdict.insert
        if self._deferred is not None:
            self._write_deferred()
        if insert and self._unsent is not None:
            self._append_unsent(self._unsent, insert)
        elif insert:
            try:
                sent = self._send_now(insert, 0)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent < len(insert):
                self._keep_unsent(memoryview(insert)[sent:])  # not copied: it does not change
        return bool(direction.verdict.drop or direction.verdict.passthrough or self._unsent is None)

    def _forward_passthrough(self, direction: Direction, data: memoryview, now_ns: int) -> int:
        """Forward the available bytes of the frame under way, none of which are kept bytes; returns their number.

        Raises:
            OSError: the destination has failed.
        """
        count = min(direction.verdict.passthrough, len(data))
        if count:
            self._send(data[:count], count, 0)
            direction.passed(count, now_ns)
        return count

    def _count_kept(self, size: int = 0) -> None:
        """Report the kept bytes to the owner, with `size` bytes kept elsewhere; it may close the connection."""
        kept, unsent = self._kept, self._unsent
        if kept is not None:
            size += kept.__alloc__()
        if unsent is not None:
            if self._encrypted:
                size += RECORD_KEPT_BYTES
            size += unsent.__alloc__() if isinstance(unsent, bytearray) else getsizeof(unsent.obj)
        if size < _COUNTED_BYTES_MIN:
            size = 0
        change = size - self._counted
        if change:
            self._counted = size
            self.owner.kept_changed(change)

    def _send(self, data: memoryview, count: int, flags: int) -> None:
        """Write the `count` bytes of `data`, or keep them: until the destination accepts them, or the turn ends.

        Raises:
            OSError: the destination has failed.
        """
        if self._deferred is not None:
            self._write_deferred()
        if self._unsent is not None:
            self._append_unsent(self._unsent, data)
            return
        if self._may_defer and count <= _DEFERRED_BYTES_MAX and not flags:
            self._deferred = bytes(data)
            return
        send_now = self._send_now  # as in `_on_readable`
        try:
            sent = send_now(data, flags)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent != count:
            self._keep_unsent(bytearray(data[sent:]))

    def turn_ended(self) -> None:
        """Write the deferred output, if that has not been done."""
        try:
            self._write_deferred()
            if self._unsent is not None:
                self._count_kept()
        except OSError as error:
            self.owner.failed(self, error, writing=True)
        except Exception as error:  # noqa: BLE001 - other pumps have deferred output too
            self.owner.failed(self, error)
        if self._sampled_ns:
            self._shared.stats.observe_latency((clock_ns() - self._sampled_ns) // 1000)
            self._sampled_ns = 0

    def _write_deferred(self) -> None:
        """Write the deferred output, if there is any.

        Raises:
            OSError: the destination has failed.
        """
        data = self._deferred
        if data is None:
            return
        self._deferred = None
        send_now = self._send_now  # as in `_on_readable`
        try:
            sent = send_now(data, 0)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent != len(data):
            self._keep_unsent(bytearray(data[sent:]))

    def _append_unsent(self, unsent: bytearray | memoryview, data: memoryview | bytes | bytearray) -> None:
        """Append data to the pending output."""
        if not isinstance(unsent, bytearray):
            self._unsent = unsent = bytearray(unsent)
        unsent += data

    def _keep_unsent(self, unsent: bytearray | memoryview) -> None:
        """Keep the pending output, and write it when the destination accepts more."""
        self._unsent = unsent
        if self.dst is not None:
            self._shared.loop.add_writer(self.dst_fd, self._on_writable)
        self.update_reading()
        if self.dst is None:
            self.owner.connect_destination()

    def _on_writable(self) -> None:
        try:
            try:
                if self._unsent is not None:
                    assert self.dst is not None, "only a connected destination is written"
                    sent = self.dst.send(self._unsent)
                    if sent < len(self._unsent):
                        self._drop_sent(self._unsent, sent)
                        return
                    self._unsent = None
                    self._count_kept()
                elif not self._unpipe():
                    return
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.owner.failed(self, error, writing=True)
                return
            self._shared.loop.remove_writer(self.dst_fd)
            self.update_reading()
            now_ns = clock_ns()
            self.direction.passed(0, now_ns)
            self._frame_may_be_over(now_ns)
            if self.at_end and not self.paused and not self.blocked:
                self.owner.ended(self)
        except Exception as error:  # noqa: BLE001 - the edge of a callback
            self.owner.failed(self, error)

    def _drop_sent(self, unsent: bytearray | memoryview, sent: int) -> None:
        """Remove the written part of the pending output."""
        if isinstance(unsent, bytearray):
            del unsent[:sent]
            self._count_kept()
        else:
            self._unsent = unsent[sent:]

    def _frame_may_be_over(self, now_ns: int) -> None:
        """Call the direction without new bytes, after a frame that ended by splice or a wait that has ended."""
        if not self.direction.verdict.passthrough and not self.paused:
            self._show_kept(now_ns)

    def _end(self) -> None:
        """Report that the source has closed its direction, once all of its bytes are written."""
        self.at_end = True
        self.update_reading()
        if not self.blocked:
            self.owner.ended(self)

    # Payload by splice.

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
        """Read what has arrived of the frame's remaining bytes, and forward it through the buffer.

        The client has just written it, so it is in the processor's cache, and copying costs less than splicing.

        Raises:
            OSError: the source has failed.
        """
        try:
            count = self._recv_into(self._view, self.direction.verdict.passthrough)
        except (BlockingIOError, InterruptedError):
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
        if self._encrypted or self.blocked:
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
            self.owner.failed(self, error)
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
            self.owner.failed(self, error, writing=True)
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
