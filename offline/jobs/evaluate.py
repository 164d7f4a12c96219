"""A directory of recordings -> `evaluate/*`: how good the advice is on days that it has not seen, beside others.

Each recording is a directory with capture files, which are ingested and measured first, or a work directory that has
the stage `demand`. What is known of its clients may be in `truth.toml` (`offline.inputs.Truth`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import reduce
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.advice.evaluation import BASELINES, ORACLE, SLUICE, WAIT_WEIGHT, interval, waited_at
from offline.advice.forecast import Floats
from offline.errors import InputError
from offline.inputs import Recorded, Truth
from offline.jobs import demand, evaluate_terms, ingest
from offline.jobs.measured import exactly, span_of
from offline.options import By, EvaluateOptions, Goal, IngestOptions, IngestSettings, read_settings
from offline.report.evaluation import Evaluation, between, evaluation_page
from offline.schemas import TABLES, ddl
from offline.store import Store
from offline.transforms.evaluate import Calendar, Name, burst_s, evaluated, series, unrecorded_days
from quotas.definitions.definitions import Definitions

RESOLUTION: Final = 1 / 86_400
"""A case is decided by the waits, as a share of the time; a difference of a second a day is none."""
_MEASURES: Final = ("slack", "waited", "hurt")
_TERMS_MEASURES: Final = ("waited", "hurt", "kept")
_NOTHING: Final = (
    "no recording has a client with traffic on two days, so there is nothing to score; if days are compressed, state "
    "their length with --day"
)
ALL: Final = "all"
"""Name of the rows over all recordings."""


def run(
    spark: SparkSession,
    options: EvaluateOptions,
    recordings: Iterable[Recorded],
    store: Store,
    quotas: Definitions | None = None,
) -> list[str]:
    """Score all recommenders on each recording; return lines for the operator.

    Args:
        quotas: those in force, of `EvaluateOptions.quotas_file`; where they state a capacity, terms are scored as well.
    """
    found: dict[str, list[DataFrame]] = {"scores": [], "terms": [], "carried": []}
    for recording in recordings:
        source = _measured(spark, options, recording, store)
        for name, rows in _scores(source, options, recording.truth, quotas).items():
            found[name].append(rows.withColumn("recording", F.lit(recording.name)))
    with store.writing("evaluate") as writer:
        tables = {
            name: writer.table(
                name,
                reduce(DataFrame.unionByName, rows)
                if rows
                else spark.createDataFrame([], ddl(TABLES[f"evaluate/{name}"])),
            ).cache()
            for name, rows in found.items()
        }
        scores, terms = (_with_all(tables[name]) for name in ("scores", "terms"))
        summary = _summary(
            scores.filter("factor = 1"),
            _MEASURES,
            F.col("slack") + WAIT_WEIGHT * F.col("waited"),
            F.least(F.col("quota") / F.col("need"), F.lit(1.0)),
        )
        if not summary:
            raise InputError(_NOTHING)
        fronts = _fronts(scores)
        results = Evaluation(
            summary=summary,
            fronts=fronts,
            cases=_cases(summary, fronts),
            calibration=_calibration(scores),
            terms_summary=_with_carried(
                _summary(terms, _TERMS_MEASURES, F.col("waited"), F.col("passed")), tables["carried"]
            ),
        )
        for each in fields(results):
            columns = TABLES[f"evaluate/{each.name}"]
            frame = spark.createDataFrame(
                [tuple(row[column.name] for column in columns) for row in getattr(results, each.name)],
                ddl(columns),
            )
            writer.table(each.name, frame, files=1)
        writer.put("evaluation.html", evaluation_page(results))
        for rows in tables.values():
            rows.unpersist()
    return [*lines_of(results), f"{store.path}/evaluate/evaluation.html"]


def _with_all(scores: DataFrame) -> DataFrame:
    """Return scores, and again as those of all recordings; `source` is the recording that they are of.

    Clients of two recordings are two, also if their names are the same.
    """
    each = scores.withColumn("source", F.col("recording"))
    return each.unionByName(each.withColumn("recording", F.lit(ALL)))


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


def _scores(
    source: Store, options: EvaluateOptions, truth: Truth | None, quotas: Definitions | None
) -> dict[str, DataFrame]:
    """Return the tables with scores of one recording, without the column `recording`."""
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
    found = {"scores": evaluated(rows, calendar)}
    if quotas is not None and quotas.capacities and calendar.days > 1:
        goal, by = Goal(tolerance=options.tolerance, day=day_s), _by(source, options)
        found |= evaluate_terms.scored(per_second, rows, calendar, quotas, goal, by)
    return found


def _by(source: Store, options: EvaluateOptions) -> By:
    """Return the quota entity that makes a client in a recording."""
    if not source.finished("ingest"):
        return options.by
    return read_settings(IngestSettings, source.text("ingest/settings.json")).by


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


def _summary(
    scores: DataFrame, measures: Sequence[str], cost: Column, passed: Column
) -> list[dict[str, Any]]:
    """Return the measures of each recommender as it is, with intervals by client.

    Args:
        scores: the result of `_with_all`.
        measures: the columns whose means are wanted.
        cost: what is compared with the oracle's.
        passed: the part of what a hog asks for that passes.
    """
    client = ("recording", "horizon", "recommender", "source", "direction", "user", "client_id")
    sums = (
        scores.filter("behaves")
        .groupBy(*client)
        .agg(
            F.count("*").cast("double").alias("scores"),
            *(_added(F.col(name)).alias(name) for name in measures),
            _added(cost).alias("cost"),
        )
    )
    rows = sums.orderBy(*client).toArrow().to_pylist()
    by_recommender: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_recommender.setdefault((row["recording"], row["horizon"], row["recommender"]), []).append(row)
    caught = _caught(scores, passed)
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
        for name in (*measures, "regret"):
            values = (
                [row["cost"] - best["cost"] for row, best in zip(own, oracle, strict=True)]
                if name == "regret"
                else [row[name] for row in own]
            )
            line |= _between(name, np.array(values), counts)
        none = {"hogs": 0, "caught": -1.0, "passed": -1.0, "spared": -1.0}
        found.append(line | caught.get((recording, horizon, recommender), none))
    return found


def _between(name: str, sums: Floats, counts: Floats) -> dict[str, float]:
    """Return a measure with its interval, as columns."""
    measured = interval(sums, counts)
    return {name: measured.mean, f"{name}_low": measured.low, f"{name}_high": measured.high}


def _with_carried(summary: list[dict[str, Any]], carried: DataFrame) -> list[dict[str, Any]]:
    """Return the rows with what was carried of what could have been; the interval is over origins."""
    key = ("recording", "horizon", "recommender", "source", "direction", "origin")
    rows = _with_all(carried).orderBy(*key).collect()
    by_recommender: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
    for row in rows:
        of = (row["recording"], row["horizon"], row["recommender"])
        by_recommender.setdefault(of, []).append((row["carried"], row["possible"]))
    found = []
    for line in summary:
        own = by_recommender.get((line["recording"], line["horizon"], line["recommender"]))
        if own is None:
            found.append(line | dict.fromkeys(("carried", "carried_low", "carried_high"), -1.0))
        else:
            found.append(line | _between("carried", *np.array(own, np.float64).T))
    return found


def _caught(said: DataFrame, passed: Column) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Return how clients that misbehave are met, and what the others have of it."""
    key = ("recording", "horizon", "recommender")
    bad = said.filter(~F.col("behaves"))
    when = bad.select("recording", "source", "horizon", "origin").distinct()
    hogs = bad.groupBy(*key).agg(
        F.count("*").alias("hogs"),
        F.avg("hurt").alias("caught"),
        F.avg(exactly(passed)).cast("double").alias("passed"),
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
                    "inside": advice["waited"] <= waited + RESOLUTION,
                    "dominated": there["slack"] < advice["slack"]
                    and there["waited"] < advice["waited"] - RESOLUTION,
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


def lines_of(found: Evaluation) -> list[str]:
    """Return the results over all recordings as lines for the terminal."""
    lines = []
    for horizon in found.horizons:
        rows = found.of(found.summary, recording=ALL, horizon=horizon)
        lines.append(_scored_line(rows))
        lines.append(f"  {'':<22}{'slack':>16}{'waited':>18}{'days hurt':>11}{'regret':>17}")
        lines += [
            f"  {row['recommender']:<22}{between(row, 'slack', 100, 1):>16}{between(row, 'waited', 100, 2):>18}"
            f"{100 * row['hurt']:>9.1f} %{between(row, 'regret', 1, 2):>17}"
            for row in rows
        ]
    single = [case for case in found.cases if case["recording"] != ALL]
    if single:
        inside, beaten = sum(case["inside"] for case in single), sum(case["dominated"] for case in single)
        lines.append(
            f"the advice is on or inside the front of a baseline in {inside} of {len(single)} cases "
            f"({inside / len(single):.0%}); a baseline as it is has less slack and fewer waits in {beaten}"
        )
        lines += [
            f"  lost: {case['recording']}, {case['horizon']} d, {case['baseline']}: waited "
            f"{100 * case['waited']:.3f} %, {100 * case['baseline_waited']:.3f} % at the same slack"
            for case in single
            if not case["inside"]
        ]
    for row in found.of(found.calibration, recording=ALL):
        lines.append(f"{row['grade']}: held on {row['held']:.1%} of {row['scores']:,} next days")
    for horizon in found.horizons:
        rows = found.of(found.terms_summary, recording=ALL, horizon=horizon)
        if rows:
            lines.append(f"terms of the capacity, {_scored_line(rows)}")
            lines.append(f"  {'':<22}{'waited':>21}{'days hurt':>11}{'carried':>10}{'regret':>24}")
        lines += [
            f"  {row['recommender']:<22}{between(row, 'waited', 100, 3):>21}{100 * row['hurt']:>9.1f} %"
            f"{100 * row['carried']:>8.1f} %{between(row, 'regret', 100, 3):>24}"
            for row in rows
        ]
    return lines


def _scored_line(rows: Sequence[Mapping[str, Any]]) -> str:
    row = rows[0]
    when = "the next day" if row["horizon"] == 1 else "the week after"
    return (
        f"{when}: {row['clients']:,} clients that behave, {row['scores']:,} scores; means, and 95 % intervals "
        "by client"
    )
