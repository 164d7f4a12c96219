"""What `recommend` and `report` read of the stages before them, brought to the driver: aggregated, so it is little."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.advice.limits import BLOCK_S, Load, Loads, Need, need_of
from offline.store import Store

__all__ = ["Effect", "Span", "backtest_settings", "before", "effects", "loads_of", "needs_of", "span_of"]


@dataclass(frozen=True, slots=True)
class Span:
    """What was recorded.

    Attributes:
        seconds: from the first to the last, gaps between captures too: the length of every time axis.
        recorded: seconds in which some process recorded: what shares of the time are of.
    """

    start_s: int
    seconds: int
    recorded: int
    requests: int

    @property
    def blocks(self) -> int:
        """How many ten seconds there are; the last one may be shorter."""
        return -(-self.seconds // BLOCK_S)


@dataclass(frozen=True, slots=True)
class Effect:
    """What each candidate does to one client, over all brokers."""

    user: str
    client_id: str
    throttle_ms: Sequence[int]
    late_ms: Sequence[int]


_ENTITY: Final = ("direction", "user", "client_id")


def span_of(source: Store) -> Span:
    """The table `demand/span`."""
    row = source.read("demand/span").first()
    assert row is not None, "demand writes one row or fails"
    return Span(row["start_s"], row["seconds"], row["recorded_seconds"], row["requests"])


def backtest_settings(source: Store) -> dict[str, Any]:
    """What was tried."""
    found: dict[str, Any] = json.loads(source.text("backtest/settings.json"))
    return found


def effects(outcomes: DataFrame, direction: str) -> list[Effect]:
    """Every client with what each candidate does to it, in the order of candidates."""
    by_quota = (
        outcomes.filter(F.col("direction") == direction)
        .groupBy("user", "client_id", "quota")
        .agg(F.sum("throttle_ms").alias("throttle_ms"), F.max("late_ms").alias("late_ms"))
    )
    ladder = F.sort_array(F.collect_list(F.struct("quota", "throttle_ms", "late_ms"))).alias("ladder")
    rows = by_quota.groupBy("user", "client_id").agg(ladder).orderBy("user", "client_id").collect()
    return [
        Effect(
            row["user"],
            row["client_id"],
            [step["throttle_ms"] for step in row["ladder"]],
            [step["late_ms"] for step in row["ladder"]],
        )
        for row in rows
    ]


def needs_of(found: Sequence[Effect], span: Span, tolerance: float) -> list[Need]:
    """What each client needs; a wait below the tolerance is none."""
    tolerated_ms = tolerance * span.recorded * 1000
    return [
        Need(
            effect.user,
            effect.client_id,
            need_of([throttle_ms > tolerated_ms for throttle_ms in effect.throttle_ms]),
        )
        for effect in found
    ]


def loads_of(table: DataFrame, direction: str, candidates: Sequence[float], span: Span) -> Loads:
    """The table `backtest/loads` by ten seconds."""
    count = F.ceil(F.size("bytes") / BLOCK_S).cast("int")
    blocks = F.transform(
        F.sequence(F.lit(0), count - 1),
        lambda block: F.aggregate(
            F.slice("bytes", block * BLOCK_S + 1, BLOCK_S),
            F.lit(0).cast("bigint"),
            lambda total, value: total + value,
        ),
    )
    rows = (
        table.filter(F.col("direction") == direction)
        .select("broker", "quota", "user", "client_id", "heavy", "start_s", blocks.alias("blocks"))
        .collect()
    )
    index = {quota: number for number, quota in enumerate(candidates)}
    others: list[dict[int, Load]] = [{} for _ in candidates]
    heavy: dict[tuple[str, str], list[dict[int, Load]]] = {}
    for row in rows:
        name = (row["user"], row["client_id"])
        ladder = heavy.setdefault(name, [{} for _ in candidates]) if row["heavy"] else others
        load = ladder[index[row["quota"]]].setdefault(row["broker"], np.zeros(span.blocks))
        begin = (row["start_s"] - span.start_s) // BLOCK_S
        load[begin : begin + len(row["blocks"])] += np.array(row["blocks"]) / BLOCK_S
    return Loads(others, heavy)


def before(seconds: DataFrame, direction: str, span: Span, *, gateway: bool) -> Mapping[int, Load]:
    """Each broker's load as recorded, by ten seconds."""
    broker = F.lit(-1) if gateway else F.col("broker")
    block = F.floor((F.col("second") - span.start_s) / BLOCK_S).cast("int")
    rows = (
        seconds.filter(F.col("direction") == direction)
        .groupBy(broker.alias("broker"), block.alias("block"))
        .agg(F.sum("bytes").alias("bytes"))
        .collect()
    )
    found: dict[int, Load] = {}
    for row in rows:
        if 0 <= row["block"] < span.blocks:
            found.setdefault(row["broker"], np.zeros(span.blocks))[row["block"]] += row["bytes"] / BLOCK_S
    return found
