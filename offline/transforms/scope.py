"""What clients ask of one budget: at each broker as in Kafka (`broker`), or of all brokers together (`gateway`).

`demand/entities` has peaks at the busiest broker. A client that is spread over three brokers asks three times as much
of a budget that is one for all of them, so the seconds are added up over brokers before the peak is taken.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["peaks_of_scope"]

_ENTITY: Final = ("direction", "user", "client_id")
_LENGTH_S: Final = 10


def peaks_of_scope(entities: DataFrame, per_second: DataFrame, scope: str) -> DataFrame:
    """The highest mean over 10 s that each entity asks of one budget.

    Args:
        entities: the table `demand/entities`; its `peak_10s` is the answer where each broker has its own budget.
        per_second: the table `demand/per_second`.
        scope: `broker` or `gateway`.

    Returns:
        direction, user, client_id, peak_10s (bytes/s). Seconds without a request count as such.
    """
    if scope != "gateway":
        return entities.select(*_ENTITY, "peak_10s")
    whole = per_second.groupBy(*_ENTITY, "second").agg(F.sum("bytes").alias("bytes"))
    frame = Window.partitionBy(*_ENTITY).orderBy("second").rangeBetween(1 - _LENGTH_S, 0)
    means = whole.select(*_ENTITY, (F.sum("bytes").over(frame) / _LENGTH_S).alias("mean"))
    return means.groupBy(*_ENTITY).agg(F.max("mean").alias("peak_10s"))
