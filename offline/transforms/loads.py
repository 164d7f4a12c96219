"""Loads by ten seconds, KIP-13's window: of what was recorded, and of what each candidate lets through.

A week has 60,480 blocks of ten seconds; ten brokers, twenty candidates and eleven groups of clients make 133 million
numbers for each direction. They are added up where they are: what comes out has one row for each candidate or level.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["BLOCK_S", "at_levels", "before_after", "blocks_of", "peaks", "recorded_blocks"]

BLOCK_S: Final = 10
_ALL_BROKERS: Final = -1
Client = tuple[str, str]


def blocks_of(loads: DataFrame, start_s: int) -> DataFrame:
    """The table `backtest/loads` with one row for ten seconds: `block` counts them, `bytes` is their sum."""
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
    """direction, broker, block, bytes: what `demand/per_second` has; one budget over all brokers makes them one."""
    broker = F.lit(_ALL_BROKERS) if gateway else F.col("broker")
    block = F.floor((F.col("second") - start_s) / BLOCK_S).cast("int")
    keys = ("direction", broker.alias("broker"), block.alias("block"))
    return seconds.groupBy(*keys).agg(F.sum("bytes").alias("bytes"))


def peaks(blocks: DataFrame, *by: str) -> DataFrame:
    """The columns `by` and `peak_10s`: bytes/s of the busiest broker in its busiest ten seconds."""
    load = blocks.groupBy(*by, "broker", "block").agg(F.sum("bytes").alias("bytes"))
    return load.groupBy(*by).agg((F.max("bytes") / BLOCK_S).alias("peak_10s"))


def at_levels(blocks: DataFrame, default: float, levels: Sequence[Mapping[Client, float]]) -> DataFrame:
    """What passes with this default and each of some sets of overrides.

    Args:
        blocks: of one direction, as `blocks_of` gives them.
        default: a candidate.
        levels: (user, client id) -> candidate, of heavy clients, the same ones in each.

    Returns:
        level (the how-manieth), broker, block, bytes.
    """
    spark = blocks.sparkSession
    rows = [(level, *name, quota) for level, given in enumerate(levels) for name, quota in given.items()]
    choices = spark.createDataFrame(rows, "level int, user string, client_id string, quota double")
    names = sorted({name for given in levels for name in given})
    own = spark.createDataFrame(
        [(*name, True) for name in names], "user string, client_id string, heavy boolean"
    )
    numbers = spark.createDataFrame([(level,) for level in range(len(levels))], "level int")
    chosen = blocks.filter("heavy").join(F.broadcast(choices), on=["user", "client_id", "quota"], how="inner")
    rest = (
        blocks.filter(F.col("quota") == default)
        .join(F.broadcast(own), on=["user", "client_id", "heavy"], how="left_anti")
        .groupBy("broker", "block")
        .agg(F.sum("bytes").alias("bytes"))
        .crossJoin(F.broadcast(numbers))
    )
    columns = ("level", "broker", "block", "bytes")
    both = chosen.select(*columns).unionByName(rest.select(*columns))
    return both.groupBy("level", "broker", "block").agg(F.sum("bytes").alias("bytes"))


def before_after(before: DataFrame, after: DataFrame, start_s: int, count: int, sample: float) -> DataFrame:
    """The columns of `recommend/before_after` but the direction, every block of every broker.

    Args:
        before, after: broker, block, bytes.
        start_s, count: the first block's first second, and how many there are.
        sample: the share of the load that it is.
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
