"""Demand and backtest -> `recommend/*`: the recommended quotas, their reasons, and their expected effects.

The pure functions of `offline.advice` decide, over aggregated tables; this module provides the tables and writes the
results.

A sample of connections has only a part of each client: of ten connections it has about one, whose demand does not show
the client's need. The same holds for partition mutations. So from a sample only scaled loads are computed, and the
replication throttle that follows from them, but no client's limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.advice.explain import (
    CLIENTS_FEW,
    KEYS,
    Line,
    confidence,
    direction_lines,
    lowest,
    mutation_lines,
    not_in_quotas_file,
    replication_lines,
    sampled_line,
    settings_note,
)
from offline.advice.limits import Client, Limits, Need, client_entity, default_entity, limits
from offline.advice.mutations import mutation_quota, replication_throttle
from offline.jobs.measured import Effects, MeasuredLoads, Span, backtest_settings, effects, needs_of, span_of
from offline.options import (
    BacktestSettings,
    By,
    Goal,
    IngestSettings,
    RecommendSettings,
    read_settings,
    settings_text,
)
from offline.schemas import TABLES, ddl
from offline.store import Store, Writer
from offline.transforms.candidates import peaks_of_scope
from offline.transforms.loads import before_after, blocks_of, peaks, recorded_blocks
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import render


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The results of the earlier stages."""

    goal: Goal
    by: By
    settings: BacktestSettings
    span: Span
    outcomes: DataFrame
    loads: DataFrame
    blocks: DataFrame
    alone: DataFrame
    recorded: DataFrame


@dataclass(slots=True)
class _Results:
    """The recommendations, collected one direction after the other."""

    lines: list[Line] = field(default_factory=list)
    needs: list[tuple[Any, ...]] = field(default_factory=list)
    before_after: list[DataFrame] = field(default_factory=list)


def run(spark: SparkSession, goal: Goal, source: Store, store: Store) -> list[str]:
    """Make the recommendation; returns its lines."""
    seconds = source.read("demand/per_second").cache()
    inputs = _inputs(goal, source, seconds)
    found = _Results()
    with store.writing("recommend", source) as writer:
        for direction in ("produce", "fetch"):
            _direction(inputs, direction, found)
        found.lines += _mutations(source, inputs.span, goal)
        found.lines += _replication(source, inputs.span, goal)
        _write(spark, writer, found)
        curve = (
            spark.createDataFrame([], ddl(TABLES["recommend/curve"])) if goal.sample < 1 else _curve(inputs)
        )
        writer.table("curve", curve, files=1)
        policy, scope = inputs.settings.policy, inputs.settings.engine.scope
        whose = settings_note(policy, scope)
        quotas = quotas_text(found.lines, inputs.by)
        writer.put("quotas.toml", f"# Recommended {whose}.\n\n{quotas}" if quotas else "")
        settings = RecommendSettings(
            goal=goal,
            by=inputs.by,
            policy=policy,
            scope=scope,
            confidence=lowest([line.confidence for line in found.lines]),
            today=_current_peaks(source, seconds, scope),
            elsewhere=not_in_quotas_file(found.lines),
        )
        writer.put("settings.json", settings_text(settings))
    return [whose, *(line.text() for line in found.lines)]


def _inputs(goal: Goal, source: Store, seconds: DataFrame) -> _Inputs:
    span = span_of(source)
    settings = backtest_settings(source)
    loads = source.read("backtest/loads")
    blocks = blocks_of(loads, span.start_s)
    return _Inputs(
        goal=goal,
        by=read_settings(IngestSettings, source.text("ingest/settings.json")).by,
        settings=settings,
        span=span,
        outcomes=source.read("backtest/outcomes"),
        loads=loads,
        blocks=blocks,
        alone=peaks(blocks, "direction", "quota").cache(),
        recorded=recorded_blocks(seconds, span.start_s, gateway=settings.gateway).cache(),
    )


def _direction(inputs: _Inputs, direction: str, found: _Results) -> None:
    """Add the recommendations for one direction, if it has clients."""
    goal, span, gateway = inputs.goal, inputs.span, inputs.settings.gateway
    of_way = F.col("direction") == direction
    before = inputs.recorded.filter(of_way)
    row = peaks(before, "direction").first()
    if row is None:
        return
    peak_before = row["peak_10s"] / goal.sample
    if goal.sample < 1:
        sure = confidence(seconds=span.recorded, clients=CLIENTS_FEW, sample=goal.sample)
        found.lines.append(sampled_line("default", KEYS[direction], goal, sure, peak_before))
        after = before
    else:
        candidates = inputs.settings.candidates(direction)
        effect = effects(inputs.outcomes, direction, len(candidates))
        loads = MeasuredLoads(
            inputs.loads.filter(of_way), inputs.blocks.filter(of_way), inputs.alone.filter(of_way), candidates
        )
        needs = needs_of(effect, span, goal.tolerance)
        limit = limits(candidates, needs, loads, goal, direction, inputs.by)
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
    """Return the recommendation as the text of a quotas file."""
    entries: dict[Entity, dict[str, float]] = {}
    for line in lines:
        if line.is_quota:
            own = client_entity(line.user, line.client_id, by) if line.kind == "override" else None
            entries.setdefault(own or default_entity(by), {})[line.key] = float(round(line.value))
    return render(Definitions(entries))


def _waits(found: Effects, default: int, inputs: Mapping[Client, int]) -> dict[Client, int]:
    """Return the time that each client waits with the recommendation."""
    waits = dict(zip(found.clients, found.throttle_ms[:, default].tolist(), strict=True))
    for row, client in enumerate(found.clients):
        if client in inputs:
            waits[client] = int(found.throttle_ms[row, inputs[client]])
    return waits


def _need_rows(
    direction: str,
    candidates: Sequence[float],
    limit: Limits,
    needs: Sequence[Need],
    inputs: Mapping[Client, int],
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
                candidates[inputs.get(name, limit.default)],
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
    """Return the replication throttle; none without the network's throughput."""
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


def _curve(inputs: _Inputs) -> DataFrame:
    """Return, for each candidate default without overrides, the throttled clients and the peak load."""
    client = inputs.outcomes.groupBy("direction", "quota", "user", "client_id").agg(
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("idle_ms").alias("idle_ms"),
        F.sum("throttled").alias("throttled"),
        F.sum("requests").alias("requests"),
        F.sum("bytes_delayed").alias("bytes_delayed"),
    )
    waited = F.col("throttle_ms") - F.col("idle_ms") > inputs.goal.tolerance * inputs.span.recorded * 1000
    totals = client.groupBy("direction", "quota").agg(
        F.count("*").alias("clients"),
        F.sum(waited.cast("bigint")).alias("clients_throttled"),
        (F.sum("throttled") / F.sum("requests")).alias("requests_throttled_share"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("bytes_delayed").alias("bytes_delayed"),
    )
    return totals.join(inputs.alone, on=["direction", "quota"], how="inner").orderBy("direction", "quota")


def _write(spark: SparkSession, writer: Writer, found: _Results) -> None:
    rows = {"recommendations": [astuple(line) for line in found.lines], "needs": found.needs}
    for name, table in rows.items():
        schema = ddl(TABLES[f"recommend/{name}"])
        writer.table(name, spark.createDataFrame(table, schema), files=1)
    writer.table("before_after", reduce(DataFrame.unionByName, found.before_after), files=1)


def _current_peaks(source: Store, seconds: DataFrame, scope: str) -> dict[str, float]:
    """Return the highest peak of any client at one budget, by key: the start of a staged rollout."""
    peak = peaks_of_scope(source.read("demand/entities"), seconds, scope)
    rows = peak.groupBy("direction").agg(F.max("peak_10s").alias("peak")).collect()
    return {KEYS[row["direction"]]: float(row["peak"]) for row in rows}
