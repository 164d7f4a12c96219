"""Captured rows -> requests: one time for all processes, one number for each connection, one quota entity.

`wall_ms` may step and each process has a monotonic clock of its own; so a request's time is that of the monotonic
clock plus one offset for the whole process, the one between its two clocks for most of its rows. Steps of the wall
clock are found by the same comparison. Rows out of order are found batch by batch, as Spark gives them: rows of one
connection are near each other in a capture.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from offline.options import By

__all__ = [
    "BAD_ROW",
    "CONNECTION_BITS",
    "disordered",
    "entity_columns",
    "impossible",
    "processes",
    "requests",
]

CONNECTION_BITS: Final = 40
_SECOND_US: Final = 1_000_000
ANONYMOUS: Final = "ANONYMOUS"  # Kafka's name of a user who has not authenticated: no user to a quota
BAD_ROW: Final = "process_index int, connection bigint, seq bigint"


def processes(captured: DataFrame) -> DataFrame:
    """One row a process: its clocks. `process_index` follows the first times; `started_us` is the first row's offset.

    A wall clock may have been wrong at first, and stepped when it was set: `offset_us` is what half of the rows are
    at or below, so the longer stretch is believed. What is added up per second of offset is little, whatever it costs.
    """
    drift_us = F.col("wall_ms") * 1000 - F.col("mono_us")
    stretches = captured.groupBy("process", F.floor(drift_us / _SECOND_US).alias("drift_s")).agg(
        F.count("*").alias("rows"),
        F.min("mono_us").alias("first_us"),
        F.max("mono_us").alias("last_us"),
        F.min_by(drift_us, F.col("mono_us")).alias("drift_us"),
        F.min(drift_us).alias("lowest_us"),
        F.max(drift_us).alias("highest_us"),
    )
    process = Window.partitionBy("process")
    half = F.sum("rows").over(process.orderBy("drift_s")) * 2 >= F.sum("rows").over(process)
    found = stretches.withColumn("upper", F.when(half, F.col("drift_s"))).groupBy("process")
    clocks = found.agg(
        F.sum("rows").alias("requests"),
        F.min("first_us").alias("first_us"),
        F.max("last_us").alias("last_us"),
        F.min_by("drift_us", "upper").alias("offset_us"),
        F.min_by("drift_us", "first_us").alias("started_us"),
        ((F.max("highest_us") - F.min("lowest_us")) / 1000).cast("bigint").alias("wall_step_ms"),
    )
    for name in ("first", "last"):
        wall_ms = F.floor((F.col(f"{name}_us") + F.col("offset_us")) / 1000)
        clocks = clocks.withColumn(f"{name}_wall_ms", wall_ms.cast("bigint"))
    numbers = F.row_number().over(Window.orderBy("first_wall_ms", "process")) - 1
    return clocks.withColumn("process_index", numbers.cast("int"))


def impossible() -> Column:
    """What no row can hold: the problem as text, null for none."""
    return (
        F.when(F.col("wall_ms").isNull() | F.col("process").isNull(), "a column is null or missing")
        .when(F.col("wall_ms") <= 0, "wall_ms is not a time")
        .when(F.col("mono_us") < 0, "mono_us is below 0")
        .when(F.col("seq") < 0, "seq is below 0")
        .when(F.col("request_bytes") < 0, "request_bytes is below 0")
    )


def requests(captured: DataFrame, clocks: DataFrame, by: By, exclude: str) -> DataFrame:
    """The table `ingest/requests`."""
    clocks = F.broadcast(clocks.select("process", "process_index", "offset_us"))
    joined = captured.join(clocks, on="process", how="inner")
    user, client_id = entity_columns(by)
    kept = joined if not exclude else joined.filter(~F.col("client_id").rlike(f"^(?:{exclude})$"))
    connection = F.shiftleft(F.col("process_index").cast("bigint"), CONNECTION_BITS) + F.col("connection")
    return kept.select(
        (F.col("mono_us") + F.col("offset_us")).alias("at_us"),
        connection.alias("connection"),
        "seq",
        user.alias("user"),
        client_id.alias("client_id"),
        "broker",
        "api_key",
        "request_bytes",
        "response_bytes",
        F.col("upstream_us").alias("service_us"),
        "delay_ms",
        "throttle_ms",
        F.greatest(F.col("mutations"), F.lit(0)).alias("mutations"),
    )


def entity_columns(by: By) -> tuple[Column, Column]:
    """User and client id of the quota entity that a row counts against."""
    nobody = F.lit("")
    user = F.when(F.col("principal") == ANONYMOUS, nobody).otherwise(F.col("principal"))
    if by == "client-id":
        return nobody, F.col("client_id")
    return user, nobody if by == "user" else F.col("client_id")


def disordered(captured: DataFrame, clocks: DataFrame) -> DataFrame:
    """Rows whose clock goes backwards although their number goes on, or whose number was there before."""
    clocks = F.broadcast(clocks.select("process", "process_index"))
    numbers = captured.join(clocks, on="process", how="inner").select(
        "process_index", "connection", "seq", "mono_us"
    )
    return numbers.mapInArrow(_find_disorder(), BAD_ROW)


def _find_disorder() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            process, connection, seq, mono_us = (column.to_numpy(zero_copy_only=False) for column in batch)
            order = np.lexsort((seq, connection, process))
            process, connection, seq, mono_us = (
                column[order] for column in (process, connection, seq, mono_us)
            )
            same = (process[1:] == process[:-1]) & (connection[1:] == connection[:-1])
            wrong = np.flatnonzero(same & ((mono_us[1:] < mono_us[:-1]) | (seq[1:] == seq[:-1]))) + 1
            if len(wrong):
                columns = [pa.array(column[wrong]) for column in (process, connection, seq)]
                names = ["process_index", "connection", "seq"]
                yield pa.RecordBatch.from_arrays(columns, names=names)

    return find
