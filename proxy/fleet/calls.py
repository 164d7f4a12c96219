"""Questions of members to the holder that are not about shares, over the connection that both have.

A question has one answer, or none: the connection ends, the holder is another one, or the time is over. What was asked
for may have happened then; who asks must know what that means. The holder answers questions of members that have
reported, at most QUESTIONS_MAX at a time; more are not answered but refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from proxy.fleet.codec import Answer, Question

__all__ = ["BUSY", "QUESTIONS_MAX", "Answering", "Asking", "Respond", "UnansweredError"]

QUESTIONS_MAX: Final = 100
BUSY: Final = b""  # the answer to a question too many

Respond = Callable[[bytes], Awaitable[bytes]]

logger = logging.getLogger(__name__)


class UnansweredError(Exception):
    """There is no answer.

    Args:
        sent: whether the question was sent, so that it may have been acted on.
    """

    def __init__(self, problem: str, *, sent: bool) -> None:
        super().__init__(problem)
        self.sent = sent


class Asking:
    """A member's questions."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, content: bytes, send: Callable[[Question], None], seconds: float) -> bytes:
        """Send a question, and wait for its answer.

        Raises:
            UnansweredError: none comes.
        """
        if len(self._waiting) >= QUESTIONS_MAX:
            raise UnansweredError("too many questions wait for the holder already", sent=False)
        number = next(self._numbers)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            send(Question(number, content))
            async with asyncio.timeout(seconds):
                return await answered
        except TimeoutError:
            raise UnansweredError(f"the holder has not answered within {seconds:g} s", sent=True) from None
        finally:
            del self._waiting[number]

    def take(self, answer: Answer) -> None:
        """Take an answer; one that is not waited for any more is dropped."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer.content)

    def lose(self) -> None:
        """The connection has ended, and with it all answers."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(UnansweredError("the connection to the holder has ended", sent=True))


class Answering:
    """The holder's answers.

    Attributes:
        respond: gives the answer; None: there is none to anything.
    """

    def __init__(self) -> None:
        self.respond: Respond | None = None
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many questions are being answered."""
        return len(self._running)

    def take(self, question: Question, send: Callable[[Answer], None]) -> None:
        """Answer a question, later."""
        if self.respond is None or len(self._running) >= QUESTIONS_MAX:
            send(Answer(question.number, BUSY))
            return
        task = asyncio.get_running_loop().create_task(self._answer(self.respond, question, send))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """End what is being answered."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _answer(self, respond: Respond, question: Question, send: Callable[[Answer], None]) -> None:
        try:
            content = await respond(question.content)
        except Exception as error:
            logger.error("internal error: a member's question was not answered", exc_info=error)
            content = BUSY
        send(Answer(question.number, content))
