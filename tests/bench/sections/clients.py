"""Many client ids with quotas: what one decision costs with 10 of them and with 100,000; a micro benchmark.

No sockets: `quotas.engine` alone, in this process. Two ways to ask the many: the same ten again and again (what the
number of definitions costs), and all of them in turn (what the processor's caches cost on top: each one's state has to
come from memory first).
"""

import gc
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quotas.definitions.toml_file import parse
from quotas.engine import Engine
from quotas.limiters.flow import Flow
from quotas.options import EngineOptions, Policy
from quotas.throttles.bandwidth import Throttle
from tests.bench.results import Bar, Outcome, Table
from tests.bench.stage import Stage

FEW: Final = 10
LIMIT: Final = 1.1
POLICIES: Final[tuple[Policy, ...]] = ("kip13", "schedule")
DECISIONS: Final = 40_000
_REPEATS: Final = 41  # the best of them counts: other work on the machine comes in bursts
_BYTES: Final = 1000

Asked = Sequence[tuple[Throttle, Flow]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds for one look-up of a client and for one produce decision."""

    look_up: float
    decision: float

    def best(self, other: "Cost") -> "Cost":
        """Return the smaller of each."""
        return Cost(min(self.look_up, other.look_up), min(self.decision, other.decision))


def run(stage: Stage) -> Outcome:
    """Measure both policies."""
    many = stage.options.client_ids
    rows = []
    bars = []
    for policy in POLICIES:
        few, same_ten, all_of_them = measure(policy, many)
        rows.append(
            (
                policy,
                f"{few.decision:.0f}",
                f"{same_ten.decision:.0f}",
                f"{all_of_them.decision:.0f}",
                f"{few.look_up:.0f}",
                f"{same_ten.look_up:.0f}",
                f"{all_of_them.look_up:.0f}",
            )
        )
        name = f"{many:,} client ids, {policy}: a decision against {FEW}"
        bars.append(Bar(name, same_ten.decision / few.decision, LIMIT))
        stage.say(
            f"clients {policy}: {few.decision:.0f} ns with {FEW}, {same_ten.decision:.0f} ns with {many:,}"
        )
    columns = (
        *("policy", f"decision, {FEW} ids, ns", f"{FEW} of {many:,} ids, ns", "all in turn, ns"),
        *(f"look-up, {FEW} ids, ns", f"{FEW} of {many:,} ids, ns", "all in turn, ns"),
    )
    note = "All in turn: every decision finds its client's state cold in the processor's caches; no more code is run."
    return Outcome([Table(f"{many:,} client ids with a quota each", columns, tuple(rows), note)], bars)


def measure(policy: Policy, many: int, decisions: int = DECISIONS) -> tuple[Cost, Cost, Cost]:
    """Return the cost with few ids, with the same few of many, and with all of the many in turn.

    The three take turns, and the best of each counts: what else the machine does would be measured otherwise.
    """
    few = Population(policy, FEW)
    lots = Population(policy, many)
    ids = list(range(many))
    random.Random(7).shuffle(ids)  # the order of creation is the order in memory, which no traffic follows
    lanes = [few.ask(range(FEW)), lots.ask(ids[:FEW]), lots.ask(ids)]
    costs = [Cost(look_up=math.inf, decision=math.inf)] * len(lanes)
    gc.disable()
    try:
        for _ in range(_REPEATS):
            costs = [cost.best(lane.cost(decisions)) for cost, lane in zip(costs, lanes, strict=True)]
    finally:
        gc.enable()
    return costs[0], costs[1], costs[2]


class Population:
    """An engine in which `count` client ids have a quota that is never reached."""

    def __init__(self, policy: Policy, count: int) -> None:
        tables = (
            f'[[quota]]\nclient_id = "client-{number}"\nproducer_byte_rate = {10**12 + number}\n'
            for number in range(count)
        )
        options = EngineOptions(policy=policy, client_ids_max=max(count, 1000))
        self._engine = Engine(options, parse("\n".join(tables)))
        self._names = [f"client-{number}" for number in range(count)]
        self._flows = [self._join(name) for name in self._names]

    def ask(self, ids: Sequence[int]) -> "Asking":
        """Return what asks these clients in turn."""
        return Asking(
            self._engine, [self._flows[number] for number in ids], [self._names[number] for number in ids]
        )

    def _join(self, name: str) -> tuple[Throttle, Flow]:
        throttle = self._engine.client("ANONYMOUS", name, 1).produce
        return throttle, throttle.flow()


class Asking:
    """Asks some clients of an engine again and again, in turn."""

    def __init__(self, engine: Engine, asked: Asked, names: Sequence[str]) -> None:
        self._engine = engine
        self._asked = asked
        self._names = names
        self._now_ms = 1_000_000
        self.decide(1)  # what only the first decision does: attaching to its limiter

    def cost(self, decisions: int) -> Cost:
        """Return what asking cost, over about that many decisions."""
        rounds = max(1, decisions // len(self._asked))
        return Cost(look_up=self._look_up(rounds), decision=self.decide(rounds))

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

    def _look_up(self, rounds: int) -> float:
        client = self._engine.client
        names = self._names
        began = time.perf_counter_ns()
        for _ in range(rounds):
            for name in names:
                client("ANONYMOUS", name, 1)
        return (time.perf_counter_ns() - began) / (rounds * len(names))
