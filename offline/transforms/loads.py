"""Loads in blocks of ten seconds (KIP-13's window), as recorded and with each candidate.

A week has 60,480 blocks; ten brokers, twenty candidates and eleven groups of clients make 133 million numbers for each
direction. Spark adds them up; the results have one row for each candidate or level.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

BLOCK_S: Final = 10
_ALL_BROKERS: Final = -1
Client = tuple[str, str]


def blocks_of(loads: DataFrame, start_s: int) -> DataFrame:
    """Convert the table `backtest/loads` to one row for each block of ten seconds, with its number and its bytes."""
    sums = F.transform(
        F.sequence(F.lit(0), F.ceil(F.size("bytes") / BLOCK_S).cast("int") - 1),
        lambda block: F.aggregate(
            F.slice("bytes", block * BLOCK_S + 1, BLOCK_S),
            F.lit(0).cast("bigint"),
            lambda total, value: total + value,
        ),
    )
    first = F.floor((F.col("start_s") - start_s) / BLOCK_S)
    key = ("direction", "quota", "broker", "user", "client_id", "heavy")
    rows = loads.filter(F.size("bytes") > 0).select(
        *key, first.alias("first"), F.posexplode(sums).alias("at", "bytes")
    )
    return rows.select(*key, (F.col("first") + F.col("at")).cast("int").alias("block"), "bytes")


def recorded_blocks(seconds: DataFrame, start_s: int, *, gateway: bool) -> DataFrame:
    """Return the recorded load from `demand/per_second`: direction, broker, block of ten seconds, and bytes.

    Args:
        gateway: whether all brokers are added up as one.
    """
    broker = F.lit(_ALL_BROKERS) if gateway else F.col("broker")
    block = F.floor((F.col("second") - start_s) / BLOCK_S).cast("int")
    keys = ("direction", broker.alias("broker"), block.alias("block"))
    return seconds.groupBy(*keys).agg(F.sum("bytes").alias("bytes"))


def peaks(blocks: DataFrame, *by: str) -> DataFrame:
    """Return, for each group of equal `by` columns, `peak_10s`: the highest load of a broker in a block of ten seconds.

    The load is in bytes/s; all rows of a group at one broker in one block are added up.
    """
    load = blocks.groupBy(*by, "broker", "block").agg(F.sum("bytes").alias("bytes"))
    return load.groupBy(*by).agg((F.max("bytes") / BLOCK_S).alias("peak_10s"))


def at_levels(blocks: DataFrame, default: float, levels: Sequence[Mapping[Client, float]]) -> DataFrame:
    """Return the load for each set of overrides in `levels`, with this default for all other clients.

    Args:
        blocks: the result of `blocks_of` for one direction.
        default: the default quota in bytes/s.
        levels: the sets of overrides: quotas in bytes/s by user and client id, of the same heavy clients in each set.

    Returns:
        level (the index in `levels`), broker, block and bytes.
    """
    at = F.filter(_levels(default, levels), lambda level: level >= 0)
    rows = blocks.select(F.explode(at).alias("level"), "broker", "block", "bytes")
    return rows.groupBy("level", "broker", "block").agg(F.sum("bytes").alias("bytes"))


def _levels(default: float, levels: Sequence[Mapping[Client, float]]) -> Column:
    """Return the levels in which a row's candidate is its client's; -1 in place of the others.

    There is no join, since the names are few, and each join would be two more jobs.
    """
    every = F.array(*(F.lit(level) for level in range(len(levels))))
    found = F.when(F.col("quota") == default, every).otherwise(F.array(F.lit(-1)))
    for name in sorted({name for given in levels for name in given}):
        own = F.array(
            *(
                F.when(F.col("quota") == given[name], level).otherwise(-1)
                for level, given in enumerate(levels)
            )
        )
        is_it = F.col("heavy") & (F.col("user") == name[0]) & (F.col("client_id") == name[1])
        found = F.when(is_it, own).otherwise(found)
    return found


def before_after(before: DataFrame, after: DataFrame, start_s: int, count: int, sample: float) -> DataFrame:
    """Return the table `recommend/before_after` without its direction: a row for each block of each broker.

    Args:
        before, after: the load as recorded, and with the recommendation: broker, block and bytes.
        start_s, count: the first block's first second, and the number of blocks.
        sample: the share of the load that was captured.
    """
    keys = ["broker", "block"]
    brokers = before.select("broker").unionByName(after.select("broker")).distinct()
    blocks = before.sparkSession.range(count).select(F.col("id").cast("int").alias("block"))

    def rate(name: str) -> Column:
        return (F.coalesce(name, F.lit(0)) / BLOCK_S / sample).alias(name)

    return (
        blocks.crossJoin(F.broadcast(brokers))
        .join(before.select(*keys, F.col("bytes").alias("before")), on=keys, how="left")
        .join(after.select(*keys, F.col("bytes").alias("after")), on=keys, how="left")
        .select(
            "broker", (F.col("block") * BLOCK_S + start_s).alias("start_s"), rate("before"), rate("after")
        )
    )
