"""The bounded queue of portions between the log's event loop and the reader's thread.

The log stops reading while PORTIONS_MAX portions are not taken; further records stay in Kafka.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from proxy.topic_log.records import Portion

PORTIONS_MAX: Final = 4


class Inbox:
    """A queue between one event loop and one thread.

    Attributes:
        arrived: called in the log's thread after each portion; set it before the log starts.
    """

    def __init__(self) -> None:
        self.arrived: Callable[[], None] = _nothing
        self._portions: deque[Portion] = deque()
        self._changed = threading.Condition()
        self._room: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def put(self, portion: Portion) -> None:
        """Add a portion, once there is room for it."""
        if self._room is None:
            self._room = (asyncio.get_running_loop(), asyncio.Event())
        room = self._room[1]
        while True:
            with self._changed:
                if len(self._portions) < PORTIONS_MAX:
                    self._portions.append(portion)
                    self._changed.notify()
                    break
                room.clear()
            await room.wait()
        self.arrived()

    @property
    def empty(self) -> bool:
        """Whether all portions are taken; in any thread."""
        return not self._portions

    def take(self, seconds: float = 0) -> Portion | None:
        """Remove the oldest portion, in the reader's thread; None if none comes within `seconds`."""
        with self._changed:
            if not self._portions and not self._changed.wait_for(lambda: bool(self._portions), seconds):
                return None
            portion = self._portions.popleft()
            room = self._room
        if room is not None:
            loop, event = room
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
        return portion


def _nothing() -> None: ...
