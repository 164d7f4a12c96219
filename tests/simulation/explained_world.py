"""A client in virtual time (`quota_world`), visited as a process visits connections, and its verdict (`proxy.explain`).

The client has no latency of its own beside `latency_ms`; what it takes without a limit is measured in the same world.
"""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from proxy.channel import ASKED, UNASKED, Condition
from proxy.explain.documents import Neighbour
from proxy.explain.explanation import Context, Origin, explain
from proxy.explain.parts import MINUTE
from proxy.explain.report import ConnectionsSum, DemandSum, connection_reports, report
from proxy.explain.rules import Rule, Sharers
from proxy.explain.watch import Watch
from quotas.engine import Engine
from quotas.options import Policy
from quotas.throttles.bandwidth import Throttle
from tests.simulation.quota_world import Channel, ClientOptions, World, gates_of, one_client
from tests.support.documents import as_json

LIMIT: Final = 2_000_000.0  # bytes/s
# Kafka's windows need a minute or two until their sawtooth is steady.
BEGIN_MS: Final = 120_000
END_MS: Final = 240_000
VISIT_MS: Final = 100
_CLIENT: Final = "a"
_NOW: Final = datetime(2026, 11, 23, tzinfo=UTC)  # of what the document says in times of day


@dataclass(frozen=True, slots=True)
class Case:
    """Connections of one client that are the same.

    Args:
        times: of LIMIT; None for no limit.
        latency_ms: of one way between two machines.
    """

    policy: Policy
    client: ClientOptions
    connections: int = 1
    times: float | None = 1.0
    latency_ms: tuple[int, int] = (0, 1)

    def world(self) -> tuple[World, Engine]:
        """Return the world with its clients, before it begins."""
        limit = None if self.times is None else self.times * LIMIT
        engine = one_client(limit, policy=self.policy)
        world = World(gates_of(engine), seed=1, latency_ms=self.latency_ms, timer_late_ms=1)
        starts = random.Random(1)
        for _ in range(self.connections):
            world.add(replace(self.client, start_ms=starts.randrange(200)))
        return world, engine


def taken(case: Case) -> float:
    """Return what the client takes without a limit, as a multiple of LIMIT."""
    world, _ = replace(case, times=None).world()
    world.run(END_MS)
    return world.ratio(LIMIT, BEGIN_MS, END_MS)


def waited_seconds(case: Case, times: float) -> float:
    """Return the seconds of a minute that connections wait at a multiple of the limit."""
    world, _ = replace(case, times=times).world()
    world.run(BEGIN_MS)
    before_ms = sum(channel.waited_ms for channel in world.channels)
    world.run(END_MS)
    waited_ms = sum(channel.waited_ms for channel in world.channels) - before_ms
    return 60 * waited_ms / (END_MS - BEGIN_MS) / case.connections


def verdict(case: Case) -> dict[str, Any]:
    """Return the client's document of its last minute."""
    world, engine = case.world()
    visits = Visits(world, engine)
    world.run(END_MS)
    return visits.document()


class Visits:
    """Visits all connections of a world as a process does; before the world runs."""

    def __init__(self, world: World, engine: Engine) -> None:
        self._world, self._engine = world, engine
        self._watch = Watch()
        world.at(VISIT_MS, self._visit)

    def _visit(self) -> None:
        world = self._world
        for channel in world.channels:
            condition = _condition(channel, self._engine, world.now_ms)
            self._watch.visit(channel.number, condition, "peer", VISIT_MS, world.now_ms)
        world.at(world.now_ms + VISIT_MS, self._visit)

    def document(self, window: int = MINUTE) -> dict[str, Any]:
        """Return the client's document, now."""
        engine, now_ms = self._engine, self._world.now_ms

        def neighbours(rule: Rule) -> tuple[Neighbour, ...]:
            sharers = Sharers(engine, rule, "", _CLIENT, lambda _user, _client_id: True)
            for _ in sharers.look(now_ms):
                pass
            return sharers.found()

        client = self._watch.clients["", _CLIENT]
        connections, demand = ConnectionsSum(), DemandSum(client, window, now_ms)
        for one in connection_reports(client, window, now_ms, demand):
            connections.add(one)
        origin = Origin("", "")
        context = Context(
            window, engine.definitions, engine.enforcing, None, lambda *_: origin, neighbours, [], _NOW
        )
        found = report(client, window, now_ms, connections, demands=demand.demands())
        document: dict[str, Any] = as_json(explain(found, context))
        return document


def _condition(channel: Channel, engine: Engine, now_ms: int) -> Condition:
    """Return what a visit sees of a connection."""
    assert isinstance(channel.throttle, Throttle), "the engine's own"
    held_ms = now_ms - channel.held_since_ms if channel.held_since_ms >= 0 else 0
    to_come_ms = max(0, channel.muted_until_ms - now_ms)
    return Condition(
        engine.client("", _CLIENT, 1),
        1,
        ASKED if channel.owed or channel.busy else UNASKED,
        0,
        channel.waited_ms + held_ms - to_come_ms,
        channel.throttle,
        virtual_time=channel.flow.connection,
    )
