"""The peaks of clients' demand at one budget: at each broker as in Kafka (`broker`), or at all together (`cluster`).

`demand/entities` has the peaks at the busiest broker. A client that is spread evenly over three brokers asks three
times as much of one budget for all of them; so seconds are added up over brokers before the peak is taken.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["peaks_of_scope", "peaks_over_brokers"]

_ENTITY: Final = ("direction", "user", "client_id")
_LENGTHS_S: Final = (1, 10)


def peaks_of_scope(entities: DataFrame, per_second: DataFrame, scope: str) -> DataFrame:
    """The highest mean over 1 s and over 10 s that each entity asks of one budget.

    Args:
        entities: the table `demand/entities`, whose peaks are the result if each broker has its own budget.
        per_second: the table `demand/per_second`.
        scope: `broker` or `cluster`.

    Returns:
        direction, user, client_id, peak_1s and peak_10s (bytes/s). Seconds without a request count as such.
    """
    if scope != "cluster":
        return entities.select(*_ENTITY, "peak_1s", "peak_10s")
    return peaks_over_brokers(per_second)


def peaks_over_brokers(per_second: DataFrame) -> DataFrame:
    """Return direction, user, client_id, peak_1s and peak_10s (bytes/s) of the sums over all brokers."""
    whole = per_second.groupBy(*_ENTITY, "second").agg(F.sum("bytes").alias("bytes"))
    frame = Window.partitionBy(*_ENTITY).orderBy("second")
    means = whole.select(
        *_ENTITY,
        *(
            (F.sum("bytes").over(frame.rangeBetween(1 - length_s, 0)) / length_s).alias(f"mean_{length_s}s")
            for length_s in _LENGTHS_S
        ),
    )
    return means.groupBy(*_ENTITY).agg(
        *(F.max(f"mean_{length_s}s").alias(f"peak_{length_s}s") for length_s in _LENGTHS_S)
    )
