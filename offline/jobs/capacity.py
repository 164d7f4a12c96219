"""What `recommend` does where the quotas in force state a capacity: rates, ceilings and weights in place of one number.

`jobs.terms` finds them. What they do to the recording, and what the quotas in force would have done, is said beside.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.advice.capacity import ALWAYS, Share, Whole, lines, weight_lines
from offline.advice.explain import DEFAULT_NAME, KEYS, Line, confidence, scope_note
from offline.advice.forecast import Forecast
from offline.advice.limits import Client, client_entity, default_entity
from offline.errors import InputError
from offline.jobs.measured import Span
from offline.jobs.terms import Fit, Governed, Simulation, Way, demands_of, fitted
from offline.options import By, Goal
from offline.transforms.capacity import Seen, blocks, budgets
from offline.transforms.loads import BLOCK_S
from quotas.definitions.alterations import Quotas
from quotas.definitions.classes import Terms
from quotas.definitions.definitions import Definitions, keys_of
from quotas.definitions.entities import Entity
from quotas.definitions.kinds import CEILINGS, WEIGHT
from quotas.options import EngineOptions


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
        InputError: there is a capacity that does not fit the policy or the scope.
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
            "use --policy schedule (of backtest, run and evaluate)"
        )
    for capacity in found.capacities.values():
        if capacity.cluster != (engine.scope == "cluster"):
            scope = "cluster" if capacity.cluster else "broker"
            raise InputError(
                f"{goal.quotas_file} states a capacity of scope {scope}, and this is for quotas "
                f"{scope_note(gateway=engine.scope == 'cluster')}: use --scope {scope} (of backtest, run and evaluate)"
            )
    return found


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
    governed = {name: Governed(name, one.needs, quotas, by) for name, one in measured.items()}
    simulation = Simulation(
        seconds, {name: one.capacity for name, one in governed.items()}, span.start_s, goal.day
    )
    days = range(-(-span.seconds // goal.day))
    margins = {
        (name, client): one.expected[client][0] if client in one.expected else goal.headroom
        for name, one in measured.items()
        for client in one.needs
    }
    (demands,) = demands_of(simulation, [Seen(days, span.recorded)], [margins])
    ways = {
        name: Way(
            governed[name],
            {client: need * one.margin for client, need in one.needs.items()},
            demands.get(name, {}),
            goal.overrides,
        )
        for name, one in measured.items()
    }
    tolerated_ms = goal.tolerance * span.recorded * 1000
    (found,), waits = fitted(simulation, [Fit(days, ways, tolerated_ms)])
    chosen = found.trial
    today = simulation.run([(days, {name: one.today for name, one in governed.items()})])
    loads = blocks(waits.rows, chosen, span.blocks).cache()

    advised = Advised([], {}, [], loads)
    confidences: dict[Client, str] = {}
    for name, way in ways.items():
        table, in_force = found.tables[name], governed[name].today
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
                alone_ms=found.alone_ms[name, client],
                today_ms=today.of(name, 0, in_force.owners[client])[0],
                lent=waits.of(name, chosen, table.owners[client])[1],
                confidence=_confidence(measured[name], client, sure),
                replaces=CEILINGS[KEYS[name]] in quotas.values(client_entity(*client, by) or Entity()),
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
                today.of(name, 0, number)[0] for number in {in_force.owners[client] for client in way.rest}
            ),
            lent=0,
            confidence=sure,
            replaces=CEILINGS[KEYS[name]] in quotas.values(default_entity(by)),
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
            peak_before=measured[name].peak_before,
            peak_after=peak_after,
        )
        advised.lines.extend(lines(whole))
        advised.classes.extend(
            (name, *one.client, *one.terms[:3], one.waited_ms, one.today_ms, one.lent) for one in shares
        )
        confidences |= {one.client: one.confidence for one in shares}
    weight = {
        client: each
        for client, each in found.weights.items()
        if each != 1 or WEIGHT in quotas.values(client_entity(*client, by) or Entity())
    }
    advised.lines.extend(weight_lines(weight, confidences))
    return advised


def _confidence(measured: Measured, client: Client, sure: str) -> str:
    """Return the confidence of a client's forecast; `sure` without one."""
    expected = measured.expected.get(client)
    return sure if expected is None else expected[1].confidence


def _left(loads: DataFrame, way: Way, span: Span) -> tuple[float, float, float]:
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
