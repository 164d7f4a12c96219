"""Requests of members to the holder that are not about shares, over the members' connections to it.

A request is a `Question`, its response a `Response`. There may be no response: the connection has ended, the holder has
changed, or the time is over. The request may have been carried out then; the caller must allow for that. The holder
responds to members that have reported, to at most QUESTIONS_MAX requests at a time; further ones are refused with BUSY.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from proxy.fleet.messages import Question, Response

QUESTIONS_MAX: Final = 100
BUSY: Final = b""  # the response if too many requests are being handled

Respond = Callable[[bytes], Awaitable[bytes]]

logger = logging.getLogger(__name__)


class NoResponseError(Exception):
    """A member's request to the holder has got no response.

    Args:
        sent: True if the request was sent, so that the holder may have carried it out; False if it was not.
    """

    def __init__(self, problem: str, *, sent: bool) -> None:
        super().__init__(problem)
        self.sent = sent


class Asking:
    """The member's side: sends requests to the holder, and matches responses to them by their number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, content: bytes, send: Callable[[Question], None], seconds: float) -> bytes:
        """Send a request, and return the content of its response: BUSY if the holder handles too many requests.

        Args:
            content: the request as bytes, whose format only the caller and the holder's handler know.
            send: writes the message to the connection.
            seconds: how long to wait for the response.

        Raises:
            NoResponseError: there is no response within `seconds`, or too many requests wait already.
        """
        if len(self._waiting) >= QUESTIONS_MAX:
            raise NoResponseError("too many questions wait for the holder already", sent=False)
        number = next(self._numbers)
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = response
        try:
            send(Question(number, content))
            async with asyncio.timeout(seconds):
                return await response
        except TimeoutError:
            raise NoResponseError(
                f"there is no response of the holder within {seconds:g} s", sent=True
            ) from None
        finally:
            del self._waiting[number]

    def take(self, response: Response) -> None:
        """Pass a received response to the caller of `ask` that waits for it; ignore it if none waits any more."""
        waiting = self._waiting.get(response.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(response.content)

    def lose(self) -> None:
        """End all waiting requests with NoResponseError: the connection has ended."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NoResponseError("the connection to the holder has ended", sent=True))


class Responding:
    """The holder's side: runs one task for each request of a member.

    Attributes:
        respond: the handler: gets a request's content, and returns the response's; with None every request gets BUSY.
        running: the tasks of the requests that are being handled.
    """

    def __init__(self) -> None:
        self.respond: Respond | None = None
        self.running: set[asyncio.Task[None]] = set()

    def take(self, question: Question, send: Callable[[Response], None]) -> None:
        """Start a task that handles a request and calls `send` with the response; send BUSY if too many are running."""
        if self.respond is None or len(self.running) >= QUESTIONS_MAX:
            send(Response(question.number, BUSY))
            return
        task = asyncio.get_running_loop().create_task(self._respond(self.respond, question, send))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def close(self) -> None:
        """Cancel the requests being handled, and wait for their end."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    async def _respond(self, respond: Respond, question: Question, send: Callable[[Response], None]) -> None:
        try:
            content = await respond(question.content)
        except Exception as error:
            logger.error("internal error: a member's question failed", exc_info=error)
            content = BUSY
        send(Response(question.number, content))
