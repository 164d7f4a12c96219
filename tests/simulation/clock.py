"""A virtual clock: what is to happen, in order of time."""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """The time, and the events to come; of those at one time, the first that was asked for comes first."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._order = count()
        self._events: list[tuple[int, int, Callable[[], object]]] = []

    def at(self, ms: int, act: Callable[[], object]) -> None:
        """Do something at a time, or now if that is past."""
        heapq.heappush(self._events, (max(ms, self.now_ms), next(self._order), act))

    def run(self, until_ms: int) -> None:
        """Let things happen until a time."""
        events = self._events
        while events and events[0][0] <= until_ms:
            self.now_ms, _, act = heapq.heappop(events)
            act()
        self.now_ms = until_ms
