"""Estimates clients' demand without the quotas that were enforced during the recording.

A client that was throttled has asked for less than it could. The backtest removes its pauses, so the candidates must
reach as far as its demand without them. An estimate is enough for that: a client that paused for three quarters of the
time in which it was busy is taken to ask for four times as much.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["unthrottled"]

_ENTITY: Final = ("direction", "user", "client_id")
_TIMES_MAX: Final = 20.0  # beyond that pauses say nothing of the demand


def unthrottled(peaks: DataFrame, entities: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the peaks, increased for clients that were throttled.

    Args:
        peaks: direction, user, client_id, peak_1s and peak_10s.
        entities: the table `demand/entities`.
        rows: the result of `demand.charged` with `emptied`.

    Returns:
        direction, user, client_id, peak_1s and peak_10s, multiplied by the time that the client's connections were
        busy, over the part of it without pauses.
    """
    paused = (F.col("throttle_ms") / 1000).alias("paused_s")
    told = rows.filter(F.col("throttle_ms") > 0).select(*_ENTITY, paused).groupBy(*_ENTITY)
    pauses = told.agg(
        F.sum("paused_s").alias("paused_s"),
        # The first second of a pause is one with a request, and counted as such.
        F.sum(F.greatest(F.col("paused_s") - 1, F.lit(0.0))).alias("further_s"),
    )
    active = entities.select(*_ENTITY, (F.col("active_seconds") * F.col("connections_max")).alias("active_s"))
    joined = peaks.join(active, on=list(_ENTITY), how="inner").join(
        F.broadcast(pauses), on=list(_ENTITY), how="left"
    )
    busy_s = F.col("active_s") + F.coalesce("further_s", F.lit(0.0))
    free_s = F.greatest(busy_s - F.coalesce("paused_s", F.lit(0.0)), busy_s / _TIMES_MAX)
    times = F.greatest(busy_s / free_s, F.lit(1.0))
    return joined.select(*_ENTITY, *((F.col(name) * times).alias(name) for name in ("peak_1s", "peak_10s")))
