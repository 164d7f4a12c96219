"""One client's throttle and a clock: events in order of virtual time, and the bytes that passed."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from quotas.options import Policy
from quotas.throttles.bandwidth import Throttle
from tests.simulation.quota_world import one_client

LIMIT = 2_000_000.0

Event = Callable[[int], None]


@dataclass(slots=True)
class ThrottleWorld:
    """What happens, and when; the connections note in `passed` what they sent: (ms, bytes)."""

    throttle: Throttle
    events: list[tuple[int, int, Event]] = field(default_factory=list)
    passed: list[tuple[int, int]] = field(default_factory=list)
    number: int = 0

    def at(self, ms: int, event: Event) -> None:
        """Have something happen; of what happens at one time the first that was asked for comes first."""
        self.number += 1
        heapq.heappush(self.events, (ms, self.number, event))

    def run(self, seconds: int) -> None:
        """Let all happen up to this time."""
        while self.events and self.events[0][0] <= seconds * 1000:
            now_ms, _, event = heapq.heappop(self.events)
            event(now_ms)

    def fullest_second(self) -> int:
        """The most bytes that passed within any second."""
        most = total = first = 0
        for at_ms, size in self.passed:
            total += size
            while self.passed[first][0] <= at_ms - 1000:
                total -= self.passed[first][1]
                first += 1
            most = max(most, total)
        return most


def world_of(policy: Policy, limit: float = LIMIT, *, consumes: bool = False) -> ThrottleWorld:
    """A world with one client that may produce so many bytes a second, or consume as many."""
    client = one_client(limit, policy=policy).client("", "client", 1)
    return ThrottleWorld(client.fetch if consumes else client.produce)
