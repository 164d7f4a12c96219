"""One client's throttle and a clock: events in order of virtual time, and the bytes that passed."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from quotas.limiters.limiter import Flow
from quotas.options import Policy
from quotas.throttles.bandwidth import Throttle
from tests.simulation.clock import largest_window
from tests.simulation.quota_world import one_client

LIMIT = 2_000_000.0
SHOWN = 4096  # bytes of a request that are here when it is decided on
READ = 65_536  # and the most that are

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
        return largest_window(self.passed, 1000)


@dataclass(slots=True)
class Connection:
    """One connection, which does as `proxy.channel.requests`; what it was refused is counted.

    The header is decided on, the rest is relayed as it comes, and what did not come in time is charged again before it
    passes.
    """

    world: ThrottleWorld
    flow: Flow = field(default_factory=Flow)
    left: int = 0
    arriving: bool = False
    free_ms: int = 0  # muted until
    refused: int = 0

    def ask(self, size: int, here: int, now_ms: int, then: Event) -> None:
        """Send a request of which so many bytes are here; `then` follows when it has been admitted."""
        self.flow.missing = size - here
        decision = self.world.throttle.produce(self.flow, size, now_ms)
        if decision.hold_until_ms > now_ms:
            self.world.at(decision.hold_until_ms, lambda at_ms: self.ask(size, here, at_ms, then))
        elif decision.refused:
            self.refused += 1
            self.leave(now_ms)
        else:
            self.free_ms = now_ms + decision.throttle_ms
            self.left = size - here
            self.world.passed.append((now_ms, here))
            self.arriving = self.left > 0 and self.world.throttle.announce(self.flow, self.left, now_ms)
            then(now_ms)

    def more(self, count: int, now_ms: int, then: Event) -> None:
        """More of it has come; `then` follows when that has passed."""
        throttle, flow = self.world.throttle, self.flow
        if self.arriving:
            throttle.bytes_arrived(flow, now_ms)
            if flow.lost:
                decision = throttle.produce_rest(flow, now_ms)
                if decision.hold_until_ms > now_ms:
                    self.world.at(decision.hold_until_ms, lambda at_ms: self.more(count, at_ms, then))
                    return
                if decision.refused:
                    self.refused += 1
                    self.leave(now_ms)
                    return
                self.free_ms = max(self.free_ms, now_ms + decision.throttle_ms)
        count = min(count, self.left)
        self.left -= count
        self.world.passed.append((now_ms, count))
        if self.arriving:
            flow.announced -= count
            if flow.announced <= 0 and not flow.lost:
                self.arriving = False
                throttle.request_arrived(flow)
        then(now_ms)

    def leave(self, now_ms: int) -> None:
        self.world.throttle.leave(self.flow, now_ms)
        self.flow = self.world.throttle.flow()
        self.left = 0
        self.arriving = False


@dataclass(slots=True)
class Newcomer:
    """Sends one request whose rest comes 20 ms later, and leaves."""

    connection: Connection
    came_ms: int
    here: int = READ
    size: int = 200_000
    wait_ms: int = -1

    def __call__(self, now_ms: int) -> None:
        self.connection.ask(self.size, self.here, now_ms, self.admitted)

    def admitted(self, now_ms: int) -> None:
        self.wait_ms = now_ms - self.came_ms
        rest = partial(self.connection.more, self.size, then=self.connection.leave)
        self.connection.world.at(now_ms + 20, rest)


def world_of(policy: Policy, limit: float = LIMIT, *, consumes: bool = False) -> ThrottleWorld:
    """A world with one client that may produce so many bytes a second, or consume as many."""
    client = one_client(limit, policy=policy).client("", "client", 1)
    return ThrottleWorld(client.fetch if consumes else client.produce)
