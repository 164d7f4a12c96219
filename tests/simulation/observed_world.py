"""One load, enforced and observed in a closed loop (`quota_world`): what part of its time waits, and the prediction."""

import random
from dataclasses import dataclass, replace
from typing import Final

from quotas.engine import Engine
from quotas.options import Mode, Policy
from tests.simulation.quota_world import ClientOptions, World, gates_of, one_client

LIMIT: Final = 2_000_000.0  # bytes/s
# In the time with enforcement: Kafka's windows need a minute or two until their sawtooth is steady.
BEGIN_MS: Final = 120_000
END_MS: Final = 240_000


@dataclass(frozen=True, slots=True)
class Load:
    """Connections of one client that are the same, spread evenly over their cycle.

    Args:
        ratio: what they send without a quota, as a multiple of the quota.
        latency_ms: of one way between two machines.
    """

    policy: Policy
    client: ClientOptions
    connections: int
    ratio: float
    latency_ms: tuple[int, int] = (0, 1)
    seed: int = 1

    def world(self, mode: Mode) -> tuple[World, Engine]:
        """Return the world with its clients, before it begins."""
        engine = one_client(LIMIT, policy=self.policy, mode=mode)
        world = World(gates_of(engine), self.seed, latency_ms=self.latency_ms, timer_late_ms=1)
        starts = random.Random(self.seed)
        for number in range(self.connections):
            start_ms = round(self.cycle_ms * (number + starts.random()) / self.connections)
            world.add(replace(self.client, start_ms=start_ms))
        return world, engine

    @property
    def cycle_ms(self) -> float:
        """The time that one connection's request in flight takes without a quota."""
        return self.connections * self.client.in_flight * self.client.size * 1000 / (self.ratio * LIMIT)


def enforced_share(load: Load) -> float:
    """Return the share of their time that connections were held or muted."""
    world, _ = load.world("enforce")
    world.run(BEGIN_MS)
    before_ms = sum(channel.waited_ms for channel in world.channels)
    world.run(END_MS)
    waited_ms = sum(channel.waited_ms for channel in world.channels) - before_ms
    return waited_ms / (END_MS - BEGIN_MS) / load.connections


def predicted_share(load: Load) -> tuple[float, float]:
    """Return the share of their time that connections would wait: as explained, and as counted for metrics."""
    world, engine = load.world("observe")
    begin_ms, end_ms = round(BEGIN_MS / load.ratio), round(END_MS / load.ratio)
    world.run(begin_ms)
    before, counted_before = _waits(world), _counted_ms(engine)
    world.run(end_ms)
    after, counted = _waits(world), _counted_ms(engine)
    waited_ms, lag_ms = after[0] - before[0], after[1] - before[1]
    elapsed_ms = (end_ms - begin_ms) * load.connections
    return waited_ms / (elapsed_ms + lag_ms), (counted - counted_before) / elapsed_ms


def _waits(world: World) -> tuple[int, int]:
    found = [channel.flow.connection for channel in world.channels]
    times = [(time.waited_ms, time.lag_ms) for time in found if time is not None]
    return sum(waited_ms for waited_ms, _ in times), sum(lag_ms for _, lag_ms in times)


def _counted_ms(engine: Engine) -> int:
    client = engine.client("", "a", 1)
    return client.produce.would_throttle_ms_total + client.fetch.would_throttle_ms_total
