"""One client's connection with its broker connection: two pumps, one channel, at most one timer.

The broker connection is opened at the client's first request, so that a port scan, a TLS hello or a health check costs
the brokers nothing. Both connections end together, with one cause, which is counted once and logged once.
"""

import asyncio
import fcntl
import logging
import socket
import ssl
import struct
import termios
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Final

from protocol.errors import WireError
from proxy.channel import (
    AGAIN,
    ASKED,
    AT_BROKER,
    AT_CLIENT,
    IN_SLUICE,
    KEEP,
    REFUSE,
    UNASKED,
    UNREAD,
    WAIT,
    Channel,
    ChannelSettings,
    Condition,
    Forward,
    Job,
    Machine,
    PeerError,
    SharedResponse,
    Tap,
)
from proxy.config import LimitOptions
from proxy.net.kept import Account
from proxy.net.pump import Pump
from proxy.net.shared import READ_BYTES_MAX, Outcome, Shared, Withdraw
from proxy.net.sockets import BRIEF_SECONDS, LINGER_SECONDS, Stream, TlsSocket, close_softly
from proxy.net.upstream import Dial, NextRoute, Route
from proxy.system.clock import now_ms
from proxy.system.logs import event

logger = logging.getLogger(__name__)


# The end of a connection: names a socket's failure, counts unread bytes, and frees a channel's memory.

# The ordinary ends: not counted as errors and not logged.
QUIET_CAUSES: Final = frozenset(("client_closed", "broker_closed", "drained", "idle"))


_SOCKET_CAUSES: Final = (
    (ssl.SSLError, "tls"),
    (BrokenPipeError, "closed"),  # during a write
    (ConnectionResetError, "reset"),
    (OSError, "socket"),
)


def failure_of(error: Exception, peer: str) -> tuple[str, str]:
    """Return the cause under which a failed connection is counted, and a detail for its log line.

    Args:
        peer: "client" or "broker": the socket that has failed, if it is an error of a socket.
    """
    if isinstance(error, PeerError):
        return error.cause, error.detail
    if isinstance(error, WireError):
        return "malformed", str(error)
    for kind, name in _SOCKET_CAUSES:
        if isinstance(error, kind):
            return f"{peer}_{name}", str(error)
    logger.error("internal error: connection closed", exc_info=error)
    return "internal", type(error).__name__


def unread_bytes(sock: Stream) -> int:
    """Return the number of bytes in the socket that are not read yet."""
    buffer = fcntl.ioctl(sock.fileno(), termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", buffer)[0])


def free(loop: asyncio.AbstractEventLoop, rest: Iterator[None]) -> None:
    """Free a closed channel's memory in portions: advance `rest` once now, then once in each turn of the loop."""
    for _ in rest:
        loop.call_soon(free, loop, rest)
        return


# Checks that a connection makes progress: bytes move now and then, and a request under way has a minimum rate.

_BYTES_PER_SECOND_MIN: Final = 1024  # over limits.frame_seconds, no real network is this slow


@dataclass(slots=True, eq=False)
class Progress:
    """Decides at each sweep whether one connection is idle, or its client too slow, by its progress since the last.

    Attributes:
        active_ms: when bytes last moved, known to within one sweep.

    >>> progress = Progress(0)
    >>> progress.idle(60_000, 500, LimitOptions()), progress.idle(661_000, 500, LimitOptions())
    (False, True)
    """

    active_ms: int
    _bytes: int = field(init=False, default=0)
    # The partly read frame: since when, bytes then.
    _under_way: tuple[int, int] | None = field(init=False, default=None)

    def idle(self, now: int, moved: int, limits: LimitOptions) -> bool:
        """Whether no bytes have moved for `limits.idle_seconds`; `moved` is the sum of all bytes ever."""
        if moved != self._bytes:
            self.active_ms, self._bytes = now, moved
            return False
        return now - self.active_ms > limits.idle_seconds * 1000

    def between_frames(self) -> None:
        """Restart the measurement of `slow_ms`; call it when no request is partly read, or Sluice does not read on."""
        self._under_way = None

    def slow_ms(self, now: int, arrived: int, limits: LimitOptions) -> int:
        """Return how long the request that arrives has been too slow, in ms; 0 if it is fast enough.

        Too slow is less than 1 KiB/s, on average over more than `limits.frame_seconds`.

        Args:
            arrived: all bytes that have come from the client until now, also those that are not read yet.
        """
        if self._under_way is None:
            self._under_way = (now, arrived)
            return 0
        since_ms, before = self._under_way
        elapsed_ms = now - since_ms
        if elapsed_ms <= limits.frame_seconds * 1000:
            return 0
        if arrived - before < elapsed_ms * _BYTES_PER_SECOND_MIN / 1000:
            return elapsed_ms
        self._under_way = (now, arrived)  # earlier progress does not count for the next period
        return 0


# The wait of a connection that reads no requests: for a mute, a hold, too many owed responses, or its end.
#
# During the wait the client's input stays in its socket; its close is still detected (`proxy.net.shared`). A connection
# has at most one wait at a time.

MUTED: Final = "muted"  # KIP-219: until a time
HELD: Final = "held"  # a request before its slot: until a time
FULL: Final = "full"  # until responses have arrived
REFUSED: Final = "refused"  # until all owed responses are sent; then the connection ends


@dataclass(slots=True, eq=False)
class Wait:
    """The wait of one connection, while no requests are read from its client: a hold, a mute, or another pause.

    A hold keeps a request back until its quota allows it; a mute follows a throttled response (KIP-219).

    Args:
        descriptor: the descriptor of the client's socket.
        owner: the connection; `client_gone` is called if the client closes during the wait, `resume` at its end.

    Attributes:
        kind: MUTED, HELD, FULL (too many responses are owed), or REFUSED (the connection ends when all owed responses
            are sent); "" without a wait.
        held_ms, muted_ms: how long the holds and the mutes that have ended took in all, in ms.
    """

    shared: Shared
    descriptor: int
    owner: "Connection"
    held_ms: int = field(init=False, default=0)
    kind: str = field(init=False, default="")
    muted_ms: int = field(init=False, default=0)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)
    _since_ms: int = field(init=False, default=0)
    _until_ms: int = field(init=False, default=0)
    _held_bytes: int = field(init=False, default=0)

    def begin(self, kind: str, now: int, until_ms: int = 0, held_bytes: int = 0) -> None:
        """Begin a wait that ends at `until_ms`; with 0, when `end` is called.

        Args:
            kind: MUTED, HELD, FULL or REFUSED.
            held_bytes: the bytes of a held request that were already read.
        """
        self.kind = kind
        stats = self.shared.stats
        if kind == HELD:
            self._held_bytes = held_bytes
            stats.held += 1
            stats.held_bytes += held_bytes
        elif kind == MUTED:
            stats.muted += 1
        self._since_ms = now
        self._until_ms = until_ms
        self.shared.hangups.watch(self.descriptor, self.owner.client_gone)
        if until_ms:
            self._timer = self.shared.loop.call_later((until_ms - now) / 1000, self._time_is_over)

    def end(self) -> None:
        """End the wait; no effect without one."""
        if not self.kind:
            return
        stats = self.shared.stats
        if self.kind == HELD:
            stats.held -= 1
            held_ms = now_ms() - self._since_ms
            self.held_ms += held_ms
            stats.held_ms_total += held_ms
            stats.held_bytes -= self._held_bytes
        elif self.kind == MUTED:
            stats.muted -= 1
            self.muted_ms += now_ms() - self._since_ms
        self.kind = ""
        self.shared.hangups.unwatch(self.descriptor)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def running_ms(self, kind: str, now: int) -> int:
        """Return how long the present wait has lasted, in ms, if it is of this kind; else 0."""
        return max(0, now - self._since_ms) if self.kind == kind else 0

    def until_ms(self) -> int:
        """Return when the present hold or mute ends, in ms; 0 without one."""
        return self._until_ms if self.kind in (HELD, MUTED) else 0

    def _time_is_over(self) -> None:
        self._timer = None
        now = now_ms()
        if now < self._until_ms:  # the loop's timers are coarser than this clock: never early
            self._timer = self.shared.loop.call_later((self._until_ms - now) / 1000, self._time_is_over)
        else:
            self.owner.resume()


_COUNTED_STEP_BYTES: Final = 4096  # smaller changes of a channel's kept bytes are not counted at once
_UNMUTED_MAX: Final = 64  # kept requests, each muting anew, that pass in one step of a drain: well below 5 ms
_LINGER_MS: Final = 1000  # a drained client that does not close by itself is closed after this time


@dataclass(slots=True, eq=False)
class Connection:
    """One client's connection: the sockets to client and broker, a pump for each direction, and the pure channel.

    Args:
        client: the client's socket.
        peer: the client's address and port, for logs.
        route: the route to the broker.
        on_closed: called once, when both sockets are closed.
        next_route: returns the route to another broker, if the first cannot be reached and any broker will do.
        tap: where captured requests go; None if they are not captured.

    Attributes:
        closed: whether it has ended.
        waiting: its hold, mute or other wait.
        dial: the attempt to open the broker connection; None before and afterwards.
        work: functions that cancel work for it. The key is a pump, for a large frame that a thread parses, or the
            channel, for a question (a request that the application handles).
    """

    _client: Stream
    peer: str
    _route: Route
    settings: InitVar[ChannelSettings]
    _shared: Shared
    _on_closed: Callable[["Connection"], None]
    _next_route: NextRoute | None = None
    tap: InitVar[Tap | None] = None
    _account: Account = field(init=False)
    _address: str = field(init=False)
    _broker: Stream | None = field(init=False, default=None)
    _counted: int = field(init=False, default=0)  # the channel's kept bytes at the last count
    # Since when all responses are sent and the sending side is shut down (drain).
    _finished_ms: int = field(init=False, default=0)
    _ends_after_hold: bool = field(init=False, default=False)  # drain: the held request is the last one
    _progress: Progress = field(init=False)
    channel: Machine = field(init=False)
    closed: bool = field(init=False, default=False)
    dial: Dial | None = field(init=False, default=None)
    requests: Pump = field(init=False)
    responses: Pump = field(init=False)
    waiting: Wait = field(init=False)
    work: dict[object, Withdraw] = field(init=False, default_factory=dict)

    def __post_init__(self, settings: ChannelSettings, tap: Tap | None) -> None:
        shared, client = self._shared, self._client
        descriptor = client.fileno()  # one number in memory for all that keep it
        self.waiting = Wait(shared, descriptor, self)
        self._progress = Progress(now_ms())
        self._address = settings.address
        self._account = shared.kept.open(settings.address, self.close)
        self.channel = Channel(settings, shared.engine, shared.sessions, shared.stats, tap)
        encrypted = shared.broker_tls is not None or isinstance(client, TlsSocket)
        # Captured payloads must pass through the process.
        seen = encrypted or (tap is not None and tap.frames == KEEP)
        self.requests = Pump(self, shared, self.channel.requests, seen, 0 if seen else READ_BYTES_MAX)
        self.responses = Pump(self, shared, self.channel.responses, encrypted)
        self.responses.write_to(client, descriptor)
        self.requests.read_from(client, descriptor)

    @property
    def active_ms(self) -> int:
        """The time when bytes last moved, in ms, known to within one sweep."""
        return self._progress.active_ms

    # Events of the pumps.

    def signalled(self, pump: object) -> None:
        """Act on an event of a pump's direction: a question for the application, a local response, or a mute is due."""
        if self.closed:  # forwarding has ended the connection
            return
        shown = self.requests if pump is self.requests else self.responses
        question = shown.direction.take_signal()
        if question is not None:
            self.work[self.channel] = self._shared.ask(question._replace(peer=self.peer), self._question_done)
        self._act(pump)
        if self.channel.kept_bytes > self._counted + _COUNTED_STEP_BYTES:
            self._count_channel()

    def _act(self, pump: object) -> None:
        """Send local responses that are due, and begin a mute that has been ordered."""
        if pump is self.requests:
            self._send_local()
            return
        if self.waiting.kind:
            if self.waiting.kind == FULL:
                self.resume()
            elif self.waiting.kind == REFUSED:
                self._end_refused()
            return
        requests = self.requests
        if not (requests.paused or requests.blocked or requests.mid_frame):
            requests.show_kept()

    def _send_local(self) -> None:
        """Let the responses' direction insert a local response, if one is next."""
        responses = self.responses
        if not (responses.paused or responses.blocked or responses.direction.mid_frame()):
            responses.show_kept()

    def wait(self, pump: object, now: int) -> None:
        """Stop reading from the pump's source: its direction has ordered WAIT or REFUSE.

        WAIT lasts until a job in a thread, a hold or a mute has ended, or owed responses have arrived. After REFUSE the
        connection closes when all owed responses are sent. The client's close is noticed meanwhile.
        """
        if self.closed:
            return
        shown = self.requests if pump is self.requests else self.responses
        verdict = shown.direction.verdict
        if shown is self.responses or (verdict.job is not None and verdict.order == WAIT):
            self._pause_for(shown, verdict.job)
            return
        self.requests.paused = True
        self.requests.update_reading()
        if verdict.order == REFUSE:  # the client sends all of it again
            self.waiting.begin(REFUSED, now)
            self.channel.end_intake()
            self._end_refused()
        elif verdict.until_ms == 0:
            self.waiting.begin(FULL, now)
        elif verdict.held:
            self.waiting.begin(HELD, now, verdict.until_ms, self.requests.kept_bytes)
        else:
            self.waiting.begin(MUTED, now, verdict.until_ms)

    def _end_refused(self) -> None:
        """Close softly when all owed responses have been sent."""
        if self.channel.idle() and not self.responses.blocked:
            self.close("produce_refused", "over the quota for longer than a Produce may wait", softly=True)

    def next_turn(self, pump: object) -> None:
        """Continue with a pump's kept bytes in the next turn of the loop; nothing is read before."""
        if not self.closed:
            self._pause_for(self.requests if pump is self.requests else self.responses, AGAIN)

    def _pause_for(self, pump: Pump, job: Job | None) -> None:
        """Pause the pump until a job has run in the thread; AGAIN: until the next turn; None: it runs already."""
        pump.paused = True
        pump.update_reading()
        if job is AGAIN:
            self._shared.loop.call_soon(self._job_done, pump, True)
        elif job is not None:
            self.work[pump] = self._shared.worker.submit(
                self._address, job.kept_bytes, job.run, partial(self._job_done, pump)
            )
            self._count_channel()

    def _job_done(self, pump: Pump, done: bool) -> None:
        """Continue after a job; `done` is False if it was refused. The connection may be closed or muted by now."""
        if self.closed:
            return
        self.work.pop(pump, None)
        if not done:
            self.close("parser_overload", "too many large frames of this address are waiting to be parsed")
        elif pump is self.responses or not self.waiting.kind:
            pump.resume()
        elif self.waiting.kind == FULL:
            self.resume()

    def connect_destination(self) -> None:
        """Open the broker connection at the client's first request."""
        if self._broker is None and self.dial is None and not self.closed:
            self.dial = Dial(self._route, self._next_route, self._shared, self._broker_connected, self.close)
            self.dial.begin()

    def _broker_connected(self, broker: Stream, broker_id: int) -> None:
        """Start using the open broker connection."""
        self.dial = None
        self._broker = broker
        if broker_id != self._route.broker:
            self.channel.broker_changed(broker_id)
        self.responses.read_from(broker, descriptor := broker.fileno())
        self.requests.write_to(broker, descriptor)

    def ended(self, pump: object) -> None:
        """Handle the close of a pump's source, after all of its bytes were written.

        A broker's close ends the connection; a client's is passed on, so that the broker's responses still arrive.
        """
        if self.closed:
            return
        if pump is self.responses:
            if self.requests.at_end:  # a broker closes after a client's close, even if responses are owed
                self.close("client_closed")
            else:
                self.close("broker_closed" if self.channel.idle() else "broker_closed_early")
        elif self._broker is None:
            self.close("client_closed")
        elif self.requests.mid_frame:
            self.close("client_closed_mid_frame")
        else:
            try:
                self._broker.shutdown(socket.SHUT_WR)
            except OSError:
                self.close("client_closed")

    def kept_changed(self, change: int) -> None:
        """Count a change in the bytes that a pump keeps; above a bound this closes a connection, maybe this one."""
        if not self.closed:
            self._account.add(change)

    def failed(self, pump: object, error: Exception, *, writing: bool = False) -> None:
        """Close the connection after an error of a pump's source, or of its destination if `writing`."""
        self.close(*failure_of(error, "client" if (pump is self.requests) is not writing else "broker"))

    def _question_done(self, outcome: Outcome) -> None:
        """Take the outcome of a question; the connection may be closed by now."""
        if self.closed:
            return
        self.work.pop(self.channel, None)
        try:
            if isinstance(outcome, Exception):
                raise outcome
            self._apply(outcome)
        except Exception as error:  # noqa: BLE001 - the edge of a callback: it ends only this connection
            self.failed(self.requests, error)

    def _apply(self, outcome: bytes | bytearray | SharedResponse | Forward) -> None:
        """Pass an outcome to the channel, and read on."""
        self.channel.responded(outcome)
        if isinstance(outcome, Forward):
            if self.waiting.kind == FULL:
                self.resume()
            elif not self.waiting.kind:
                self.requests.show_kept()
            return
        self._send_local()
        self._count_channel()

    # Calls of the listener and the application.

    def reconsider(self) -> None:
        """Decide again on a held request or a mute, after quotas or the enforcement have changed."""
        if not self.closed and self.waiting.kind in (MUTED, HELD):
            self.channel.reconsider()
            self.resume()
        elif not self.waiting.kind:  # muted, but read because of acknowledgements
            self.channel.reconsider()

    def condition(self, now: int, *, time_requests: bool) -> Condition:
        """Return what the connection does now, for explanations; `time_requests`: as in `Machine.condition`."""
        waiting, found = self.waiting, self.channel.condition(now, time_requests=time_requests)
        return found._replace(
            activity=self._activity(found.owed),
            held_ms=waiting.held_ms + waiting.running_ms(HELD, now),
            muted_ms=waiting.muted_ms + waiting.running_ms(MUTED, now),
            waits_until_ms=waiting.until_ms(),
        )

    def _activity(self, owed: int) -> str:
        """Return what the connection does now, as one of the activities; during a hold or mute, whether a response
        is owed.
        """
        requests, responses = self.requests, self.responses
        if self.waiting.kind in (HELD, MUTED):
            return ASKED if owed else UNASKED
        if responses.blocked:
            return UNREAD
        if self.work:
            return IN_SLUICE
        if self.dial is not None or requests.blocked:
            return AT_BROKER
        arriving = requests.mid_frame
        if owed > arriving:  # of a request that arrives, one is owed as soon as its header is here
            return IN_SLUICE if _is_unread(responses) else ASKED
        if arriving:
            return AT_CLIENT
        if responses.mid_frame:
            return AT_BROKER
        return IN_SLUICE if _is_unread(requests) else UNASKED

    def sweep(self, now: int) -> None:
        """Close the connection if it is idle, or if connecting to the broker or a request takes too long.

        Called every second, with the time in ms.
        """
        if self.closed:
            return
        limits = self._shared.limits
        if self.dial is not None and self.dial.overdue(now):
            self.close("broker_unreachable", f"no connection within {limits.connect_seconds} s")
            return
        progress = self._progress
        if progress.idle(now, self.requests.bytes_total + self.responses.bytes_total, limits):
            self.close("idle")
            return
        if self.waiting.kind == REFUSED:
            self._end_refused()  # the client may not have read the last response before
        elif self.waiting.kind or self.requests.blocked or not self.requests.mid_frame:
            progress.between_frames()
        else:
            slow_ms = progress.slow_ms(now, self.requests.bytes_total + unread_bytes(self._client), limits)
            if slow_ms:
                self.close("slow_client", f"a request made almost no progress for {slow_ms // 1000} s")
                return
        self._count_channel()

    def _count_channel(self) -> None:
        """Count the channel's kept bytes once a second; over the budget this may close the connection."""
        if self.closed:
            return
        kept = self.channel.kept_bytes
        if kept != self._counted:
            change, self._counted = kept - self._counted, kept
            self._account.add(change)

    def drain(self, now: int) -> bool:
        """Advance the connection's shutdown: end mutes, read no further request, close if idle; return True if closed.

        Called repeatedly. A hold stays in force: the request is forwarded when it is over. When all responses are sent,
        the client is told by a shutdown of the sending side, and has a moment to close by itself.
        """
        if self.closed:
            return True
        if self.waiting.kind == HELD:
            self._ends_after_hold = True
            return False
        if self._ends_after_hold and not self.requests.blocked:
            self._end_after_hold()
        self.channel.reconsider(ending=True)
        self._end_mutes()
        if not self.waiting.kind and not self.requests.blocked:  # muted requests were forwarded
            self.channel.end_intake()
        if self._finished_ms:
            if now - self._finished_ms > _LINGER_MS:
                self.close("drained")
        elif self._drained():
            self._finished_ms = now
            try:
                self._client.shutdown(socket.SHUT_WR)
            except OSError:
                self.close("drained")
        return self.closed

    def _end_mutes(self) -> None:
        """End the mute, and those that kept requests begin while they pass, except where they are many."""
        for _ in range(_UNMUTED_MAX):
            if self.waiting.kind != MUTED:
                return
            self.resume()
            self.channel.reconsider(ending=True)

    def _drained(self) -> bool:
        """Whether all is sent; without a mute or a hold an idle channel's intake has ended."""
        if self.requests.blocked or self.responses.blocked or self.waiting.kind in (MUTED, HELD):
            return False
        return self.channel.idle()

    def close(self, cause: str, detail: str = "", *, softly: bool = False) -> None:
        """Close both sides; no effect after the first call.

        Args:
            cause: the label under which the end is counted and logged; those in QUIET_CAUSES are not.
            detail: a sentence for the log.
            softly: whether the client may first read what it was sent (`close_softly`).
        """
        if self.closed:
            return
        self.closed = True
        if self._finished_ms:  # regardless of the client's reaction
            cause = "drained"
        shared = self._shared
        if cause not in QUIET_CAUSES:
            shared.stats.errors[cause] += 1
            event(logger, logging.INFO, "connection ended", peer=self.peer, cause=cause, detail=detail)
        try:
            self._end(softly)
        finally:  # otherwise its kept bytes would be counted forever
            self._account.end()
            self._on_closed(self)

    def _end(self, softly: bool) -> None:
        """Release sockets, pipes and turns."""
        shared = self._shared
        self.waiting.end()
        while self.work:
            self.work.popitem()[1]()
        self.requests.close()
        self.responses.close()
        shared.stats.bytes_from_clients += self.requests.bytes_total
        shared.stats.bytes_from_brokers += self.responses.bytes_total
        if softly:
            acks_zero = self.requests.direction.verdict.acks_zero
            seconds = BRIEF_SECONDS if acks_zero else LINGER_SECONDS
            close_softly(self._client, shared, self.peer.rpartition(":")[0], seconds)
        else:
            self._client.close()
        if self.dial is not None:
            self.dial.cancel()
        if self._broker is not None:
            self._broker.close()
        free(shared.loop, self.channel.close(now_ms()))

    def resume(self) -> None:
        """End the wait, pass the kept bytes to the channel again, and read on."""
        self.waiting.end()
        if not self._ends_after_hold:
            self.requests.resume()
            return
        self.channel.end_intake(after_next=True)
        passes = (
            not self.requests.blocked
        )  # else it passes when earlier output has, and `drain` ends the intake then
        self.requests.resume()
        if passes:
            self._end_after_hold()

    def _end_after_hold(self) -> None:
        """Take no further request, now that the held one has passed; no effect if it is held again."""
        if not self.closed and self.waiting.kind != HELD:
            self._ends_after_hold = False
            self.channel.end_intake()

    def client_gone(self, reset: bool) -> None:
        """Close the connection, since the client has closed during a wait.

        The requests of a producer with acks=0 are delivered first, after the wait.

        Args:
            reset: whether the connection was reset; then nothing is delivered.
        """
        if self.waiting.kind == MUTED:
            self._shared.stats.client_closed_muted += 1
        if (
            self.waiting.kind != REFUSED
            and self.requests.direction.verdict.acks_zero
            and not reset
            and (self.requests.kept_bytes or self.requests.blocked or unread_bytes(self._client))
        ):
            return
        self.close("client_closed")


def _is_unread(pump: Pump) -> bool:
    """Whether bytes have arrived that the loop has not read yet, since it is late or other connections come first."""
    return pump.src is not None and unread_bytes(pump.src) > 0
