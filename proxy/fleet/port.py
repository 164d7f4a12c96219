"""The holder's port: asyncio streams around `quotas.sharing.lessor`.

The holder may share the event loop with traffic, so everything is bounded: connections, the bytes of a message and of
pending output, the time in which a message must arrive, and the rate of messages on one connection. If there are too
many connections, the oldest one without a member is closed; connections that have not proven that they have the secret
have a lower limit. Each member has one connection; a new one replaces the old. `Acceptor` bounds the handshakes.

A process that is not the holder refuses members, which then look for the holder. A holder whose tenure is not confirmed
in time stops by itself. A member whose process has ended is found by `ends`, and its shares are free at once.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from proxy.config import Address
from proxy.fleet.calls import Responding
from proxy.fleet.ends import ENDED_BY_PEER, Ends, Place, Sign, place_of
from proxy.fleet.facts import ENDED, LISTENS, PART, part_of_connection
from proxy.fleet.messages import (
    KEYS_SHOWN_MAX,
    Facts,
    Frames,
    Leave,
    Lost,
    MemberView,
    Message,
    MessageError,
    Question,
    Told,
    View,
    read,
    refusal,
    write,
)
from proxy.fleet.secret import FleetSecret
from proxy.metrics.fleet import FleetFigures
from proxy.system.errors import StartError, system_reason
from proxy.system.hosts import Context, handshake_problem
from proxy.system.logs import event
from quotas.sharing.lease_values import LesseeId, Report
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError

logger = logging.getLogger(__name__)


# The sockets of the holder's port: accepts connections, and carries out their TLS handshakes.
#
# The cost of a peer that is not authenticated yet is bounded: the rate of accepted connections, the number of
# handshakes under way, the time of each, and the bytes read ahead. A handshake uses the TLS context in force when it
# begins.


HANDSHAKES_MAX: Final = 64
HANDSHAKE_SECONDS_MAX: Final = 5.0
# A TLS handshake costs about a millisecond of the loop; 512 members that come at once are accepted within 3 s.
ACCEPT_GAP_SECONDS: Final = 0.005
READ_BYTES: Final = 16 * 1024
_BACKLOG: Final = 128
PAUSE_SECONDS: Final = 1.0
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.002, 0.05
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
Peer = tuple[str, int] | None
Refused = Callable[[str, Peer, str], None]
"""Called with the cause, the peer and the problem, when a connection has ended before it is served."""


class Acceptor:
    """Listens on one address, and bounds the handshakes of its connections.

    Args:
        serve: serves a connection until it ends.
        refused: called for each handshake that fails, or is cancelled since there are too many.
        tls: returns the TLS context in force; None for plaintext.
    """

    def __init__(self, serve: Serve, refused: Refused, tls: Context | None) -> None:
        self._serve = serve
        self._refused = refused
        self._tls = tls
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._handshakes: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._exhausted = False

    async def start(self, bind: Address) -> Address:
        """Bind the port and accept until `stop`; return what was bound.

        Raises:
            StartError: the port cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            kind = socket.SOCK_STREAM
            found = await loop.getaddrinfo(bind.host, bind.port, type=kind, flags=socket.AI_PASSIVE)
            for family, *_, address in dict.fromkeys(found):
                sock = _listen(family, address)
                if sock is not None:
                    self._listening.append(sock)
            if not self._listening:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        except OSError as error:
            self._stop_listening()
            raise StartError(f"fleet.bind: {bind}: {system_reason(error)}") from None
        self._accepting = [loop.create_task(self._accept(one)) for one in self._listening]
        return Address(*self._listening[0].getsockname()[:2])

    async def stop(self) -> None:
        """Stop listening, and close connections that are not served yet."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)
        self._stop_listening()

    async def ended(self) -> None:
        """Wait until no connection is served any more."""
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _stop_listening(self) -> None:
        for one in self._listening:
            one.close()
        self._listening.clear()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock = await accepted_from(listening)
            except OSError as error:  # the peer is gone already, or this process has no descriptor left
                await self._pause(error)
                continue
            self._exhausted = False
            task = loop.create_task(self._open(sock))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            await asyncio.sleep(ACCEPT_GAP_SECONDS)

    async def _pause(self, error: OSError) -> None:
        if error.errno not in _EXHAUSTED:
            await asyncio.sleep(ACCEPT_GAP_SECONDS)
            return
        if not self._exhausted:
            self._exhausted = True
            event(
                logger, logging.ERROR, "the fleet's port accepts no connection", detail=system_reason(error)
            )
        await asyncio.sleep(PAUSE_SECONDS)

    async def _open(self, sock: socket.socket) -> None:
        """Do the TLS handshake of a connection, and serve it."""
        task = asyncio.current_task()
        assert task is not None, "called as a task"
        peer = _peer_of(sock)
        if len(self._handshakes) >= HANDSHAKES_MAX:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
            self._refused("connections_max", peer, "too many handshakes at a time: the oldest one has ended")
        self._handshakes[task] = None
        try:
            if self._tls is not None and not await _begins(sock):
                return  # a holder looks in this way whether this process runs (`proxy.fleet.ends`)
            reader, writer = await self._stream(sock)
        except TimeoutError:
            self._refused("tls", peer, f"no TLS handshake within {HANDSHAKE_SECONDS_MAX:g} s")
            return
        except OSError as error:
            self._refused("tls", peer, handshake_problem(error))
            return
        except asyncio.CancelledError:
            sock.close()
            raise
        finally:
            self._handshakes.pop(task, None)
        await self._serve(reader, writer)

    async def _stream(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
            context = None if self._tls is None else self._tls()
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=context)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _begins(sock: socket.socket) -> bool:
    """Whether the peer sends anything; if it does not, the socket is closed.

    Looks again and again, since a socket that was given to the loop cannot be given to another transport.

    Raises:
        TimeoutError: it neither sends anything nor closes the connection.
    """
    pause, begins = _LOOK_SECONDS_MIN, False
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
            while True:
                try:
                    begins = bool(sock.recv(1, socket.MSG_PEEK))
                except BlockingIOError:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LOOK_SECONDS_MAX)
                except ConnectionError:
                    return False
                else:
                    return begins
    finally:
        if not begins:
            sock.close()


async def accepted_from(listening: socket.socket) -> socket.socket:
    """Accept the next connection; return its socket.

    Not by `sock_accept`, which loses a connection that it has accepted when it is cancelled.
    """
    loop = asyncio.get_running_loop()
    while True:
        with suppress(BlockingIOError):
            sock, _ = listening.accept()
            sock.setblocking(False)
            return sock
        readable = loop.create_future()
        loop.add_reader(listening, _set, readable)
        try:
            await readable
        finally:
            loop.remove_reader(listening)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _listen(family: int, address: Any) -> socket.socket | None:
    """Listen on one address; None if this machine has no addresses of that family."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _peer_of(sock: socket.socket) -> Peer:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:  # it has gone again
        return None
    return host, port


# Refused connections at the holder's port: all are counted, few are logged.
#
# A refused member connects again every two seconds, and a hostile process at any rate.


AGAIN_MS: Final = 600_000
KNOWN_MAX: Final = 256
_ORDINARY: Final = "not_holder"  # members look for the holder


class Refusals:
    """Counts refused connections, and logs some: one of each cause and host in ten minutes, at most KNOWN_MAX.

    Args:
        figures: the counters of all refusals.
        now_ms: the clock, in ms.
    """

    def __init__(self, figures: FleetFigures, now_ms: Callable[[], int]) -> None:
        self._figures = figures
        self._now_ms = now_ms
        self._said_ms: dict[tuple[str, str], int] = {}  # the oldest first

    def note(self, cause: str, peer: tuple[str, int] | None, problem: str, member: str = "") -> None:
        """Count a refusal, and log it unless the same cause and host were logged in the last ten minutes.

        Args:
            cause: one word, for the counter.
            peer: host and port; None if they are not known any more.
            problem: a sentence for the operator.
            member: the member's name; "" if it is not known.
        """
        self._figures.received[cause] += 1
        now_ms, said = self._now_ms(), self._said_ms
        while said and now_ms - next(iter(said.values())) >= AGAIN_MS:
            del said[next(iter(said))]
        host = "unknown" if peer is None else peer[0]
        if (cause, host) in said or len(said) >= KNOWN_MAX:
            return
        said[cause, host] = now_ms
        event(
            logger,
            logging.INFO if cause == _ORDINARY else logging.WARNING,
            "fleet member refused",
            peer="unknown" if peer is None else f"{peer[0]}:{peer[1]}",
            member=member,
            cause=cause,
            problem=problem,
        )


HELLO_SECONDS_MAX: Final = 5.0
_WRITE_SECONDS_MAX: Final = 5.0
_CONNECTIONS_A_MEMBER: Final = 4  # twice as many lessees as members, each with an old connection
_CONNECTIONS_MORE: Final = 8  # without a report yet
UNPROVEN_MAX: Final = 64
_GAP_SECONDS: Final = 0.01  # between two messages of one connection
# Reports that arrive within this time get their grants together. It is longer with more members: a changed demand of
# each changes the shares of all, so the number of messages would grow with the square of the members.
_FLUSH_SECONDS: Final = 0.01
_FLUSH_SECONDS_A_MEMBER: Final = 0.002
_FLUSH_SECONDS_MAX: Final = 0.2
# While capacities of many classes are divided, some ms at a time: a quarter of the time at most.
_DIVIDE_SECONDS: Final = 0.02
_TICK_SECONDS: Final = 0.1
VIEW_SECONDS: Final = 2.0
_UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024


class _RefusedError(Exception):
    """The connection is refused.

    Args:
        cause: one word, for a counter.
        problem: a sentence for the member's operator.
    """

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause


class _Link:
    """A member's connection to the holder's port."""

    def __init__(self, writer: asyncio.StreamWriter, frames: Frames, seat: "Seat") -> None:
        self.writer = writer
        self.frames = frames
        self.seat = seat
        self.lessee: LesseeId | None = None
        self.facts: Facts = {}
        self.place: Place | None = None  # where it listens
        self.closed = False  # by this side

    def send(self, message: bytes) -> None:
        """Send a message; a member that does not read loses its connection."""
        if self.writer.is_closing():
            return
        self.writer.write(self.frames.write(message))
        if self.writer.transport.get_write_buffer_size() > _UNSENT_BYTES_MAX:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once; what was not sent is lost."""
        self.closed = True
        self.writer.transport.abort()


class Seat:
    """Serves members for one part of the keys, while this process is the holder of that part.

    Args:
        part: the number of the part.
        now_ms: the clock of leases, in ms.

    Attributes:
        lessor: divides the quotas among the members; None while this process is not the holder.
        enlists: called with the number and the lessees of each new roster (list of lessees), to be written down for the
            next holder; None without a group.
    """

    def __init__(self, part: int, now_ms: Callable[[], int], figures: FleetFigures) -> None:
        self._part = part
        self._now_ms = now_ms
        self._figures = figures
        self.lessor: Lessor | None = None
        self._tenures = 0
        self.enlists: Callable[[int, frozenset[int] | None], object] | None = None
        self._enlisted = -1  # the number of the last roster
        self._ends = Ends(self._has_ended)
        self._tenure_ms: int | None = None
        self._confirmed_ms = 0
        self._members: dict[LesseeId, _Link] = {}
        self._first_ms: dict[LesseeId, int] = {}
        self._last_ms: dict[LesseeId, int] = {}
        self._flush_handle: asyncio.TimerHandle | None = None

    @property
    def _said(self) -> dict[str, int]:
        """What log lines say of the part; nothing of the first one, which is the only one of most fleets."""
        return {"part": self._part} if self._part else {}

    @property
    def tenure(self) -> int:
        """The number of this process's present time as the holder, counted from 1; 0 if it is not. Thread-safe."""
        over = self._tenure_ms is not None and self._now_ms() >= self._confirmed_ms + self._tenure_ms
        return 0 if self.lessor is None or over else self._tenures

    def lead(self, lessor: Lessor, tenure_ms: int | None = None) -> None:
        """Become the holder: members are served from now on.

        Args:
            lessor: a new one, which divides the quotas among the members.
            tenure_ms: how long in ms this process remains the holder without `confirm`; None: until `retire`.
        """
        now_ms = self._now_ms()
        if self.lessor is None:
            self._figures.parts += 1
        self.lessor, self._tenure_ms, self._enlisted = lessor, tenure_ms, -1
        self._figures.holds = self._figures.holds or not self._part
        self._tenures += 1
        if tenure_ms is not None:
            self.confirm(now_ms)
        event(
            logger,
            logging.INFO,
            "this member is the holder of the fleet now",
            **self._said,
            learning_seconds_max=lessor.lasting_ms(now_ms) / 1000,
        )

    def confirm(self, at_ms: int) -> None:
        """Extend the tenure: this process was still the holder at `at_ms`."""
        self._confirmed_ms = at_ms
        if self.lessor is not None:
            self.lessor.confirm(at_ms)

    def lasting_ms(self) -> int | None:
        """How long leases of this holder, or earlier ones, may still last, in ms; None if this is not the holder."""
        lessor = self.leading()
        return None if lessor is None else lessor.lasting_ms(self._now_ms())

    def retire(self, problem: str) -> None:
        """Stop being the holder: refuse members from now on, with `problem`, a sentence, as the reason."""
        if self.lessor is None:
            return
        self.lessor = None
        self._figures.parts -= 1
        if not self._part:
            self._figures.holds, self._figures.members = False, 0
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        event(
            logger,
            logging.INFO,
            "this member is no longer the holder of the fleet",
            **self._said,
            detail=problem,
        )
        refused = write(refusal("not_holder", problem))
        for link in self._members.values():
            link.send(refused)
            link.closed = True
            link.writer.close()
        self._ends.keep(set())
        for known in (self._members, self._first_ms, self._last_ms):
            known.clear()

    def view(self) -> View | None:
        """Return the fleet as this holder sees it; None if this process is not the holder."""
        lessor, now_ms = self.lessor, self._now_ms()
        if lessor is None:
            return None
        lessees = lessor.lessees
        members = tuple(
            MemberView(
                lessee,
                now_ms - self._last_ms.get(lessee, now_ms),
                (now_ms - self._first_ms.get(lessee, now_ms)) // 1000,
                self._members[lessee].facts if lessee in self._members else {},
            )
            for lessee in lessees
        )
        shares = []
        for key in sorted(lessor.keys)[:KEYS_SHOWN_MAX]:
            parts = lessor.shares(key)
            shares.append((key, tuple(min(1.0, parts.get(lessee, 0.0)) for lessee in lessees)))
        return View(lessor.learning(now_ms), members, tuple(shares))

    def disconnected(self, link: _Link, lessee: LesseeId, *, by_peer: bool) -> None:
        """Register that a member's connection has ended; `by_peer`: its own side has closed it."""
        if self._members.get(lessee) is not link:
            return
        del self._members[lessee]
        if by_peer and not link.closed:
            self._ends.closed(lessee)

    def left(self, lessee: LesseeId) -> None:
        """Free the shares of a member that says that it no longer uses them."""
        if self.lessor is not None:
            self._ends.forget(lessee)
            self.lessor.leave(lessee)
            self._figures.received["left"] += 1
            self._flush_soon()

    def tick(self, *, views: bool) -> None:
        """Send the grants that are due; if `views`, forget members that are gone, and send the first part's view."""
        if self._flush_handle is None:
            self._flush()
        if views and self.lessor is not None:
            self._forget_gone(self.lessor)
            if not self._part:
                self._send_views()

    def _has_ended(self, lessee: LesseeId, sign: Sign) -> None:
        """Register that a member's process has ended: its shares become free GONE_MS later.

        By then none of its workers can use them. Counts `sign`, how the end was noticed, and logs an event.
        """
        if self.lessor is None:
            return
        self.lessor.ended(lessee.run, self._now_ms())
        self._figures.ended[sign] += 1
        event(
            logger,
            logging.WARNING,
            "a member of the fleet has ended: its shares are free",
            member=lessee.name,
            sign=sign,
        )

    def report(self, link: _Link, report: Report) -> None:
        """Take a member's report.

        Raises:
            MessageError: it is of another member than those before.
        """
        lessor, now_ms = self.leading(), self._now_ms()
        if lessor is None:
            raise _RefusedError("not_holder", "this process is not the holder of the fleet")
        lessee = report.lessee
        if link.lessee is None:
            before = self._members.get(lessee)
            if before is not None:
                before.abort()
            link.lessee = lessee
            self._members[lessee] = link
            self.told(link, lessee)
        elif link.lessee != lessee:
            raise MessageError(f"a report of {lessee.name!r} on the connection of {link.lessee.name!r}")
        try:
            lessor.report(report, now_ms)
        except LeaseRefusedError as error:
            problem = f"{error}, which is twice fleet.members_max = {lessor.terms.lessees_max}"
            raise _RefusedError(error.cause, problem) from None
        except SessionLostError as error:
            self._figures.received["lost"] += 1
            link.send(write(Lost(str(error))))
            return
        self._figures.received["granted"] += 1
        self._first_ms.setdefault(lessee, now_ms)
        self._last_ms[lessee] = now_ms
        self._flush_soon()

    def told(self, link: _Link, lessee: LesseeId) -> None:
        """Apply a member's facts: where it listens, and which holders it has seen end."""
        self._ends.connected(lessee, link.place)
        if self.lessor is not None:
            for run in link.facts.get(ENDED, "").split():
                with suppress(ValueError):
                    self.lessor.ended(int(run, 16), self._now_ms())

    def leading(self) -> Lessor | None:
        """Return the lessor if this process is the holder and its tenure has not ended; else None."""
        if self._tenure_ms is not None and self._now_ms() >= self._confirmed_ms + self._tenure_ms:
            self.retire("Kafka has not confirmed this holder in time")
        return self.lessor

    def _flush_soon(self) -> None:
        if self._flush_handle is None:
            seconds = min(len(self._members) * _FLUSH_SECONDS_A_MEMBER, _FLUSH_SECONDS_MAX)
            loop = asyncio.get_running_loop()
            self._flush_handle = loop.call_later(max(seconds, _FLUSH_SECONDS), self._flush)

    def _flush(self) -> None:
        """Send all grants that are due, and pass on a changed roster."""
        self._flush_handle = None
        lessor = self.leading()
        if lessor is None:
            return
        for lessee, grants in lessor.grants(self._now_ms()):
            link = self._members.get(lessee)
            if link is not None:
                link.send(write(grants))
        if lessor.dividing:
            self._flush_handle = asyncio.get_running_loop().call_later(_DIVIDE_SECONDS, self._flush)
        if not self._part:
            self._figures.members = len(lessor.lessees)
        number, lessees = lessor.roster()
        if self.enlists is not None and number != self._enlisted:
            self._enlisted = number
            self.enlists(number, lessees)

    def _forget_gone(self, lessor: Lessor) -> None:
        present = set(lessor.lessees)
        self._ends.keep(present)
        for known in (self._first_ms, self._last_ms):
            for lessee in known.keys() - present:
                del known[lessee]

    def _send_views(self) -> None:
        view = self.view()
        if view is None:
            return
        message = write(view)
        for link in self._members.values():
            link.send(message)


class HolderPort(Seat):
    """The port at which members reach this process; it is also the seat of the first part of the keys.

    Args:
        members_max: the largest number of members; may be set at any time.
        secret: the fleet's secret.
        now_ms: the clock of leases, in ms.
        tls: returns the TLS context of the port; None for plaintext.
        parts: the number of parts.

    Attributes:
        seats: this process as the holder of each part.
        responding: handles members' requests that are not about shares.
    """

    def __init__(
        self,
        members_max: int,
        secret: FleetSecret,
        now_ms: Callable[[], int],
        figures: FleetFigures,
        tls: Context | None = None,
        parts: int = 1,
    ) -> None:
        super().__init__(0, now_ms, figures)
        self.seats: list[Seat] = [self, *(Seat(part, now_ms, figures) for part in range(1, parts))]
        self.members_max = members_max
        self._secret = secret
        self.responding = Responding()
        self._links: dict[asyncio.StreamWriter, _Link | None] = {}
        self._refusals = Refusals(figures, now_ms)
        self._unproven: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._acceptor = Acceptor(self._serve, self._refusals.note, tls)

    async def start(self, bind: Address) -> Address:
        """Bind the port and serve until `close`; return what was bound.

        Raises:
            StartError: the port cannot be bound, or the secret cannot be read.
        """
        try:
            await self._secret.read()
        except OSError as error:
            raise StartError(f"fleet.bind: {bind}: {system_reason(error)}") from None
        return await self._acceptor.start(bind)

    async def run(self) -> None:
        """Send at intervals the grants that are due, and the view, until cancelled."""
        views_due = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            views = loop.time() >= views_due
            if views:
                views_due = loop.time() + VIEW_SECONDS
            for seat in self.seats:
                seat.tick(views=views)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        for seat in self.seats:
            seat.retire("the holder has ended")
        await self._acceptor.stop()
        await self.responding.close()
        await asyncio.sleep(0)  # refusals leave first
        for writer in list(self._links):
            writer.transport.abort()
        await self._acceptor.ended()  # they meet their ends at once

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._make_room(writer):
            return
        self._links[writer] = self._unproven[writer] = None
        by_peer = False
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            by_peer = isinstance(error, ENDED_BY_PEER)  # unless it has ended, its member connects again
        except Exception:  # the edge of a connection: one member must not end the holder
            logger.exception("a connection at the fleet port failed")
        finally:
            self._unproven.pop(writer, None)
            link = self._links.pop(writer, None)
            if link is not None and link.lessee is not None:
                link.seat.disconnected(link, link.lessee, by_peer=by_peer)
            writer.close()

    def _make_room(self, writer: asyncio.StreamWriter) -> bool:
        """Close the oldest connection that may be closed, if there are too many; returns False if that is this one."""
        held = sum(seat.lessor is not None for seat in self.seats)
        most = _CONNECTIONS_A_MEMBER * self.members_max * max(1, held) + _CONNECTIONS_MORE
        if len(self._unproven) >= UNPROVEN_MAX:
            last = next(iter(self._unproven))
        elif len(self._links) >= most:
            idle = (one for one, link in self._links.items() if link is None or link.lessee is None)
            last = next(idle, writer)
        else:
            return True
        self._figures.received["connections_max"] += 1
        self._links.pop(last, None)
        self._unproven.pop(last, None)
        last.transport.abort()
        return last is not writer

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames(await self._secret.read(), holder=True)
        link: _Link | None = None
        try:
            writer.write(frames.hello())
            async with asyncio.timeout(HELLO_SECONDS_MAX):
                while not frames.proven:
                    await frames.receive(reader)
            writer.write(frames.proof())
            self._unproven.pop(writer, None)
            link = self._links[writer] = _Link(writer, frames, self)
            while True:
                lessor = link.seat.lessor
                lease_ms = 0 if lessor is None else lessor.terms.lease_ms
                async with asyncio.timeout(max(HELLO_SECONDS_MAX, lease_ms / 1000)):
                    message = await frames.receive(reader)
                    await writer.drain()
                if not self._take(link, read(message)):
                    return
                await asyncio.sleep(_GAP_SECONDS)
        except (MessageError, _RefusedError) as error:
            if frames.greeted and not frames.proven:
                writer.write(frames.no_proof())
            await self._refuse(writer, link, error.cause, str(error))

    def _take(self, link: _Link, message: Message) -> bool:
        """Handle a member's message; returns whether another may follow."""
        if isinstance(message, Report):
            if link.lessee is None:
                link.seat = self._seat_of(link.facts.get(PART))
            link.seat.report(link, message)
        elif isinstance(message, Told):
            link.facts, link.place = message.facts, place_of(link.writer, message.facts.get(LISTENS))
            if link.lessee is not None:
                link.seat.told(link, link.lessee)
        elif isinstance(message, Question):
            if link.lessee is None or link.seat.leading() is None:
                raise _RefusedError("not_holder", "this process is not the holder of the fleet")
            self.responding.take(message, lambda response: link.send(write(response)))
        elif isinstance(message, Leave):
            if link.lessee is not None:
                link.seat.left(link.lessee)
            return False
        else:
            raise MessageError(f"a member sends no {type(message).__name__.lower()}")
        return True

    def _seat_of(self, part: str | None) -> Seat:
        """Return the seat of the part that a member's facts name; None: it has one part."""
        parts = len(self.seats)
        for number, seat in enumerate(self.seats):
            if part == part_of_connection(number, parts).get(PART):
                return seat
        asked = "all keys" if part is None else f"part {part}"
        raise _RefusedError(
            "parts", f"{asked} asked for: fleet.parts is {parts} here, and must be the same in all members"
        )

    async def _refuse(
        self, writer: asyncio.StreamWriter, link: _Link | None, cause: str, problem: str
    ) -> None:
        name = "" if link is None or link.lessee is None else link.lessee.name
        peername = writer.get_extra_info("peername")
        self._refusals.note(cause, peername and peername[:2], problem, name)
        if link is not None:
            link.send(write(refusal(cause, problem)))
        with suppress(TimeoutError):
            async with asyncio.timeout(_WRITE_SECONDS_MAX):
                await writer.drain()
