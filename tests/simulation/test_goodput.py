"""The part of a consumer's quota that arrives as whole batches, in virtual time, as brokers cut responses (KIP-74)."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat

import pytest

from quotas.limiters.batches import record_first_batch
from quotas.limiters.limiter import Flow
from tests.simulation.throttle_world import LIMIT, ThrottleWorld, world_of

KIB = 1024
HUGE = 1_000_000
OVERHEAD = 120  # of a response with records
BROKER_MS = 3
BEGIN_MS = 6_000  # until then the burst is used up; nothing is judged
SECONDS = 36

Sizes = Callable[[random.Random], Iterator[int]]


@dataclass(slots=True)
class Reader:
    """A consumer that always has more to read; a batch that is cut is dropped, and read again."""

    world: ThrottleWorld
    sizes: Iterator[int]
    max_bytes: int = 52_428_800
    flow: Flow = field(default_factory=Flow)
    ahead: list[int] = field(default_factory=list)  # the sizes of the next batches
    useful: list[tuple[int, int]] = field(default_factory=list)
    fetches: int = 0

    def __call__(self, now_ms: int) -> None:
        """Ask."""
        decision = self.world.throttle.fetch(self.flow, now_ms)
        if decision.throttle_ms:
            self.world.at(now_ms + decision.throttle_ms + 1, self)
            return
        granted = self.world.throttle.fetch_max_bytes(self.flow, self.max_bytes, now_ms)
        self.world.at(now_ms + BROKER_MS, lambda at_ms: self.fetched(at_ms, granted))

    def fetched(self, now_ms: int, granted: int) -> None:
        """Take a response: the first batch whole, and what follows it up to max_bytes."""
        self.fetches += 1
        while sum(self.ahead) < granted or not self.ahead:
            self.ahead.append(next(self.sizes))
        first = self.ahead[0]
        records, whole = max(granted, first), 0
        while self.ahead and whole + self.ahead[0] <= records:
            whole += self.ahead.pop(0)
        self.useful.append((now_ms, whole))
        self.world.passed.append((now_ms, records + OVERHEAD))
        record_first_batch(self.flow, first)
        decision = self.world.throttle.fetched(self.flow, records + OVERHEAD, now_ms)
        self.world.at(now_ms + max(1, decision.throttle_ms), self)


def equal(size: int) -> Sizes:
    return lambda _: repeat(size)


def between(least: int, most: int) -> Sizes:
    def sizes(chance: random.Random) -> Iterator[int]:
        while True:
            yield chance.randint(least, most)

    return sizes


def alternating(chance: random.Random) -> Iterator[int]:
    """Tiny and huge batches, so that after either the other may come."""
    while True:
        yield 100
        yield chance.choice((100, HUGE))


def run(
    sizes: Sizes, connections: int, seed: int = 1, seconds: int = SECONDS
) -> tuple[ThrottleWorld, list[Reader]]:
    world = world_of("schedule", consumes=True)
    readers = [Reader(world, sizes(random.Random(seed * 1000 + number))) for number in range(connections)]
    for number, reader in enumerate(readers):
        world.at(number * 7, reader)
    world.run(seconds)
    return world, readers


def useful(reader: Reader) -> float:
    """The bytes of whole batches as a part of the quota."""
    return (
        sum(size for at_ms, size in reader.useful if at_ms >= BEGIN_MS) / LIMIT / (SECONDS - BEGIN_MS / 1000)
    )


@pytest.mark.parametrize("connections", [1, 5, 20])
@pytest.mark.parametrize(
    "sizes",
    [
        equal(16 * KIB),
        equal(256 * KIB),
        between(15_000, 16 * KIB),  # batch.size less a part of a record
        between(255 * KIB, 256 * KIB),
        between(1 * KIB, 31 * KIB),
        between(64 * KIB, 256 * KIB),
    ],
    ids=["16 KiB", "256 KiB", "up to 16 KiB", "up to 256 KiB", "1 to 31 KiB", "64 to 256 KiB"],
)
def test_quota_arrives_as_whole_batches(sizes: Sizes, connections: int) -> None:
    world, readers = run(sizes, connections)
    assert 0.98 <= sum(map(useful, readers)) <= 1.02
    shares = [sum(size for _, size in reader.useful) for reader in readers]
    assert min(shares) >= 0.9 * sum(shares) / connections
    # The bound: a burst, a second's quota, and a request: the largest may ask for half a second's.
    assert world.fullest_second() <= 2.5 * LIMIT


def test_batches_of_one_size_cost_no_more_fetches_than_before() -> None:
    # Half a second's quota in each, less what its last part would be: 1,000,000 B are 3.8 batches of 256 KiB.
    _, (reader,) = run(equal(256 * KIB), 1)
    assert reader.fetches <= SECONDS * LIMIT / (3 * 256 * KIB) + 5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("connections", [1, 5, 20])
def test_tiny_and_huge_batches_in_turn_pass_the_bound_nowhere(connections: int, seed: int) -> None:
    world, _ = run(alternating, connections, seed)
    assert world.fullest_second() <= 2 * LIMIT + HUGE


@pytest.mark.parametrize("size", [1_000, 16 * KIB])
def test_hundred_consumers_that_begin_together_have_the_whole_quota_at_once(size: int) -> None:
    # The first response is cut at max_bytes. Taken for a batch of 1 MB, it left room for two at a time at the broker.
    seconds = 20
    world, _ = run(equal(size), 100, seconds=seconds)
    assert sum(size for _, size in world.passed) >= 0.98 * LIMIT * seconds
