"""The candidate quotas: a ladder over the clients' demands, with more steps where more clients are.

A client that was throttled has asked for less than it could. The backtest removes its pauses, so the candidates must
reach as far as its demand without the quotas that were enforced during the recording. An estimate is enough for that: a
client that paused for three quarters of the time in which it was busy is taken to ask for four times as much.

Demand is that of one budget: at each broker as in Kafka (`broker`), or at all together (`cluster`). `demand/entities`
has the peaks at the busiest broker. A client that is spread evenly over three brokers asks three times as much of one
budget for all of them; so seconds are added up over brokers before the peak is taken.
"""

import math
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.transforms.demand import ENTITY, peaks

# Where the clients are: quantiles of their peaks, each with some room.
_QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_ROOM: Final = 1.1
_RATE_MIN: Final = 1000.0

_TIMES_MAX: Final = 20.0  # beyond that pauses say nothing of the demand


def ladder(
    peaks: Sequence[float], highest: float, count: int, *, headroom: float = 1.0, least: float = 0.0
) -> list[float]:
    """Return the quotas to try (candidates) in bytes/s, ascending, at most `count`; the last exceeds every demand.

    They are a little above quantiles of the clients' peaks, such as the median. If these are fewer than `count`, others
    are added at equal ratios; if they are more, some are left out evenly, but not the lowest and the highest.

    Args:
        peaks: each client's mean over the busiest ten seconds.
        highest: the largest demand of any client in one second.
        headroom: the last candidate is this many times the one that is enough for `highest`.
        least: the smallest permitted value of the last candidate.

    >>> ladder([1e6, 1.2e6, 1.5e6, 9e6], 12e6, 8)
    [600000.0, 1200000.0, 1400000.0, 1700000.0, 2200000.0, 4000000.0, 9900000.0, 14000000.0]
    """
    assert count >= 2, "a ladder has two ends"
    ordered = sorted(max(peak, _RATE_MIN) for peak in peaks)
    if not ordered:
        return []
    found = {
        rounded(_ROOM * ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]) for quantile in _QUANTILES
    }
    enough = max(rounded(_ROOM * max(highest, ordered[-1])), least)
    found |= {enough, rounded(enough * max(headroom, 1.0))}
    if len(found) >= count:
        marks = sorted(found)
        return [marks[place * (len(marks) - 1) // (count - 1)] for place in range(count)]
    low, high = rounded(ordered[len(ordered) // 4] / 2), max(found)
    steps = count - len(found) + 2
    ratio = (high / low) ** (1 / (steps - 1))
    for step in range(steps):
        if len(found) < count:
            found.add(rounded(low * ratio**step))
    return sorted(found)


def rounded(rate: float) -> float:
    """Round up to two significant digits, as an operator would write the rate.

    >>> rounded(1_234_567.0), rounded(99_100.0), rounded(1000.0)
    (1300000.0, 100000.0, 1000.0)
    """
    digit = 10.0 ** (math.floor(math.log10(max(rate, 1.0))) - 1)
    return float(round(math.ceil(round(rate / digit, 6)) * digit))


def unthrottled(peaks: DataFrame, entities: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the peaks, increased to what clients would have reached if they had not been throttled when recorded.

    Args:
        peaks: direction, user, client_id, peak_1s and peak_10s.
        entities: the table `demand/entities`.
        rows: the result of `demand.charged` with `emptied`.

    Returns:
        direction, user, client_id, peak_1s and peak_10s (bytes/s). Both peaks are multiplied by busy time /
        (busy time - recorded pauses), from 1 to `_TIMES_MAX`.
    """
    # Sums of whole milliseconds: a sum of fractions depends on their order, which is another in each run on a cluster.
    pauses = (
        rows.filter(F.col("throttle_ms") > 0)
        .groupBy(*ENTITY)
        .agg(
            (F.sum("throttle_ms") / 1000).alias("paused_s"),
            # The first second of a pause is one with a request, and counted as such.
            (F.sum(F.greatest(F.col("throttle_ms") - 1000, F.lit(0))) / 1000).alias("further_s"),
        )
    )
    active = entities.select(*ENTITY, (F.col("active_seconds") * F.col("connections_max")).alias("active_s"))
    joined = peaks.join(active, on=list(ENTITY), how="inner").join(
        F.broadcast(pauses), on=list(ENTITY), how="left"
    )
    busy_s = F.col("active_s") + F.coalesce("further_s", F.lit(0.0))
    free_s = F.greatest(busy_s - F.coalesce("paused_s", F.lit(0.0)), busy_s / _TIMES_MAX)
    times = F.greatest(busy_s / free_s, F.lit(1.0))
    return joined.select(*ENTITY, *((F.col(name) * times).alias(name) for name in ("peak_1s", "peak_10s")))


def peaks_of_scope(entities: DataFrame, per_second: DataFrame, scope: str) -> DataFrame:
    """Return each entity's highest mean rates over 1 s and over 10 s, at one broker or at all brokers (`scope`).

    Args:
        entities: the table `demand/entities`, whose peaks are the result if each broker has its own budget.
        per_second: the table `demand/per_second`.
        scope: `broker` (a quota holds at each broker), or `cluster` (it holds at all brokers together).

    Returns:
        direction, user, client_id, peak_1s and peak_10s (bytes/s). Seconds without a request count as 0 bytes.
    """
    if scope != "cluster":
        return entities.select(*ENTITY, "peak_1s", "peak_10s")
    return peaks_over_brokers(per_second)


def peaks_over_brokers(per_second: DataFrame) -> DataFrame:
    """Return direction, user, client_id, peak_1s and peak_10s (bytes/s) of the sums over all brokers."""
    whole = per_second.groupBy(*ENTITY, "second").agg(F.sum("bytes").alias("bytes"))
    return peaks(whole, ENTITY, ENTITY, (1, 10))
