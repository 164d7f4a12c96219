"""A member's connection to the holder: sends reports and takes grants (`quotas.sharing.lessee` applies them).

While the holder cannot be reached, the client only retries; leases end by themselves. If the holder's process has ended
(`ends`), the group is told, so that it chooses another one at once. One line is logged for each
reason why the holder cannot be reached, until there is a lease again; one when this member is cut off, and one when it
has a lease again.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from proxy.config import Address
from proxy.fleet.calls import Asking, NoResponseError
from proxy.fleet.ends import ENDED_BY_PEER, PAUSES_SECONDS, Place, refuses
from proxy.fleet.facts import Disagreements
from proxy.fleet.messages import (
    Facts,
    Frames,
    Leave,
    Lost,
    MessageError,
    Refusal,
    Response,
    View,
    read,
    sendable,
    told,
    write,
)
from proxy.fleet.secret import FleetSecret
from proxy.metrics.fleet import FleetFigures
from proxy.system.errors import reason
from proxy.system.hosts import Context, handshake_problem
from proxy.system.logs import event
from quotas.sharing.lease_values import DEFAULT_KEY, Grants
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Leasing

_TICK_SECONDS: Final = 0.1
_PARTS_TICK_SECONDS: Final = 0.25  # of each of many connections
_FEW_PARTS: Final = 8
_CONNECT_SECONDS_MAX: Final = 3.0
# The holder responds to each report, and there is at least one a second.
SILENCE_SECONDS_MAX: Final = 4.0
PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
_UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
_LOOKS: Final = 4  # whether the holder has ended; then this member connects again
_KINDS_MAX: Final = 16  # some are the holder's words
_READ_BYTES: Final = 256 * 1024
NO_HOLDER: Final = "no holder of the fleet is known"
NO_HELLO: Final = (
    "the holder has closed the connection before its hello; does it have [fleet.tls], and this member none?"
)
NOT_ASKED: Final = "the holder has not been asked yet"

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """The holder has refused this member: the message and `cause` are those of its `Refusal`."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.problem)
        self.cause = refusal.cause


class _End(NamedTuple):
    """The reason why a connection has ended.

    Args:
        kind: one word; each is logged once.
        problem: a sentence.
    """

    kind: str
    problem: str


class FleetClient:
    """One member's connection to the holder, opened again whenever it ends.

    Args:
        lessee: this member's side of the lease from the holder.
        leasing: applies grants to the quotas of this process and its workers, and makes the reports.
        holder: returns the holder's address now; None if no holder is known.
        now_ms: the monotonic clock in ms with which leases are timed.
        facts: returns the settings and addresses that this member tells the others (`facts`).
        tls: returns the TLS context towards the holder; None for plaintext.
        part: the part of the keys whose holder this is, and the number of parts.

    Attributes:
        problem: why the holder is not reached; "" while it is.
        view: the last description of the fleet that the holder has sent; None before the first.
        view_ms: when that view came, by `now_ms`.
        disagreements: the settings in which members differ, found by comparing these views.
        holder_ended: called when the holder's process has ended, with its address and its run (the random number that
            identifies a process from its start to its end).
    """

    def __init__(
        self,
        lessee: Lessee,
        leasing: Leasing,
        holder: Callable[[], Address | None],
        secret: FleetSecret,
        now_ms: Callable[[], int],
        facts: Callable[[], Facts],
        figures: FleetFigures,
        tls: Context | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self._part, parts = part
        self._tick_seconds = _TICK_SECONDS if parts <= _FEW_PARTS else _PARTS_TICK_SECONDS
        self._lessee = lessee
        self._leasing = leasing
        self._holder = holder
        self._secret = secret
        self._now_ms = now_ms
        self._facts = facts
        self._figures = figures
        self._tls = tls
        self._link: tuple[asyncio.StreamWriter, Frames] | None = None
        self.holder_ended: Callable[[Address, int], object] = _ignore
        self._grants = 0  # taken; the figures count those of all parts
        self._granted: tuple[Place, int] | None = None  # where the holder is that has granted, and its run
        # The same of one that has closed the connection, until it grants again, or there is another holder.
        self._suspected: tuple[Address, Place, int] | None = None
        self._left = False
        self._told: Facts | None = None
        self.problem = NOT_ASKED
        self.view: View | None = None
        self.view_ms = 0
        self.disagreements = Disagreements()
        self._state = ""  # the one that was logged last
        self._said: set[str] = set()  # kinds of problems, since the last lease
        self._asking = Asking()

    async def run(self) -> None:
        """Connect to the holder, exchange reports and grants, and connect again after each loss, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._connect_forever())

    def leave(self) -> None:
        """Tell the holder that this process no longer uses its shares, and close the connection for good."""
        self._left = True
        if self._link is not None:
            writer, frames = self._link
            if not writer.is_closing():
                writer.write(frames.write(write(Leave())))
                writer.close()
        self._link = None

    async def ask(self, content: bytes, seconds: float) -> bytes:
        """Send the holder a request that is not about shares (`calls`); return the content of the response.

        Raises:
            NoResponseError: there is no connection, or no response within `seconds`.
        """
        link = self._link
        if link is None or self._told is None or link[0].is_closing():
            problem = self.problem or "the connection to the holder is being opened"
            raise NoResponseError(problem, sent=False)
        writer, frames = link
        return await self._asking.ask(
            content, lambda question: writer.write(frames.write(write(question))), seconds
        )

    async def _watch(self) -> None:
        """End the lease when it is over, even if no message arrives; log changes of the state."""
        while True:
            if self._link is None:
                self._leasing.report(self._now_ms())  # without a connection it is not sent
            self._log_state()
            await asyncio.sleep(self._tick_seconds)

    async def _connect_forever(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while not self._left:
            holder, granted = self._holder(), False
            end: _End | None = _End("no_holder", NO_HOLDER)
            if holder is not None:
                before = self._grants
                end = await self._attempt(holder)
                granted = self._grants > before
            if end is not None and not self._left:
                self._log_lost(holder, end)
            pause = PAUSE_SECONDS_MIN if granted or end is None else min(2 * pause, PAUSE_SECONDS_MAX)
            if await self._pause(holder, pause * random.uniform(0.5, 1)):  # not all members at once
                pause = PAUSE_SECONDS_MIN

    async def _pause(self, holder: Address | None, seconds: float) -> bool:
        """Wait for `seconds`, or until there is another holder; returns whether there is."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._holder() == holder and (left := end - loop.time()) > 0:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(min(left, _TICK_SECONDS))
        return self._holder() != holder

    async def _look_for_end(self, holder: Address) -> None:
        """Find out whether the holder has ended: its side has closed the connection on which it had granted.

        A process that is killed on a busy machine may keep its port for some time, so this member also looks after each
        later attempt to connect.
        """
        if self._suspected is None:
            return
        suspected, place, run = self._suspected
        if suspected != holder:
            self._suspected = None
            return
        for pause in PAUSES_SECONDS[:_LOOKS]:
            await asyncio.sleep(pause)
            refused = None if self._left else await refuses(place)
            if refused:
                self._suspected = None
                self._figures.ended["holder"] += 1
                event(logger, logging.WARNING, "the holder of the fleet has ended", holder=str(holder))
                self.holder_ended(holder, run)
            if refused is not False:
                return

    async def _attempt(self, holder: Address) -> _End | None:
        """Connect and exchange messages; return why the connection has ended, None if the holder has changed."""
        try:
            await self._converse(holder)
        except RefusedError as error:
            self._figures.reports["refused"] += 1
            return _End(error.cause, str(error))
        except (OSError, TimeoutError, MessageError, asyncio.IncompleteReadError) as error:
            self._figures.reports["failed"] += 1
            if self._granted is not None and isinstance(error, ENDED_BY_PEER):
                self._suspected = (holder, *self._granted)
            await self._look_for_end(holder)
            return _end(error)
        finally:
            self._granted = None
            self._lessee.lose()
        return None

    async def _converse(self, holder: Address) -> None:
        frames = Frames(await self._secret.read(), holder=False)
        async with asyncio.timeout(_CONNECT_SECONDS_MAX):
            context = None if self._tls is None else self._tls()
            reader, writer = await asyncio.open_connection(
                holder.host, holder.port, limit=_READ_BYTES, ssl=context
            )
        reading: asyncio.Task[None] | None = None
        try:
            writer.write(frames.hello())
            await self._greet(frames, reader, writer)
            if self._left:
                return
            self._link, self._told = (writer, frames), None
            self._lessee.lose()  # so that a report is due
            self.send_due()
            peer = writer.get_extra_info("peername")[:2]
            reading = asyncio.get_running_loop().create_task(self._read(reader, frames, peer))
            while self._holder() == holder and not self._left:
                await asyncio.wait({reading}, timeout=self._tick_seconds)
                if reading.done():
                    reading.result()
                self.send_due()
        finally:
            self._link = None
            self._asking.lose()
            if reading is not None:
                reading.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await reading
            with suppress(OSError):
                writer.transport.abort()

    async def _greet(
        self, frames: Frames, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Read the holder's hello, and exchange proofs of the secret."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                await frames.receive(reader)
                writer.write(frames.proof())
                await frames.receive(reader)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if self._tls is None and not frames.greeted:
                raise ConnectionResetError(NO_HELLO) from error
            raise

    def send_due(self) -> None:
        """Send this member's facts if they have changed, and a report if one is due; nothing without a connection.

        Raises:
            OSError: the connection has ended, or too much waits to be sent because the holder does not read.
        """
        if self._link is None:
            return
        writer, frames = self._link
        if writer.is_closing():  # uvloop raises its own error for a write then
            raise ConnectionResetError("the connection has ended")
        if writer.transport.get_write_buffer_size() > _UNSENT_BYTES_MAX:
            raise ConnectionAbortedError("the holder does not read")
        facts = self._facts()
        if facts != self._told:
            self._told = facts
            writer.write(frames.write(write(told(facts))))
        report = self._leasing.report(self._now_ms())
        if report is not None:
            writer.write(frames.write(write(sendable(report))))

    async def _read(self, reader: asyncio.StreamReader, frames: Frames, peer: Place) -> None:
        while True:
            async with asyncio.timeout(SILENCE_SECONDS_MAX):
                message = await frames.receive(reader)
            found = read(message)
            if isinstance(found, View):
                self._look_at(found)
                continue
            if isinstance(found, Grants):
                if self._granted is None:
                    self._granted, self._suspected = (peer, found.run), None
                self._take(found)
            elif isinstance(found, Lost):
                self._figures.reports["lost"] += 1
                self._lessee.lose()
            elif isinstance(found, Response):
                self._asking.take(found)
            elif isinstance(found, Refusal):
                raise RefusedError(found)
            else:
                raise MessageError(f"a holder sends no {type(found).__name__.lower()}")
            self.send_due()

    def _look_at(self, view: View) -> None:
        """Log one line when members begin to differ in a fact, and one when they agree again."""
        self.view, self.view_ms = view, self._now_ms()
        begun, ended = self.disagreements.observe(view, self.view_ms)
        for about, text in begun.items():
            event(logger, logging.WARNING, "members of the fleet differ", about=about, detail=text)
        for about in ended:
            event(logger, logging.INFO, "members of the fleet agree again", about=about)
        self._figures.disagreements = len(self.disagreements.lasting)

    def _take(self, grants: Grants) -> None:
        if self._leasing.take(grants, self._now_ms()):
            self._grants += 1
            self._figures.reports["granted"] += 1
            self.problem = ""
            self._said.clear()
            self._log_state()

    def _log_lost(self, holder: Address | None, end: _End) -> None:
        self.problem = end.problem
        if end.kind not in self._said and len(self._said) < _KINDS_MAX:
            self._said.add(end.kind)
            left_ms = max(0, self._lessee.until_ms - self._now_ms())
            event(
                logger,
                logging.WARNING,
                "the holder of the fleet cannot be reached; shares go on until the lease ends",
                holder=str(holder),
                detail=end.problem,
                lease_left_ms=left_ms,
            )

    def _log_state(self) -> None:
        """Log one line when this member is cut off, and one when it has a lease again."""
        lessee, now_ms = self._lessee, self._now_ms()
        state = "leased" if lessee.leased(now_ms) else "cut off" if lessee.cut_off(now_ms) else ""
        if state == self._state or not state:
            return
        first, self._state = not self._state, state
        if self._part and first and state == "leased":
            return  # of the first part is enough
        share = round(lessee.share(DEFAULT_KEY, now_ms), 6)
        if state == "leased":
            event(
                logger,
                logging.INFO,
                "this member leases shares in the fleet",
                holder=str(self._holder()),
                share=share,
            )
        else:
            event(
                logger,
                logging.WARNING,
                "this member is cut off from the fleet: it uses the same share of every quota",
                holder=str(self._holder()),
                detail=self.problem,
                share=share,
            )


def _ignore(_address: Address, _run: int) -> None: ...


def _end(error: Exception) -> _End:
    """Return the reason why a connection has ended with this error."""
    if isinstance(error, ssl.SSLError):
        return _End("tls", f"TLS: {handshake_problem(error)}")
    if isinstance(error, asyncio.IncompleteReadError):
        return _End("unreachable", "the holder has closed the connection")
    if isinstance(error, MessageError):
        return _End(type(error).__name__, str(error))
    return _End("unreachable", reason(error, SILENCE_SECONDS_MAX))
