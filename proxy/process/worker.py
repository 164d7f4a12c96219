"""A worker process: a relay whose quotas, routes and questions cross the link with the control process.

Its ports are bound when it has all quotas, the broker map, and its first shares. Signals are for control, which passes
on what they mean: a terminal, or a service manager, sends them to all processes of a group. When control is gone, the
worker drains and ends.
"""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakSet

import uvloop
from msgspec.structs import replace

from proxy.channel import Forward, OngoingMoves, PeerError, Question, SharedResponse
from proxy.config import Address, static_quotas
from proxy.control.cluster import BrokerMap
from proxy.control.reload import Certificates
from proxy.net import Outcome, OutcomeCallback, Withdraw, end_owner, nothing_to_withdraw
from proxy.process import messages
from proxy.process.figures import WorkerFigures
from proxy.process.messages import Link, Message
from proxy.process.relay import Relay
from proxy.process.shares import Pace, lessee_of
from proxy.system import logs
from proxy.system.clock import now_ms
from proxy.system.errors import SluiceError, sluice_version
from proxy.system.logs import FIELDS, event
from proxy.system.stats import Stats
from proxy.system.supervisor import Supervisor
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import entity_of
from quotas.sharing.budgets import Budgets

_SHARED_BYTES_MIN: Final = 64 * 1024
_COMPARED_MAX: Final = 8
_HEAD_BYTES: Final = 8  # length and correlation id
_BEAT_SECONDS: Final = 1.0
_END_SECONDS_MAX: Final = 5.0  # for the last messages
_RECONSIDER_SECONDS: Final = 0.01  # many batches of quotas are one change
_OVERLOADED: Final = PeerError("quota_requests_max", "too much waits for the control process")
_CONTROL_GONE: Final = PeerError("control_ended", "the control process has ended")

logger = logging.getLogger(__name__)


class _Rest(bytearray):
    """The bytes after the head; unlike `bytes` they support weak references."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # compared by identity in the set


class SharedResponses:
    """Keeps equal large responses, which clients have not read yet, in memory only once.

    A description of 50,000 quotas is 6 MB, for a request of 20 bytes. Control makes it once for equal requests
    (`proxy.control.quotas.responses`), but each copy crosses the link: here it is replaced by the one in memory.
    """

    def __init__(self) -> None:
        self._rests: WeakSet[_Rest] = WeakSet()

    def shared(self, frame: bytes) -> bytes | SharedResponse:
        """Return the response to send: a small frame itself, else one whose bytes after the head are shared."""
        if len(frame) < _SHARED_BYTES_MIN:
            return frame
        view = memoryview(frame)
        for known in list(self._rests)[:_COMPARED_MAX]:
            if memoryview(known) == view[_HEAD_BYTES:]:
                return SharedResponse(frame[:_HEAD_BYTES], memoryview(known).toreadonly())
        rest = _Rest(view[_HEAD_BYTES:])
        self._rests.add(rest)
        return SharedResponse(frame[:_HEAD_BYTES], memoryview(rest).toreadonly())


class Worker:
    """One worker process: its relay, and its link to control.

    Args:
        link: the link to the control process.
        start: control's first message.

    Raises:
        SluiceError: the worker cannot start.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link, start: messages.Start) -> None:
        self._loop = loop
        self._link = link
        self._config = config = start.config
        logs.set_up(config.log.level, config.log.format)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_Numbered(start.number))
        self._definitions = Definitions()
        self._definitions.static = static_quotas(config.quotas)
        self._moves = OngoingMoves()
        self._known: Mapping[int, Address] = {}  # brokers' addresses, as control has sent them
        self._questions: dict[int, OutcomeCallback] = {}
        self._asked = 0
        self._responses = SharedResponses()
        self._reconsidering = False
        self._wants_topics = False
        self._has_quotas = asyncio.Event()
        self._leased = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurried = False
        self._pace = Pace(loop)
        stats = Stats()
        self._supervisor = Supervisor(loop, stats)
        self._supervisor.watch_callbacks(end_owner)
        # Control counts reloads, and the ends of certificates.
        self._certificates = Certificates(config, Stats())
        self._relay = relay = Relay(
            config, self._definitions, loop, stats, self._supervisor, self._certificates, self._ask
        )
        relay.enforce(start.enforcing)
        self._brokers = BrokerMap(config.cluster.bootstrap, stats)
        moves = self._moves if config.reassignment.batches else None
        quota_api = config.quotas.store != "cluster"
        for options in config.listeners:
            relay.listen(replace(options, reuse_port=True), self._brokers, moves, quota_api=quota_api)
        relay.engine.topics.names.wake = self._want_topics
        began_ms = now_ms()
        self._lessee = lessee_of(start.terms, start.number, start.run, began_ms)
        self._budgets = Budgets(relay.engine, self._lessee, began_ms)
        self._budgets.begins = self._pace.wake
        relay.engine.share(self._budgets)
        watching, series_max = relay.watching, config.limits.metric_series_max
        self._figures = WorkerFigures(
            stats, relay.engine, series_max, link.send_all, watching.portions, watching.waits
        )
        once = self._supervisor.run_once
        watching.judged = lambda seen: once("judged", link.send_all(messages.Judged(seen)))
        relay.shared.dials.report = lambda *found: link.send(messages.Dialled(*found))
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            messages.Configure: self._configure,
            messages.QuotaBatch: self._quotas,
            messages.Brokers: self._take_brokers,
            messages.TopicsNamed: self._topics_named,
            messages.Moves: self._take_moves,
            messages.ReadCertificates: lambda _: self._certificates.request(),
            messages.Enforce: self._enforce,
            messages.Granted: self._granted,
            messages.Response: lambda said: self._respond(said.number, self._responses.shared(said.frame)),
            messages.Forwarded: lambda said: self._respond(
                said.number, Forward(said.api_key, said.frame, said.plan)
            ),
            messages.Refusal: lambda said: self._respond(said.number, PeerError(said.cause, said.detail)),
            **dict.fromkeys((messages.Scrape, messages.TakeRows, messages.Look), self._scrape),
            messages.Drain: self._drain,
        }

    async def serve(self) -> int:
        """Serve until control asks to drain, or is gone; returns the exit code."""
        relay, link, run_forever = self._relay, self._link, self._supervisor.run_forever
        run_forever("step", self._step)
        run_forever("beat", self._beat)
        await _either(self._has_quotas, self._stopping)
        await _either(self._leased, self._stopping)
        if not self._stopping.is_set():
            try:
                relay.open()
            except SluiceError as error:
                await link.send_all(messages.Failed(str(error)))
                return 1
        relay.start()
        run_forever("certificates", self._certificates.run)
        gc.freeze()  # what is here now stays: no collection needs to look at it again
        await link.send_all(messages.Ready())
        await self._stopping.wait()
        await relay.drain(lambda: self._hurried)
        await relay.end_capture(lambda: self._hurried)
        await self._supervisor.end()
        relay.shared.close()
        return 0

    # What control sends.

    def received(self, message: Message) -> None:
        """Handle a message of control: state, grants, a request for figures, or the response to a question."""
        self._handlers[type(message)](message)

    def lost(self) -> None:
        """Drain and end, since control is gone."""
        questions, self._questions = self._questions, {}
        for respond in questions.values():
            respond(_CONTROL_GONE)
        if not self._stopping.is_set():
            event(logger, logging.ERROR, "the control process has ended; draining")
            self._stopping.set()

    def _configure(self, message: messages.Configure) -> None:
        self._config = config = message.config
        logs.set_level(config.log.level)
        self._definitions.static = static_quotas(config.quotas)
        self._apply()

    def _quotas(self, message: messages.QuotaBatch) -> None:
        for code, values in message.entries.items():
            self._definitions.put(entity_of(code), values)
        if message.complete:
            self._has_quotas.set()
        if self._has_quotas.is_set():
            self._apply()

    def _take_brokers(self, message: messages.Brokers) -> None:
        self._tell_brokers()  # or they would be forgotten
        self._known = message.known.addresses
        self._brokers.replace(message.known)

    def _topics_named(self, message: messages.TopicsNamed) -> None:
        for topic_id, name in message.names.items():
            self._relay.engine.topics.names.learn(topic_id, name)

    def _take_moves(self, message: messages.Moves) -> None:
        moves = dict(self._moves.moves)
        for partition, shown in message.changes.items():
            if shown is None:
                moves.pop(partition, None)
            else:
                moves[partition] = shown
        self._moves.moves = MappingProxyType(moves)

    def _enforce(self, message: messages.Enforce) -> None:
        self._relay.enforce(message.on)
        self._relay.reconsider()

    def _granted(self, message: messages.Granted) -> None:
        now = now_ms()
        if message.grants is None:
            self._lessee.lose()
        elif self._budgets.take(message.grants, now):
            self._leased.set()
            if message.grants.shares:
                self._pace.wake()  # others wait for the acknowledgement

    def _scrape(self, message: messages.Scrape | messages.TakeRows) -> None:
        self._supervisor.run_once("figures", self._figures.send(message))

    def _respond(self, number: int, outcome: Outcome) -> None:
        respond = self._questions.pop(number, None)
        if respond is not None:  # else its client is gone
            respond(outcome)

    def _drain(self, message: messages.Drain) -> None:
        self._hurried = message.hurried
        self._stopping.set()

    # What control is told.

    def _ask(self, question: Question, respond: OutcomeCallback) -> Withdraw:
        """Send a question to control; returns a function that withdraws it."""
        self._asked += 1
        plan = question.plan  # of a `Forwarded`, as control has sent it
        assert plan is None or isinstance(plan, bytes), "only control reads plans"
        if not self._link.send(messages.Ask(self._asked, question._replace(plan=None), plan)):
            self._loop.call_soon(respond, _OVERLOADED)
            return nothing_to_withdraw
        self._questions[self._asked] = respond
        return partial(self._withdraw, self._asked)

    def _withdraw(self, number: int) -> None:
        if self._questions.pop(number, None) is not None:
            self._link.send(messages.Withdraw(number))

    def _want_topics(self) -> None:
        self._wants_topics = True
        self._pace.wake()

    async def _step(self) -> None:
        """Report demands, and what was learned from traffic, to control, at intervals."""
        while True:
            seen_ms = now_ms()  # before the look: what it shows may be as old as that
            if self._link.other_side_runs():
                self._budgets.live(seen_ms)
            report = self._budgets.report(now_ms())
            if report is not None:
                self._link.send(messages.Reported(report))
            if self._wants_topics:
                self._wants_topics = False
                wanted = self._relay.engine.topics.names.take_wanted(now_ms())
                if wanted:
                    await self._link.send_all(messages.TopicsWanted(tuple(wanted)))
            self._tell_brokers()
            await self._pace.pause(busy=self._budgets.busy)

    def _tell_brokers(self) -> None:
        """Send control the broker addresses that responses to clients had and that it does not know."""
        if self._brokers.changed:
            self._brokers.changed = False
            known, seen = self._known, self._brokers.addresses()
            new = {broker: address for broker, address in seen.items() if known.get(broker) != address}
            self._link.send(messages.BrokersSeen(new))

    async def _beat(self) -> None:
        """Tell control every second that this process runs."""
        while True:
            self._link.send(messages.Beat(len(self._relay.connections), self._relay.not_accepting()))
            await asyncio.sleep(_BEAT_SECONDS)

    def _apply(self) -> None:
        """Put quotas and configuration in force."""
        self._relay.apply(self._config, self._definitions)
        if not self._reconsidering:
            self._reconsidering = True
            self._loop.call_later(_RECONSIDER_SECONDS, self._reconsider)

    def _reconsider(self) -> None:
        self._reconsidering = False
        self._relay.reconsider()


class _Numbered(logging.Filter):
    """Adds the worker's number to each line."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the worker's number to the record; returns True."""
        found = getattr(record, FIELDS, None)
        setattr(record, FIELDS, {**(found if isinstance(found, dict) else {}), "worker": self._number})
        return True


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    """Wait until one of two events is set."""
    waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def serve(sock: socket.socket) -> int:
    """Run a worker at its end of the link; returns the exit code."""
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[Worker | None] = loop.create_future()  # None: it cannot start

    def received(message: Message) -> None:
        worker = begun.result() if begun.done() else None
        if worker is not None:
            worker.received(message)
        elif isinstance(message, messages.Start):
            try:
                begun.set_result(Worker(loop, link, message))
            except SluiceError as error:
                link.send(messages.Failed(str(error)))
                begun.set_result(None)

    def lost() -> None:
        worker = begun.result() if begun.done() else None
        if worker is not None:
            worker.lost()
        elif not begun.done():
            begun.set_result(None)

    link = Link(loop, received, lost)
    await link.open(sock)
    worker = await begun
    code = 1 if worker is None else await worker.serve()
    link.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS_MAX):
            await link.gone.wait()  # everything was sent
    return code


def main(descriptor: int, version: str) -> int:
    """Run a worker; returns the exit code.

    Args:
        descriptor: this worker's end of the link, a socket inherited from the control process.
        version: control's version of Sluice. The worker ends if its own differs, as after an upgrade of the package
            while control runs.
    """
    if version != sluice_version():
        own = sluice_version()
        sys.stderr.write(f"sluice worker: {own} is installed, control is {version}: restart it\n")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    return uvloop.run(serve(socket.socket(fileno=descriptor)))
