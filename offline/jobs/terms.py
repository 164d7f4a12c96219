"""What clients need of a capacity -> the terms of each: a rate, a ceiling and a weight.

`recommend` advises them (`jobs.capacity`), and `evaluate` scores them (`jobs.evaluate_terms`). Spark simulates the
recorded days with each ceiling that is tried, and with and without weights (`transforms.capacity`); `advice.capacity`
decides. Several pieces of advice, each from other days (`Fit`), share these two passes over the recording.

The heaviest clients, as many as there may be overrides, are classes with an entry of their own, and each other client
is one below the default. Clients that a group limits, or another entity that is not theirs, or an exemption, keep these
terms, and so does a client with an entry of its own that is not among the heaviest.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame

from offline.advice.capacity import ALWAYS, CEILINGS_TRIED, Demand, better, rates, shortest, weights
from offline.advice.explain import KEYS
from offline.advice.limits import DEFAULT_MIN, Client, client_entity, default_entity
from offline.options import By
from offline.transforms.candidates import rounded
from offline.transforms.capacity import PEAKS_S, Seen, Trial, carried, demands, totals
from offline.transforms.loads import BLOCK_S
from quotas.backtest.capacity import EXEMPT, RANKS, Classes
from quotas.definitions.classes import Capacity, Terms, promised
from quotas.definitions.definitions import Definitions, candidates
from quotas.sharing.capacities import rank_of

_OWNERS: Final = "direction string, user string, client_id string, owner int"


@dataclass(slots=True)
class Table:
    """Classes of one direction as they are put together: terms by number, and the number of each client's."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    terms: list[tuple[Terms, int]] = field(default_factory=list)
    owners: dict[Client, int] = field(default_factory=dict)

    def add(self, client: Client, name: Hashable, terms: Terms, rank: int) -> None:
        """Add a client to the class with this name, which has these terms if it is new."""
        if name not in self.numbers:
            self.numbers[name] = len(self.terms)
            self.terms.append((terms, rank))
        self.owners[client] = self.numbers[name]

    def classes(self, capacity: Capacity) -> Classes:
        """Return the classes as numbers."""
        return Classes(
            np.array([promised(terms, capacity) for terms, _ in self.terms]),
            np.array([terms.ceiling for terms, _ in self.terms]),
            np.array([terms.weight for terms, _ in self.terms]),
            np.array([rank for _, rank in self.terms], np.int64),
        )


class Governed:
    """The clients of one direction, and whose terms each of them has.

    Attributes:
        today: the classes by the quotas in force.
        free: the clients that may get an entry of their own.
        covered: the clients that the default is for, if they have none.
    """

    def __init__(self, direction: str, clients: Iterable[Client], quotas: Definitions, by: By) -> None:
        self.direction, self.key = direction, KEYS[direction]
        self.capacity = quotas.capacities[self.key]
        self.today = Table()
        self.free: set[Client] = set()
        self.covered: set[Client] = set()
        for client in clients:
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
                self.covered.add(client)
            if own is not None and (client in self.covered or governing == own):
                self.free.add(client)


class Way:
    """One direction: what its heaviest clients need and are promised, and the default of the others.

    Attributes:
        demands, rates: of the heaviest clients; what each is promised, in bytes/s.
        rest: the clients below the default, whose rate is `default`.
        kept: what the clients whose terms stay are promised together.
    """

    def __init__(
        self,
        governed: Governed,
        needs: Mapping[Client, float],
        demands_: Mapping[Client, Demand],
        overrides: int,
    ) -> None:
        """Choose rates.

        Args:
            needs: by client what one quota would have to be, in bytes/s; below 0 if none is enough.
            demands_: of the clients with traffic.
            overrides: how many clients may get an entry of their own.
        """
        self.direction, self.capacity, self._governed = governed.direction, governed.capacity, governed
        known = [name for name in demands_ if name in governed.free]
        heaviest = sorted(known, key=lambda name: (-demands_[name].peaks[1], *name))[:overrides]
        self.demands = {name: demands_[name] for name in heaviest}
        self.rest = sorted(governed.covered - set(heaviest))
        wanted = [needs.get(client, 0.0) for client in self.rest]
        least = self.capacity.rate if min(wanted, default=0.0) < 0 else max([DEFAULT_MIN, *wanted])
        self.default = min(least, self.capacity.rate)
        numbers = {
            number
            for client, number in governed.today.owners.items()
            if client not in self.demands and client not in governed.covered
        }
        kept = (governed.today.terms[number] for number in numbers)
        self.kept = sum(terms.rate for terms, rank in kept if rank == RANKS["named"])
        self.rates = rates(self.demands, self.capacity.rate - self.kept)

    def table(self, terms: Mapping[Client, Terms], default: Terms) -> Table:
        """Return the classes with these terms of the heaviest clients, and of those below the default."""
        found, covered = Table(), set(self.rest)
        for client, number in self._governed.today.owners.items():
            if client in self.demands:
                own = terms[client]
                found.add(client, client, own, RANKS["named" if own.rate else "unpromised"])
            elif client in covered:
                found.add(client, client, default, RANKS["default"])
            else:
                found.add(client, number, *self._governed.today.terms[number])
        return found

    def advised(self, ceilings: Mapping[Client, float], weight: Mapping[Client, float]) -> Table:
        """Return the classes with the advised rates, and these ceilings and weights of the heaviest clients."""
        return self.table(
            {
                client: Terms(rate, ceilings[client], weight.get(client, 1.0))
                for client, rate in self.rates.items()
            },
            Terms(self.default, self.default),
        )

    def tried(self, place: int) -> dict[Client, float]:
        """Return the ceiling of each of the heaviest clients at this place of those to try."""
        return {
            name: one.ceilings(self.rates[name], self.capacity.rate)[place]
            for name, one in self.demands.items()
        }


class Fit(NamedTuple):
    """What one piece of advice is made from.

    Args:
        days: on which ceilings and weights are tried.
        ways: by direction.
        tolerated_ms: how long a client may wait on these days.
    """

    days: range
    ways: Mapping[str, Way]
    tolerated_ms: float


class Fitted(NamedTuple):
    """One piece of advice.

    Args:
        tables: by direction, the classes.
        weights: of the heaviest clients, in both directions.
        alone_ms: how long each of them would wait without borrowing.
        trial: the number of the trial with these terms.
    """

    tables: Mapping[str, Table]
    weights: Mapping[Client, float]
    alone_ms: Mapping[tuple[str, Client], int]
    trial: int


class Waits(NamedTuple):
    """What came of a simulation of trials.

    Args:
        found: by direction, trial and class, the wait in ms and the bytes lent.
        rows: the result of `carried`.
    """

    found: Mapping[tuple[str, int, int], tuple[int, int]]
    rows: DataFrame

    def of(self, direction: str, trial: int, owner: int) -> tuple[int, int]:
        """Return the wait in ms and the bytes lent; 0 for a class that sent nothing."""
        return self.found.get((direction, trial, owner), (0, 0))

    def together_ms(self, trial: int, direction: str = "") -> int:
        """Return for how long all classes wait, in one direction or in both."""
        return sum(
            ms for (name, each, _), (ms, _) in self.found.items() if each == trial and direction in ("", name)
        )


class Simulation:
    """Runs days of a recording with classes that share the capacities."""

    def __init__(
        self, seconds: DataFrame, capacities: Mapping[str, Capacity], start_s: int, day_s: int
    ) -> None:
        """Create it.

        Args:
            seconds: the result of `transforms.capacity.budgets`, of the directions in `capacities` alone.
        """
        self.seconds, self.start_s, self.day_s = seconds, start_s, day_s
        self._capacities = capacities

    def owners(self, tables: Mapping[str, Table]) -> DataFrame:
        """Return the number of each client's class: direction, user, client_id, owner."""
        rows = [
            (direction, *client, number)
            for direction, table in tables.items()
            for client, number in table.owners.items()
        ]
        return self.seconds.sparkSession.createDataFrame(rows, _OWNERS)

    def carried(
        self, trials: Sequence[tuple[range, Mapping[str, Table]]], block_s: int = BLOCK_S
    ) -> DataFrame:
        """Return `transforms.capacity.carried` of trials: days, and tables in which clients have the same numbers."""
        return carried(
            self.seconds,
            self.owners(trials[0][1]),
            [
                Trial(days, {name: table.classes(self._capacities[name]) for name, table in tables.items()})
                for days, tables in trials
            ],
            {name: one.rate for name, one in self._capacities.items()},
            self.start_s,
            self.day_s,
            block_s,
        )

    def run(self, trials: Sequence[tuple[range, Mapping[str, Table]]], block_s: int = BLOCK_S) -> Waits:
        """Simulate trials, and collect how long clients wait."""
        rows = self.carried(trials, block_s).cache()
        return Waits(
            {
                (row["direction"], row["trial"], row["owner"]): (row["waited_ms"], row["lent"])
                for row in totals(rows).collect()
            },
            rows,
        )


def demands_of(
    simulation: Simulation, seen: Sequence[Seen], margins: Sequence[Mapping[tuple[str, Client], float]]
) -> list[dict[str, dict[Client, Demand]]]:
    """Return for each of several pieces of advice, by direction, what each client needs.

    It has the client's margin, and is rounded up as an operator would write it.

    Args:
        margins: for each, by direction and client; a client without one is left out.
    """
    found: list[dict[str, dict[Client, Demand]]] = [{} for _ in seen]
    rows = demands(simulation.seconds, seen, simulation.start_s, simulation.day_s, ALWAYS)
    for row in rows.collect():
        client = row["user"], row["client_id"]
        margin = margins[row["seen"]].get((row["direction"], client))
        if margin is not None:
            steady, *highest = (
                rounded(row[name] * margin) for name in ("steady", *(f"peak_{each}s" for each in PEAKS_S))
            )
            found[row["seen"]].setdefault(row["direction"], {})[client] = Demand(steady, highest, margin)
    return found


def fitted(simulation: Simulation, fits: Sequence[Fit], block_s: int = BLOCK_S) -> tuple[list[Fitted], Waits]:
    """Return several pieces of advice, and the simulation in which their trials are."""
    trials = [
        (fit.days, {name: way.advised(way.tried(at), {}) for name, way in fit.ways.items()})
        for fit in fits
        for at in range(CEILINGS_TRIED)
    ]
    waits = simulation.run(trials, block_s)
    both: list[tuple[range, Mapping[str, Table]]] = []
    alone, choices = [], []
    for number, fit in enumerate(fits):
        first = number * CEILINGS_TRIED
        ceilings: dict[str, dict[Client, float]] = {}
        alone_ms: dict[tuple[str, Client], int] = {}
        borrowed: dict[Client, float] = {}
        for name, way in fit.ways.items():
            ceilings[name] = {}
            for client in way.demands:
                owner = trials[first][1][name].owners[client]
                waited_ms = [waits.of(name, first + at, owner)[0] for at in range(CEILINGS_TRIED)]
                tried = way.tried(shortest(waited_ms, fit.tolerated_ms))[client]
                ceiling = way.demands[client].ceiling(tried, way.capacity.rate)
                ceilings[name][client], alone_ms[name, client] = ceiling, waited_ms[0]
                borrowed[client] = borrowed.get(client, 0.0) + ceiling - way.rates[client]
        pair = (dict.fromkeys(borrowed, 1.0), weights(borrowed))
        both += [
            (fit.days, {name: way.advised(ceilings[name], each) for name, way in fit.ways.items()})
            for each in pair
        ]
        choices.append(pair)
        alone.append(alone_ms)
    waits.rows.unpersist()
    waits = simulation.run(both, block_s)
    found = []
    for number, fit in enumerate(fits):
        first = 2 * number
        weighted = better(waits.together_ms(first + 1), waits.together_ms(first), fit.tolerated_ms)
        found.append(
            Fitted(both[first + weighted][1], choices[number][weighted], alone[number], first + int(weighted))
        )
    return found, waits
