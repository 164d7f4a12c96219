"""What is stated of a client's demand, against loads whose demand is known: each stated bound must be true.

All in virtual time, under both policies. The demand of a load is what it takes without a limit in the same world;
enforcement begins, or the limit changes, in the middle, and the client is explained at any time after that.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from console.merging import merge_client
from proxy.explain.documents import ClientDocument
from proxy.explain.parts import MINUTE, QUARTER, SECONDS, TEN_SECONDS
from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.options import Policy
from tests.simulation.explained_world import LIMIT, Visits
from tests.simulation.quota_world import Channel, ClientOptions, World, client_limits, gates_of, one_client
from tests.support.documents import as_json, read

ABOUT = 0.1  # "at most about": timers of clients are late, and a visit is each 100 ms


@dataclass(slots=True)
class OpenLoop(Channel):
    """A connection whose records come whatever happens: they are sent as soon as they may, in requests of many."""

    offered: float = 0.0  # bytes/s
    sent: int = 0

    def client_sends(self) -> None:
        """Send all records that are there, at least one request's worth of 5 ms, and at most `size`."""
        world = self.world
        if world.now_ms < self.quiet_until_ms:
            world.timer(self.quiet_until_ms, self.client_sends)
            return
        linger_ms = 5
        waiting = round(self.offered * (world.now_ms - self.options.start_ms) / 1000) - self.sent
        if waiting < self.offered * linger_ms / 1000 or self.in_flight >= self.options.in_flight:
            if not self.in_flight:
                world.timer(world.now_ms + linger_ms, self.client_sends)
            return
        size = min(waiting, self.options.size)
        self.sent += size
        self.in_flight += 1
        self.send(size)
        self.client_sends()


@dataclass(frozen=True, slots=True)
class Load:
    """A client with several connections that are the same.

    Args:
        offered: bytes/s of each connection that sends whatever comes; 0: it sends when it has its response.
    """

    policy: Policy
    options: ClientOptions
    connections: int
    latency_ms: tuple[int, int]
    offered: float = 0.0

    def world(self, limit: float | None) -> tuple[World, Engine]:
        """Return the world with its clients, before it begins."""
        engine = one_client(limit, policy=self.policy)
        world = World(gates_of(engine), seed=1, latency_ms=self.latency_ms, timer_late_ms=1)
        for _ in range(self.connections):
            if self.offered:
                channel = OpenLoop(world, self.options, len(world.channels), offered=self.offered)
                world.channels.append(channel)
                world.at(self.options.start_ms, channel.client_sends)
            else:
                world.add(self.options)
        return world, engine

    def demand(self) -> float:
        """Return what it takes without a limit, in bytes/s."""
        world, _ = self.world(None)
        world.run(60_000)
        return world.bytes_between(20_000, 60_000) / 40


def load(chosen: random.Random) -> Load:
    """Return a load of 0.3 to 8 times LIMIT: one in three sends whatever comes."""
    policy: Policy = chosen.choice(("kip13", "schedule"))
    latency_ms = chosen.choice(((0, 1), (2, 5), (20, 30)))
    connections = chosen.choice((1, 1, 2, 4))
    demand = chosen.uniform(0.3, 8.0) * LIMIT / connections
    if chosen.random() < 0.35:
        # With five requests in flight, a round trip of 90 ms moves five times this.
        options = ClientOptions(size=max(20_000, round(demand * 0.2)), in_flight=5)
        return Load(policy, options, connections, latency_ms, demand)
    consumes = chosen.random() < 0.5
    in_flight = 1 if consumes else chosen.choice((1, 1, 5))
    way_ms = sum(latency_ms) / 2 * (4 if consumes else 3)
    think_ms = chosen.choice((0, 0, 10, 100)) if way_ms > 3 else chosen.choice((10, 100))
    size = max(1000, round(demand * (way_ms + think_ms) / 1000 / in_flight))
    options = ClientOptions(
        size=size, max_bytes=size, consumes=consumes, in_flight=in_flight, think_ms=think_ms
    )
    return Load(policy, options, connections, latency_ms)


def assert_true(found: dict[str, Any], demand: float, seen: float, limit: float) -> None:
    """Each figure that is stated must be true of a client with this demand, which took `seen` in the same window."""
    wants = found["wants"]
    if wants is None:
        return
    if wants["at_least"]:
        assert limit < wants["rate"] <= demand * (1 + ABOUT)
        assert wants["wait_seconds_per_minute"] is None
    else:
        assert wants["rate"] >= demand * (1 - ABOUT)
    assert wants["rate"] >= seen * (1 - ABOUT)


@pytest.mark.parametrize("seed", range(30))
def test_stated_demand_is_true_whenever_enforcement_begins(seed: int) -> None:
    chosen = random.Random(seed)
    one = load(chosen)
    began_ms, after_ms = chosen.randrange(0, 90_000), chosen.randrange(2_000, 90_000)
    demand = one.demand()
    world, engine = one.world(LIMIT)
    visits = Visits(world, engine)
    engine.switch_enforcement(False)
    world.at(began_ms, lambda: engine.switch_enforcement(True))
    world.run(began_ms + after_ms)
    for window in (TEN_SECONDS, MINUTE, QUARTER):
        found = visits.document(window)
        from_ms = max(0, world.now_ms - SECONDS[window] * 1000)
        seen = world.bytes_between(from_ms, world.now_ms) * 1000 / SECONDS[window] / 1000
        assert_true(found, demand, seen, LIMIT)


@pytest.mark.parametrize("seed", range(14))
def test_stated_demand_is_true_after_the_limit_has_changed(seed: int) -> None:
    chosen = random.Random(1000 + seed)
    one = load(chosen)
    limits = [round(chosen.uniform(0.2, 3.0) * LIMIT) for _ in range(2)]
    after_ms = chosen.randrange(2_000, 90_000)
    demand = one.demand()
    world, engine = one.world(limits[0])
    visits = Visits(world, engine)
    changed = Definitions(static=client_limits(limits[1]))
    world.at(60_000, lambda: engine.update(engine.options, changed, world.now_ms))
    world.run(60_000 + after_ms)
    assert_true(visits.document(), demand, 0.0, limits[1])


@pytest.mark.parametrize("seed", range(10))
def test_members_figures_are_added(seed: int) -> None:
    """Two members with a part of the limit each; the client has another load at each, perhaps below its part."""
    chosen = random.Random(2000 + seed)
    loads = [load(chosen) for _ in range(2)]
    part = chosen.uniform(0.2, 0.8)
    found = []
    for one, limit in zip(loads, (round(part * LIMIT), round((1 - part) * LIMIT)), strict=True):
        world, engine = one.world(limit)
        visits = Visits(world, engine)
        world.run(120_000)
        found.append(visits.document())
    together = as_json(merge_client([read(ClientDocument, one, f"gw-{n}") for n, one in enumerate(found)]))
    if together["rule"] is not None:
        kinds = {one.options.consumes for one in loads}
        if len(kinds) == 1:  # else each is limited by a quota of its own
            assert_true(together, sum(one.demand() for one in loads), 0.0, 0.0)


FIVE = Load("schedule", ClientOptions(size=375_000), 1, (20, 30))  # 375 kB in 75 ms


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_producer_that_sent_five_before_enforcement_asks_for_no_less(policy: Policy) -> None:
    """The trial: 5.0 MB/s without enforcement, a limit of 2 MB/s from then on; 3.6 MB/s were stated."""
    one = replace(FIVE, policy=policy)
    assert one.demand() == pytest.approx(5e6, rel=0.01)
    world, engine = one.world(LIMIT)
    visits = Visits(world, engine)
    engine.switch_enforcement(False)
    world.at(60_000, lambda: engine.switch_enforcement(True))
    stated = []
    for after_ms in range(1_000, 130_000, 3_000):
        world.run(60_000 + after_ms)
        wants = visits.document()["wants"]
        stated.append(wants is not None and not wants["at_least"])
        if wants is not None:
            assert wants["rate"] >= 4.9e6
    # From two slots of 10 s after the first waits on; Kafka's windows let the first 10 s pass.
    assert all(stated[10:])


def test_member_that_waits_is_added_to_one_that_does_not() -> None:
    """The trial: 989.0 kB/s of one member were stated as all that the client asks for."""
    found = []
    for size in (375_000, 75_000):  # 5 MB/s at one, 1 MB/s at the other, and half of 2 MB/s for each
        world, engine = replace(FIVE, options=ClientOptions(size=size)).world(1.2 * LIMIT / 2)
        visits = Visits(world, engine)
        world.run(120_000)
        found.append(visits.document())
    assert [one["rule"] is None for one in found] == [False, True]
    alone = found[0]["wants"]["rate"]
    together = as_json(merge_client([read(ClientDocument, one, f"gw-{n}") for n, one in enumerate(found)]))
    assert together["wants"]["rate"] == pytest.approx(alone + 1e6, rel=0.02)
    asks = f"At all of them together it asks for at most about {alone / 1e6 + 1:.1f} MB/s."
    assert asks in together["sentence"]


def test_what_is_below_the_limit_is_not_stated() -> None:
    """The trial: "asks for more than 398.9 kB/s" below a limit of 400 kB/s."""
    one = Load("kip13", ClientOptions(size=300_000, in_flight=5), 1, (20, 30))
    world, engine = one.world(LIMIT / 5)
    visits = Visits(world, engine)
    world.run(180_000)
    found = visits.document()
    assert found["time"]["muted"] > 0.9
    assert found["demand"]["producer_byte_rate"]["taken"] == pytest.approx(LIMIT / 5, rel=0.1)
    assert found["wants"] is None
    assert "How much it asks for is not known." in found["sentence"]
