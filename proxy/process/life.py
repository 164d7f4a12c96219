"""One life of one worker, as the control process sees it: process, link, questions, feed."""

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final

from proxy.net import Ask, Outcome, Withdraw
from proxy.process import messages
from proxy.process.feed import Feed, State
from proxy.process.link import Link
from proxy.version import sluice_version
from quotas.sharing.lease_values import Grants, LeaseTerms

QUESTIONS_MAX: Final = 5_000  # of one worker at a time; each of its connections has one at most
PORTIONS_MAX: Final = 1_000  # of one response; all clients of a worker are 400
SILENT_SECONDS: Final = 2.5  # a worker beats every second
_RUN_BITS: Final = 62
_END_SECONDS_MAX: Final = 5.0  # after the end of the link
_LAST_SECONDS_MAX: Final = 1.0  # for its last messages
_MODULE: Final = "proxy.process.worker"


class Life:
    """A worker from its start to its end.

    Args:
        number: of the worker, from 1.
        ask: responds to its questions.
        on_message: called with messages that concern other workers too.

    Attributes:
        run: identifies this life.
        feed: the state that is sent to it.
        ready: whether its ports are bound.
        was_ready: after its end: whether its ports were bound.
        problem: why it cannot start; "" if it can.
        connections: the number of its clients' connections at its last beat.
        not_accepting: why a listener of it accepted nothing at its last beat; "" if all did.
        heard: when its last message came, on the monotonic clock.
        code: how it has ended; None while it runs.
        ended: set when it has ended.
    """

    def __init__(
        self, number: int, state: State, ask: Ask, on_message: Callable[["Life", object], None]
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
        self._figures: dict[int, asyncio.Future[object]] = {}
        self._portions: dict[int, list[object]] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            messages.Ready: self._is_ready,
            messages.Failed: self._failed,
            messages.Beat: self._beat,
            messages.Ask: self._asked,
            messages.Withdraw: self._withdrawn,
            messages.Figures: self._take_figures,
        }

    async def start(self, terms: LeaseTerms) -> None:
        """Start the process.

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
        """Whether it has sent nothing for longer than a beat may take: it is stopped, or does not come to send."""
        return now - self.heard > SILENT_SECONDS

    async def wait(self) -> int:
        """Wait for its end, and release everything; returns the exit code."""
        assert self._process is not None, "it was started"
        code = await self._process.wait()
        if self._link is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS_MAX):
                    await self._link.wait_ended()  # what it has sent last may say why
            self._link.close()
        self.code = code
        self.ended.set()
        self.ready = False
        self.not_accepting = ""
        for withdraw in self._questions.values():
            withdraw()
        self._questions.clear()
        for figures in self._figures.values():
            figures.cancel()
        return code

    def grant(self, grants: Grants | None) -> None:
        """Send shares; if too much waits, the worker opens a new session later."""
        self._send(messages.Granted(grants))

    def drain(self, *, hurried: bool) -> bool:
        """Have it end; returns whether it was told."""
        return self._send(messages.Drain(hurried))

    def kill(self) -> None:
        """End it at once; harmless if it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def figures(self, number: int, request: object) -> object:
        """Send a scrape's request, and wait for the response; cancelled if the worker ends.

        Returns: the figures; a list of them where they come in portions.
        """
        response = self._figures[number] = asyncio.get_running_loop().create_future()
        try:
            if not self._send(request):
                response.cancel()
            return await response
        finally:
            del self._figures[number]
            self._portions.pop(number, None)

    def _link_lost(self) -> None:
        """Note the end of the link: the process ends by itself now, or is killed."""
        asyncio.get_running_loop().call_later(_END_SECONDS_MAX, self.kill)

    def _received(self, message: object) -> None:
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
            self.feed.answer(message.number, OverflowError())
            return
        number = message.number
        self._questions[number] = _nothing  # it may be answered at once
        self._questions[number] = self._ask(message.question, partial(self._answered, number))

    def _answered(self, number: int, outcome: Outcome) -> None:
        if self._questions.pop(number, None) is not None:
            self.feed.answer(number, outcome)

    def _withdrawn(self, message: messages.Withdraw) -> None:
        withdraw = self._questions.pop(message.number, None)
        if withdraw is not None:
            withdraw()

    def _take_figures(self, message: messages.Figures) -> None:
        response = self._figures.get(message.number)
        if response is None or response.done():
            return
        portions = self._portions.get(message.number)
        if portions is None:
            portions = self._portions[message.number] = []
        portions.append(message.figures)
        if len(portions) > PORTIONS_MAX:
            response.cancel()
        elif not message.more:
            response.set_result(message.figures if len(portions) == 1 else portions)

    def _send(self, message: object) -> bool:
        return self._link is not None and self._link.send(message)

    async def _send_all(self, message: object) -> bool:
        return self._link is not None and await self._link.send_all(message)


def _environment() -> dict[str, str]:
    """This process's environment, and where it imports from: the child must not look elsewhere."""
    paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - as Python itself resolves it
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _nothing() -> None:
    """Withdraw nothing."""
