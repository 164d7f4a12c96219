"""Produce requests whose bytes come late, in virtual time: what passes in any second, and what honest clients get."""

from dataclasses import dataclass
from functools import partial

import pytest

from quotas.options import Policy
from tests.simulation.throttle_world import READ, SHOWN, Connection, Newcomer, world_of

MB = 1_000_000


def nothing(_now_ms: int) -> None:
    """Nothing follows."""


def test_bytes_announced_at_the_quotas_rate_do_not_pass_at_once() -> None:
    # Connections that have sent something before; no other one asks meanwhile.
    world, size, count = world_of("schedule"), 950_000, 50
    for number in range(count):
        each = Connection(world)
        world.at(10 * number, partial(each.ask, 500, 500, then=nothing))
        world.at(2000 + 500 * number, partial(each.ask, size, SHOWN, then=nothing))
        world.at(28_000, partial(each.more, size, then=nothing))
    world.run(60)
    assert world.fullest_second() <= 2 * MB + 2 * MB + size  # before: 47.3 MB


def test_late_bytes_are_charged_again() -> None:
    world = world_of("schedule")
    for number, size in enumerate([400_000] * 4 + [10 * MB]):
        late, other = Connection(world), Connection(world)
        world.at(number, partial(late.ask, size, SHOWN, then=nothing))
        world.at(20_000, partial(late.more, size, then=nothing))
        world.at(20_001 + number, partial(other.ask, size, size, then=nothing))
    world.run(60)
    assert world.fullest_second() <= 2 * MB + 2 * MB + 10 * MB  # before: 23.2 MB


@dataclass(slots=True)
class Late:
    """Announces a request, sends it 200 ms later, and as much again when it may."""

    connection: Connection
    size: int

    def __call__(self, now_ms: int) -> None:
        self.connection.ask(self.size, SHOWN, now_ms, self.announced)

    def announced(self, now_ms: int) -> None:
        self.connection.world.at(now_ms + 200, partial(self.connection.more, self.size, then=self.sent))

    def sent(self, now_ms: int) -> None:
        again = partial(self.connection.ask, self.size, self.size, then=nothing)
        self.connection.world.at(max(now_ms, self.connection.free_ms), again)


@pytest.mark.parametrize(("count", "size"), [(20, 20 * MB), (60, 5 * MB)])
def test_kip13_mutes_doubtful_channels_for_each_other(count: int, size: int) -> None:
    world = world_of("kip13")
    for number in range(count):
        each = Connection(world)
        world.at(0, partial(each.ask, 100, 100, then=nothing))
        world.at(1000 + number % 10, Late(each, size))
    world.run(3)
    # Eleven windows' quota, and a request of each connection, as in Kafka. Before: 800 and 600 MB.
    assert world.fullest_second() <= 22 * MB + count * size


@dataclass(slots=True)
class Staying:
    """Sends as much as it may."""

    connection: Connection
    size: int

    def __call__(self, now_ms: int) -> None:
        self.connection.ask(self.size, min(self.size, READ), now_ms, self.admitted)

    def admitted(self, now_ms: int) -> None:
        if self.connection.left:
            self.connection.world.at(now_ms + 2, partial(self.connection.more, self.size, then=self.sent))
        else:
            self.sent(now_ms)

    def sent(self, now_ms: int) -> None:
        self.connection.world.at(max(now_ms + 2, self.connection.free_ms), self)


@pytest.mark.parametrize(("staying", "size", "every_ms"), [(4, MB, 1000), (20, 100_000, 250)])
@pytest.mark.parametrize("policy", ["schedule", "kip13"])
def test_new_connections_pass_beside_saturating_ones(
    policy: Policy, staying: int, size: int, every_ms: int
) -> None:
    world = world_of(policy)
    for number in range(staying):
        world.at(3 * number, Staying(Connection(world), size))
    newcomers = [Newcomer(Connection(world), 20_000 + number * every_ms) for number in range(70)]
    for each in newcomers:
        world.at(each.came_ms, each)
    world.run(120)
    # In between `kip13` refused 46 and 32 of them.
    assert sum(each.connection.refused for each in newcomers) == 0
    assert min(each.wait_ms for each in newcomers) >= 0
    assert max(each.wait_ms for each in newcomers) <= 8_000


@dataclass(slots=True)
class Uplink:
    """Sends requests of 1 MB over 2 Mbit/s: 250 bytes/ms into a socket buffer of 128 KiB."""

    connection: Connection
    size: int = MB
    rest: int = MB
    buffered: int = 0
    begun: bool = False
    busy: bool = False

    def __call__(self, now_ms: int) -> None:
        self.buffered = min(self.buffered + 250 * 4, 131_072, self.rest)
        self.connection.world.at(now_ms + 4, self)
        here = min(self.buffered, READ)
        if self.busy or not here or (not self.begun and here < SHOWN):
            return
        self.busy = True
        if self.begun:
            self.connection.more(here, now_ms, partial(self.passed, here))
        else:
            self.connection.ask(self.size, here, now_ms, partial(self.passed, here))

    def passed(self, count: int, _now_ms: int) -> None:
        self.busy, self.begun = False, True
        self.rest -= count
        self.buffered -= count
        if not self.rest:
            self.rest, self.buffered, self.begun = self.size, 0, False


@pytest.mark.parametrize(("limit", "least"), [(10.0 * MB, 4.8 * MB), (4.0 * MB, 2.8 * MB)])
def test_slow_uplinks_are_slowed_by_their_quota_alone(limit: float, least: float) -> None:
    world = world_of("schedule", limit)
    uplinks = [Uplink(Connection(world)) for _ in range(20)]
    for number, each in enumerate(uplinks):
        world.at(13 * number, each)
    world.run(60)
    assert sum(each.connection.refused for each in uplinks) == 0
    # 5 MB/s are offered. In between: 2.9 and 1.2 MB/s.
    assert sum(count for _, count in world.passed) / 60 >= least
