"""What clients would have asked for without the quotas that were enforced while they were recorded: an estimate.

A client that was told to wait has asked for less than it could. The backtest takes its pauses out; the candidates have
to reach as far as it may go then. An estimate is enough for that: a client that was active for a second and then paused
for nine is taken for one that asks for ten times as much.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["unthrottled"]

_ENTITY: Final = ("direction", "user", "client_id")
_TIMES_MAX: Final = 20.0  # beyond that pauses say nothing of the demand


def unthrottled(peaks: DataFrame, entities: DataFrame, rows: DataFrame) -> DataFrame:
    """The same peaks, higher where a client was throttled.

    Args:
        peaks: direction, user, client_id, peak_1s and peak_10s.
        entities: the table `demand/entities`.
        rows: requests as `demand.charged` gives them, those that were answered empty too.

    Returns:
        direction, user, client_id, peak_1s and peak_10s. Both are multiplied by the time that the client's connections
        were active or paused, over the time that they were active.
    """
    paused = rows.filter(F.col("throttle_ms") > 0).groupBy(*_ENTITY)
    paused_s = paused.agg((F.sum("throttle_ms") / 1000).alias("paused_s"))
    active = entities.select(*_ENTITY, (F.col("active_seconds") * F.col("connections_max")).alias("active_s"))
    joined = peaks.join(active, on=list(_ENTITY), how="inner").join(
        F.broadcast(paused_s), on=list(_ENTITY), how="left"
    )
    pressure = 1 + F.coalesce("paused_s", F.lit(0.0)) / F.greatest("active_s", F.lit(1))
    times = F.least(pressure, F.lit(_TIMES_MAX))
    return joined.select(*_ENTITY, *((F.col(name) * times).alias(name) for name in ("peak_1s", "peak_10s")))
