"""How often a worker steps: often while shares move, seldom otherwise, at once when something begins.

Each step wakes the process, which is nearly all that a worker costs without requests. Its lease is renewed at each
step, so a long pause must be a small part of a lease.
"""

import asyncio
from typing import Final

from proxy.process.shares import STEP_SECONDS

__all__ = ["IDLE_STEP_SECONDS", "Pace"]

IDLE_STEP_SECONDS: Final = 0.15


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
        end = self._loop.call_later(STEP_SECONDS if busy else IDLE_STEP_SECONDS, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            self._idle = False
            end.cancel()
