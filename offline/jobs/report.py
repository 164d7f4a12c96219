"""All tables -> `report/report.html`: one self-contained page."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from commandline.amounts import rate
from offline.advice.explain import KEYS, amount
from offline.advice.limits import client_name
from offline.jobs.ingest import format_problem
from offline.jobs.measured import Span, backtest_settings, exactly, span_of
from offline.options import Goal, RecommendSettings, read_settings
from offline.report import Report, page
from offline.report.content import Curve, Direction, Heavy, Shared
from offline.store import Store
from offline.transforms.candidates import peaks_over_brokers
from offline.transforms.loads import BLOCK_S
from quotas.definitions.kinds import WEIGHT

_HEAVY: Final = 10
_STACKED: Final = 5
_STEPS_MAX: Final = 400  # points of a time axis
_DAY_SHOWN_S: Final = 4 * 3600  # less than that is no part of a day to see a shape in


class _Axis(NamedTuple):
    """The time axis of a series: its first second, the seconds of a step, and the number of steps."""

    start_s: int
    step_s: int
    steps: int


def run(spark: SparkSession, source: Store, store: Store) -> list[str]:  # noqa: ARG001 - every stage is called alike
    """Write the report as one HTML page; return a line with its path."""
    span = span_of(source)
    goal = read_settings(RecommendSettings, source.text("recommend/settings.json")).goal
    recommendations = source.read("recommend/recommendations").collect()
    settings = backtest_settings(source)
    directions = [
        _direction(source, name, span, goal, gateway=settings.gateway)
        for name in ("produce", "fetch")
        if any(row["kind"] == "default" and row["key"] == KEYS[name] for row in recommendations)
    ]
    problems = source.read("ingest/problems").limit(20).collect()
    report = Report(
        begun=datetime.fromtimestamp(span.start_s, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=span.recorded,
        requests=span.requests,
        policy=settings.policy,
        recommendations=[_recommendation(row.asDict()) for row in recommendations],
        problems=[format_problem(row["file"], row["row"], row["problem"]) for row in problems],
        directions=directions,
        quotas=source.text("recommend/quotas.toml"),
        gateway=settings.gateway,
        goal=_goal(goal, "all brokers together" if settings.gateway else "a broker"),
    )
    with store.writing("report", source) as writer:
        writer.put("report.html", page(report))
    return [f"{store.path}/report/report.html"]


def _goal(goal: Goal, whose: str) -> dict[str, str]:
    capacities = {"Capacity in": goal.capacity_in, "Capacity out": goal.capacity_out}
    found = {label: f"{rate(value)}, {whose}" for label, value in capacities.items() if value is not None}
    return found | {"Clients that may be throttled": f"{goal.throttled_share:.0%}"}


def _recommendation(row: dict[str, Any]) -> dict[str, str]:
    names = " ".join(dict.fromkeys(filter(None, (row["user"], row["client_id"]))))
    plain = row["key"] == WEIGHT or (row["kind"] == "mutation" and row["value"] >= 0)
    return {
        "who": names or row["kind"],
        "key": row["key"],
        "value": f"{row['value']:g}" if plain else amount(row["value"]),
        "reason": row["reason"],
        "effect": row["effect"],
        "confidence": row["confidence"],
    }


def _direction(source: Store, name: str, span: Span, goal: Goal, *, gateway: bool) -> Direction:
    of_way = F.col("direction") == name
    seconds = source.read("demand/per_second").filter(of_way)
    step_s = max(1, -(-span.seconds // _STEPS_MAX))
    axis = _Axis(span.start_s, step_s, -(-span.seconds // step_s))
    heavy = _heavy(source, of_way, seconds, axis, gateway=gateway)
    recommended = source.read("recommend/recommendations").filter(F.col("key") == KEYS[name]).collect()
    (default,) = (row for row in recommended if row["kind"] == "default")
    curve = source.read("recommend/curve").filter(of_way).orderBy("quota").collect()
    shares = any(row["kind"] == "capacity" for row in recommended)
    broker, blocks = _busiest(source.read("recommend/before_after").filter(of_way), span)
    return Direction(
        name=name,
        clients=source.read("demand/entities").filter(of_way).count(),
        heavy=heavy,
        steps_s=[float(step * step_s) for step in range(axis.steps)],
        total=_series(seconds, (), axis)[()],
        hours=_hours(source, of_way) if span.recorded >= _DAY_SHOWN_S else [],
        curve=[
            Curve(row["quota"], row["clients_throttled"], row["clients"], row["peak_10s"]) for row in curve
        ],
        blocks_s=[float(row["at_s"]) for row in blocks],
        before=[row["before"] for row in blocks],
        after=[row["after"] for row in blocks],
        broker=broker,
        default=default["value"] if default["value"] > 0 else None,
        throttled=default["clients_throttled"],
        throttle_ms=default["throttle_ms"],
        overrides=sum(row["kind"] == "override" for row in recommended),
        peak_before=default["peak_before"],
        peak_after=default["peak_after"],
        capacity=goal.capacity(name),
        gateway=gateway,
        shared=_shared(source, of_way, broker, span) if shares else None,
    )


def _shared(source: Store, of_way: Any, broker: int, span: Span) -> Shared:
    own = source.read("recommend/shared").filter(of_way & (F.col("broker") == broker))
    used = {
        row["at_s"]: row["highest"]
        for row in own.groupBy(_step(span))
        .agg(F.max(F.struct(F.col("promised") + F.col("lent"), "promised", "lent")).alias("highest"))
        .collect()
    }
    steps = range(0, span.blocks * BLOCK_S, _step_s(span))
    classes = source.read("recommend/classes").filter(of_way)
    columns = ("rate", "ceiling", "weight", "waited_ms", "today_ms")
    return Shared(
        classes=[
            (client_name(row["user"], row["client_id"]), *(row[name] for name in columns))
            for row in classes.orderBy(F.desc("ceiling"), "user", "client_id").collect()
        ],
        promised=[used[at_s]["promised"] if at_s in used else 0.0 for at_s in steps],
        lent=[used[at_s]["lent"] if at_s in used else 0.0 for at_s in steps],
    )


def _heavy(source: Store, of_way: Any, seconds: DataFrame, axis: _Axis, *, gateway: bool) -> list[Heavy]:
    entities = source.read("demand/entities").filter(of_way & (F.col("rank") <= _HEAVY))
    if gateway:
        whole = peaks_over_brokers(seconds)
        entities = entities.drop("peak_1s", "peak_10s").join(
            whole, on=["direction", "user", "client_id"], how="inner"
        )
    joined = (
        entities.join(source.read("recommend/needs"), on=["direction", "user", "client_id"], how="left")
        .orderBy("rank")
        .collect()
    )
    stacked = F.broadcast(entities.filter(F.col("rank") <= _STACKED))
    own = seconds.join(stacked, on=["user", "client_id"], how="left_semi")
    series = _series(own, ("user", "client_id"), axis)
    return [
        Heavy(
            name=client_name(row["user"], row["client_id"]),
            share=row["share"],
            peak_10s=row["peak_10s"],
            peak_1s=row["peak_1s"],
            p99=row["p99"],
            connections=row["connections_max"],
            need=row["need"],
            quota=row["quota"],
            throttle_ms=row["throttle_ms"] or 0,
            series=series.get((row["user"], row["client_id"]), ()),
        )
        for row in joined
    ]


def _series(seconds: DataFrame, by: Sequence[str], axis: _Axis) -> dict[tuple[str, ...], list[float]]:
    """Return the bytes/s of each group of rows by step of the time axis, in one query."""
    step = F.floor((F.col("second") - axis.start_s) / axis.step_s).cast("int").alias("step")
    found: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0] * axis.steps)
    for row in seconds.groupBy(*by, step).agg(F.sum("bytes").alias("bytes")).collect():
        if 0 <= row["step"] < axis.steps:
            found[tuple(row[name] for name in by)][row["step"]] = row["bytes"] / axis.step_s
    return found


def _busiest(loads: DataFrame, span: Span) -> tuple[int, list[Row]]:
    """Return the broker with the highest load, and its highest load in each step of the time axis."""
    peaks = loads.groupBy("broker").agg(F.max("before").alias("peak"))
    row = peaks.orderBy(F.desc("peak"), "broker").first()
    assert row is not None, "a direction with a recommendation has a load"
    highest = (F.max(name).alias(name) for name in ("before", "after"))
    highest_by_step = (
        loads.filter(F.col("broker") == row["broker"]).groupBy(_step(span)).agg(*highest).orderBy("at_s")
    )
    return row["broker"], highest_by_step.collect()


def _step_s(span: Span) -> int:
    """Return the length of a step of the loads' time axis."""
    return BLOCK_S * max(1, -(-span.blocks // _STEPS_MAX))


def _step(span: Span) -> Column:
    """Return the step of a block as `at_s`, in seconds since the recording began."""
    step_s = _step_s(span)
    return (F.floor((F.col("start_s") - span.start_s) / step_s) * step_s).alias("at_s")


def _hours(source: Store, of_way: Any) -> list[float]:
    total = F.sum(exactly(F.col("bytes_per_second"))).alias("total")
    rows = source.read("demand/diurnal").filter(of_way).groupBy("hour").agg(total).collect()
    by_hour = {row["hour"]: float(row["total"]) for row in rows}
    return [by_hour.get(hour, 0.0) for hour in range(24)]
