"""The link between the control process and a worker: a closed set of messages, their bytes, and the connection.

State goes down as what has changed since the last message, in portions of PORTION, so that neither loop is occupied
for more than a few milliseconds. Nothing here is sent per frame of a client.

A message is a length (4 bytes, big-endian) and a MessagePack array that begins with the message's name. Control starts
workers of its own version only (`worker.main`), and the link is an inherited pair of sockets that no other process can
reach. So bytes that are no message are Sluice's own fault: they are logged, and end the link. Types are checked all the
same, since a worker reads what clients send.

    what is read                FRAME_BYTES_MAX a message, checked before anything is decoded
    what waits to be sent       UNSENT_BYTES_MAX; `send` refuses more, and the caller decides what that means
    what waits to be handled    QUEUED_MAX messages; then the link is not read until they are handled
    in one turn of the loop     messages for TURN_NS are handled, and the rest in the next turns

What must not be lost is sent with `send_all`, which waits until the other side has read enough.
"""

import asyncio
import logging
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import monotonic_ns
from typing import Final, TypeAlias, Union, cast

import msgspec

from protocol.messages.replica_session import Partition
from proxy.admin.clients import ClientPart
from proxy.channel import Question, ShownMove
from proxy.config import Address, Config, decode_hook, encode_hook
from proxy.control.cluster import KnownBrokers
from proxy.explain.report import Query, Seen
from proxy.explain.waiting import Judgement
from proxy.metrics.merging import Part
from proxy.metrics.series import Chosen, Weights
from quotas.sharing.lease_values import Grants, LeaseTerms, Report

PORTION: Final = 500  # entities, names, or moves in one message


class Message(msgspec.Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """The base of all messages; its direct subclasses below are the closed set that is decoded."""


# From control to a worker.


class Start(Message):
    """The first message to a worker: what it runs.

    Args:
        number: the worker's, from 1.
        config: the worker's configuration, with its fraction of the limits on memory and descriptors.
        run: a random number that identifies this process of the worker.
        terms: the terms of the leases of quota shares between control and its workers.
        enforcing: whether quotas are enforced.
    """

    number: int
    config: Config
    run: int
    terms: LeaseTerms
    enforcing: bool


class Configure(Message):
    """The worker's configuration after a reload that has changed it."""

    config: Config


class QuotaBatch(Message):
    """Quota entities that are new or have changed.

    Args:
        entries: all limits in force of each entity, by the entity's code; an entity without limits is removed. Times
            are known to control alone.
        complete: False if more batches of the initial quotas follow; the worker is ready only with all of them.
    """

    entries: Mapping[str, Mapping[str, float]]
    complete: bool


class Brokers(Message):
    """All addresses of brokers that control knows; they replace those that the worker knows."""

    known: KnownBrokers


class TopicsNamed(Message):
    """Names of topics, by topic id."""

    names: Mapping[bytes, str]


class Moves(Message):
    """The changed reassignments in steps, by partition, as clients see them; None for one that has ended."""

    changes: Mapping[Partition, ShownMove | None]


class ReadCertificates(Message):
    """Read all certificate files again, since control has got SIGHUP."""


class Enforce(Message):
    """Switch the enforcement of quotas on or off, as SIGUSR1 or the admin port has told control."""

    on: bool


class Granted(Message):
    """Grants of quota shares; None: the worker's report was refused, and it has to open a new session."""

    grants: Grants | None


class Response(Message):
    """An outcome of a question (`Ask`): the response to send to the client."""

    number: int
    frame: bytes


class Forwarded(Message):
    """An outcome of a question (`Ask`): a request to send to the broker first (`proxy.channel.Forward`).

    Args:
        plan: state of control as opaque bytes; the worker returns it with the broker's response.
    """

    number: int
    api_key: int
    frame: bytes
    plan: bytes


class Refusal(Message):
    """An outcome of a question (`Ask`): the worker closes the client's connection, and counts it by this cause."""

    number: int
    cause: str
    detail: str


class Scrape(Message):
    """A request for figures.

    Args:
        number: of the request; the response repeats it.
        page: "clients" for the page `/clients`; "weights" for the first part of `/metrics`: the heaviest clients.
    """

    number: int
    page: str


class TakeRows(Message):
    """A request for the second part of `/metrics`: the metrics of the clients that have series of their own."""

    number: int
    chosen: Chosen


class Look(Message):
    """A request for where the time of clients goes, as this worker has observed it."""

    number: int
    query: Query


class Drain(Message):
    """Stop accepting, and end when all connections are idle; `hurried`: end without waiting for that."""

    hurried: bool


# From a worker to control.


class Ready(Message):
    """The worker serves clients: its ports are bound, and it has all quotas and its first shares of them."""


class Failed(Message):
    """The worker cannot start; `problem` says why."""

    problem: str


class Beat(Message):
    """Sent every second as a sign that the worker's event loop runs.

    Args:
        connections: the number of its clients' connections.
        not_accepting: why a listener accepts nothing; "" if all do.
    """

    connections: int
    not_accepting: str = ""


class Reported(Message):
    """A report of the worker's demand for quota shares, to which `Granted` is the response."""

    report: Report


class Ask(Message):
    """A question: a client's request that only control can handle. Response, Forwarded or Refusal is the outcome.

    Args:
        number: of the question; never used again.
        question: the request, or the broker's response to a `Forwarded` request; its own `plan` is not sent.
        plan: the plan of that `Forwarded`; None for a client's request.
    """

    number: int
    question: Question
    plan: bytes | None = None


class Withdraw(Message):
    """The client of a question has disconnected: control need not handle the question, and sends no outcome."""

    number: int


class BrokersSeen(Message):
    """Addresses of brokers, by id, that the worker has read in responses to its clients."""

    addresses: Mapping[int, Address]


class Judged(Message):
    """The clients of the worker that have begun, or ended, to wait for much of their time."""

    judgement: Judgement


class Dialled(Message):
    """The worker's connections to a broker fail; `problem` says why, "": they succeed again."""

    broker: int
    problem: str


class TopicsWanted(Message):
    """Topic ids in traffic whose names the worker does not know; control sends `TopicsNamed` when it knows them."""

    topic_ids: tuple[bytes, ...]


class Counted(Message):
    """The response to a `Scrape` with page "clients": the worker's part of the page."""

    number: int
    figures: ClientPart


class Weighed(Message):
    """The response to a `Scrape` with page "weights": the worker's clients with the most bytes."""

    number: int
    figures: Weights


class Taken(Message):
    """The response to `TakeRows`: the worker's metrics, with those of the chosen clients."""

    number: int
    figures: Part


class Looked(Message):
    """The response to `Look`, or a portion of it.

    Args:
        more: whether another portion follows.
    """

    number: int
    figures: Seen
    more: bool = False


Figures: TypeAlias = Counted | Weighed | Taken | Looked

# ----------------------------------------------------------------------------------------------------
# Messages as bytes.

# A description of 200,000 quotas takes about 25 MB; a request of a client, at most 4 MiB.
FRAME_BYTES_MAX: Final = 128 * 1024 * 1024
_LENGTH_BYTES: Final = 4


class FrameError(Exception):
    """Received bytes are no message, or a message is too long or cannot be encoded."""


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=encode_hook)


def _hooked(kind: type, value: object) -> object:
    """Return a decoded value of a type that msgspec does not know.

    `Question.plan` may be anything, and is None here.
    """
    return value if kind is object else decode_hook(kind, value)


_CLOSED_SET: Final = Union[tuple(Message.__subclasses__())]  # noqa: UP007 - computed
_DECODER: Final = msgspec.msgpack.Decoder(_CLOSED_SET, dec_hook=_hooked)


def frame_of(message: Message) -> bytearray:
    """Encode a message, with its length before it.

    Raises:
        FrameError: it is too long, or cannot be encoded: half of a surrogate pair, or a number of over 64 bits.
    """
    frame = bytearray(_LENGTH_BYTES)
    try:
        _ENCODER.encode_into(message, frame, _LENGTH_BYTES)
    except (UnicodeEncodeError, OverflowError) as error:
        raise FrameError(f"a {type(message).__name__} cannot be encoded: {error}") from None
    size = len(frame) - _LENGTH_BYTES
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"a {type(message).__name__} of {size} bytes is too long")
    frame[:_LENGTH_BYTES] = size.to_bytes(_LENGTH_BYTES)
    return frame


class Frames:
    """Cuts the received bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = 0  # bytes of the message that is under way; 0: its length is not known

    def __len__(self) -> int:
        """The number of bytes that are kept."""
        return len(self._buffer)

    def receive(self, data: bytes | bytearray) -> Iterator[Message]:
        """Yield the messages that are complete with these bytes.

        Raises:
            FrameError: they are no messages.
        """
        buffer = self._buffer
        buffer += data
        while True:
            if not self._wanted:
                if len(buffer) < _LENGTH_BYTES:
                    return
                self._wanted = int.from_bytes(buffer[:_LENGTH_BYTES])
                if not 0 < self._wanted <= FRAME_BYTES_MAX:
                    raise FrameError(f"a message of {self._wanted} bytes")
            end = _LENGTH_BYTES + self._wanted
            if len(buffer) < end:
                return
            try:
                with memoryview(buffer) as view, view[_LENGTH_BYTES:end] as body:
                    message = _DECODER.decode(body)
            except (ValueError, RecursionError) as error:  # msgspec's errors are `ValueError`s
                raise FrameError(f"bytes that are no message: {error}") from error
            del buffer[:end]
            self._wanted = 0
            yield message


# ----------------------------------------------------------------------------------------------------
# The connection.

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
HIGH_WATER_BYTES: Final = 1024 * 1024  # above this, `send_all` waits
QUEUED_MAX: Final = 64
TURN_NS: Final = 2_000_000

logger = logging.getLogger(__name__)


class Link(asyncio.Protocol):
    """One end of the link between control and a worker.

    Args:
        received: handles a message.
        lost: called once, when the other side is gone, or has sent an invalid message.

    Attributes:
        gone: set when everything that was pending at `close` is sent, or the other side is gone.
        ended: set when the other side is gone, and everything that it had sent is handled.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, received: Callable[[Message], None], lost: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._received = received
        self._lost = lost
        self._frames = Frames()
        self._queue: deque[Message] = deque()
        self._busy = False  # a turn is scheduled
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self._may_send = asyncio.Event()
        self._may_send.set()
        self.closed = False
        self.gone = asyncio.Event()
        self.ended = asyncio.Event()
        self._poll = select.poll()

    async def open(self, sock: socket.socket) -> None:
        """Start to read and write at this socket."""
        sock.setblocking(False)
        self._poll.register(sock, select.POLLRDHUP)
        await self._loop.create_connection(lambda: self, sock=sock)

    def other_side_runs(self) -> bool:
        """Whether the other process still has its end open: the kernel closes it when the process ends or is killed."""
        return not self.closed and not self._poll.poll(0)

    def send(self, message: Message) -> bool:
        """Send a message; False if it is refused, since too much waits or the link is closed.

        Raises:
            FrameError: it is too long.
        """
        transport = self._transport
        if self.closed or transport is None or transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return False
        transport.write(frame_of(message))
        return True

    async def send_all(self, message: Message) -> bool:
        """Send a message as soon as there is room; False if the link is closed."""
        await self._may_send.wait()
        return self.send(message)

    def close(self) -> None:
        """Close the link once all pending messages are sent; nothing that arrives is handled any more."""
        self.closed = True
        self._queue.clear()
        self._may_send.set()
        if self._transport is not None:
            self._transport.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; asyncio calls it when the link is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Queue the complete messages in these bytes, to be handled in turns."""
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
        """End the link, after the messages that came before are handled."""
        self.gone.set()
        if self._busy and not self.closed:
            self._loop.call_soon(self.connection_lost, None)
            return
        self._end()

    def pause_writing(self) -> None:
        """Make `send_all` wait: too much waits to be sent."""
        self._may_send.clear()

    def resume_writing(self) -> None:
        """Let `send_all` continue."""
        self._may_send.set()

    def _next(self) -> None:
        """Handle queued messages for TURN_NS; the rest follows in the next turns."""
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

    def _handle(self, message: Message) -> None:
        try:
            self._received(message)
        except Exception:  # the edge of a message: the others are handled anyway
            logger.exception("internal error: cannot handle a %s", type(message).__name__)

    def _end(self) -> None:
        was_closed = self.closed
        self.close()
        self.ended.set()
        if not was_closed:
            self._lost()
