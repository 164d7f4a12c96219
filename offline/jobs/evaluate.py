"""A directory of recordings -> `evaluate/*`: how good the advice is on days that it has not seen, beside others.

Each recording is a directory with capture files, which are ingested and measured first, or a work directory that has
the stage `demand`. What is known of its clients may be in `truth.toml` (`offline.inputs.Truth`).
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.advice.evaluation import (
    BASELINES,
    HORIZONS,
    ORACLE,
    RECOMMENDERS,
    SLUICE,
    WAIT_WEIGHT,
    interval,
    waited_at,
)
from offline.errors import InputError
from offline.inputs import Recorded, Truth
from offline.jobs import demand, ingest
from offline.jobs.measured import exactly, span_of
from offline.options import EvaluateOptions, IngestOptions
from offline.report.evaluation import Evaluation, between, evaluation_page
from offline.schemas import TABLES, ddl
from offline.store import Store
from offline.transforms.evaluate import Calendar, Name, burst_s, evaluated, series, unrecorded_days

# A case is decided by the waits at the same slack; a difference of a second a day is none.
_RESOLUTION: Final = 1 / 86_400
_MEASURES: Final = ("slack", "waited", "hurt", "regret")
_NOTHING: Final = (
    "no recording has a client with traffic on two days, so there is nothing to score; if days are compressed, state "
    "their length with --day"
)
ALL: Final = "all"
"""Name of the rows over all recordings."""


def run(
    spark: SparkSession, options: EvaluateOptions, recordings: Iterable[Recorded], store: Store
) -> list[str]:
    """Score all recommenders on each recording; return lines for the operator."""
    found = []
    for recording in recordings:
        source = _measured(spark, options, recording, store)
        scored = _scores(source, options, recording.truth)
        found.append(scored.withColumn("recording", F.lit(recording.name)))
    with store.writing("evaluate") as writer:
        scores = writer.table("scores", reduce(DataFrame.unionByName, found)).cache()
        # Clients of two recordings are two, also if their names are the same.
        each = scores.withColumn("source", F.col("recording"))
        both = each.unionByName(each.withColumn("recording", F.lit(ALL)))
        fronts = _fronts(both)
        summary = _summary(both)
        cases = _cases(summary, fronts)
        calibration = _calibration(both)
        if not summary:
            raise InputError(_NOTHING)
        tables = {"summary": summary, "fronts": fronts, "cases": cases, "calibration": calibration}
        for name, rows in tables.items():
            columns = TABLES[f"evaluate/{name}"]
            frame = spark.createDataFrame(
                [tuple(row[column.name] for column in columns) for row in rows], ddl(columns)
            )
            writer.table(name, frame, files=1)
        writer.put("evaluation.html", evaluation_page(Evaluation(summary, fronts, cases, calibration)))
        scores.unpersist()
    return [*lines_of(summary, cases, calibration), f"{store.path}/evaluate/evaluation.html"]


def _measured(spark: SparkSession, options: EvaluateOptions, recording: Recorded, store: Store) -> Store:
    """Return the store with the demand of a recording; captures are ingested and measured first."""
    if recording.measured:
        return Store(spark, recording.path)
    made = Store(spark, f"{store.path}/recordings/{recording.name}")
    captures = IngestOptions(
        inputs=(recording.path,), by=options.by, lenient=options.lenient, exclude=options.exclude
    )
    ingest.run(spark, captures, made)
    demand.run(spark, made, made)
    return made


def _scores(source: Store, options: EvaluateOptions, truth: Truth | None) -> DataFrame:
    span = span_of(source)
    per_second = source.read("demand/per_second")
    day_s = (truth.day_seconds if truth else 0) or options.day
    calendar = Calendar(
        start_s=span.start_s,
        seconds=span.seconds,
        day_s=day_s,
        burst_s=burst_s(options.engine),
        tolerance=options.tolerance,
        idle=unrecorded_days(per_second, span.start_s, span.seconds, day_s),
        hogs=None if truth is None else _hogs(truth, span.seconds),
    )
    pauses = source.read("demand/pauses") if source.has("demand/pauses") else None
    rows = series(per_second, pauses, by_broker=options.engine.scope == "broker")
    return evaluated(rows, calendar)


def _hogs(truth: Truth, seconds: int) -> dict[Name, tuple[float, float]]:
    return {
        (direction, hog.user, hog.client_id): (hog.start, hog.end or float(seconds))
        for hog in truth.hog
        for direction in ([hog.direction] if hog.direction else ["produce", "fetch"])
    }


def _added(values: Column) -> Column:
    return F.sum(exactly(values)).cast("double")


def _fronts(scores: DataFrame) -> list[dict[str, Any]]:
    """Return slack and waits of each recommender at each multiple of its quotas, means over scores."""
    key = ("recording", "horizon", "recommender", "factor")
    means = (F.avg(exactly(F.col(name))).cast("double").alias(name) for name in ("slack", "waited"))
    behaving = scores.filter("behaves").groupBy(*key).agg(*means)
    return [row.asDict() for row in behaving.orderBy(*key).collect()]


def _summary(scores: DataFrame) -> list[dict[str, Any]]:
    """Return the measures of each recommender as it is, with intervals by client."""
    said = scores.filter(F.col("factor") == 1)
    client = ("recording", "horizon", "recommender", "source", "direction", "user", "client_id")
    sums = (
        said.filter("behaves")
        .groupBy(*client)
        .agg(
            F.count("*").cast("double").alias("scores"),
            *(_added(F.col(name)).alias(name) for name in ("slack", "waited", "hurt")),
            _added(F.col("slack") + WAIT_WEIGHT * F.col("waited")).alias("cost"),
        )
    )
    rows = sums.orderBy(*client).toArrow().to_pylist()
    by_recommender: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_recommender.setdefault((row["recording"], row["horizon"], row["recommender"]), []).append(row)
    caught = _caught(said)
    found = []
    for (recording, horizon, recommender), own in sorted(by_recommender.items()):
        oracle = by_recommender[recording, horizon, ORACLE]
        counts = np.array([row["scores"] for row in own])
        line: dict[str, Any] = {
            "recording": recording,
            "horizon": horizon,
            "recommender": recommender,
            "clients": len(own),
            "scores": int(counts.sum()),
        }
        for name in _MEASURES:
            values = (
                [row["cost"] - best["cost"] for row, best in zip(own, oracle, strict=True)]
                if name == "regret"
                else [row[name] for row in own]
            )
            measured = interval(np.array(values), counts)
            line |= {name: measured.mean, f"{name}_low": measured.low, f"{name}_high": measured.high}
        none = {"hogs": 0, "caught": -1.0, "passed": -1.0, "spared": -1.0}
        found.append(line | caught.get((recording, horizon, recommender), none))
    return found


def _caught(said: DataFrame) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Return how the quotas meet the clients that misbehave, and what the others have of it."""
    key = ("recording", "horizon", "recommender")
    bad = said.filter(~F.col("behaves"))
    when = bad.select("recording", "source", "horizon", "origin").distinct()
    hogs = bad.groupBy(*key).agg(
        F.count("*").alias("hogs"),
        F.avg("hurt").alias("caught"),
        F.avg(exactly(F.least(F.col("quota") / F.col("need"), F.lit(1.0)))).cast("double").alias("passed"),
    )
    others = said.filter("behaves").join(
        F.broadcast(when), on=["recording", "source", "horizon", "origin"], how="left_semi"
    )
    spared = others.groupBy(*key).agg((1 - F.avg("hurt")).alias("spared"))
    rows = hogs.join(spared, on=list(key), how="left").fillna(-1.0, ["spared"]).collect()
    return {
        (row["recording"], row["horizon"], row["recommender"]): {
            name: row[name] for name in ("hogs", "caught", "passed", "spared")
        }
        for row in rows
    }


def _cases(summary: list[dict[str, Any]], fronts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the advice with each baseline: once at the same slack, and once as the baseline is."""
    lines: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for row in fronts:
        of = (row["recording"], row["horizon"], row["recommender"])
        lines.setdefault(of, []).append((row["slack"], row["waited"]))
    own = {(row["recording"], row["horizon"], row["recommender"]): row for row in summary}
    found = []
    for recording, horizon, recommender in own:
        if recommender != SLUICE:
            continue
        advice = own[recording, horizon, SLUICE]
        for baseline in BASELINES:
            there = own[recording, horizon, baseline]
            waited = waited_at(advice["slack"], sorted(lines[recording, horizon, baseline]))
            found.append(
                {
                    "recording": recording,
                    "horizon": horizon,
                    "baseline": baseline,
                    "slack": advice["slack"],
                    "waited": advice["waited"],
                    "baseline_waited": waited,
                    "inside": advice["waited"] <= waited + _RESOLUTION,
                    "dominated": there["slack"] < advice["slack"]
                    and there["waited"] < advice["waited"] - _RESOLUTION,
                }
            )
    return found


def _calibration(scores: DataFrame) -> list[dict[str, Any]]:
    """Return how often each stated confidence has held on the next day."""
    advice = scores.filter(f"behaves and factor = 1 and horizon = 1 and recommender = '{SLUICE}'").groupBy(
        "recording", "grade"
    )
    rows = advice.agg(F.count("*").alias("scores"), (1 - F.avg("hurt")).alias("held"))
    return [row.asDict() for row in rows.orderBy("recording", "grade").collect()]


def lines_of(
    summary: list[dict[str, Any]], cases: list[dict[str, Any]], calibration: list[dict[str, Any]]
) -> list[str]:
    """Return the results over all recordings as lines for the terminal."""
    found = []
    for horizon in HORIZONS:
        rows = {
            row["recommender"]: row
            for row in summary
            if row["recording"] == ALL and row["horizon"] == horizon
        }
        if not rows:
            continue
        found.append(f"{'the next day' if horizon == 1 else 'the week after'}: {_scored(rows)}")
        found.append(f"  {'':<22}{'slack':>16}{'waited':>18}{'days hurt':>11}{'regret':>17}")
        for name in filter(rows.__contains__, RECOMMENDERS):
            row = rows[name]
            found.append(
                f"  {name:<22}{between(row, 'slack', 100, 1):>16}{between(row, 'waited', 100, 2):>18}"
                f"{100 * row['hurt']:>9.1f} %{between(row, 'regret', 1, 2):>17}"
            )
    single = [case for case in cases if case["recording"] != ALL]
    if single:
        inside, beaten = sum(case["inside"] for case in single), sum(case["dominated"] for case in single)
        found.append(
            f"the advice is on or inside the front of a baseline in {inside} of {len(single)} cases "
            f"({inside / len(single):.0%}); a baseline as it is has less slack and fewer waits in {beaten}"
        )
        found += [
            f"  lost: {case['recording']}, {case['horizon']} d, {case['baseline']}: waited "
            f"{100 * case['waited']:.3f} %, {100 * case['baseline_waited']:.3f} % at the same slack"
            for case in single
            if not case["inside"]
        ]
    for row in calibration:
        if row["recording"] == ALL:
            found.append(f"{row['grade']}: held on {row['held']:.1%} of {row['scores']:,} next days")
    return found


def _scored(rows: Mapping[str, dict[str, Any]]) -> str:
    row = rows[SLUICE]
    return f"{row['clients']:,} clients that behave, {row['scores']:,} scores; means, and 95 % intervals by client"
