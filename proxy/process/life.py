"""One worker as the control process sees it, from its start to its end: process, link, questions, and what it is sent.

A worker is sent the whole state when it starts, then the changes, in their order. Pending changes are kept as keys,
each once, so they are bounded by the state itself, even if a worker does not read for long. The response to a question
is sent after all changes that came before it.
"""

import asyncio
import os
import secrets
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, Final, TypeVar, get_args

from protocol.errors import WireError
from protocol.messages.replica_session import Partition
from proxy.channel import Forward, OngoingMoves, PeerError, ShownMove
from proxy.config import Config
from proxy.control.cluster import BrokerMap
from proxy.control.reassign.api import plan_bytes, plan_of
from proxy.net import Ask, Outcome, Withdraw, nothing_to_withdraw
from proxy.process import messages
from proxy.process.messages import PORTION, Figures, FrameError, Link, Message
from proxy.system.errors import sluice_version
from quotas.definitions.definitions import Definitions
from quotas.sharing.lease_values import Grants, LeaseTerms

K = TypeVar("K")
V = TypeVar("V")

RESPONSES_MAX: Final = 10_000  # more than questions may wait


@dataclass(eq=False)
class State:
    """The state that the control process sends to its workers.

    Args:
        config: the configuration of a worker (`workers.part_of`).
        definitions: the quotas in force; another thread may change them.
        names: all known names of topics, by topic id.
        moves: the reassignments that are executed in steps; None if Sluice executes none.
    """

    config: Config
    definitions: Definitions
    brokers: BrokerMap
    names: Mapping[bytes, str]
    moves: OngoingMoves | None
    enforcing: bool = True


class Feed:
    """Sends the state of control, and its changes, to one worker process.

    Args:
        send: sends a message as soon as there is room; False if the link is closed.
    """

    def __init__(self, state: State, send: Callable[[Message], Awaitable[bool]]) -> None:
        self._state = state
        self._send = send
        self._wake = asyncio.Event()
        self._quotas: dict[str, None] = {}
        self._names: dict[bytes, str] = {}
        self._responses: deque[tuple[int, Outcome]] = deque()
        self._certificates = False
        self._config = state.config
        self._enforcing = state.enforcing
        self._brokers_version = -1
        self._moves: Mapping[Partition, ShownMove] = {}

    def wake(self) -> None:
        """Let `run` send what has changed in the state; it does so in the next turns of the event loop."""
        self._wake.set()

    def quota_changed(self, code: str) -> None:
        """Queue the quota entity with this code, whose limits have changed: the worker is sent its limits."""
        self._quotas[code] = None
        self._wake.set()

    def topic_named(self, topic_id: bytes, name: str) -> None:
        """Queue the name of a topic id, to be sent to the worker."""
        self._names[topic_id] = name
        self._wake.set()

    def read_certificates(self) -> None:
        """Tell the worker to read its certificates again."""
        self._certificates = True
        self._wake.set()

    def respond(self, number: int, outcome: Outcome) -> None:
        """Queue the response to the worker's question of this number; it is sent after all changes made until now."""
        assert len(self._responses) < RESPONSES_MAX, "each belongs to a question, and these are bounded"
        self._responses.append((number, outcome))
        self._wake.set()

    async def run(self) -> None:
        """Send the whole state, then each change of it, and responses; runs until it is cancelled."""
        state = self._state
        await self._send_brokers()
        for names in _portions(dict(state.names)):
            await self._send(messages.TopicsNamed(names))
        codes = state.definitions.codes_in_force()
        for place in range(0, len(codes), PORTION):
            await self._send_limits(codes[place : place + PORTION], complete=False)
        await self._send_limits([], complete=True)
        while True:
            responses = len(self._responses)
            await self._send_settings()
            await self._send_brokers()
            while self._quotas:
                codes = list(islice(self._quotas, PORTION))
                for code in codes:
                    del self._quotas[code]
                await self._send_limits(codes, complete=True)
            names, self._names = self._names, {}
            for portion in _portions(names):
                await self._send(messages.TopicsNamed(portion))
            await self._send_moves()
            for _ in range(responses):
                await self._send_response(*self._responses.popleft())
            await self._wake.wait()
            self._wake.clear()

    async def _send_settings(self) -> None:
        if self._config is not self._state.config:
            self._config = self._state.config
            await self._send(messages.Configure(self._config))
        if self._enforcing != self._state.enforcing:
            self._enforcing = self._state.enforcing
            await self._send(messages.Enforce(self._enforcing))
        if self._certificates:
            self._certificates = False
            await self._send(messages.ReadCertificates())

    async def _send_brokers(self) -> None:
        brokers = self._state.brokers
        if self._brokers_version != brokers.version:
            self._brokers_version = brokers.version
            await self._send(messages.Brokers(brokers.known()))

    async def _send_limits(self, codes: list[str], *, complete: bool) -> None:
        limits = {code: self._state.definitions.in_force(code) for code in codes}
        await self._send(messages.QuotaBatch(limits, complete))

    async def _send_moves(self) -> None:
        if self._state.moves is None or self._state.moves.moves is self._moves:
            return
        before, self._moves = self._moves, self._state.moves.moves
        changes: dict[Partition, ShownMove | None] = {
            key: shown for key, shown in self._moves.items() if before.get(key) != shown
        }
        changes |= {key: None for key in before if key not in self._moves}
        for portion in _portions(changes):
            await self._send(messages.Moves(portion))

    async def _send_response(self, number: int, outcome: Outcome) -> None:
        try:
            await self._send(_portable(number, outcome))
        except FrameError as error:
            await self._send(messages.Refusal(number, "internal", str(error)))


def _portable(number: int, outcome: Outcome) -> Message:
    """Convert an outcome to a message; a large response is copied here, and not before."""
    if isinstance(outcome, PeerError):
        return messages.Refusal(number, outcome.cause, outcome.detail)
    if isinstance(outcome, WireError):
        return messages.Refusal(number, "malformed", str(outcome))
    if isinstance(outcome, Exception):
        return messages.Refusal(number, "internal", type(outcome).__name__)
    if isinstance(outcome, Forward):
        return messages.Forwarded(number, outcome.api_key, outcome.frame, plan_bytes(outcome.plan))
    return messages.Response(number, bytes(outcome))


def _portions(items: Mapping[K, V]) -> Iterator[dict[K, V]]:
    remaining = iter(items.items())
    while portion := dict(islice(remaining, PORTION)):
        yield portion


QUESTIONS_MAX: Final = 5_000  # of one worker at a time; each of its connections has one at most
PORTIONS_MAX: Final = 1_000  # of one response; all clients of a worker are 400
SILENT_SECONDS: Final = 2.5  # a worker beats every second
_RUN_BITS: Final = 62
_END_SECONDS_MAX: Final = 5.0  # after the end of the link
_LAST_SECONDS_MAX: Final = 1.0  # for its last messages
_MODULE: Final = "proxy.process"


class Life:
    """One process of a worker, from its start to its end; a worker that is started again has another `Life`.

    Args:
        number: of the worker, from 1.
        ask: handles its questions: clients' requests to which only the control process can respond.
        on_message: called with each message of the worker.

    Attributes:
        run: a random number that identifies this process.
        feed: sends it the state of control.
        ready: whether it serves: its ports are bound, and it has all quotas. False again after its end.
        was_ready: as `ready`, but stays True after its end.
        problem: why it cannot start; "" if it can.
        connections: the number of its clients' connections at its last beat.
        not_accepting: why a listener of it accepted nothing at its last beat; "" if all did.
        heard: when its last message came, on the monotonic clock, in seconds.
        code: its exit code, -1 if it could not be started; None while it runs.
        ended: set when it has ended.
    """

    def __init__(
        self, number: int, state: State, ask: Ask, on_message: Callable[["Life", Message], None]
    ) -> None:
        self.number = number
        self.run = secrets.randbits(_RUN_BITS) + 1
        self.feed = Feed(state, self._send_all)
        self.ready = self.was_ready = False
        self.problem = ""
        self.connections = 0
        self.not_accepting = ""
        self.heard = monotonic()
        self.code: int | None = None
        self.ended = asyncio.Event()
        self.began = monotonic()
        self._state = state
        self._ask = ask
        self._on_message = on_message
        self._link: Link | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._questions: dict[int, Withdraw] = {}
        self._figures: dict[int, tuple[asyncio.Future[list[Figures]], list[Figures]]] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            messages.Ready: self._is_ready,
            messages.Failed: self._failed,
            messages.Beat: self._beat,
            messages.Ask: self._asked,
            messages.Withdraw: self._withdrawn,
            **dict.fromkeys(get_args(Figures), self._take_figures),
        }

    async def start(self, terms: LeaseTerms) -> None:
        """Start the process, and send it its configuration.

        Args:
            terms: the terms of the leases between control and its workers.

        Raises:
            OSError: the system refuses it.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()), sluice_version()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    env=_environment(),
                )
            self._link = Link(loop, self._received, self._link_lost)
            await self._link.open(ours)
            state = self._state
            self._link.send(messages.Start(self.number, state.config, self.run, terms, state.enforcing))
        except BaseException:
            self.kill()
            self.code = -1
            self.ended.set()
            ours.close()
            raise

    @property
    def pid(self) -> int:
        """The process's id; 0 before it was started."""
        return 0 if self._process is None else self._process.pid

    def silent(self, now: float) -> bool:
        """Whether no message has come for SILENT_SECONDS, though a worker sends a `Beat` every second.

        The worker's process is then stopped, or its loop is blocked.
        """
        return now - self.heard > SILENT_SECONDS

    async def wait(self) -> int:
        """Wait until the process has ended, and release its resources; returns the exit code."""
        assert self._process is not None, "it was started"
        code = await self._process.wait()
        if self._link is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS_MAX):
                    await self._link.ended.wait()  # what it has sent last may say why
            self._link.close()
        self.code = code
        self.ended.set()
        self.ready = False
        self.not_accepting = ""
        for withdraw in self._questions.values():
            withdraw()
        self._questions.clear()
        for response, _ in self._figures.values():
            response.cancel()
        return code

    def grant(self, grants: Grants | None) -> None:
        """Send grants of quota shares; None tells the worker that its report was refused.

        If they cannot be sent, since too much waits on the link, the worker notices the gap and opens a new session.
        """
        self._send(messages.Granted(grants))

    def drain(self, *, hurried: bool) -> bool:
        """Tell the worker to end; return False if that cannot be sent. `hurried`: without waiting for clients."""
        return self._send(messages.Drain(hurried))

    def kill(self) -> None:
        """Kill the process; no effect if it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def figures(self, number: int, request: Message) -> list[Figures]:
        """Send a request for figures; return all portions of the response.

        Args:
            number: of the request, which the response repeats.

        Raises:
            CancelledError: the worker ends, its link is full, or the response has too many portions.
        """
        response: asyncio.Future[list[Figures]] = asyncio.get_running_loop().create_future()
        self._figures[number] = response, []
        try:
            if not self._send(request):
                response.cancel()
            return await response
        finally:
            del self._figures[number]

    def _link_lost(self) -> None:
        """Kill the process after _END_SECONDS_MAX, unless it has ended by itself: its link is gone."""
        asyncio.get_running_loop().call_later(_END_SECONDS_MAX, self.kill)

    def _received(self, message: Message) -> None:
        self.heard = monotonic()
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(message)
        self._on_message(self, message)

    def _is_ready(self, _: messages.Ready) -> None:
        self.ready = self.was_ready = True

    def _failed(self, message: messages.Failed) -> None:
        self.problem = message.problem

    def _beat(self, message: messages.Beat) -> None:
        self.connections = message.connections
        self.not_accepting = message.not_accepting

    def _asked(self, message: messages.Ask) -> None:
        if len(self._questions) >= QUESTIONS_MAX:
            self.feed.respond(message.number, OverflowError())
            return
        number, question = message.number, message.question
        if message.plan is not None:
            question = question._replace(plan=plan_of(message.plan))
        self._questions[number] = nothing_to_withdraw  # the response may come at once
        self._questions[number] = self._ask(question, partial(self._responded, number))

    def _responded(self, number: int, outcome: Outcome) -> None:
        if self._questions.pop(number, None) is not None:
            self.feed.respond(number, outcome)

    def _withdrawn(self, message: messages.Withdraw) -> None:
        withdraw = self._questions.pop(message.number, None)
        if withdraw is not None:
            withdraw()

    def _take_figures(self, message: Figures) -> None:
        response, portions = self._figures.get(message.number, (None, []))
        if response is None or response.done():
            return
        portions.append(message)
        if len(portions) > PORTIONS_MAX:
            response.cancel()
        elif not (isinstance(message, messages.Looked) and message.more):
            response.set_result(portions)

    def _send(self, message: Message) -> bool:
        return self._link is not None and self._link.send(message)

    async def _send_all(self, message: Message) -> bool:
        return self._link is not None and await self._link.send_all(message)


def _environment() -> dict[str, str]:
    """Return this process's environment with its import path, so that the child imports the same modules."""
    paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - as Python itself resolves it
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
