"""What `recommend` does where the quotas in force state a capacity: rates, ceilings and weights in place of one number.

Spark simulates the recording with each ceiling that is tried, with the advice, and with the quotas in force
(`transforms.capacity`); `advice.capacity` decides.

The heaviest clients, as many as there may be overrides, are classes with an entry of their own, and each other client
is one below the default. Clients that a group limits, or another entity that is not theirs, or an exemption, keep these
terms, and so does a client with an entry of its own that is not among the heaviest.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.advice.capacity import (
    ALWAYS,
    CEILINGS_TRIED,
    Demand,
    Share,
    Whole,
    better,
    lines,
    rates,
    shortest,
    weight_lines,
    weights,
)
from offline.advice.explain import DEFAULT_NAME, KEYS, Line, confidence, scope_note
from offline.advice.forecast import Forecast
from offline.advice.limits import DEFAULT_MIN, Client, client_entity, default_entity
from offline.errors import InputError
from offline.jobs.measured import Span
from offline.options import By, Goal
from offline.transforms.candidates import rounded
from offline.transforms.capacity import PEAKS_S, blocks, budgets, carried, demands, totals
from offline.transforms.loads import BLOCK_S
from quotas.backtest.capacity import EXEMPT, RANKS, Classes
from quotas.definitions.alterations import Quotas
from quotas.definitions.classes import Capacity, Terms, promised
from quotas.definitions.definitions import Definitions, candidates, keys_of
from quotas.definitions.entities import Entity
from quotas.definitions.kinds import CEILINGS, WEIGHT
from quotas.options import EngineOptions
from quotas.sharing.capacities import rank_of

_OWNERS: Final = "direction string, user string, client_id string, owner int"


class Measured(NamedTuple):
    """One direction as it was measured.

    Args:
        needs: by client, the smallest candidate that does not throttle it, in bytes/s; -1 if none is enough.
        margin: the factor by which a quota is to be more than that.
        expected: by client, the quota over the highest need that was recorded, and the forecast.
        peak_before: the busiest ten seconds in bytes/s, as recorded.
    """

    needs: Mapping[Client, float]
    margin: float
    expected: Mapping[Client, tuple[float, Forecast]]
    peak_before: float


class Advised(NamedTuple):
    """The advice in all directions with a capacity.

    Args:
        limits: by direction and client: up to which rate it may send, in bytes/s, and how long it waits, in ms.
        classes: rows of the table `recommend/classes`.
        loads: direction, broker, block, promised and lent (bytes).
    """

    lines: list[Line]
    limits: dict[str, Mapping[Client, tuple[float, int]]]
    classes: list[tuple[Any, ...]]
    loads: DataFrame


def stated(current: Quotas, goal: Goal, engine: EngineOptions) -> Definitions:
    """Return the quotas in force, with the capacities of the options where these state others.

    Raises:
        InputError: there is a capacity that does not fit the policy or the scope of the backtest.
    """
    known = {
        entity: {key: value for key, value in values.items() if key in keys_of(entity)}
        for entity, values in current.items()
    }
    for entity, values in known.items():
        if entity.capacity is not None:
            values |= {key: goal.capacity(way) or values[key] for way, key in KEYS.items() if key in values}
    found = Definitions(known)
    if found.capacities and engine.policy != "schedule":
        raise InputError(
            f'{goal.quotas_file} states a capacity, which the policy "{engine.policy}" has not: '
            "run backtest with --policy schedule"
        )
    for capacity in found.capacities.values():
        if capacity.cluster != (engine.scope == "cluster"):
            scope = "cluster" if capacity.cluster else "broker"
            raise InputError(
                f"{goal.quotas_file} states a capacity of scope {scope}, and the backtest was made for quotas "
                f"{scope_note(gateway=engine.scope == 'cluster')}: run backtest with --scope {scope}"
            )
    return found


@dataclass(slots=True)
class _Table:
    """Classes of one direction as they are put together: terms by number, and the number of each client's."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    terms: list[tuple[Terms, int]] = field(default_factory=list)
    owners: dict[Client, int] = field(default_factory=dict)

    def add(self, client: Client, name: Hashable, terms: Terms, rank: int) -> None:
        if name not in self.numbers:
            self.numbers[name] = len(self.terms)
            self.terms.append((terms, rank))
        self.owners[client] = self.numbers[name]

    def classes(self, capacity: Capacity) -> Classes:
        return Classes(
            np.array([promised(terms, capacity) for terms, _ in self.terms]),
            np.array([terms.ceiling for terms, _ in self.terms]),
            np.array([terms.weight for terms, _ in self.terms]),
            np.array([rank for _, rank in self.terms], np.int64),
        )


class _Way:
    """One direction: its clients, what the heaviest of them are promised, and the terms in force.

    Attributes:
        today: the classes by the quotas in force.
        rates: what the heaviest clients are promised, in bytes/s.
        rest: the clients below the default, whose rate is `default`.
        kept: the clients whose terms stay, and what these promise together.
    """

    def __init__(
        self,
        direction: str,
        measured: Measured,
        demands_: Mapping[Client, Demand],
        quotas: Definitions,
        goal: Goal,
        by: By,
    ) -> None:
        self.direction, self.key, self.measured = direction, KEYS[direction], measured
        self.capacity = quotas.capacities[self.key]
        self.today = _Table()
        free, covered = set(), set()
        for client in measured.needs:
            limit, bucket = quotas.limit(self.key, *client)
            name = quotas.class_of(self.key, limit, bucket)
            terms = quotas.terms(self.key, name)
            rank = RANKS[rank_of(self.key, name, terms, quotas)]
            self.today.add(client, name, terms, EXEMPT if terms.exempt else rank)
            governing = next(
                (one.entity for one in candidates(quotas, self.key, *client) if one.decides), None
            )
            own = client_entity(*client, by)
            if terms.exempt:
                continue
            if governing in (None, default_entity(by)):
                covered.add(client)
            if client in demands_ and own is not None and (client in covered or governing == own):
                free.add(client)
        heaviest = sorted(free, key=lambda name: (-demands_[name].peaks[1], *name))[: goal.overrides]
        self.demands = {name: demands_[name] for name in heaviest}
        self.rest = sorted(covered - set(heaviest))
        needs = [measured.needs[client] * measured.margin for client in self.rest]
        least = self.capacity.rate if min(needs, default=0.0) < 0 else max([DEFAULT_MIN, *needs])
        self.default = min(least, self.capacity.rate)
        numbers = {
            number
            for client, number in self.today.owners.items()
            if client not in self.demands and client not in covered
        }
        kept = (self.today.terms[number] for number in numbers)
        self.kept = sum(terms.rate for terms, rank in kept if rank == RANKS["named"])
        self.rates = rates(self.demands, self.capacity.rate - self.kept)

    def table(self, ceilings: Mapping[Client, float], weight: Mapping[Client, float]) -> _Table:
        """Return the classes with the advised rates, and these ceilings and weights of the heaviest clients."""
        found, covered = _Table(), set(self.rest)
        for client, number in self.today.owners.items():
            if client in self.demands:
                terms = Terms(self.rates[client], ceilings[client], weight.get(client, 1.0))
                found.add(client, client, terms, RANKS["named" if terms.rate else "unpromised"])
            elif client in covered:
                found.add(client, client, Terms(self.default, self.default), RANKS["default"])
            else:
                found.add(client, number, *self.today.terms[number])
        return found

    def confidence(self, client: Client, sure: str) -> str:
        """Return the confidence of a client's forecast; `sure` without one."""
        expected = self.measured.expected.get(client)
        return sure if expected is None else expected[1].confidence

    def tried(self, place: int) -> dict[Client, float]:
        """Return the ceiling of each of the heaviest clients at this place of those to try."""
        return {
            name: one.ceilings(self.rates[name], self.capacity.rate)[place]
            for name, one in self.demands.items()
        }


class _Waits(NamedTuple):
    """What came of a simulation of candidates.

    Args:
        found: by direction, candidate and class, the wait in ms and the bytes lent.
        rows: the result of `carried`.
    """

    found: Mapping[tuple[str, int, int], tuple[int, int]]
    rows: DataFrame

    def of(self, direction: str, candidate: int, owner: int) -> tuple[int, int]:
        """Return the wait in ms and the bytes lent; 0 for a class that sent nothing."""
        return self.found.get((direction, candidate, owner), (0, 0))

    def together_ms(self, candidate: int, direction: str = "") -> int:
        """Return for how long all classes wait, in one direction or in both."""
        return sum(
            ms
            for (name, each, _), (ms, _) in self.found.items()
            if each == candidate and direction in ("", name)
        )


class _Simulation:
    """Runs the recording with classes that share the capacities."""

    def __init__(self, seconds: DataFrame, ways: Sequence[_Way], start_s: int, day_s: int) -> None:
        self._seconds, self._ways, self._start_s, self._day_s = seconds, ways, start_s, day_s

    def run(self, tables: Mapping[str, Sequence[_Table]]) -> _Waits:
        """Simulate candidates, which are given by direction and have the same clients in the same classes."""
        owners = [
            (name, *client, number)
            for name, each in tables.items()
            for client, number in each[0].owners.items()
        ]
        rows = carried(
            self._seconds,
            self._seconds.sparkSession.createDataFrame(owners, _OWNERS),
            {
                way.direction: [one.classes(way.capacity) for one in tables[way.direction]]
                for way in self._ways
            },
            {way.direction: way.capacity.rate for way in self._ways},
            self._start_s,
            self._day_s,
        ).cache()
        return _Waits(
            {
                (row["direction"], row["candidate"], row["owner"]): (row["waited_ms"], row["lent"])
                for row in totals(rows).collect()
            },
            rows,
        )


def advise(
    per_second: DataFrame,
    span: Span,
    measured: Mapping[str, Measured],
    quotas: Definitions,
    goal: Goal,
    by: By,
    sources: Sequence[str],
) -> Advised:
    """Return rates, ceilings and weights for the directions in which a capacity is stated.

    Args:
        per_second: the table `demand/per_second`.
        measured: by direction; each has a capacity.
        quotas: those in force, with the capacities.
        sources: what the captures cannot know (`advice.explain.confidence`).
    """
    cluster = all(one.cluster for one in quotas.capacities.values())
    seconds = budgets(per_second.filter(F.col("direction").isin(*measured)), by_broker=not cluster).cache()
    found = _demands(seconds, span, measured, goal)
    ways = [_Way(name, one, found.get(name, {}), quotas, goal, by) for name, one in measured.items()]
    simulation = _Simulation(seconds, ways, span.start_s, goal.day)
    tolerated_ms = goal.tolerance * span.recorded * 1000
    ceilings, alone_ms = _ceilings(ways, simulation, tolerated_ms)
    borrowed: dict[Client, float] = {}
    for way in ways:
        for client, ceiling in ceilings[way.direction].items():
            borrowed[client] = borrowed.get(client, 0.0) + ceiling - way.rates[client]
    choices = (dict.fromkeys(borrowed, 1.0), weights(borrowed))
    tables = {way.direction: [way.table(ceilings[way.direction], each) for each in choices] for way in ways}
    waits = simulation.run(tables)
    chosen = int(better(waits.together_ms(1), waits.together_ms(0), tolerated_ms))
    today = simulation.run({way.direction: [way.today] for way in ways})
    loads = blocks(waits.rows, chosen, span.blocks).cache()

    advised = Advised([], {}, [], loads)
    confidences: dict[Client, str] = {}
    for way in ways:
        name, table = way.direction, tables[way.direction][chosen]
        advised.limits[name] = {
            client: (table.terms[number][0].ceiling, waits.of(name, chosen, number)[0])
            for client, number in table.owners.items()
        }
        sure = confidence(seconds=span.recorded, clients=len(table.owners), sources=sources)
        shares = [
            Share(
                client=client,
                wanted=demand.rate,
                terms=table.terms[table.owners[client]][0],
                waited_ms=waits.of(name, chosen, table.owners[client])[0],
                alone_ms=alone_ms[name, client],
                today_ms=today.of(name, 0, way.today.owners[client])[0],
                lent=waits.of(name, chosen, table.owners[client])[1],
                confidence=way.confidence(client, sure),
                replaces=CEILINGS[way.key] in quotas.values(client_entity(*client, by) or Entity()),
            )
            for client, demand in way.demands.items()
        ]
        rest = Share(
            client=(DEFAULT_NAME, DEFAULT_NAME),
            wanted=way.default,
            terms=Terms(way.default, way.default),
            waited_ms=sum(waits.of(name, chosen, table.owners[client])[0] for client in way.rest),
            alone_ms=0,
            today_ms=sum(
                today.of(name, 0, number)[0] for number in {way.today.owners[client] for client in way.rest}
            ),
            lent=0,
            confidence=sure,
            replaces=CEILINGS[way.key] in quotas.values(default_entity(by)),
        )
        left, left_always, peak_after = _left(loads.filter(F.col("direction") == name), way, span)
        whole = Whole(
            direction=name,
            capacity=way.capacity.rate,
            where="all brokers together" if cluster else "each broker",
            shares=shares,
            kept=way.kept,
            rest=rest,
            rest_clients=len(way.rest),
            throttled=sum(waited_ms > tolerated_ms for _, waited_ms in advised.limits[name].values()),
            together_ms=waits.together_ms(chosen, name),
            left=left,
            left_always=left_always,
            seconds=span.recorded,
            peak_before=way.measured.peak_before,
            peak_after=peak_after,
        )
        advised.lines.extend(lines(whole))
        advised.classes.extend(
            (name, *one.client, *one.terms[:3], one.waited_ms, one.today_ms, one.lent) for one in shares
        )
        confidences |= {one.client: one.confidence for one in shares}
    weight = {
        client: each
        for client, each in choices[chosen].items()
        if each != 1 or WEIGHT in quotas.values(client_entity(*client, by) or Entity())
    }
    advised.lines.extend(weight_lines(weight, confidences))
    return advised


def _ceilings(
    ways: Sequence[_Way], simulation: _Simulation, tolerated_ms: float
) -> tuple[dict[str, dict[Client, float]], dict[tuple[str, Client], int]]:
    """Return by direction the ceiling of each of the heaviest clients, and how long it would wait without borrowing."""
    tables = {way.direction: [way.table(way.tried(at), {}) for at in range(CEILINGS_TRIED)] for way in ways}
    waits = simulation.run(tables)
    ceilings: dict[str, dict[Client, float]] = {way.direction: {} for way in ways}
    alone_ms: dict[tuple[str, Client], int] = {}
    for way in ways:
        name = way.direction
        for client in way.demands:
            number = tables[name][0].owners[client]
            waited_ms = [waits.of(name, at, number)[0] for at in range(CEILINGS_TRIED)]
            ceilings[name][client] = way.tried(shortest(waited_ms, tolerated_ms))[client]
            alone_ms[name, client] = waited_ms[0]
    return ceilings, alone_ms


def _left(loads: DataFrame, way: _Way, span: Span) -> tuple[float, float, float]:
    """Return what the busiest broker has left on average and nearly always, and its busiest ten seconds, in bytes/s."""
    rows = loads.select("broker", (F.col("promised") + F.col("lent")).alias("used")).toArrow()
    broker, used = (rows[name].to_numpy() for name in ("broker", "used"))
    rank = int(round((1 - ALWAYS) * (span.recorded // BLOCK_S), 6))
    found = []
    for each in np.unique(broker):
        own = np.sort(used[broker == each] / BLOCK_S)[::-1]
        always = own[rank] if rank < len(own) else 0.0
        found.append((own.sum() * BLOCK_S / span.recorded, always, own[0]))
    mean, always, peak = (float(max(values)) for values in zip(*found, strict=True)) if found else (0.0,) * 3
    return max(0.0, way.capacity.rate - mean), max(0.0, way.capacity.rate - always), peak


def _demands(
    seconds: DataFrame, span: Span, measured: Mapping[str, Measured], goal: Goal
) -> dict[str, dict[Client, Demand]]:
    """Return what each client needs, with its margin, rounded up as an operator would write it."""
    found: dict[str, dict[Client, Demand]] = {}
    for row in demands(seconds, span.recorded, goal.day, ALWAYS).collect():
        client = row["user"], row["client_id"]
        expected = measured[row["direction"]].expected.get(client)
        times = goal.headroom if expected is None else expected[0]
        steady, *highest = (
            rounded(row[name] * times) for name in ("steady", *(f"peak_{each}s" for each in PEAKS_S))
        )
        found.setdefault(row["direction"], {})[client] = Demand(steady, highest)
    return found
