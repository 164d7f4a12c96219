"""Captured rows -> requests: one time for all processes, one number for each connection, one quota entity.

`wall_ms` may step, and each process has its own monotonic clock; so a request's time is the monotonic clock's plus one
offset for the whole process, which is the difference of both clocks for most of its rows. Steps of the wall clock are
found by the same comparison.
"""

from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from offline.options import By
from offline.schemas import CAPTURE

CONNECTION_BITS: Final = 40
_SECOND_US: Final = 1_000_000
ANONYMOUS: Final = "ANONYMOUS"  # Kafka's principal of an unauthenticated connection: no user for a quota
# The largest valid service time: a connection that waits longer was closed, and demand iterates over every second.
SERVICE_US_MAX: Final = 86_400_000_000
_FLAT: Final = tuple(column.name for column in CAPTURE if column.name != "partitions")
_INVALID: Final = (
    ("wall_ms is not a time", "wall_ms <= 0"),
    ("mono_us is below 0", "mono_us < 0"),
    (
        f"connection is not from 0 to 2^{CONNECTION_BITS}",
        f"connection < 0 OR connection >= {1 << CONNECTION_BITS}",
    ),
    ("seq is below 0", "seq < 0"),
    ("request_bytes is below 0", "request_bytes < 0"),
    ("upstream_us is more than a day", f"upstream_us > {SERVICE_US_MAX}"),
)


def processes(captured: DataFrame) -> DataFrame:
    """Return one row for each process, with the offset between its wall clock and its monotonic clock.

    `process_index` numbers processes by their first times. `started_us` is the offset of the first row, and `offset_us`
    the median offset of all rows. They differ if the wall clock was wrong at first and then set; most rows have the
    latter.
    """
    drift_us = F.col("wall_ms") * 1000 - F.col("mono_us")
    stretches = captured.groupBy("process", F.floor(drift_us / _SECOND_US).alias("drift_s")).agg(
        F.count("*").alias("rows"),
        F.min("mono_us").alias("first_us"),
        F.max("mono_us").alias("last_us"),
        F.min(F.struct(F.col("mono_us"), drift_us.alias("drift_us")))["drift_us"].alias("drift_us"),
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
        F.min(F.struct("first_us", "drift_us"))["drift_us"].alias("started_us"),
        ((F.max("highest_us") - F.min("lowest_us")) / 1000).cast("bigint").alias("wall_step_ms"),
    )
    for name in ("first", "last"):
        wall_ms = F.floor((F.col(f"{name}_us") + F.col("offset_us")) / 1000)
        clocks = clocks.withColumn(f"{name}_wall_ms", wall_ms.cast("bigint"))
    numbers = F.row_number().over(Window.orderBy("first_wall_ms", "process")) - 1
    return clocks.withColumn("process_index", numbers.cast("int"))


def invalid_reason() -> Column:
    """Return a column: the problem of a row as text; null if the row is valid."""
    missing = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in _FLAT))
    text = F.when(missing != "", F.concat(F.lit("a column is null or missing: "), missing))
    for problem, condition in _INVALID:
        text = text.when(F.expr(condition), F.lit(problem))
    return text


def is_invalid() -> Column:
    """Return a condition for filters: whether a row is invalid. Spark evaluates it on Parquet's row groups.

    Row groups state the number of nulls and the smallest and largest value, so groups of valid rows are not read.
    """
    nulls = (F.col(name).isNull() for name in _FLAT)
    return reduce(or_, (*nulls, *(F.expr(condition) for _, condition in _INVALID)))


def numbered(captured: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return captured rows with `connection` renumbered, so that no two processes have a connection in common."""
    indices = F.broadcast(clocks.select("process", "process_index"))
    return captured.join(indices, on="process", how="inner").withColumn("connection", _connection())


def _connection() -> Column:
    return F.shiftleft(F.col("process_index").cast("bigint"), CONNECTION_BITS) + F.col("connection")


def requests(captured: DataFrame, clocks: DataFrame, by: By, exclude: str) -> DataFrame:
    """Return the table `ingest/requests`: the captured requests with wall-clock times and their quota entities.

    Args:
        captured: the valid captured rows.
        clocks: the result of `processes`.
        by: the quota entity that makes a client.
        exclude: a regular expression of client ids to leave out; "" for none.
    """
    clocks = F.broadcast(clocks.select("process", "process_index", "offset_us"))
    joined = captured.join(clocks, on="process", how="inner")
    user, client_id = entity_columns(by)
    kept = joined if not exclude else joined.filter(~F.col("client_id").rlike(f"^(?:{exclude})$"))
    return kept.select(
        (F.col("mono_us") + F.col("offset_us")).alias("at_us"),
        _connection().alias("connection"),
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
    """Return two columns: user and client id of the quota entity that a row counts against; "" for an unused part."""
    no_name = F.lit("")
    user = F.when(F.col("principal") == ANONYMOUS, no_name).otherwise(F.col("principal"))
    if by == "client-id":
        return no_name, F.col("client_id")
    return user, no_name if by == "user" else F.col("client_id")
