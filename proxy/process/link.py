"""One connection between control and a worker: messages in order, both directions, nothing unbounded.

    what waits to be sent       UNSENT_BYTES_MAX; `send` refuses more, and the caller decides what that means
    what waits to be handled    QUEUED_MAX messages; then the link is not read until they are handled
    in one turn of the loop     messages for TURN_NS are handled, and the rest in the next turns

What must not be lost is sent with `send_all`, which waits until the other side has read enough.
"""

import asyncio
import logging
import pickle
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from copyreg import dispatch_table
from io import BytesIO
from struct import Struct
from time import monotonic_ns
from types import MappingProxyType
from typing import Any, Final, cast

from proxy.process.messages import MESSAGES

# ----------------------------------------------------------------------------------------------------
# Messages as bytes: a length, then the pickled message; and the bytes back into messages, however they are
# cut.
#
# Pickle is used since both ends run the same code, and one of them has started the other: the link is an
# inherited pair
# of sockets without a name, which no other process can reach. Bytes that are no message are therefore our own
# fault, and
# end the link. What a peer of Sluice has sent is only ever inside a message, as bytes or text.


# A description of 200,000 quotas takes about 25 MB; a request of a client, at most 4 MiB.
FRAME_BYTES_MAX: Final = 128 * 1024 * 1024
_LENGTH: Final = Struct(">I")


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def _reduced(view: MappingProxyType[Any, Any]) -> tuple[object, ...]:
    return _read_only, (dict(view),)


# Options have mappings that are read-only views.
_TABLE: Final[dict[type, Any]] = {**dispatch_table, MappingProxyType: _reduced}


class FrameError(Exception):
    """Bytes that are no message, or a message that is too long."""


def frame_of(message: object) -> bytes:
    """Return a message as bytes.

    Raises:
        FrameError: it is too long.
    """
    assert isinstance(message, MESSAGES), f"{type(message).__name__} is no message"
    out = BytesIO()
    out.write(bytes(_LENGTH.size))
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _TABLE
    pickler.dump(message)
    size = out.tell() - _LENGTH.size
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"a {type(message).__name__} of {size} bytes is too long")
    out.seek(0)
    out.write(_LENGTH.pack(size))
    return out.getvalue()


class Frames:
    """Takes bytes as they come, and returns the messages that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = 0  # bytes of the message that is under way; 0: its length is not known

    def __len__(self) -> int:
        """The number of bytes that are kept."""
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[object]:
        """Yield the messages that are complete with these bytes.

        Raises:
            FrameError: they are no messages.
        """
        buffer = self._buffer
        buffer += data
        while True:
            if not self._wanted:
                if len(buffer) < _LENGTH.size:
                    return
                (self._wanted,) = _LENGTH.unpack_from(buffer)
                if not 0 < self._wanted <= FRAME_BYTES_MAX:
                    raise FrameError(f"a message of {self._wanted} bytes")
            end = _LENGTH.size + self._wanted
            if len(buffer) < end:
                return
            with memoryview(buffer) as view:
                message = _read(view[_LENGTH.size : end])
            del buffer[:end]
            self._wanted = 0
            yield message


def _read(body: memoryview) -> object:
    try:
        message = pickle.loads(body)  # from our own parent or child: see above
    except Exception as error:
        raise FrameError(f"bytes that are no message: {error}") from error
    if not isinstance(message, MESSAGES):
        raise FrameError(f"{type(message).__name__} is no message")
    return message


UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
HIGH_WATER_BYTES: Final = 1024 * 1024  # above this, `send_all` waits
QUEUED_MAX: Final = 64
TURN_NS: Final = 2_000_000

logger = logging.getLogger(__name__)


class Link(asyncio.Protocol):
    """One end of the link.

    Args:
        received: handles a message.
        lost: called once, when the other side is gone, or has sent an invalid message.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        received: Callable[[object], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._received = received
        self._lost = lost
        self._frames = Frames()
        self._queue: deque[object] = deque()
        self._busy = False  # a turn is scheduled
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self._may_send = asyncio.Event()
        self._may_send.set()
        self.closed = False
        self._gone = asyncio.Event()
        self._ended = asyncio.Event()
        self._poll = select.poll()

    async def open(self, sock: socket.socket) -> None:
        """Begin, at this socket."""
        sock.setblocking(False)
        self._poll.register(sock, select.POLLRDHUP)
        await self._loop.create_connection(lambda: self, sock=sock)

    def other_side_runs(self) -> bool:
        """Whether the other side is there now, read or not; its kernel closes its end when it ends, also if killed."""
        return not self.closed and not self._poll.poll(0)

    def send(self, message: object) -> bool:
        """Send a message; False if it is refused, since too much waits or the link is closed.

        Raises:
            FrameError: it is too long.
        """
        transport = self._transport
        if self.closed or transport is None or transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return False
        transport.write(frame_of(message))
        return True

    async def send_all(self, message: object) -> bool:
        """Send a message as soon as there is room; False if the link is closed."""
        await self._may_send.wait()
        return self.send(message)

    def close(self) -> None:
        """Close it; what waits is sent, and nothing is handled any more."""
        self.closed = True
        self._queue.clear()
        self._may_send.set()
        if self._transport is not None:
            self._transport.close()

    async def wait_closed(self) -> None:
        """Wait until everything was sent after `close`, or the other side is gone."""
        await self._gone.wait()

    async def wait_ended(self) -> None:
        """Wait until the other side is gone, and everything that it had sent is handled."""
        await self._ended.wait()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        if self.closed:
            return
        try:
            self._queue.extend(self._frames.receive(data))
        except FrameError as error:
            logger.error("internal error: the link between processes ends", exc_info=error)
            self._end()
            return
        if not self._busy:
            self._busy = True
            self._next()
        if len(self._queue) > QUEUED_MAX and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """End, once what came before is handled."""
        self._gone.set()
        if self._busy and not self.closed:
            self._loop.call_soon(self.connection_lost, None)
            return
        self._end()

    def pause_writing(self) -> None:
        """Have `send_all` wait."""
        self._may_send.clear()

    def resume_writing(self) -> None:
        """Let `send_all` go on."""
        self._may_send.set()

    def _next(self) -> None:
        """Handle messages for a while."""
        until_ns = monotonic_ns() + TURN_NS
        while self._queue and not self.closed:
            self._handle(self._queue.popleft())
            if monotonic_ns() > until_ns:
                break
        if self._queue:
            self._loop.call_soon(self._next)
            return
        self._busy = False
        if self._paused and not self.closed and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _handle(self, message: object) -> None:
        try:
            self._received(message)
        except Exception:  # the edge of a message: the others are handled anyway
            logger.exception("internal error: cannot handle a %s", type(message).__name__)

    def _end(self) -> None:
        was_closed = self.closed
        self.close()
        self._ended.set()
        if not was_closed:
            self._lost()
