"""Demand and backtest -> `recommend/*`: what the quotas should be, why, and what they will do.

What is decided is decided by the pure functions of `offline.advice` over aggregated tables; this module brings them
there and puts the result into words.

A sample of connections has no client whole: of ten connections of one client it has about one, and what that one asks
for says nothing of what the client needs, nor does a tenth of a controller's work. So a sample gives loads, scaled up,
and what follows from them, the replication throttle; no limit of any client.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.advice.confidence import CLIENTS_FEW, confidence, lowest
from offline.advice.explain import (
    Line,
    direction_lines,
    elsewhere,
    made_for,
    mutation_lines,
    replication_lines,
    sampled_line,
)
from offline.advice.limits import Client, Limits, Need, limits
from offline.advice.mutations import mutation_quota
from offline.advice.names import client_entity, default_entity
from offline.advice.replication import replication_throttle
from offline.jobs.measured import Effects, MeasuredLoads, Span, backtest_settings, effects, needs_of, span_of
from offline.options import By, Goal
from offline.schemas import TABLES, ddl
from offline.store import Store, Writer
from offline.transforms.loads import before_after, blocks_of, peaks, recorded_blocks
from offline.transforms.scope import peaks_of_scope
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import render

__all__ = ["run"]

_KEYS: Final = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the stages before have left."""

    goal: Goal
    by: By
    policy: str
    scope: str
    span: Span
    candidates: Mapping[str, Sequence[float]]
    outcomes: DataFrame
    loads: DataFrame
    blocks: DataFrame
    alone: DataFrame
    recorded: DataFrame


@dataclass(slots=True)
class _Found:
    """What is recommended, of one direction after the other."""

    lines: list[Line] = field(default_factory=list)
    needs: list[tuple[Any, ...]] = field(default_factory=list)
    before_after: list[DataFrame] = field(default_factory=list)


def run(spark: SparkSession, goal: Goal, source: Store, store: Store) -> list[str]:
    """Recommend; the recommendation, line by line."""
    seconds = source.read("demand/per_second").cache()
    given = _inputs(goal, source, seconds)
    found = _Found()
    with store.writing("recommend", source) as writer:
        for direction in ("produce", "fetch"):
            _direction(given, direction, found)
        found.lines += _mutations(source, given.span, goal)
        found.lines += _replication(source, given.span, goal)
        _write(spark, writer, found)
        curve = (
            spark.createDataFrame([], ddl(TABLES["recommend/curve"])) if goal.sample < 1 else _curve(given)
        )
        writer.table("curve", curve, files=1)
        whose = made_for(given.policy, given.scope)
        quotas = quotas_text(found.lines, given.by)
        writer.put("quotas.toml", f"# Recommended {whose}.\n\n{quotas}" if quotas else "")
        settings = {
            "goal": asdict(goal),
            "by": given.by,
            "policy": given.policy,
            "scope": given.scope,
            "confidence": lowest([line.confidence for line in found.lines]),
            "today": _today(source, seconds, given.scope),
            "elsewhere": elsewhere(found.lines),
        }
        writer.put("settings.json", json.dumps(settings, indent=2) + "\n")
    return [whose, *(line.text() for line in found.lines)]


def _inputs(goal: Goal, source: Store, seconds: DataFrame) -> _Inputs:
    span = span_of(source)
    settings = backtest_settings(source)
    scope = settings["engine"]["scope"]
    loads = source.read("backtest/loads")
    blocks = blocks_of(loads, span.start_s)
    return _Inputs(
        goal=goal,
        by=json.loads(source.text("ingest/settings.json"))["by"],
        policy=settings["policy"],
        scope=scope,
        span=span,
        candidates=settings,
        outcomes=source.read("backtest/outcomes"),
        loads=loads,
        blocks=blocks,
        alone=peaks(blocks, "direction", "quota").cache(),
        recorded=recorded_blocks(seconds, span.start_s, gateway=scope == "gateway").cache(),
    )


def _direction(given: _Inputs, direction: str, found: _Found) -> None:
    """Add the recommendations for one direction, if it has clients."""
    goal, span, gateway = given.goal, given.span, given.scope == "gateway"
    of_way = F.col("direction") == direction
    before = given.recorded.filter(of_way)
    row = peaks(before, "direction").first()
    if row is None:
        return
    peak_before = row["peak_10s"] / goal.sample
    if goal.sample < 1:
        sure = confidence(seconds=span.recorded, clients=CLIENTS_FEW, sample=goal.sample)
        found.lines.append(sampled_line("default", _KEYS[direction], goal, sure, peak_before))
        after = before
    else:
        candidates = given.candidates[direction]
        effect = effects(given.outcomes, direction, len(candidates))
        loads = MeasuredLoads(
            given.loads.filter(of_way), given.blocks.filter(of_way), given.alone.filter(of_way), candidates
        )
        needs = needs_of(effect, span, goal.tolerance)
        limit = limits(candidates, needs, loads, goal, direction, given.by)
        indexes = {(override.user, override.client_id): override.index for override in limit.overrides}
        waits = _waits(effect, limit.default, indexes)
        found.lines += direction_lines(
            direction, candidates, limit, waits, peak_before, span.recorded, goal, gateway=gateway
        )
        found.needs += _need_rows(direction, candidates, limit, needs, indexes, waits)
        after = loads.passed(limit.default, [indexes])
    table = before_after(before, after, span.start_s, span.blocks, goal.sample)
    found.before_after.append(table.withColumn("direction", F.lit(direction)))


def quotas_text(lines: Sequence[Line], by: By) -> str:
    """The recommendation as a quotas file."""
    entries: dict[Entity, dict[str, float]] = {}
    for line in lines:
        if line.is_quota:
            own = client_entity(line.user, line.client_id, by) if line.kind == "override" else None
            entries.setdefault(own or default_entity(by), {})[line.key] = float(round(line.value))
    return render(Definitions(entries))


def _waits(found: Effects, default: int, given: Mapping[Client, int]) -> dict[Client, int]:
    """How long each client waits with what it is to get."""
    waits = dict(zip(found.clients, found.throttle_ms[:, default].tolist(), strict=True))
    for row, client in enumerate(found.clients):
        if client in given:
            waits[client] = int(found.throttle_ms[row, given[client]])
    return waits


def _need_rows(
    direction: str,
    candidates: Sequence[float],
    limit: Limits,
    needs: Sequence[Need],
    given: Mapping[Client, int],
    waits: Mapping[Client, int],
) -> list[tuple[Any, ...]]:
    throttled = set(limit.throttled)
    rows = []
    for need in needs:
        name = (need.user, need.client_id)
        rows.append(
            (
                direction,
                *name,
                candidates[need.index] if need.index < len(candidates) else -1.0,
                candidates[given.get(name, limit.default)],
                name in throttled,
                waits[name],
            )
        )
    return rows


def _mutations(source: Store, span: Span, goal: Goal) -> list[Line]:
    by_client: dict[Client, dict[int, int]] = {}
    for row in source.read("demand/mutations").collect():
        by_client.setdefault((row["user"], row["client_id"]), {})[row["second"]] = row["mutations"]
    sure = confidence(seconds=span.recorded, clients=max(1, len(by_client)), sample=goal.sample)
    if goal.sample < 1:
        return [sampled_line("mutation", "partition_mutations_rate", goal, sure)] if by_client else []
    return mutation_lines(mutation_quota(by_client, goal.headroom), len(by_client), sure)


def _replication(source: Store, span: Span, goal: Goal) -> list[Line]:
    """Nothing where the network is not stated: no throttle follows from what is written alone."""
    if goal.network is None:
        return []
    row = (
        source.read("demand/brokers")
        .filter(F.col("direction") == "produce")
        .agg(F.max("peak_60s").alias("peak"), F.count("*").alias("brokers"))
        .first()
    )
    if row is None or not row["brokers"]:
        return []
    bytes_in = row["peak"] / goal.sample
    throttle = replication_throttle(bytes_in, goal.network, goal.replication_factor)
    sure = confidence(seconds=span.recorded, clients=CLIENTS_FEW, sample=goal.sample)
    return replication_lines(throttle, goal, sure)


def _curve(given: _Inputs) -> DataFrame:
    """Default quota against clients throttled and peak load, with no override."""
    client = given.outcomes.groupBy("direction", "quota", "user", "client_id").agg(
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("idle_ms").alias("idle_ms"),
        F.sum("throttled").alias("throttled"),
        F.sum("requests").alias("requests"),
        F.sum("bytes_delayed").alias("bytes_delayed"),
    )
    waited = F.col("throttle_ms") - F.col("idle_ms") > given.goal.tolerance * given.span.recorded * 1000
    totals = client.groupBy("direction", "quota").agg(
        F.count("*").alias("clients"),
        F.sum(waited.cast("bigint")).alias("clients_throttled"),
        (F.sum("throttled") / F.sum("requests")).alias("requests_throttled_share"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("bytes_delayed").alias("bytes_delayed"),
    )
    return totals.join(given.alone, on=["direction", "quota"], how="inner").orderBy("direction", "quota")


def _write(spark: SparkSession, writer: Writer, found: _Found) -> None:
    rows = {"recommendations": [line.row() for line in found.lines], "needs": found.needs}
    for name, table in rows.items():
        schema = ddl(TABLES[f"recommend/{name}"])
        writer.table(name, spark.createDataFrame(table, schema), files=1)
    writer.table("before_after", reduce(DataFrame.unionByName, found.before_after), files=1)


def _today(source: Store, seconds: DataFrame, scope: str) -> dict[str, float]:
    """The highest peak of any client at one budget, by key: where a ramp begins."""
    peak = peaks_of_scope(source.read("demand/entities"), seconds, scope)
    rows = peak.groupBy("direction").agg(F.max("peak_10s").alias("peak")).collect()
    return {_KEYS[row["direction"]]: float(row["peak"]) for row in rows}
