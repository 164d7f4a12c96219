"""Many client ids with quotas: what one decision costs with 10 of them and with 100,000; a micro benchmark.

No sockets: `quotas.engine` alone, in this process. Two ways to ask the many: the same ten again and again (what the
number of definitions costs), and all of them in turn (what the processor's caches cost on top: each one's state has to
come from memory first).
"""

import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quotas.client_bandwidth import Throttle
from quotas.definitions_file import parse
from quotas.engine import Engine, EngineOptions
from quotas.options import Policy
from quotas.turn import Turn
from tests.bench.results import Bar, Outcome, Table
from tests.bench.stage import Stage

__all__ = ["measure", "run"]

FEW: Final = 10
LIMIT: Final = 1.1
POLICIES: Final[tuple[Policy, ...]] = ("kip13", "schedule")
DECISIONS: Final = 200_000
_REPEATS: Final = 5
_BYTES: Final = 1000

Asked = Sequence[tuple[Throttle, Turn]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds for one look-up of a client and for one produce decision."""

    look_up: float
    decision: float


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
    """Return the cost with few ids, with the same few of many, and with all of the many in turn."""
    few = Population(policy, FEW, decisions)
    lots = Population(policy, many, decisions)
    ids = list(range(many))
    random.Random(7).shuffle(ids)  # the order of creation is the order in memory, which no traffic follows
    return few.cost(list(range(FEW))), lots.cost(ids[:FEW]), lots.cost(ids)


class Population:
    """An engine in which `count` client ids have a quota that is never reached."""

    def __init__(self, policy: Policy, count: int, decisions: int) -> None:
        self._decisions = decisions
        tables = (
            f'[[quota]]\nclient_id = "client-{number}"\nproducer_byte_rate = {10**12 + number}\n'
            for number in range(count)
        )
        options = EngineOptions(policy=policy, client_ids_max=max(count, 1000))
        self._engine = Engine(options, parse("\n".join(tables)))
        self._names = [f"client-{number}" for number in range(count)]
        self._turns = [self._join(name) for name in self._names]
        self._now_ms = 1_000_000

    def cost(self, ids: Sequence[int]) -> Cost:
        """Return what it costs to ask these clients in turn: the best of some repeats."""
        rounds = max(1, self._decisions // len(ids))
        asked = [self._turns[number] for number in ids]
        names = [self._names[number] for number in ids]
        self._decide(asked, 1)  # what only the first decision does: attaching to its limiter
        gc.disable()
        try:
            decision = min(self._decide(asked, rounds) for _ in range(_REPEATS))
            look_up = min(self._look_up(names, rounds) for _ in range(_REPEATS))
        finally:
            gc.enable()
        return Cost(look_up=look_up, decision=decision)

    def _join(self, name: str) -> tuple[Throttle, Turn]:
        throttle = self._engine.client("ANONYMOUS", name, 1).produce
        return throttle, throttle.turn()

    def _decide(self, asked: Asked, rounds: int) -> float:
        now_ms = self._now_ms
        began = time.perf_counter_ns()
        for _ in range(rounds):
            now_ms += 1  # one a pass: a client's windows pass at the same pace, however many others there are
            for throttle, turn in asked:
                throttle.produce(turn, _BYTES, now_ms)
        spent = time.perf_counter_ns() - began
        self._now_ms = now_ms
        return spent / (rounds * len(asked))

    def _look_up(self, names: Sequence[str], rounds: int) -> float:
        client = self._engine.client
        began = time.perf_counter_ns()
        for _ in range(rounds):
            for name in names:
                client("ANONYMOUS", name, 1)
        return (time.perf_counter_ns() - began) / (rounds * len(names))
