"""How often control and workers step: often while shares move, seldom otherwise, at once when something begins.

Each step wakes the process, which is nearly all that a worker costs without requests. Its lease is renewed at each
step, so a long pause must be a small part of a lease. Steps are due at the same times in all processes of the host: the
reports of all workers then wake control once.
"""

import asyncio
from time import monotonic
from typing import Final

from proxy.process.shares import STEP_SECONDS

IDLE_STEP_SECONDS: Final = 0.15
_EARLY_PART: Final = (
    4  # a timer may fire a little too early: what is due within this part of a step is not due again
)


class Pace:
    """The pauses between steps."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = asyncio.Event()
        self._idle = False

    def wake(self) -> None:
        """End a long pause; a short one is over soon."""
        if self._idle:
            self._woken.set()

    async def pause(self, *, busy: bool) -> None:
        """Wait until the next step is due.

        Args:
            busy: whether shares move, or may soon.
        """
        self._woken.clear()
        self._idle = not busy
        step = STEP_SECONDS if busy else IDLE_STEP_SECONDS
        seconds = step - monotonic() % step
        if seconds < step / _EARLY_PART:
            seconds += step
        end = self._loop.call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            self._idle = False
            end.cancel()
