"""Demand and backtest -> `recommend/*`: what the quotas should be, why, and what they will do.

What is decided is decided by the pure functions of `offline.advice` over the aggregated tables; this module brings them
there and puts the result into words.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.advice.confidence import confidence
from offline.advice.limits import BLOCK_S, Limits, Load, limits
from offline.advice.mutations import mutation_quota
from offline.advice.names import client_entity, default_entity
from offline.advice.replication import replication_throttle
from offline.advice.words import Line, direction_lines, mutation_lines, replication_lines
from offline.jobs.measured import (
    Effect,
    Span,
    backtest_settings,
    before,
    effects,
    loads_of,
    needs_of,
    span_of,
)
from offline.options import By, Goal
from offline.schemas import TABLES, ddl
from offline.store import Store, Writer
from offline.transforms.scope import peaks_of_scope
from quotas.definitions import Definitions
from quotas.definitions_file import render
from quotas.entities import Entity

__all__ = ["run"]

_KEYS: Final = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}


def run(spark: SparkSession, goal: Goal, source: Store, store: Store) -> list[str]:
    """Recommend; the recommendation, line by line."""
    span = span_of(source)
    settings = backtest_settings(source)
    by: By = json.loads(source.text("ingest/settings.json"))["by"]
    scope = settings["engine"]["scope"]
    gateway = scope == "gateway"
    outcomes = source.read("backtest/outcomes")
    seconds = source.read("demand/per_second").cache()
    lines: list[Line] = []
    with store.writing("recommend", source) as writer:
        tables: dict[str, list[tuple[Any, ...]]] = {"needs": [], "before_after": []}
        for direction in ("produce", "fetch"):
            candidates: list[float] = settings[direction]
            found = effects(outcomes, direction)
            if not found:
                continue
            loads = loads_of(source.read("backtest/loads"), direction, candidates, span)
            limit = limits(candidates, needs_of(found, span, goal.tolerance), loads, goal, direction, by)
            now = before(seconds, direction, span, gateway=gateway)
            lines += direction_lines(
                direction, candidates, limit, found, _peak(now, goal), span.recorded, goal, gateway=gateway
            )
            tables["needs"] += _need_rows(direction, candidates, limit, found, span, goal)
            after = loads.together(limit.default, _given(limit))
            tables["before_after"] += _load_rows(direction, now, after, span, goal)
        lines += _mutations(source, span, goal)
        lines += _replication(source, span, goal)
        _write(spark, writer, lines, tables)
        writer.table("curve", _curve(outcomes, source.read("backtest/loads"), span, goal), files=1)
        writer.put("quotas.toml", quotas_text(lines, by))
        chosen = {"goal": asdict(goal), "by": by, "today": _today(source, seconds, scope)}
        writer.put("settings.json", json.dumps(chosen, indent=2) + "\n")
    return [line.text() for line in lines]


def quotas_text(lines: Sequence[Line], by: By) -> str:
    """The recommendation as a quotas file."""
    entries: dict[Entity, dict[str, float]] = {}
    for line in lines:
        if line.kind in ("default", "override"):
            own = client_entity(line.user, line.client_id, by) if line.kind == "override" else None
            entries.setdefault(own or default_entity(by), {})[line.key] = float(round(line.value))
    return render(Definitions(entries))


def _given(limit: Limits) -> dict[tuple[str, str], int]:
    return {(override.user, override.client_id): override.index for override in limit.overrides}


def _peak(loads: Mapping[int, Load], goal: Goal) -> float:
    return max((float(load.max()) for load in loads.values()), default=0.0) / goal.sample


def _need_rows(
    direction: str,
    candidates: Sequence[float],
    limit: Limits,
    found: Sequence[Effect],
    span: Span,
    goal: Goal,
) -> list[tuple[Any, ...]]:
    given = _given(limit)
    throttled = set(limit.throttled)
    rows = []
    for effect, need in zip(found, needs_of(found, span, goal.tolerance), strict=True):
        name = (effect.user, effect.client_id)
        index = given.get(name, limit.default)
        rows.append(
            (
                direction,
                *name,
                candidates[need.index] if need.index < len(candidates) else -1.0,
                candidates[index],
                name in throttled,
                effect.throttle_ms[index],
            )
        )
    return rows


def _load_rows(
    direction: str, now: Mapping[int, Load], after: Mapping[int, Load], span: Span, goal: Goal
) -> list[tuple[Any, ...]]:
    rows = []
    for broker in sorted(set(now) | set(after)):
        for block in range(span.blocks):
            values = (
                float(loads[broker][block]) / goal.sample if broker in loads else 0.0
                for loads in (now, after)
            )
            rows.append((direction, broker, span.start_s + block * BLOCK_S, *values))
    return rows


def _mutations(source: Store, span: Span, goal: Goal) -> list[Line]:
    by_client: dict[tuple[str, str], dict[int, int]] = {}
    for row in source.read("demand/mutations").collect():
        by_client.setdefault((row["user"], row["client_id"]), {})[row["second"]] = row["mutations"]
    sure = confidence(seconds=span.recorded, clients=max(1, len(by_client)), sample=goal.sample)
    return mutation_lines(mutation_quota(by_client, goal.headroom), len(by_client), sure)


def _replication(source: Store, span: Span, goal: Goal) -> list[Line]:
    row = (
        source.read("demand/brokers")
        .filter(F.col("direction") == "produce")
        .agg(F.max("peak_60s").alias("peak"), F.count("*").alias("brokers"))
        .first()
    )
    if row is None or not row["brokers"]:
        return []
    bytes_in = row["peak"] / goal.sample
    throttle = replication_throttle(bytes_in, goal.network, goal.replication_factor, goal.headroom)
    sure = confidence(seconds=span.recorded, clients=max(20, row["brokers"]), sample=goal.sample)
    return replication_lines(throttle, goal, sure)


def _curve(outcomes: DataFrame, loads: DataFrame, span: Span, goal: Goal) -> DataFrame:
    """Default quota against clients throttled and peak load, with no override."""
    client = outcomes.groupBy("direction", "quota", "user", "client_id").agg(
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("throttled").alias("throttled"),
        F.sum("requests").alias("requests"),
        F.sum("bytes_delayed").alias("bytes_delayed"),
    )
    waited = (F.col("throttle_ms") > goal.tolerance * span.recorded * 1000).cast("bigint")
    totals = client.groupBy("direction", "quota").agg(
        F.count("*").alias("clients"),
        F.sum(waited).alias("clients_throttled"),
        (F.sum("throttled") / F.sum("requests")).alias("requests_throttled_share"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("bytes_delayed").alias("bytes_delayed"),
    )
    second = loads.select(
        "direction", "quota", "broker", "start_s", F.posexplode("bytes").alias("at", "passed")
    )
    block = F.floor((F.col("start_s") - span.start_s + F.col("at")) / BLOCK_S)
    peak = (
        second.groupBy("direction", "quota", "broker", block.alias("block"))
        .agg((F.sum("passed") / BLOCK_S / goal.sample).alias("load"))
        .groupBy("direction", "quota")
        .agg(F.max("load").alias("peak_10s"))
    )
    return totals.join(peak, on=["direction", "quota"], how="inner").orderBy("direction", "quota")


def _write(
    spark: SparkSession, writer: Writer, lines: Sequence[Line], tables: Mapping[str, list[tuple[Any, ...]]]
) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {"recommendations": [line.row() for line in lines], **tables}
    for name, found in rows.items():
        schema = ddl(TABLES[f"recommend/{name}"])
        writer.table(name, spark.createDataFrame(found, schema), files=1)


def _today(source: Store, seconds: DataFrame, scope: str) -> dict[str, float]:
    """The highest peak of any client at one budget, by key: where a ramp begins."""
    peaks = peaks_of_scope(source.read("demand/entities"), seconds, scope)
    rows = peaks.groupBy("direction").agg(F.max("peak_10s").alias("peak")).collect()
    return {_KEYS[row["direction"]]: float(row["peak"]) for row in rows}
