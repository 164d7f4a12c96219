"""Demand and backtest -> `recommend/*`: the recommended quotas, their reasons, and their expected effects.

The pure functions of `offline.advice` decide, over aggregated tables; this module provides the tables and writes the
results.

A sample of connections has only a part of each client: of ten connections it has about one, whose demand does not show
the client's need. The same holds for partition mutations. So from a sample only scaled loads are computed, and the
replication throttle that follows from them, but no client's limit.

Where the quotas in force state a capacity, rates, ceilings and weights are recommended (`jobs.capacity`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offline.advice.explain import (
    CLIENTS_FEW,
    KEYS,
    Line,
    Tried,
    confidence,
    direction_lines,
    lowest,
    mutation_lines,
    not_in_quotas_file,
    replication_lines,
    sampled_line,
    settings_note,
)
from offline.advice.forecast import DAYS_MIN, Forecast
from offline.advice.limits import Client, Limits, client_entity, default_entity, limits, raised
from offline.advice.mutations import mutation_quota, replication_throttle
from offline.jobs import capacity
from offline.jobs.measured import Effects, MeasuredLoads, backtest_settings, effects, needs_of, span_of
from offline.options import By, Goal, IngestSettings, RecommendSettings, read_settings, settings_text
from offline.schemas import TABLES, ddl
from offline.store import Store
from offline.transforms.candidates import peaks_of_scope
from offline.transforms.evaluate import Calendar, burst_s, forecasts, series, unrecorded_days
from offline.transforms.loads import BLOCK_S, before_after, blocks_of, peaks, recorded_blocks
from quotas.definitions.alterations import Quotas
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.kinds import CEILINGS
from quotas.definitions.toml_file import render


def run(
    spark: SparkSession, goal: Goal, source: Store, store: Store, current: Quotas | None = None
) -> list[str]:
    """Recommend quotas from the results of the backtest; return lines to print for the operator.

    Args:
        current: the quotas in force, of `Goal.quotas_file`.

    Raises:
        InputError: they state a capacity that the backtest was not made for.
    """
    found = _Recommendation(goal, source, current or {})
    with store.writing("recommend", source) as writer:
        for direction in ("produce", "fetch"):
            found.add_direction(direction)
        found.add_shared()
        found.add_mutations()
        found.add_replication()
        tables: dict[str, DataFrame | list[tuple[Any, ...]]] = {
            "recommendations": [astuple(line) for line in found.lines],
            "needs": found.needs,
            "forecasts": found.forecast_rows(),
            "classes": found.classes,
            "shared": found.shared if found.shared is not None else [],
            "curve": found.curve() if goal.sample == 1 else [],
            "before_after": reduce(DataFrame.unionByName, found.before_after),
        }
        for name, rows in tables.items():
            schema = ddl(TABLES[f"recommend/{name}"])
            frame = rows if isinstance(rows, DataFrame) else spark.createDataFrame(rows, schema)
            writer.table(name, frame, files=1)
        settings = found.settings()
        whose = settings_note(settings.policy, settings.scope)
        quotas = quotas_text(found.lines, settings.by, settings.scope)
        writer.put("quotas.toml", f"# Recommended {whose}.\n\n{quotas}" if quotas else "")
        writer.put("settings.json", settings_text(settings))
    return [whose, *(line.text() for line in found.lines)]


def quotas_text(lines: Sequence[Line], by: By, scope: str) -> str:
    """Return the recommendation as the text of a quotas file; a capacity has the scope of the quotas."""
    entries: dict[Entity, dict[str, float]] = {}
    for line in lines:
        if line.is_quota:
            own = client_entity(line.user, line.client_id, by) if line.kind == "override" else None
            entity = Entity(capacity=scope) if line.kind == "capacity" else own or default_entity(by)
            entries.setdefault(entity, {})[line.key] = float(round(line.value))
    return render(Definitions(entries))


class _Recommendation:
    """The recommendations so far, and the results of the earlier stages from which they follow."""

    def __init__(self, goal: Goal, source: Store, current: Quotas) -> None:
        self.lines: list[Line] = []
        self.needs: list[tuple[Any, ...]] = []
        self.before_after: list[DataFrame] = []
        self.classes: list[tuple[Any, ...]] = []
        self.shared: DataFrame | None = None
        self._measured: dict[str, capacity.Measured] = {}
        self._source = source
        ingested = read_settings(IngestSettings, source.text("ingest/settings.json"))
        self._by, self._sources = ingested.by, ingested.sources
        self._backtest = backtest_settings(source)
        self._quotas = capacity.stated(current, goal, self._backtest.engine)
        stated = {key: one.rate for key, one in self._quotas.capacities.items()}
        self._goal = replace(
            goal,
            capacity_in=stated.get(KEYS["produce"], goal.capacity_in),
            capacity_out=stated.get(KEYS["fetch"], goal.capacity_out),
        )
        self._span = span_of(source)
        self._seconds = source.read("demand/per_second").cache()
        self._outcomes = source.read("backtest/outcomes")
        self._loads = source.read("backtest/loads")
        self._blocks = blocks_of(self._loads, self._span.start_s)
        self._alone = peaks(self._blocks, "direction", "quota").cache()
        self._recorded = recorded_blocks(
            self._seconds, self._span.start_s, gateway=self._backtest.gateway
        ).cache()
        self._forecast = self._forecasts()
        # By direction and client: the quota over the highest need that was recorded, and the forecast.
        self._expected: dict[str, dict[Client, tuple[float, Forecast]]] = {}
        for row in self.forecast_rows():
            direction, user, client_id, highest, *values = row
            if highest > 0:
                said = Forecast(*values)
                self._expected.setdefault(direction, {})[user, client_id] = (said.quota / highest, said)

    def _forecasts(self) -> DataFrame | None:
        """Return what clients will need; None if too few days were recorded to say, or only a sample."""
        goal, span, engine = self._goal, self._span, self._backtest.engine
        calendar = Calendar(
            start_s=span.start_s,
            seconds=span.seconds,
            day_s=goal.day,
            burst_s=burst_s(engine),
            tolerance=goal.tolerance,
            idle=unrecorded_days(self._seconds, span.start_s, span.seconds, goal.day),
        )
        if goal.sample < 1 or calendar.days - len(calendar.idle) < DAYS_MIN:
            return None
        pauses = self._source.read("demand/pauses") if self._source.has("demand/pauses") else None
        rows = series(self._seconds, pauses, by_broker=engine.scope == "broker")
        return forecasts(rows, calendar, goal.horizon).cache()

    def forecast_rows(self) -> list[tuple[Any, ...]]:
        """Return the table `recommend/forecasts`: empty if too few days were recorded."""
        return [] if self._forecast is None else [tuple(row) for row in self._forecast.collect()]

    def add_direction(self, direction: str) -> None:
        """Add the recommendations for one direction, if it has clients."""
        goal, span = self._goal, self._span
        of_way = F.col("direction") == direction
        before = self._recorded.filter(of_way)
        row = peaks(before, "direction").first()
        if row is None:
            return
        peak_before = row["peak_10s"] / goal.sample
        if goal.sample < 1:
            self.lines.append(
                sampled_line("default", KEYS[direction], goal, self._confidence(CLIENTS_FEW), peak_before)
            )
            after = before
        else:
            candidates = self._backtest.candidates(direction)
            effect = effects(self._outcomes, direction, len(candidates))
            own = [table.filter(of_way) for table in (self._loads, self._blocks, self._alone)]
            loads = MeasuredLoads(own[0], own[1], own[2], candidates)
            needs = needs_of(effect, span, goal.tolerance)
            expected = self._expected.get(direction, {})
            if expected:
                goal = replace(goal, headroom=1.0)
                needs = raised(candidates, needs, {name: times for name, (times, _) in expected.items()})
            if KEYS[direction] in self._quotas.capacities:
                found = {
                    name: candidates[index] if index < len(candidates) else -1.0
                    for name, index in needs.items()
                }
                self._measured[direction] = capacity.Measured(found, goal.headroom, expected, peak_before)
                return
            limit = limits(candidates, needs, loads, goal, direction, self._by)
            indexes = {override.client: override.index for override in limit.overrides}
            waits = _waits(effect, limit.default, indexes)
            tried = Tried(direction, candidates, goal, self._backtest.gateway, self._sources)
            said = {name: forecast for name, (_, forecast) in expected.items()}
            self.lines += direction_lines(tried, limit, waits, peak_before, span.recorded, said)
            self.needs += _need_rows(direction, candidates, limit, needs, indexes, waits)
            after = loads.passed(limit.default, [indexes])
        table = before_after(before, after, span.start_s, span.blocks, goal.sample)
        self.before_after.append(table.withColumn("direction", F.lit(direction)))

    def add_shared(self) -> None:
        """Add the recommendations for the directions in which a capacity is stated."""
        if not self._measured:
            return
        span = self._span
        found = capacity.advise(
            self._seconds, span, self._measured, self._quotas, self._goal, self._by, self._sources
        )
        self.lines += found.lines
        self.classes = found.classes
        bound_ms = self._goal.tolerance * span.recorded * 1000
        for direction, measured in self._measured.items():
            self.needs += [
                (direction, *name, measured.needs[name], limit, waited_ms > bound_ms, waited_ms)
                for name, (limit, waited_ms) in found.limits[direction].items()
            ]
        loads = found.loads.filter(F.col("direction").isin(*self._measured))
        self.shared = loads.select(
            "direction",
            "broker",
            (F.col("block") * BLOCK_S + span.start_s).alias("start_s"),
            *((F.col(name) / BLOCK_S).alias(name) for name in ("promised", "lent")),
        )
        passed = loads.withColumn("bytes", F.col("promised") + F.col("lent"))
        for direction in self._measured:
            of_way = F.col("direction") == direction
            table = before_after(
                self._recorded.filter(of_way), passed.filter(of_way), span.start_s, span.blocks, 1.0
            )
            self.before_after.append(table.withColumn("direction", F.lit(direction)))

    def add_mutations(self) -> None:
        """Add the quotas for partition mutations."""
        by_client: dict[Client, dict[int, int]] = {}
        for row in self._source.read("demand/mutations").collect():
            by_client.setdefault((row["user"], row["client_id"]), {})[row["second"]] = row["mutations"]
        sure = self._confidence(max(1, len(by_client)))
        if self._goal.sample == 1:
            self.lines += mutation_lines(mutation_quota(by_client, self._goal.headroom), len(by_client), sure)
        elif by_client:
            self.lines.append(sampled_line("mutation", "partition_mutations_rate", self._goal, sure))

    def add_replication(self) -> None:
        """Add the replication throttle; none without the network's throughput."""
        goal = self._goal
        if goal.network is None:
            return
        row = (
            self._source.read("demand/brokers")
            .filter(F.col("direction") == "produce")
            .agg(F.max("peak_60s").alias("peak"), F.count("*").alias("brokers"))
            .first()
        )
        if row is not None and row["brokers"]:
            bytes_in = row["peak"] / goal.sample
            throttle = replication_throttle(bytes_in, goal.network, goal.replication_factor)
            self.lines += replication_lines(throttle, goal, self._confidence(CLIENTS_FEW))

    def curve(self) -> DataFrame:
        """Return, for each candidate as the default without overrides, the throttled clients and the peak load."""
        summed = ("throttle_ms", "idle_ms", "throttled", "requests", "bytes_delayed")
        client = self._outcomes.groupBy("direction", "quota", "user", "client_id").agg(
            *(F.sum(name).alias(name) for name in summed)
        )
        bound_ms = self._goal.tolerance * self._span.recorded * 1000
        waited = F.col("throttle_ms") - F.col("idle_ms") > bound_ms
        totals = client.groupBy("direction", "quota").agg(
            F.count("*").alias("clients"),
            F.sum(waited.cast("bigint")).alias("clients_throttled"),
            (F.sum("throttled") / F.sum("requests")).alias("requests_throttled_share"),
            F.sum("throttle_ms").alias("throttle_ms"),
            F.sum("bytes_delayed").alias("bytes_delayed"),
        )
        return totals.join(self._alone, on=["direction", "quota"], how="inner").orderBy("direction", "quota")

    def settings(self) -> RecommendSettings:
        """Return the contents of `recommend/settings.json`, which `report` and `apply` read."""
        scope = self._backtest.engine.scope
        peak = peaks_of_scope(self._source.read("demand/entities"), self._seconds, scope)
        rows = peak.groupBy("direction").agg(F.max("peak_10s").alias("peak")).collect()
        today = {KEYS[row["direction"]]: float(row["peak"]) for row in rows}
        return RecommendSettings(
            # What is recommended has its margin by the forecasts already.
            goal=replace(self._goal, headroom=1.0) if self._expected else self._goal,
            by=self._by,
            policy=self._backtest.policy,
            scope=scope,
            confidence=lowest([line.confidence for line in self.lines]),
            today=today | {CEILINGS[key]: peak for key, peak in today.items()},
            elsewhere=not_in_quotas_file(self.lines),
        )

    def _confidence(self, clients: int) -> str:
        return confidence(
            seconds=self._span.recorded, clients=clients, sample=self._goal.sample, sources=self._sources
        )


def _waits(found: Effects, default: int, inputs: Mapping[Client, int]) -> dict[Client, int]:
    """Return the time in ms that each client waits with the recommendation."""
    waits = dict(zip(found.clients, found.throttle_ms[:, default].tolist(), strict=True))
    for row, client in enumerate(found.clients):
        if client in inputs:
            waits[client] = int(found.throttle_ms[row, inputs[client]])
    return waits


def _need_rows(
    direction: str,
    candidates: Sequence[float],
    limit: Limits,
    needs: Mapping[Client, int],
    inputs: Mapping[Client, int],
    waits: Mapping[Client, int],
) -> list[tuple[Any, ...]]:
    throttled = set(limit.throttled)
    return [
        (
            direction,
            *name,
            candidates[index] if index < len(candidates) else -1.0,
            candidates[inputs.get(name, limit.default)],
            name in throttled,
            waits[name],
        )
        for name, index in needs.items()
    ]
