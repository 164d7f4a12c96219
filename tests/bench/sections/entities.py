"""Many quota entities of all eight levels: what finding a new client's limit costs, and a decision; a micro benchmark.

No sockets: `quotas.engine` alone, in this process. The eight levels are there with one entity each, or with as many as
there are. The same ten clients ask, and between them they find their limit at every level that can be reached: where
a default for (any user, any client id) exists, the one for any user is never asked.
"""

import gc
import math
import time
from typing import Final

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions, Policy
from quotas.throttles.bandwidth import PRODUCE
from tests.bench.results import Bar, Outcome, Table
from tests.bench.sections.clients import Asking
from tests.bench.stage import Stage

COUNTS: Final = (1, 1_000, 100_000)
LIMIT: Final = 1.1
POLICIES: Final[tuple[Policy, ...]] = ("kip13", "schedule")
DECISIONS: Final = 40_000
_REPEATS: Final = 41  # the best of them counts: other work on the machine comes in bursts
_RATE: Final = 10.0**12  # never reached: every decision is the usual one

# The clients: (user, client id). Users u0, client ids c0 and pairs of them have entities of their own.
ASKING: Final = (
    ("u0", "c0"),
    ("u0", "nobody"),
    ("u-any-0", "x"),
    ("u-all-0", "x"),
    ("u-all-0", "y"),
    ("stranger", "c0"),
    ("stranger", "d0"),
    ("stranger", "nobody"),
    ("", "c0"),
    ("", "nobody"),
)


class Cost:
    """Nanoseconds: to find a new client's limit, and for one decision."""

    def __init__(self) -> None:
        self.limit = math.inf
        self.decision = math.inf


def definitions(count: int) -> Definitions:
    """Return `count` entities of each level that can have as many, and one of each that can not.

    >>> [len(definitions(count)) for count in (1, 1000)]
    [8, 5003]
    """
    found = Definitions()
    values = {PRODUCE: _RATE}
    for entity in (Entity(DEFAULT, DEFAULT), Entity(user=DEFAULT), Entity(client_id=DEFAULT)):
        found.put(entity, values)
    for number in range(count):
        for entity in (
            Entity(f"u{number}", f"c{number}"),
            Entity(f"u-any-{number}", DEFAULT),
            Entity(user=f"u-all-{number}"),
            Entity(DEFAULT, f"d{number}"),
            Entity(client_id=f"c{number}"),
        ):
            found.put(entity, values)
    return found


def run(stage: Stage) -> Outcome:
    """Measure both policies."""
    rows = []
    bars = []
    for policy in POLICIES:
        costs = measure(policy, COUNTS)
        rows += [
            (policy, f"{len_of(count):,}", f"{cost.limit:.0f}", f"{cost.decision:.0f}")
            for count, cost in zip(COUNTS, costs, strict=True)
        ]
        name = f"{len_of(COUNTS[-1]):,} entities of eight levels, {policy}: a decision against {len_of(1)}"
        bars.append(Bar(name, costs[-1].decision / costs[0].decision, LIMIT))
        stage.say(f"entities {policy}: " + ", ".join(f"{cost.decision:.0f} ns" for cost in costs))
    columns = ("policy", "entities", "limit of a new client, ns", "decision, ns")
    return Outcome([Table("Quota entities of all eight levels", columns, tuple(rows))], bars)


def len_of(count: int) -> int:
    """Return how many entities `definitions(count)` has."""
    return 5 * count + 3


def measure(policy: Policy, counts: tuple[int, ...], decisions: int = DECISIONS) -> list[Cost]:
    """Return the costs with each of these counts; they take turns, and the best of each counts."""
    rounds = max(1, decisions // len(ASKING))
    populations = [_Population(policy, count) for count in counts]
    costs = [Cost() for _ in counts]
    gc.disable()
    try:
        for _ in range(_REPEATS):
            for population, cost in zip(populations, costs, strict=True):
                cost.limit = min(cost.limit, population.limit(rounds))
                cost.decision = min(cost.decision, population.decide(rounds))
    finally:
        gc.enable()
    return costs


class _Population:
    def __init__(self, policy: Policy, count: int) -> None:
        self._definitions = definitions(count)
        engine = Engine(EngineOptions(policy=policy), self._definitions)
        throttles = [engine.client(user, client_id, 1).produce for user, client_id in ASKING]
        asked = [(throttle, throttle.flow()) for throttle in throttles]
        self._asking = Asking(engine, asked, [client_id for _, client_id in ASKING])

    def limit(self, rounds: int) -> float:
        find = self._definitions.limit
        began = time.perf_counter_ns()
        for _ in range(rounds):
            for user, client_id in ASKING:
                find(PRODUCE, user, client_id)
        return (time.perf_counter_ns() - began) / (rounds * len(ASKING))

    def decide(self, rounds: int) -> float:
        return self._asking.decide(rounds)
