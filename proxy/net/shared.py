"""The state that all connections of the process share: loop, read buffer, pipes, counters, quota engine."""

import asyncio
import fcntl
import logging
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from protocol.messages.fetch_session import SessionTable
from proxy.channel import Forward, Question, SharedResponse, Tap
from proxy.config import LimitOptions
from proxy.net.by_address import ByAddress, WaitingRoom
from proxy.net.handshakes import Handshakes
from proxy.net.kept import Ledger
from proxy.net.tls import BrokerTls
from proxy.system.logs import event
from proxy.system.stats import Stats
from proxy.system.threads import Worker
from quotas.engine import Engine
from quotas.throttles.connections import ConnectionRates

# Reports the brokers to which this process cannot connect: when it begins, regularly while it lasts, when it ends.
#
# A single failure is ignored, since a broker's backlog may be full for a moment. As long as no attempt has failed,
# successful ones cost nothing here.

FAILURES_MIN: Final = 2  # in succession
REPORT_MS: Final = 20_000  # between two reports of a broker's failures
_BROKERS_MAX: Final = 10_000  # as many as a broker map may have


@dataclass(slots=True)
class _Failures:
    """How often in a row connecting to one broker has failed, and when that was last reported."""

    count: int = 0
    reported: bool = False  # and the end is not
    reported_ms: int = -REPORT_MS


class Dials:
    """Reports the brokers to which one process cannot connect, and when it can again.

    Attributes:
        report: called with a broker's id and the reason why connections to it fail; "" if they succeed again.
    """

    def __init__(self) -> None:
        self._failures: dict[int, _Failures] = {}
        self.report: Callable[[int, str], object] = lambda _broker, _problem: None

    def failed(self, broker: int, problem: str, now_ms: int) -> None:
        """Count a failed attempt to connect to a broker; the second one in a row, and some later ones, are reported.

        Args:
            broker: its id; -1, an unknown broker, is ignored.
            problem: why the attempt has failed.
        """
        if broker < 0:
            return
        found = self._failures.get(broker)
        if found is None:
            if len(self._failures) >= _BROKERS_MAX:
                return
            found = self._failures[broker] = _Failures()
        found.count += 1
        if found.count >= FAILURES_MIN and now_ms - found.reported_ms >= REPORT_MS:
            found.reported, found.reported_ms = True, now_ms
            self.report(broker, problem)

    def opened(self, broker: int) -> None:
        """Register a successful attempt to connect to a broker; reports that earlier failures are over."""
        found = self._failures.get(broker)
        if found is None:
            return
        found.count = 0  # when it was reported is kept, so that a broker that flaps is reported no more often
        if found.reported:
            found.reported = False
            self.report(broker, "")


# Detects that a client has closed while its channel is muted and its socket is not read (KIP-219, step 3).
#
# Reading would mean handling the client's requests; without a watch, dead channels would be kept until their mute
# ends. So the sockets of waiting channels are in an epoll set of their own with EPOLLRDHUP only: it stays quiet while
# data is unread, and fires on a close. The event loop has one reader, for the set's own descriptor.
#
# Non-obvious:
#
# - A hang-up is detected by EPOLLRDHUP in a separate set while a channel waits, because reading would mean handling
#   the client's requests. Requests with acks=0 of a client that has closed are still delivered at the end of the wait.

_EVENTS_MAX: Final = 256


class Hangups:
    """Notices when peers close their connections, without reading from their sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[bool], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, fd: int, gone: Callable[[bool], None]) -> None:
        """Call `gone(reset)` once, when the peer of `fd` closes; `reset`: True if it does not read responses either."""
        self._callbacks[fd] = gone
        self._epoll.register(fd, select.EPOLLRDHUP)

    def unwatch(self, fd: int) -> None:
        """Stop watching; no effect if `fd` is not watched."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop watching all descriptors."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._callbacks.clear()

    def _on_events(self) -> None:
        for fd, events in self._epoll.poll(0, _EVENTS_MAX):
            gone = self._callbacks.get(fd)
            if gone is not None:
                self.unwatch(fd)
                gone(bool(events & (select.EPOLLHUP | select.EPOLLERR)))


# Kernel pipes for payload bytes that never enter Python: `splice` from a socket to a pipe, and on to a socket.
#
# Pipes are few (`limits.pipes_max`), large (1 MiB if the kernel grants it) and lent for one frame. A process without
# privileges has 64 MiB of pipe pages in all (/proc/sys/fs/pipe-user-pages-soft): if a size is refused, a smaller pipe
# is used; if a pipe or splice is refused, plain buffers; each case is logged once and counted.

SPLICE_FLAGS: Final = 1 | 2  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK
_WIDTHS: Final = (1 << 20, 1 << 18, 1 << 16)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Pipe:
    """One pipe: its two descriptors and its size in bytes."""

    read_fd: int
    write_fd: int
    width: int

    def close(self) -> None:
        """Close both ends; remaining bytes are lost, as their connection has ended."""
        os.close(self.read_fd)
        os.close(self.write_fd)


class Pipes:
    """A bounded pool of kernel pipes, for `splice`."""

    def __init__(self, pipes_max: int, stats: Stats) -> None:
        self._idle: list[Pipe] = []
        self._room = pipes_max if hasattr(os, "splice") else 0
        self._stats = stats
        self._logged: set[str] = set()

    def take(self) -> Pipe | None:
        """Return an empty pipe; None if there is none: the caller then copies through its buffer."""
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
        """Return an empty pipe to the pool."""
        self._idle.append(pipe)

    def discard(self, pipe: Pipe) -> None:
        """Close a pipe that still contains bytes of a closed connection, and so cannot be used again."""
        pipe.close()
        self._room += 1

    def splice_refused(self, error: OSError) -> None:
        """Use no pipes from now on, since the kernel does not splice these sockets: buffers are used instead."""
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


# The most bytes of one read: batches are powers of two, and one of 64 KiB fits with its request's other fields.
READ_BYTES_MAX: Final = 68 * 1024


# The most pumps whose output waits for the sockets of the same turn: about a millisecond's reads, 128 KiB.
_DEFERRING_MAX: Final = 64

# The divisor of the budget for kept bytes that gives the most that fetch sessions may take.
_SESSIONS_SHARE: Final = 8


Outcome = bytes | bytearray | SharedResponse | Forward | Exception
OutcomeCallback = Callable[[Outcome], None]
Withdraw = Callable[[], None]
"""Withdraws a request that has not begun; no effect later."""
Ask = Callable[[Question, OutcomeCallback], Withdraw]
"""Starts work on a question: the callback is called later, on the loop, with the response's frame, a request to send to
the broker first, or the reason why there is neither."""


def nothing_to_withdraw() -> None:
    """Do nothing: a `Withdraw` for work that cannot be cancelled, since it is done or must run to its end."""


def no_api(_question: Question, _done: OutcomeCallback) -> Withdraw:
    """Raise an error: the default of `Shared.ask`, until the application replaces it."""
    raise AssertionError("a listener has an API of its own, and the application has not set it")


class Arriving(Protocol):
    """A socket that counts as arriving: it is not admitted as a connection yet, or is being closed softly."""

    def close(self) -> None:
        """Close the socket."""

    def displace(self) -> None:
        """Close the socket to make room for one of another address."""


class Deferring:
    """A pump with output that is written when the other sockets of this turn have been read.

    A class and no Protocol: that is called by name, which costs a percent where the data path is compiled.
    """

    __slots__ = ()

    def turn_ended(self) -> None:
        """Write it, if that has not been done."""
        raise NotImplementedError


class Taps(Protocol):
    """Decides for each connection whether its requests are captured."""

    def tap(self, ip: str, listener: str) -> Tap | None:
        """Return what passes a connection's requests to the capture; None if they are not captured."""


class Shared:
    """The state of the process that all connections use. The read buffer is used within one callback and never kept.

    Attributes:
        ask: handles questions: clients' requests to which a channel cannot respond itself.
        broker_tls: TLS towards brokers; None for plaintext.
        dials: reports the brokers to which connecting fails.
        kept: counts and bounds the bytes that are kept in memory for peers.
        deferring: the pumps whose output waits for other reads of this turn of the loop.
        read_ns: when a pump last read in this turn, in ns; 0: none has.
        recorder: decides which connections are captured; None without capture.
        arrivals: sockets whose PROXY header or TLS handshake is not complete, and those that are being closed softly.
        worker: parses large frames in a thread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, engine: Engine, limits: LimitOptions, stats: Stats
    ) -> None:
        self.loop = loop
        self.engine = engine
        self.limits = limits
        self.stats = stats
        self.sessions = SessionTable(limits.sessions_max, limits.kept_bytes_max // _SESSIONS_SHARE)
        self.kept = Ledger(
            limits.kept_bytes_max,
            limits.kept_bytes_per_connection_max,
            limits.kept_bytes_per_address_max,
            self._tables_bytes,
        )
        stats.kept_bytes = lambda: self.kept.total
        self.pipes = Pipes(limits.pipes_max, stats)
        self.hangups = Hangups(loop)
        self.dials = Dials()
        self.ask: Ask = no_api
        self.handshakes = Handshakes(loop, stats)
        self.worker = Worker(loop)
        self.broker_tls: BrokerTls | None = None
        self.recorder: Taps | None = None
        self.arrivals: ByAddress[Arriving] = ByAddress()
        self.connection_rates = ConnectionRates(engine)
        self.waiting_room = WaitingRoom(loop, stats)
        self.buffer = bytearray(READ_BYTES_MAX)
        self.view = memoryview(self.buffer)  # a view of the buffer, for the sockets
        self.read_ns = 0
        self.deferring: list[Deferring] = []

    def defer(self, pump: Deferring) -> None:
        """Let a pump write when the other sockets of this turn have been read, or when enough pumps wait for that."""
        if not self.deferring:
            self.loop.call_soon(self._turn_ended)
        self.deferring.append(pump)
        if len(self.deferring) >= _DEFERRING_MAX:
            self.write_deferred()

    def write_deferred(self) -> None:
        """Let the pumps write that have deferred their output."""
        deferring, self.deferring = self.deferring, []
        for pump in deferring:
            pump.turn_ended()

    def _turn_ended(self) -> None:
        self.read_ns = 0  # the first read of a turn does not wait for others
        self.write_deferred()

    def _tables_bytes(self) -> int:
        """The bytes kept in tables of the process, for peers that are connected or not."""
        return self.sessions.kept_bytes + self.engine.kept_bytes + self.connection_rates.kept_bytes

    def close(self) -> None:
        """Close what the connections shared: pipes, watched descriptors, the thread."""
        for arrival in list(self.arrivals):
            arrival.close()
        self.waiting_room.close()
        self.worker.close()
        self.hangups.close()
        self.pipes.close()
