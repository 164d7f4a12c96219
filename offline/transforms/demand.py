"""Requests -> clients' demand: by second, with peaks, percentiles, concurrency and the shape over the day.

Skew. A client with half of the traffic has half of the requests, but no more seconds than any other. So the first step
counts by connection and second: Spark adds up within each task before it shuffles, and the shuffled rows are
distributed by connection, as by a salt. All later steps work on seconds: one client has at most the recording's
seconds times its brokers, so no task has more work for the heaviest client than for the lightest one that is always
active.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from protocol.api import FETCH, PRODUCE

# Seconds since 1970: the first, and the one after the last.
Interval = tuple[int, int]

ENTITY: Final = ("direction", "user", "client_id")
_SECOND_US: Final = 1_000_000
PEAKS_S: Final = (1, 10, 60)


def charged(requests: DataFrame, *, emptied: bool = False) -> DataFrame:
    """Select the requests that a byte quota counts, with their size and their second.

    Args:
        emptied: whether to include Fetches to which the proxy itself responded, without records. They moved no bytes,
            so they are no demand; but their throttle times are needed to remove recorded pauses.
    """
    produce = F.col("api_key") == PRODUCE
    fetch = F.col("api_key") == FETCH
    if not emptied:
        fetch &= F.col("service_us") >= 0
    moved_us = F.when(produce, F.col("at_us")).when(fetch, F.col("at_us") + F.col("service_us"))
    size = F.when(produce, F.col("request_bytes")).when(fetch, F.greatest("response_bytes", F.lit(0)))
    return requests.filter(produce | fetch).select(
        F.when(produce, "produce").when(fetch, "fetch").alias("direction"),
        "user",
        "client_id",
        "broker",
        "connection",
        "seq",
        "at_us",
        F.floor(moved_us / _SECOND_US).cast("bigint").alias("second"),
        size.cast("bigint").alias("bytes"),
        "service_us",
        "delay_ms",
        "throttle_ms",
    )


def recorded(processes_ms: Iterable[tuple[int, int]]) -> list[Interval]:
    """Return the recorded intervals in seconds, from the first and last time of each process; there may be gaps.

    >>> recorded([(1_000, 3_999), (2_500, 5_000), (90_000, 90_000)])
    [(1, 6), (90, 91)]
    """
    found: list[Interval] = []
    for first_ms, last_ms in sorted(processes_ms):
        start_s, end_s = first_ms // 1000, last_ms // 1000 + 1
        if found and start_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((start_s, end_s))
    return found


def length_s(intervals: Iterable[Interval]) -> int:
    """Return the total length of intervals, in seconds.

    >>> length_s([(1, 6), (90, 91)])
    6
    """
    return sum(end_s - start_s for start_s, end_s in intervals)


def span(rows: DataFrame, recorded_s: int) -> DataFrame:
    """Return one row: the first second, the number of seconds, of recorded seconds, and of requests."""
    first = F.floor(F.min("at_us") / _SECOND_US).cast("bigint")
    return rows.agg(
        first.alias("start_s"),
        (F.max("second") - first + 1).alias("seconds"),
        F.lit(recorded_s).alias("recorded_seconds"),
        F.count("*").alias("requests"),
    )


def per_second(rows: DataFrame, end_s: int) -> DataFrame:
    """Return bytes, requests, connections, and requests in flight of each entity at each broker in each second.

    The bytes of a request count in one second. `in_flight` is the mean number of requests at the broker during the
    second, so a request counts in every second in which it is there; seconds from `end_s` on are left out.
    """
    key = (*ENTITY, "broker", "second")
    by_connection = rows.groupBy(*key, "connection").agg(
        F.sum("bytes").alias("bytes"),
        F.count("*").alias("requests"),
        F.sum(_covered_us(F.col("second"))).alias("covered_us"),
    )
    counted = by_connection.groupBy(*key).agg(
        F.sum("bytes").alias("bytes"),
        F.sum("requests").alias("requests"),
        F.count("*").alias("connections"),
        F.sum("covered_us").alias("covered_us"),
    )
    nothing = (F.lit(0).cast("bigint").alias(name) for name in ("bytes", "requests", "connections"))
    further = _further_seconds(rows, end_s).groupBy(*key).agg(F.sum("covered_us").alias("covered_us"))
    whole = counted.unionByName(further.select(*key, *nothing, "covered_us")).groupBy(*key)
    return whole.agg(
        *(F.sum(name).alias(name) for name in ("bytes", "requests", "connections")),
        (F.sum("covered_us") / _SECOND_US).alias("in_flight"),
    )


def _covered_us(second: Column) -> Column:
    """Return the time within this second during which a request was at the broker, in microseconds."""
    begins_us = F.greatest(F.col("at_us"), second * _SECOND_US)
    ends_us = F.least(F.col("at_us") + F.col("service_us"), (second + 1) * _SECOND_US)
    return F.greatest(ends_us - begins_us, F.lit(0))


def _further_seconds(rows: DataFrame, end_s: int) -> DataFrame:
    """Return a row for each second after the first one in which a request was at the broker."""
    first = F.floor(F.col("at_us") / _SECOND_US)
    last = F.floor((F.col("at_us") + F.greatest("service_us", F.lit(0))) / _SECOND_US)
    long = rows.filter(last > first).withColumnRenamed("second", "counted")
    seconds = F.explode(F.sequence(first, F.least(last, F.greatest(first, F.lit(end_s - 1))))).alias("second")
    spread = long.select(*ENTITY, "broker", "at_us", "service_us", "counted", seconds)
    covered = spread.filter(F.col("second") != F.col("counted"))
    return covered.select(
        *ENTITY, "broker", "second", _covered_us(F.col("second")).alias("covered_us")
    ).filter(F.col("covered_us") > 0)


def entities(seconds: DataFrame, recorded_s: int) -> DataFrame:
    """Return the table `demand/entities`: each entity's totals, means, percentiles and peaks over the recording."""
    whole = seconds.groupBy(*ENTITY, "second").agg(
        F.sum("bytes").alias("bytes"),
        F.sum("requests").alias("requests"),
        F.sum("connections").alias("connections"),
        # As whole microseconds: a sum of fractions depends on their order, which is another in each run on a cluster.
        (F.sum(F.round(F.col("in_flight") * _SECOND_US).cast("bigint")) / _SECOND_US).alias("in_flight"),
        _active_bytes(F.sum("bytes"), F.sum("requests")).alias("active_bytes"),
    )
    totals = whole.groupBy(*ENTITY).agg(
        F.sum("bytes").alias("bytes"),
        F.sum("requests").alias("requests"),
        F.count("active_bytes").alias("active_seconds"),
        (F.sum("bytes") / recorded_s).alias("mean"),
        *(F.percentile("active_bytes", share).alias(name) for name, share in _PERCENTILES),
        F.max("connections").alias("connections_max"),
        F.max("in_flight").alias("in_flight_max"),
    )
    joined = totals.join(peaks(seconds, (*ENTITY, "broker"), ENTITY), on=list(ENTITY), how="inner")
    direction = Window.partitionBy("direction")
    by_peak = direction.orderBy(F.desc("peak_10s"), F.desc("bytes"), "user", "client_id")
    share = F.col("bytes") / F.greatest(F.sum("bytes").over(direction), F.lit(1))
    return joined.withColumn("share", share).withColumn("rank", F.row_number().over(by_peak))


def brokers(seconds: DataFrame, recorded_s: int) -> DataFrame:
    """Return the table `demand/brokers`: each broker's bytes, mean, percentiles and peaks, by direction."""
    key = ("direction", "broker")
    whole = seconds.groupBy(*key, "second").agg(
        F.sum("bytes").alias("bytes"), _active_bytes(F.sum("bytes"), F.sum("requests")).alias("active_bytes")
    )
    totals = whole.groupBy(*key).agg(
        F.sum("bytes").alias("bytes"),
        (F.sum("bytes") / recorded_s).alias("mean"),
        *(F.percentile("active_bytes", share).alias(name) for name, share in _PERCENTILES if name != "p90"),
    )
    return totals.join(peaks(whole, key, key), on=list(key), how="inner")


def diurnal(seconds: DataFrame, intervals: Sequence[Interval]) -> DataFrame:
    """Return the table `demand/diurnal`: each entity's bytes by hour of the day."""
    hour = F.floor(F.col("second") / 3600) % 24
    counts = F.array(*(F.lit(count) for count in _seconds_by_hour(intervals)))
    found = seconds.groupBy(*ENTITY, hour.cast("int").alias("hour")).agg(F.sum("bytes").alias("bytes"))
    rate = F.col("bytes") / F.greatest(F.element_at(counts, F.col("hour") + 1), F.lit(1))
    return found.withColumn("bytes_per_second", rate)


def mutations(requests: DataFrame) -> DataFrame:
    """Return the table `demand/mutations`: the partition mutations that each client requested, by second."""
    asked = requests.filter(F.col("mutations") > 0)
    second = F.floor(F.col("at_us") / _SECOND_US).cast("bigint").alias("second")
    return asked.groupBy("user", "client_id", second).agg(F.sum("mutations").alias("mutations"))


def pauses(rows: DataFrame) -> DataFrame:
    """Return the table `demand/pauses`: the throttle times that each entity was told, by second.

    Args:
        rows: the result of `charged` with `emptied`.
    """
    paused = F.col("throttle_ms") / 1000
    second = F.floor(F.col("at_us") / _SECOND_US).cast("bigint").alias("second")
    told = rows.filter(F.col("throttle_ms") > 0).groupBy(*ENTITY, second)
    # The first second of a pause is one with a request, and counted as such.
    return told.agg(
        F.sum(paused).alias("paused_s"), F.sum(F.greatest(paused - 1, F.lit(0.0))).alias("further_s")
    )


def _active_bytes(size: Column, requests: Column) -> Column:
    """Return the bytes of a second; null, which percentiles ignore, if no request began in it."""
    return F.when(requests > 0, size)


_PERCENTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def peaks(
    seconds: DataFrame, by: tuple[str, ...], result: tuple[str, ...], lengths_s: tuple[int, ...] = PEAKS_S
) -> DataFrame:
    """Return, for each group of equal `result` columns, the highest mean rate in bytes/s over a window of each length.

    Seconds without a request count as 0 bytes.

    Args:
        seconds: bytes by second, with the columns `by`.
        by: the columns that make one series, over which windows slide, such as an entity and a broker.
        result: those of these columns that the result keeps, such as the entity; the highest of all its series counts.
    """
    frame = Window.partitionBy(*by).orderBy("second")

    def mean(length_s: int) -> Column:
        return F.sum("bytes").over(frame.rangeBetween(1 - length_s, 0)) / length_s

    means = seconds.select(*by, *(mean(length_s).alias(f"mean_{length_s}s") for length_s in lengths_s))
    return means.groupBy(*result).agg(
        *(F.max(f"mean_{length_s}s").alias(f"peak_{length_s}s") for length_s in lengths_s)
    )


def _seconds_by_hour(intervals: Iterable[Interval]) -> list[int]:
    """Return how many of the recorded seconds lie in each hour of the day.

    >>> _seconds_by_hour([(3590, 3610), (86_400, 86_405)])[:2]
    [15, 10]
    """
    found = [0] * 24
    for start_s, end_s in intervals:
        whole_days, rest = divmod(end_s - start_s, 86_400)
        found = [count + whole_days * 3600 for count in found]
        at_s = start_s
        while rest > 0:
            step = min(rest, 3600 - at_s % 3600)
            found[at_s // 3600 % 24] += step
            at_s += step
            rest -= step
    return found
