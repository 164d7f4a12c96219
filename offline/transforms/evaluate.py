"""Bytes by second -> scores of recommenders, by client: a week of a client at once, in the order of time.

A task holds one client's seconds at a time: 16 bytes for each second and broker. The arithmetic is
`quotas.backtest.fluid`, the scores are `offline.advice.evaluation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.advice.evaluation import STEPS, Days, Score, judged, origins, scores
from offline.advice.forecast import Floats, forecast, usual_rate
from offline.schemas import TABLES, ddl
from offline.transforms.demand import ENTITY
from quotas.backtest import fluid
from quotas.backtest.compiler import Ints
from quotas.options import EngineOptions

Name = tuple[str, str, str]
"""Direction, user and client id."""

_TIMES_MAX: Final = 20.0  # as `candidates`: beyond that pauses say nothing of the demand
MINUTES_A_DAY: Final = 1440
_PAUSES_S: Final = 60  # over which pauses are set against busy time; one is at most 20 s
_WHOLE: Final = 0.95  # of a last day, to count as one
_KNOWN: Final = {
    **dict.fromkeys(ENTITY, "string"),
    "needs": "array<double>",
    "held": "array<double>",
    "misbehaves": "array<boolean>",
    "quotas": "array<double>",
}


@dataclass(frozen=True, slots=True)
class Calendar:
    """The days of one recording, and how a client is measured on them.

    Attributes:
        start_s: the first second; days are counted from there.
        seconds: the length of the recording.
        day_s: the length of a day.
        burst_s: seconds of quota that may be sent at once.
        tolerance: the share of a day that may be waited.
        idle: the days on which no client sent anything: they were not recorded.
        hogs: by client, from which second to before which one it misbehaves; None where no truth is stated.
    """

    start_s: int
    seconds: int
    day_s: int
    burst_s: float
    tolerance: float = 0.001
    idle: frozenset[int] = frozenset()
    hogs: Mapping[Name, tuple[float, float]] | None = None

    @property
    def days(self) -> int:
        """The number of whole days."""
        return whole_days(self.seconds, self.day_s)

    def misbehaves(self, name: Name, needs: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return on which days a client misbehaves, by the stated truth or judged by its needs."""
        if self.hogs is None:
            return judged(needs)
        begin_s, end_s = self.hogs.get(name, (np.inf, np.inf))
        starts_s = np.arange(len(needs)) * self.day_s
        return (starts_s + self.day_s > begin_s) & (starts_s < end_s)


def series(per_second: DataFrame, pauses: DataFrame | None, *, by_broker: bool) -> DataFrame:
    """Return the seconds of each client's budgets, with the throttle times that it was told.

    Args:
        per_second, pauses: the tables `demand/per_second` and `demand/pauses`.
        by_broker: whether each broker has a budget by itself.
    """
    broker = F.col("broker") if by_broker else F.lit(-1)
    nothing = F.lit(0.0)
    sent = per_second.groupBy(*ENTITY, broker.alias("broker"), "second").agg(
        F.sum("bytes").cast("double").alias("bytes"),
        F.sum(F.when(F.col("requests") > 0, F.col("connections")).otherwise(0))
        .cast("double")
        .alias("connections"),
    )
    found = sent.withColumns({"paused_s": nothing, "further_s": nothing})
    if pauses is None:
        return found
    told = pauses.select(
        *ENTITY,
        F.lit(-1).alias("broker"),
        "second",
        nothing.alias("bytes"),
        nothing.alias("connections"),
        "paused_s",
        "further_s",
    )
    return found.unionByName(told)


def whole_days(seconds: int, day_s: int) -> int:
    """Return the number of days in a recording; the last one counts if nearly all of it was recorded.

    >>> whole_days(7 * 86_400 - 60, 86_400), whole_days(86_400 + 40_000, 86_400)
    (7, 1)
    """
    return int(seconds / day_s + 1 - _WHOLE)


def unrecorded_days(per_second: DataFrame, start_s: int, seconds: int, day_s: int) -> frozenset[int]:
    """Return the days on which no client sent anything, which are taken for not recorded."""
    day = F.floor((F.col("second") - start_s) / day_s).cast("int").alias("day")
    there = {row["day"] for row in per_second.select(day).distinct().collect()}
    return frozenset(set(range(whole_days(seconds, day_s))) - there)


def burst_s(engine: EngineOptions) -> float:
    """Return how many seconds of its quota a client may send at once; with `kip13` it is nearly Kafka's window."""
    if engine.policy == "schedule":
        return engine.burst_seconds
    return (engine.window_samples - 1) * engine.window_seconds


def evaluated(seconds: DataFrame, calendar: Calendar) -> DataFrame:
    """Return the scores of all recommenders for each client, without the column `recording`.

    Args:
        seconds: the result of `series`.
    """
    columns = TABLES["evaluate/scores"][1:]

    def score(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return _scores(key, rows, calendar)

    return seconds.groupBy(*ENTITY).applyInArrow(score, ddl(columns))


def forecasts(seconds: DataFrame, calendar: Calendar, horizon: int) -> DataFrame:
    """Return what each client will need on the next days: the table `recommend/forecasts`.

    Args:
        seconds: the result of `series`.
        horizon: the number of days.
    """

    def make(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return _forecasts(key, rows, calendar, horizon)

    return seconds.groupBy(*ENTITY).applyInArrow(make, ddl(TABLES["recommend/forecasts"]))


def known(seconds: DataFrame, calendar: Calendar) -> DataFrame:
    """Return what is known of each client's days, and what was to be expected before each.

    Args:
        seconds: the result of `series`.

    Returns:
        A row for each client: direction, user, client_id; arrays by day, as `advice.evaluation.Days` has them: `needs`,
        `held` and `misbehaves`; and `quotas`, that of the forecast at each of `origins`, in bytes/s.
    """

    def make(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        name = _name(key)
        budgets, minutes, held = _measured(rows, calendar)
        needs = _day_needs(budgets, calendar)
        usual = [usual_rate(each) for each in minutes]
        quotas = [
            forecast(needs[:origin], usual=usual[:origin], horizon=horizon, held=held[:origin]).quota
            for origin, horizon in origins(calendar.days)
        ]
        arrays = (needs.tolist(), held.tolist(), calendar.misbehaves(name, needs).tolist(), quotas)
        named = zip(_KNOWN, (*name, *arrays), strict=True)
        return pa.table({column: pa.array([value]) for column, value in named})

    schema = ", ".join(f"{column} {kind}" for column, kind in _KNOWN.items())
    return seconds.groupBy(*ENTITY).applyInArrow(make, schema)


def _scores(key: tuple[pa.Scalar, ...], rows: pa.Table, calendar: Calendar) -> pa.Table:
    name = _name(key)
    found = scores(days_of(name, rows, calendar))
    columns = {column: [getattr(score, column) for score in found] for column in Score._fields}
    entity = {column: [value] * len(found) for column, value in zip(ENTITY, name, strict=True)}
    types = {"string": pa.string(), "int": pa.int32(), "double": pa.float64(), "boolean": pa.bool_()}
    wanted = pa.schema([(column.name, types[column.type]) for column in TABLES["evaluate/scores"][1:]])
    return pa.table(entity | columns, schema=wanted)


def _forecasts(key: tuple[pa.Scalar, ...], rows: pa.Table, calendar: Calendar, horizon: int) -> pa.Table:
    budgets, minutes, held = _measured(rows, calendar)
    needs = _day_needs(budgets, calendar)
    found = forecast(needs, usual=[usual_rate(each) for each in minutes], horizon=horizon, held=held)
    values = (*_name(key), float(np.nanmax(needs, initial=0.0)), *astuple(found))
    columns = TABLES["recommend/forecasts"]
    return pa.table({column.name: [value] for column, value in zip(columns, values, strict=True)})


def _name(key: tuple[pa.Scalar, ...]) -> Name:
    direction, user, client_id = (str(part.as_py()) for part in key)
    return direction, user, client_id


@dataclass(frozen=True, slots=True)
class _Budget:
    """One budget's seconds in order, and where each day begins in them."""

    seconds: Ints
    sizes: Floats
    cuts: Ints


def days_of(name: Name, rows: pa.Table, calendar: Calendar) -> Days:
    """Return one client's days from its rows of `series`, in any order."""
    budgets, minutes, held = _measured(rows, calendar)
    needs = _day_needs(budgets, calendar)
    recorded = needs
    if held.max(initial=1.0) > 1.0:
        recorded = _day_needs(_measured(rows, calendar, as_recorded=True)[0], calendar)
    quotas = np.maximum(np.nan_to_num(needs), 1.0)[:, None] * STEPS
    waits = sum(
        (fluid.waits(each.seconds, each.sizes, each.cuts, quotas, calendar.burst_s) for each in budgets),
        np.zeros(quotas.shape),
    )
    misbehaves = calendar.misbehaves(name, needs)
    return Days(calendar.day_s, needs, recorded, waits, minutes, held, misbehaves)


def _day_needs(budgets: Sequence[_Budget], calendar: Calendar) -> Floats:
    """Return the need of each day: that of the budget that needs most."""
    tolerated_s = calendar.tolerance * calendar.day_s
    found = np.zeros(calendar.days)
    for each in budgets:
        own = fluid.needs(each.seconds, each.sizes, each.cuts, calendar.burst_s, tolerated_s)
        found = np.maximum(found, own)
    found[list(calendar.idle)] = np.nan
    return found


def _measured(
    rows: pa.Table, calendar: Calendar, *, as_recorded: bool = False
) -> tuple[list[_Budget], list[Floats], Floats]:
    """Return a client's budgets, the bytes/s of its minutes by day as recorded, and by how much each day was held back.

    The bytes of each minute in which the client was told to wait are multiplied by the time that it was busy over the
    part of it without pauses: it would have sent so much more. `as_recorded` leaves them as they are.
    """
    second, broker, size, connections, paused_s, further_s = (
        rows[column].to_numpy()
        for column in ("second", "broker", "bytes", "connections", "paused_s", "further_s")
    )
    # In one order, since sums of fractions depend on it.
    order = np.lexsort((broker, second))
    second, broker, size, connections, paused_s, further_s = (
        column[order] for column in (second, broker, size, connections, paused_s, further_s)
    )
    at = second.astype(np.int64) - calendar.start_s
    inside = (at >= 0) & (at < calendar.days * calendar.day_s)
    edges = np.arange(calendar.days + 1) * calendar.day_s
    sent = inside & (size > 0)
    minute_s = max(1, calendar.day_s // MINUTES_A_DAY)
    by_minute = np.bincount(
        at[sent] // minute_s, weights=size[sent] / minute_s, minlength=int(edges[-1]) // minute_s + 1
    ).astype(np.float64)
    minutes = [by_minute[edges[day] // minute_s : edges[day + 1] // minute_s] for day in range(calendar.days)]
    held = np.ones(calendar.days)
    if paused_s.any():
        times = _held(at[inside], connections[inside], paused_s[inside], further_s[inside])
        wanted = np.bincount(at[sent] // calendar.day_s, weights=size[sent] * times[at[sent] // _PAUSES_S])
        recorded = np.bincount(at[sent] // calendar.day_s, weights=size[sent])
        held[: len(wanted)] = np.maximum(wanted / np.maximum(recorded, 1.0), 1.0)
        if not as_recorded:
            size = size * np.where(inside, times[np.where(inside, at, 0) // _PAUSES_S], 1.0)
    budgets = []
    for each in np.unique(broker[sent]):
        own = np.flatnonzero(sent & (broker == each))
        budgets.append(_Budget(at[own], size[own], np.searchsorted(at[own], edges)))
    return budgets, [each[each > 0] for each in minutes], held


def _held(at: Ints, connections: Floats, paused_s: Floats, further_s: Floats) -> Floats:
    """Return for each minute by how much more the client would have sent if it had not been told to wait."""
    minute = at // _PAUSES_S
    count = int(minute.max(initial=0)) + 1
    most = np.zeros(count)
    np.maximum.at(most, minute, connections)
    busy_s = most * np.bincount(minute, weights=connections > 0, minlength=count)
    busy_s += np.bincount(minute, weights=further_s, minlength=count)
    paused = np.bincount(minute, weights=paused_s, minlength=count)
    free_s = np.maximum(busy_s - paused, busy_s / _TIMES_MAX)
    return np.where((paused > 0) & (busy_s > 0), busy_s / np.maximum(free_s, 1e-9), 1.0)
