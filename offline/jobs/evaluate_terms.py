"""Rates, ceilings and weights of a stated capacity, scored on days that the advice has not seen.

The advice is that of `recommend` (`jobs.terms`), with the forecasts' margins; what a client needs as one number comes
from bytes by second (`quotas.backtest.fluid`), since requests are not replayed here. Terms are scored by the same
simulation that they are chosen with (`quotas.backtest.capacity`), on the days to come. Beside it:

- *recommended quotas*: the quota of each client's forecast, as a rate without borrowing;
- *equal shares*: the capacity divided by the clients seen so far, and each borrows up to the whole of it;
- *last week's*: the advice from the last seven days, without margins;
- *oracle*: the advice from the days that are scored, without margins; a hog has the default.

The recording is simulated three times: all ceilings of all origins, all weights, and all that is scored. A day is
simulated for each origin after it, so the work grows with the square of the days.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.advice.evaluation import EQUAL, LAST_WEEK, ORACLE, QUOTAS, SLUICE, is_scored, origins
from offline.advice.explain import KEYS
from offline.advice.forecast import WEEK, Floats
from offline.advice.limits import Client
from offline.jobs.terms import Fit, Fitted, Governed, Simulation, Table, Way, demands_of, fitted
from offline.options import By, Goal
from offline.transforms.capacity import Seen, budgets
from offline.transforms.demand import ENTITY
from offline.transforms.evaluate import Calendar, known
from quotas.definitions.classes import Terms
from quotas.definitions.definitions import Definitions

_MADE: Final = (SLUICE, LAST_WEEK, ORACLE)  # by the same advice, from other days
_TRIALS: Final = "trial int, origin int, horizon int, recommender string"
_DAYS: Final = (
    "direction string, user string, client_id string, origin int, horizon int, day int, behaves boolean"
)
_FREE: Final = "direction string, origin int, horizon int, day int"


class _Known(NamedTuple):
    """One client's days, and by origin and horizon the quota of its forecast."""

    needs: Floats
    held: Floats
    misbehaves: npt.NDArray[np.bool_]
    quotas: Mapping[tuple[int, int], float]

    def highest(self, days: range) -> float:
        """Return the highest need of some days; 0 without traffic."""
        return float(np.nanmax(self.needs[days.start : days.stop], initial=0.0))


def scored(
    per_second: DataFrame, series: DataFrame, calendar: Calendar, quotas: Definitions, goal: Goal, by: By
) -> dict[str, DataFrame]:
    """Return the tables `terms` and `carried` of one recording of at least two days, without the column `recording`.

    Args:
        per_second: the table `demand/per_second`.
        series: the result of `transforms.evaluate.series`.
        quotas: those in force, with a capacity.
    """
    ways = [name for name, key in KEYS.items() if key in quotas.capacities]
    stated = F.col("direction").isin(*ways)
    clients: dict[str, dict[Client, _Known]] = {}
    for row in known(series.filter(stated), calendar).orderBy(*ENTITY).collect():
        of = _Known(
            np.array(row["needs"]),
            np.array(row["held"]),
            np.array(row["misbehaves"]),
            dict(zip(origins(calendar.days), row["quotas"], strict=True)),
        )
        clients.setdefault(row["direction"], {})[row["user"], row["client_id"]] = of
    by_broker = not all(one.cluster for one in quotas.capacities.values())
    seconds = budgets(per_second.filter(stated), by_broker=by_broker).cache()
    advice = _Advice(seconds, clients, calendar, quotas, goal, by)
    trials, tables = advice.trials()
    found = advice.simulation.carried(tables, calendar.day_s).cache()
    found.count()  # a few numbers for each class and day; so the seconds need not be kept until all is written
    seconds.unpersist()
    spark = per_second.sparkSession
    which = F.broadcast(spark.createDataFrame(trials, _TRIALS))
    owners = F.broadcast(advice.simulation.owners(tables[0][1]))
    days = F.broadcast(spark.createDataFrame(_scored_days(clients, calendar), _DAYS))
    free = F.broadcast(spark.createDataFrame(_days_without_hogs(clients, calendar), _FREE))
    day_ms = calendar.day_s * 1000
    by_class = (
        found.filter("block < 0")
        .groupBy("direction", "trial", "owner", "day")
        .agg(
            F.least(F.sum("waited_ms"), F.lit(day_ms)).alias("waited_ms"),
            (F.sum("promised") + F.sum("lent")).alias("bytes"),
            *(F.sum(name).alias(name) for name in ("late", "wanted_s", "kept_s")),
        )
    )
    hurt = (F.col("waited_ms") > calendar.tolerance * day_ms).cast("bigint")
    terms = (
        by_class.join(which, "trial")
        .join(owners, ["direction", "owner"])
        .join(days, [*ENTITY, "origin", "horizon", "day"])
        .groupBy(*ENTITY, "origin", "horizon", "recommender", "behaves")
        .agg(
            (F.sum("waited_ms") / (F.count("*") * day_ms)).alias("waited"),
            (F.sum(hurt) / F.count("*")).alias("hurt"),
            (F.sum("kept_s") / F.sum("wanted_s")).alias("kept"),
            (1 - F.sum("late") / F.sum("bytes")).alias("passed"),
        )
    )
    carried = (
        found.filter("owner < 0")
        .join(which, "trial")
        .join(free, ["direction", "origin", "horizon", "day"])
        .groupBy("direction", "origin", "horizon", "recommender")
        .agg((F.sum("promised") + F.sum("lent")).alias("carried"), F.sum("possible").alias("possible"))
    )
    return {"terms": terms, "carried": carried}


class _Advice:
    """All that is scored, for every origin and horizon."""

    def __init__(
        self,
        seconds: DataFrame,
        clients: Mapping[str, Mapping[Client, _Known]],
        calendar: Calendar,
        quotas: Definitions,
        goal: Goal,
        by: By,
    ) -> None:
        self._clients, self._calendar, self._goal = clients, calendar, goal
        self._governed = {name: Governed(name, each, quotas, by) for name, each in clients.items()}
        capacities = {name: one.capacity for name, one in self._governed.items()}
        self.simulation = Simulation(seconds, capacities, calendar.start_s, calendar.day_s)

    def trials(self) -> tuple[list[tuple[int, int, int, str]], list[tuple[range, Mapping[str, Table]]]]:
        """Return for each trial its number, origin, horizon and recommender; and its days and tables."""
        wanted = [(*each, name) for each in origins(self._calendar.days) for name in _MADE]
        seen = [self._seen(*each) for each in wanted]
        needs = [self._needs(*each) for each in wanted]
        margins = [self._margins(*each) for each in wanted]
        fits = []
        for days, need, demands in zip(seen, needs, demands_of(self.simulation, seen, margins), strict=True):
            ways = {
                name: Way(one, need[name], demands.get(name, {}), self._goal.overrides)
                for name, one in self._governed.items()
            }
            fits.append(Fit(days.days, ways, self._goal.tolerance * days.recorded_s * 1000))
        found, waits = fitted(self.simulation, fits, self._calendar.day_s)
        waits.rows.unpersist()
        names: list[tuple[int, int, int, str]] = []
        tables: list[tuple[range, Mapping[str, Table]]] = []
        for (origin, horizon, made), fit, need, one in zip(wanted, fits, needs, found, strict=True):
            for name, table in self._tables(made, origin, fit, need, one).items():
                names.append((len(names), origin, horizon, name))
                tables.append((range(origin, origin + horizon), table))
        return names, tables

    def _tables(
        self, made: str, origin: int, fit: Fit, needs: Mapping[str, Mapping[Client, float]], found: Fitted
    ) -> dict[str, Mapping[str, Table]]:
        """Return the advice, and beside Sluice's what else follows from the same days."""
        tables: dict[str, Mapping[str, Table]] = {made: found.tables}
        if made == SLUICE:
            quotas, equal = {}, {}
            for name, way in fit.ways.items():
                own = {client: min(needs[name][client], way.capacity.rate) for client in way.demands}
                quotas[name] = way.table(
                    {client: Terms(rate, rate) for client, rate in own.items()},
                    Terms(way.default, way.default),
                )
                seen = sum(one.highest(range(origin)) > 0 for one in self._clients[name].values())
                same = Terms(way.capacity.rate / max(seen, 1), way.capacity.rate)
                equal[name] = way.table(dict.fromkeys(way.demands, same), same)
            tables |= {QUOTAS: quotas, EQUAL: equal}
        return tables

    def _seen(self, origin: int, horizon: int, recommender: str) -> Seen:
        days = {
            SLUICE: range(origin),
            LAST_WEEK: range(max(0, origin - WEEK), origin),
            ORACLE: range(origin, origin + horizon),
        }[recommender]
        recorded = sum(day not in self._calendar.idle for day in days)
        return Seen(days, recorded * self._calendar.day_s)

    def _needs(self, origin: int, horizon: int, recommender: str) -> dict[str, dict[Client, float]]:
        """Return by direction and client what one quota would have to be, in bytes/s."""
        days = self._seen(origin, horizon, recommender).days
        return {
            name: {
                client: one.quotas[origin, horizon]
                if recommender == SLUICE
                else one.highest(days) * (not self._is_hog(one, days, recommender))
                for client, one in each.items()
            }
            for name, each in self._clients.items()
        }

    def _margins(self, origin: int, horizon: int, recommender: str) -> dict[tuple[str, Client], float]:
        """Return by direction and client what is to be promised over what was needed, of those that are known."""
        days = self._seen(origin, horizon, recommender).days
        return {
            (name, client): one.quotas[origin, horizon] / highest if recommender == SLUICE else 1.0
            for name, each in self._clients.items()
            for client, one in each.items()
            if (highest := one.highest(days)) > 0 and not self._is_hog(one, days, recommender)
        }

    @staticmethod
    def _is_hog(one: _Known, days: range, recommender: str) -> bool:
        """Whether the oracle knows that a client is to be held back."""
        return recommender == ORACLE and bool(one.misbehaves[days.start : days.stop].any())


def _scored_days(
    clients: Mapping[str, Mapping[Client, _Known]], calendar: Calendar
) -> list[tuple[str, str, str, int, int, int, bool]]:
    """Return the days on which each client is scored, with the origin and horizon."""
    return [
        (name, *client, origin, horizon, day, not bool(one.misbehaves[day]))
        for origin, horizon in origins(calendar.days)
        for name, each in clients.items()
        for client, one in each.items()
        for day in range(origin, origin + horizon)
        if is_scored(one.needs, one.held, origin, day)
    ]


def _days_without_hogs(
    clients: Mapping[str, Mapping[Client, _Known]], calendar: Calendar
) -> list[tuple[str, int, int, int]]:
    """Return the days on which no client with traffic is to be held back, with the origin and horizon."""
    return [
        (name, origin, horizon, day)
        for origin, horizon in origins(calendar.days)
        for name, each in clients.items()
        for day in range(origin, origin + horizon)
        if not any(one.misbehaves[day] and one.needs[day] > 0 for one in each.values())
    ]
