"""More connections of one client id than may be with brokers at a time, in virtual time: what each of them gets.

Most are idle: a Fetch of theirs waits at the broker in vain, as long as it may. A Fetch with records takes 3 ms.
"""

from collections import deque
from dataclasses import dataclass, field

import pytest

from quotas.limiters.limiter import Flow
from tests.simulation.throttle_world import LIMIT, ThrottleWorld, world_of

BATCH = 16_000
EMPTY = 60
MAX_WAIT_MS = 5_000
BEGIN_MS = 8_000  # until then connections begin; nothing is judged


@dataclass(slots=True)
class Consumer:
    """Asks again when it may. Its batches are there when `due` says so: a time for each, in ms, in order."""

    world: ThrottleWorld
    due: deque[int] = field(default_factory=deque)
    batch: int = BATCH
    max_bytes: int = 50_000_000
    flow: Flow = field(default_factory=Flow)
    delays: list[int] = field(default_factory=list)
    requests: int = 0
    bytes: int = 0

    def __call__(self, now_ms: int) -> None:
        """Ask."""
        self.requests += 1
        decision = self.world.throttle.fetch(self.flow, now_ms)
        if decision.throttle_ms:
            self.world.at(now_ms + decision.throttle_ms + 1, self)
            return
        granted = self.world.throttle.fetch_max_bytes(self.flow, self.max_bytes, now_ms)
        until_ms = now_ms + min(MAX_WAIT_MS, self.flow.wait_ms_max)
        if self.due and self.due[0] <= until_ms:
            self.world.at(max(now_ms + 3, self.due[0]), lambda now: self.fetched(now, granted))
        else:
            self.world.at(until_ms, lambda now: self.fetched(now, 0))

    def fetched(self, now_ms: int, granted: int) -> None:
        """The broker responds with what is there: one batch at least, and no more than was asked for."""
        batches = 0
        while (
            granted
            and self.due
            and self.due[0] <= now_ms
            and (not batches or (batches + 1) * self.batch <= granted)
        ):
            due_ms = self.due.popleft()
            if due_ms >= BEGIN_MS:
                self.delays.append(now_ms - due_ms)
            batches += 1
        size = batches * self.batch or EMPTY
        self.world.passed.append((now_ms, size))
        if now_ms >= BEGIN_MS:
            self.bytes += size
        decision = self.world.throttle.fetched(self.flow, size, now_ms)
        self.world.at(now_ms + max(1, decision.throttle_ms), self)


def crowd(world: ThrottleWorld, count: int) -> list[Consumer]:
    """Idle consumers, which begin within a tenth of a second."""
    idle = [Consumer(world) for _ in range(count)]
    for number, consumer in enumerate(idle):
        world.at(5_000 + number % 100, consumer)
    return idle


def every(step_ms: int, seconds: int) -> deque[int]:
    return deque(range(0, seconds * 1000, step_ms))


@pytest.mark.parametrize(("idle", "longest_ms"), [(50, 50), (128, 250), (200, 1000), (400, 1500)])
def test_busy_consumer_beside_idle_ones_gets_its_rate(idle: int, longest_ms: int) -> None:
    # It wants 16 kB every 100 ms, 8 % of the quota. With the idle ones asking again at once, 200 left it 4 % of that.
    seconds = 30
    world = world_of("schedule", consumes=True)
    busy = Consumer(world, every(100, seconds))
    world.at(0, busy)
    crowd(world, idle)
    world.run(seconds)
    assert len(busy.delays) >= 0.95 * (seconds * 1000 - BEGIN_MS) / 100
    assert max(busy.delays) <= longest_ms


def test_idle_consumers_cost_greedy_ones_little() -> None:
    seconds = 30
    world = world_of("schedule", consumes=True)
    greedy = [Consumer(world, deque([0] * 10_000)) for _ in range(5)]
    for consumer in greedy:
        world.at(0, consumer)
    crowd(world, 200)
    world.run(seconds)
    total = sum(consumer.bytes for consumer in greedy)
    assert 0.85 <= total / LIMIT / (seconds - BEGIN_MS / 1000) <= 1.0  # without the idle ones: 0.99
    assert min(consumer.bytes for consumer in greedy) >= 0.9 * total / 5


def test_crowd_of_idle_consumers_asks_seldom() -> None:
    # 128 places of 15,625 B, each for 100 ms at least: told 100 ms each time, 400 would ask 4,000 times a second.
    seconds = 30
    world = world_of("schedule", consumes=True)
    idle = crowd(world, 400)
    world.run(seconds)
    assert sum(consumer.requests for consumer in idle) / (seconds - 5) <= 1_200


def test_small_consumers_that_use_most_of_the_quota_wait_half_a_second_at_most() -> None:
    # 200 with 5 kB every 600 ms each: 83 % of the quota. When all asked again at once, 1 % came more than 2.1 s late.
    seconds = 30
    world = world_of("schedule", consumes=True)
    consumers = [
        Consumer(world, deque(range(number * 3, seconds * 1000, 600)), batch=5_000) for number in range(200)
    ]
    for consumer in consumers:
        world.at(0, consumer)
    world.run(seconds)
    delays = sorted(delay for consumer in consumers for delay in consumer.delays)
    assert len(delays) >= 0.98 * 200 * (seconds * 1000 - BEGIN_MS) / 600
    assert delays[len(delays) * 99 // 100] <= 500


@pytest.mark.parametrize("shares", [False, True])
def test_batches_of_unknown_size_for_all_at_once(shares: bool) -> None:
    """60 that have seen nothing, then a batch of 100 kB each: share consumers hold the bound, others three times it.

    In a second may pass: a burst of a second, a second of the quota, and what one response may have.
    """
    world = world_of("schedule", consumes=True)
    for consumer in crowd(world, 60):
        consumer.flow.shares = shares
        consumer.batch = 100_000
        consumer.due = deque([12_000])
    world.run(20)
    bound = 2 * LIMIT + LIMIT / 2 + 100_000
    assert (world.fullest_second() <= bound) is shares, world.fullest_second() / LIMIT


def test_busy_share_consumer_beside_idle_ones_gets_its_rate() -> None:
    # As above with 50 idle ones. They count with 47 kB each, so that some rest.
    seconds = 30
    world = world_of("schedule", consumes=True)
    busy = Consumer(world, every(100, seconds))
    world.at(0, busy)
    for consumer in (busy, *crowd(world, 50)):
        consumer.flow.shares = True
    world.run(seconds)
    assert len(busy.delays) >= 0.95 * (seconds * 1000 - BEGIN_MS) / 100
    assert max(busy.delays) <= 250
