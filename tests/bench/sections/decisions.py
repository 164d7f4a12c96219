"""What one decision costs with few quotas and with many: client ids, and entities of all eight levels.

A micro benchmark without sockets: `quotas.engine` alone, in this process. Many client ids are asked in two ways: the
same ten again and again (what the number of definitions costs), and all of them in turn (what the processor's caches
cost on top: each one's state has to come from memory first). The eight levels are there with one entity each, or with
as many as there are; the same ten clients ask, and between them they find their limit at every level that can be
reached: where a default for (any user, any client id) exists, the one for any user is never asked.
"""

import gc
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from quotas.engine import Engine
from quotas.options import EngineOptions, Policy
from tests.bench.report import Bar, Outcome, Table
from tests.bench.stage import Stage

FEW: Final = 10
COUNTS: Final = (1, 1_000, 100_000)
LIMIT: Final = 1.1
POLICIES: Final[tuple[Policy, ...]] = ("kip13", "schedule")
DECISIONS: Final = 40_000
_REPEATS: Final = 41  # the best of them counts: other work on the machine comes in bursts
_BYTES: Final = 1000
_RATE: Final = 10.0**12  # never reached: every decision is the usual one

# The clients of the eight levels: (user, client id). Users u0, client ids c0 and pairs of them have their own entities.
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

Cost = tuple[float, float]
"""Nanoseconds of one look-up of a client (or of its limit), and of one decision."""


class Asking:
    """Some clients of an engine that are asked again and again, in turn."""

    def __init__(self, engine: Engine, who: Sequence[tuple[str, str]]) -> None:
        throttles = [engine.client(user, client_id, 1).produce for user, client_id in who]
        self._asked = [(throttle, throttle.flow()) for throttle in throttles]
        self._now_ms = 1_000_000
        self.decide(1)  # what only the first decision does: attaching to its limiter

    def decide(self, rounds: int) -> float:
        """Return what one decision cost, over that many rounds."""
        asked = self._asked
        now_ms = self._now_ms
        began = time.perf_counter_ns()
        for _ in range(rounds):
            now_ms += 1  # one a pass: a client's windows pass at the same pace, however many others there are
            for throttle, flow in asked:
                throttle.produce(flow, _BYTES, now_ms)
        spent = time.perf_counter_ns() - began
        self._now_ms = now_ms
        return spent / (rounds * len(asked))


def look_up(find: Callable[..., object], asked: Sequence[tuple[object, ...]], rounds: int) -> float:
    """Return what one look-up cost, over that many rounds."""
    began = time.perf_counter_ns()
    for _ in range(rounds):
        for arguments in asked:
            find(*arguments)
    return (time.perf_counter_ns() - began) / (rounds * len(asked))


def best_of(lanes: Sequence[Callable[[], Cost]]) -> list[Cost]:
    """Let them take turns, and return the best of each: what else the machine does would be measured otherwise."""
    costs = [(math.inf, math.inf)] * len(lanes)
    gc.disable()
    try:
        for _ in range(_REPEATS):
            for index, lane in enumerate(lanes):
                found, best = lane(), costs[index]
                costs[index] = min(found[0], best[0]), min(found[1], best[1])
    finally:
        gc.enable()
    return costs


def client_ids(policy: Policy, many: int, decisions: int = DECISIONS) -> list[Cost]:
    """Return the cost with few ids, with the same few of many, and with all of the many in turn."""

    def population(count: int) -> Engine:
        limits = {
            Entity(client_id=f"client-{number}"): {PRODUCER_BYTE_RATE: _RATE + number}
            for number in range(count)
        }
        return Engine(EngineOptions(policy=policy, client_ids_max=max(count, 1000)), Definitions(limits))

    def lane(engine: Engine, ids: Sequence[int]) -> Callable[[], Cost]:
        who = [("ANONYMOUS", f"client-{number}", 1) for number in ids]
        asking, rounds = Asking(engine, [one[:2] for one in who]), max(1, decisions // len(ids))
        return lambda: (look_up(engine.client, who, rounds), asking.decide(rounds))

    ids = list(range(many))
    random.Random(7).shuffle(ids)  # the order of creation is the order in memory, which no traffic follows
    lots = population(many)
    for number in range(many):
        lots.client("ANONYMOUS", f"client-{number}", 1)
    return best_of([lane(population(FEW), range(FEW)), lane(lots, ids[:FEW]), lane(lots, ids)])


def run_clients(stage: Stage) -> Outcome:
    """Measure client ids under both policies."""
    many = stage.options.client_ids
    rows, bars = [], []
    for policy in POLICIES:
        found = client_ids(policy, many)
        shown = [f"{one[1]:.0f}" for one in found] + [f"{one[0]:.0f}" for one in found]
        rows.append((policy, *shown))
        name = f"{many:,} client ids, {policy}: a decision against {FEW}"
        bars.append(Bar(name, found[1][1] / found[0][1], LIMIT))
        stage.say(f"clients {policy}: {shown[0]} ns with {FEW}, {shown[1]} ns with {many:,}")
    columns = (
        *("policy", f"decision, {FEW} ids, ns", f"{FEW} of {many:,} ids, ns", "all in turn, ns"),
        *(f"look-up, {FEW} ids, ns", f"{FEW} of {many:,} ids, ns", "all in turn, ns"),
    )
    note = "All in turn: every decision finds its client's state cold in the processor's caches; no more code is run."
    return Outcome([Table(f"{many:,} client ids with a quota each", columns, tuple(rows), note)], bars)


def definitions(count: int) -> Definitions:
    """Return `count` entities of each level that can have as many, and one of each that can not.

    >>> [len(definitions(count)) for count in (1, 1000)]
    [8, 5003]
    """
    entities = [Entity(DEFAULT, DEFAULT), Entity(user=DEFAULT), Entity(client_id=DEFAULT)]
    for number in range(count):
        entities += (
            Entity(f"u{number}", f"c{number}"),
            Entity(f"u-any-{number}", DEFAULT),
            Entity(user=f"u-all-{number}"),
            Entity(DEFAULT, f"d{number}"),
            Entity(client_id=f"c{number}"),
        )
    return Definitions({entity: {PRODUCER_BYTE_RATE: _RATE} for entity in entities})


def levels(policy: Policy, counts: Sequence[int], decisions: int = DECISIONS) -> list[Cost]:
    """Return the costs with each of these counts of entities."""
    rounds = max(1, decisions // len(ASKING))
    asked = [(PRODUCER_BYTE_RATE, *who) for who in ASKING]

    def lane(count: int) -> Callable[[], Cost]:
        found = definitions(count)
        asking = Asking(Engine(EngineOptions(policy=policy), found), ASKING)
        return lambda: (look_up(found.limit, asked, rounds), asking.decide(rounds))

    return best_of([lane(count) for count in counts])


def run_entities(stage: Stage) -> Outcome:
    """Measure the eight levels under both policies."""
    rows, bars = [], []
    totals = [5 * count + 3 for count in COUNTS]
    for policy in POLICIES:
        costs = levels(policy, COUNTS)
        rows += [
            (policy, f"{total:,}", f"{limit:.0f}", f"{decision:.0f}")
            for total, (limit, decision) in zip(totals, costs, strict=True)
        ]
        name = f"{totals[-1]:,} entities of eight levels, {policy}: a decision against {totals[0]}"
        bars.append(Bar(name, costs[-1][1] / costs[0][1], LIMIT))
        stage.say(f"entities {policy}: " + ", ".join(f"{decision:.0f} ns" for _, decision in costs))
    columns = ("policy", "entities", "limit of a new client, ns", "decision, ns")
    return Outcome([Table("Quota entities of all eight levels", columns, tuple(rows))], bars)
