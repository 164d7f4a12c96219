"""Bytes by second -> what classes of clients would have of a capacity, and how long they would wait, by candidate.

A task holds a day of one direction of one broker (with scope `cluster`, of all brokers together): 24 bytes for each
client and second with traffic. The arithmetic is `quotas.backtest.capacity`. A day begins with nothing late.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from offline.transforms.demand import ENTITY, peaks
from offline.transforms.evaluate import MINUTES_A_DAY
from offline.transforms.loads import BLOCK_S
from quotas.backtest.capacity import Classes, shared

PEAKS_S: Final = (60, 10, 1)
_CARRIED: Final = {
    "candidate": pa.int32(),
    "owner": pa.int32(),
    "broker": pa.int32(),
    "block": pa.int32(),
    "waited_ms": pa.int64(),
    "promised": pa.int64(),
    "lent": pa.int64(),
}


def budgets(per_second: DataFrame, *, by_broker: bool) -> DataFrame:
    """Return the bytes of each client's budgets by second.

    Args:
        per_second: the table `demand/per_second`.
        by_broker: whether each broker has a budget by itself.
    """
    broker = F.col("broker") if by_broker else F.lit(-1)
    return (
        per_second.filter(F.col("bytes") > 0)
        .groupBy(*ENTITY, broker.alias("broker"), "second")
        .agg(F.sum("bytes").alias("bytes"))
    )


def demands(seconds: DataFrame, recorded_s: int, day_s: int, always: float) -> DataFrame:
    """Return each client's peaks in bytes/s, and `steady`: what it needs in the share `always` of the recorded minutes.

    With scope `broker` these are of the broker at which it needs most.

    Args:
        seconds: the result of `budgets`.
        day_s: the length of a day, of which a minute is a 1440th.
    """
    minute_s = max(1, day_s // MINUTES_A_DAY)
    minutes = seconds.groupBy(*ENTITY, "broker", F.floor(F.col("second") / minute_s).alias("minute")).agg(
        F.sum("bytes").alias("bytes")
    )
    busiest = Window.partitionBy(*ENTITY, "broker").orderBy(F.desc("bytes"), "minute")
    rank = int(round((1 - always) * (recorded_s // minute_s), 6)) + 1
    steady = (
        minutes.withColumn("rank", F.row_number().over(busiest))
        .filter(F.col("rank") == rank)
        .groupBy(*ENTITY)
        .agg((F.max("bytes") / minute_s).alias("steady"))
    )
    highest = peaks(seconds, (*ENTITY, "broker"), ENTITY, PEAKS_S)
    return highest.join(steady, on=list(ENTITY), how="left").fillna(0.0, ["steady"])


def carried(
    seconds: DataFrame,
    owners: DataFrame,
    candidates: Mapping[str, Sequence[Classes]],
    capacities: Mapping[str, float],
    start_s: int,
    day_s: int,
) -> DataFrame:
    """Return what classes have of a capacity, and how long they wait.

    Args:
        seconds: the result of `budgets`.
        owners: direction, user, client_id, and `owner`, the number of its class.
        candidates: by direction, the terms to try.
        capacities: by direction, in bytes/s.

    Returns:
        Rows of classes, whose `block` is -1: candidate, owner, waited_ms, promised and lent (bytes, of their rates and
        beyond them). And rows of blocks of ten seconds, whose owner is -1: candidate, broker, block, promised and lent.
    """
    day = F.floor((F.col("second") - start_s) / day_s).cast("int").alias("day")
    rows = (
        seconds.join(F.broadcast(owners), on=list(ENTITY), how="inner")
        .select("direction", "broker", day, F.col("second") - start_s, "owner", "bytes")
        .toDF("direction", "broker", "day", "second", "owner", "bytes")
    )

    def share(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        direction, broker, day = (part.as_py() for part in key)
        found = _carried(table, candidates[direction], capacities[direction], broker, day, day_s)
        return found.add_column(0, "direction", pa.repeat(pa.scalar(direction), found.num_rows))

    schema = "direction string, " + ", ".join(
        f"{name} {'int' if kind == pa.int32() else 'bigint'}" for name, kind in _CARRIED.items()
    )
    return rows.groupBy("direction", "broker", "day").applyInArrow(share, schema)


def totals(found: DataFrame) -> DataFrame:
    """Return the sums of the rows of classes, over all brokers and days: direction, candidate, owner, and the rest."""
    classes = found.filter(F.col("block") < 0).groupBy("direction", "candidate", "owner")
    return classes.agg(*(F.sum(name).alias(name) for name in ("waited_ms", "promised", "lent")))


def blocks(found: DataFrame, candidate: int, count: int) -> DataFrame:
    """Return the bytes of each block with one candidate: direction, broker, block, promised and lent.

    Args:
        count: the number of blocks in the recording; what passes later is left out.
    """
    inside: Column = (F.col("candidate") == candidate) & F.col("block").between(0, count - 1)
    rows = found.filter(inside).groupBy("direction", "broker", "block")
    return rows.agg(*(F.sum(name).alias(name) for name in ("promised", "lent")))


def _carried(
    table: pa.Table, candidates: Sequence[Classes], capacity: float, broker: int, day: int, day_s: int
) -> pa.Table:
    second, owner, size = (table[name].to_numpy() for name in ("second", "owner", "bytes"))
    order = np.lexsort((owner, second))
    count = -(-day_s // BLOCK_S)
    own = np.unique(owner)
    parts: dict[str, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {name: [] for name in _CARRIED}
    for candidate, classes in enumerate(candidates):
        found = shared(
            second[order] - day * day_s, owner[order], size[order], classes, capacity, count, BLOCK_S
        )
        used = np.flatnonzero(found.carried.any(axis=0))
        whole = np.bincount(owner, weights=size, minlength=len(classes.rates))[own]
        rows = {
            "candidate": np.full(len(own) + len(used), candidate),
            "owner": np.concatenate([own, np.full(len(used), -1)]),
            "broker": np.full(len(own) + len(used), broker),
            "block": np.concatenate([np.full(len(own), -1), used + day * day_s // BLOCK_S]),
            # Whole numbers, whose sums depend on no order.
            "waited_ms": np.concatenate([np.rint(found.waited_s[own] * 1000), np.zeros(len(used))]),
            "promised": np.rint(np.concatenate([whole - found.lent[own], found.carried[0, used]])),
            "lent": np.rint(np.concatenate([found.lent[own], found.carried[1, used]])),
        }
        for name, values in rows.items():
            parts[name].append(values.astype(np.int64))
    return pa.table(
        {name: pa.array(np.concatenate(parts[name])).cast(kind) for name, kind in _CARRIED.items()}
    )
