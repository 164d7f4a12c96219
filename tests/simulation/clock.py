"""A virtual clock: what is to happen, in order of time; and the most that has passed in a window of it."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count


class Clock:
    """The time, and the events to come; of those at one time, the first that was asked for comes first."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.order = count()
        self._events: list[tuple[int, int, Callable[[], object]]] = []

    def at(self, ms: int, act: Callable[[], object]) -> None:
        """Do something at a time, or now if that is past."""
        heapq.heappush(self._events, (max(ms, self.now_ms), next(self.order), act))

    def run(self, until_ms: int) -> None:
        """Let things happen until a time."""
        events = self._events
        while events and events[0][0] <= until_ms:
            self.now_ms, _, act = heapq.heappop(events)
            act()
        self.now_ms = until_ms


def largest_window(passed: Sequence[tuple[int, int]], window_ms: int) -> int:
    """The most bytes that passed in any window of this length; `passed` has times in ms and bytes, in order."""
    most = total = first = 0
    for at_ms, size in passed:
        total += size
        while passed[first][0] <= at_ms - window_ms:
            total -= passed[first][1]
            first += 1
        most = max(most, total)
    return most
