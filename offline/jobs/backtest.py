"""`ingest/requests` at every candidate quota -> `backtest/outcomes` and `backtest/loads`.

The candidates follow from `demand/entities`, unless they are given. `transforms.backtest` divides the work among
tasks, so that one heavy client does not occupy a single task.
"""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from offline.advice.forecast import DAYS_MIN
from offline.advice.limits import DEFAULT_MIN
from offline.errors import InputError
from offline.options import BacktestOptions, BacktestSettings, settings_text
from offline.schemas import columns_of
from offline.session import cores
from offline.store import Store, Writer
from offline.transforms.backtest import RAW, UNORDERED, chunks_of, places_of, raw_outcomes, sorted_outcomes
from offline.transforms.backtest_task import NO_ID, Limiters, Plan, compile_for
from offline.transforms.candidates import ladder, peaks_of_scope, unthrottled
from offline.transforms.demand import charged
from offline.transforms.evaluate import whole_days
from protocol.messages.groups import GROUP_APIS, SESSION_TIMEOUT_DEFAULT_MS
from quotas.backtest.compiler import Ints
from quotas.options import EngineOptions

_KEY: Final = ("direction", "user", "client_id", "broker")
_PARTITIONS_A_CORE: Final = 4
# A task keeps 16 bytes of each, and for a moment 24.
_REQUESTS_A_TASK: Final = 10_000_000
# The largest candidate over any demand, where clients may be expected to need more than was recorded.
_HEADROOM_OF_DAYS: Final = 2.0
# What a task counts of each limiter and candidate, in its order.
_NUMBERS: Final = columns_of("backtest/outcomes")[len((*_KEY, "quota")) :]


def run(spark: SparkSession, options: BacktestOptions, source: Store, store: Store) -> list[str]:
    """Compute the effects of each candidate quota on the recorded requests; return lines to print for the operator."""
    span = source.read("demand/span").first()
    if span is None:
        raise InputError("the stage demand found no Produce and no Fetch")
    entities = _ranked(source, options.engine).cache()
    requests = source.read("ingest/requests")
    rows = charged(requests, emptied=True)
    if whole_days(span["recorded_seconds"], options.day) >= DAYS_MIN:
        options = replace(options, headroom=max(options.headroom, _HEADROOM_OF_DAYS))
    peaks = unthrottled(entities, source.read("demand/entities"), rows)
    plan = Plan(
        produce=options.produce or _candidates(peaks, "produce", options),
        fetch=options.fetch or _candidates(peaks, "fetch", options),
        engine=options.engine,
        start_s=span["start_s"],
        seconds=span["seconds"],
        group_ms=SESSION_TIMEOUT_DEFAULT_MS,
    )
    if options.engine.scope == "cluster":  # one budget for all brokers, so one broker in place of all
        rows = rows.withColumn("broker", F.lit(NO_ID))
    numbered = _limiters(rows, entities, options.heavy)
    tasks = _assign_tasks(numbered, plan, cores(spark))
    keyed = numbered.select(*_KEY, "limiter")
    named = _with_groups(rows, requests).join(F.broadcast(keyed), on=list(_KEY), how="inner")
    compile_for(options.engine)  # once, before every task would at the same time
    with store.writing("backtest", source) as writer:
        raw = _decided(writer, named, plan, tasks)
        _write(writer, raw, numbered)
        settings = BacktestSettings(
            options.engine.policy, options.engine, plan.produce, plan.fetch, options.heavy
        )
        writer.put("settings.json", settings_text(settings))
        done = writer.table("tasks", _tasks(raw), files=1)
        total = done.agg(F.sum("requests").alias("decisions"), F.sum("seconds").alias("seconds")).first()
    assert total is not None, "a sum has a row"
    speed = total["decisions"] / max(total["seconds"], 1e-9) / 1e6
    return [
        (
            f"{total['decisions']:,} requests x candidates over {len(tasks.limiters.chunks):,} limiters, "
            f"{speed:.1f} million a second and core"
        )
    ]


def _candidates(peaks: DataFrame, direction: str, options: BacktestOptions) -> tuple[float, ...]:
    found = peaks.filter(F.col("direction") == direction).select("peak_1s", "peak_10s").toArrow()
    highest = max(found["peak_1s"].to_pylist(), default=0.0)
    each = found["peak_10s"].to_pylist()
    return tuple(ladder(each, highest, options.candidates, headroom=options.headroom, least=DEFAULT_MIN))


def _ranked(source: Store, engine: EngineOptions) -> DataFrame:
    """Return each entity with the peak of its demand on one budget, and its rank by that."""
    peaks = peaks_of_scope(source.read("demand/entities"), source.read("demand/per_second"), engine.scope)
    by_peak = Window.partitionBy("direction").orderBy(F.desc("peak_10s"), "user", "client_id")
    return peaks.withColumn("rank", F.row_number().over(by_peak))


def _limiters(rows: DataFrame, entities: DataFrame, heavy: int) -> DataFrame:
    """Return every limiter with its number, its requests, and the number of its heavy entity, if it has one.

    Limiters of one broker and direction have consecutive numbers, so that a task can add up their loads.
    """
    counted = rows.groupBy(*_KEY).agg(F.count("*").alias("requests"))
    ranked = entities.select("direction", "user", "client_id", "rank")
    named = counted.join(ranked, on=["direction", "user", "client_id"], how="inner")
    by_broker = Window.orderBy("direction", "broker", F.desc("requests"), *_KEY)
    return named.select(
        *_KEY,
        "requests",
        (F.row_number().over(by_broker) - 1).alias("limiter"),
        F.when(F.col("rank") <= heavy, F.col("rank")).otherwise(NO_ID).alias("heavy"),
    ).cache()


class _Tasks(NamedTuple):
    """The division of the backtest among tasks.

    Attributes:
        places: the partition (`place`) of each part (`chunk`) of each `limiter`.
        partitions: their number.
    """

    limiters: Limiters
    places: DataFrame
    partitions: int


def _assign_tasks(numbered: DataFrame, plan: Plan, core_count: int) -> _Tasks:
    found = numbered.orderBy("limiter").toArrow()
    requests: Ints = found["requests"].to_numpy().astype(np.int64)
    consumes = np.array(found["direction"].to_pylist()) == "fetch"
    candidates: Ints = np.where(consumes, len(plan.fetch), len(plan.produce)).astype(np.int64)
    chunks = chunks_of(requests, candidates, core_count)
    partitions = max(_PARTITIONS_A_CORE * core_count, -(-int((requests * chunks).sum()) // _REQUESTS_A_TASK))
    places = [
        (limiter, chunk, place)
        for limiter, each in enumerate(places_of(requests, candidates, chunks, partitions))
        for chunk, place in enumerate(each)
    ]
    limiters = Limiters(
        broker=found["broker"].to_numpy().astype(np.int32),
        consumes=consumes,
        heavy=found["heavy"].to_numpy().astype(np.int32),
        chunks=chunks,
    )
    spark = numbered.sparkSession
    return _Tasks(limiters, spark.createDataFrame(places, "limiter int, chunk int, place int"), partitions)


def _decided(writer: Writer, named: DataFrame, plan: Plan, tasks: _Tasks) -> DataFrame:
    """Run the backtest, write its raw results to disk, and return a DataFrame that reads them."""
    path = f"{writer.path}/_raw"
    raw_outcomes(named, tasks.places, plan, tasks.limiters, tasks.partitions).write.parquet(path)
    raw = named.sparkSession.read.schema(RAW).parquet(path)
    left_out = raw.filter(F.col("kind") == UNORDERED).select("limiter", F.col("numbers")[0].cast("int"))
    unordered = left_out.collect()  # not kept on executors, which may be lost
    if not unordered:
        return raw
    keys = raw.sparkSession.createDataFrame(unordered, "limiter int, chunk int")
    places = tasks.places.join(keys, on=["limiter", "chunk"], how="left_semi")
    again = sorted_outcomes(named, places, plan, tasks.limiters, tasks.partitions)
    again.write.mode("append").parquet(path)
    return raw.sparkSession.read.schema(RAW).parquet(path)


def _with_groups(rows: DataFrame, requests: DataFrame) -> DataFrame:
    """Add a column `group`: 1 if the row's connection had requests of a consumer group, which bounds its mutes."""
    groups = requests.filter(F.col("api_key").isin(*sorted(GROUP_APIS))).select("connection").distinct()
    marked = groups.withColumn("group", F.lit(1).cast("tinyint"))
    joined = rows.join(F.broadcast(marked), on="connection", how="left")
    return joined.withColumn("group", F.coalesce("group", F.lit(0).cast("tinyint")))


def _write(writer: Writer, raw: DataFrame, numbered: DataFrame) -> None:
    keys = F.broadcast(numbered.select(*_KEY, "limiter"))
    numbers = (F.col("numbers")[index].alias(name) for index, name in enumerate(_NUMBERS))
    outcomes = raw.filter(F.col("kind") == "outcome").select("limiter", "quota", *numbers)
    writer.table("outcomes", outcomes.join(keys, on="limiter", how="inner"))
    names = (
        numbered.filter(F.col("heavy") != NO_ID)
        .select(
            F.col("heavy").alias("limiter"),
            (F.col("direction") == "fetch").alias("consumes"),
            "user",
            "client_id",
        )
        .distinct()
    )
    added = F.aggregate(
        F.collect_list("numbers"),
        F.array().cast("array<bigint>"),
        lambda whole, line: F.zip_with(
            whole, line, lambda left, right: F.coalesce(left, F.lit(0)) + F.coalesce(right, F.lit(0))
        ),
    )
    loads = (
        raw.filter(F.col("kind") == "load")
        .withColumn("direction", F.when(F.col("consumes"), "fetch").otherwise("produce"))
        .groupBy("direction", "consumes", "broker", "quota", "limiter", "heavy", "start_s")
        .agg(added.alias("bytes"))
        .join(F.broadcast(names), on=["limiter", "consumes"], how="left")
        .withColumns({"user": F.coalesce("user", F.lit("")), "client_id": F.coalesce("client_id", F.lit(""))})
    )
    writer.table("loads", loads)


def _tasks(raw: DataFrame) -> DataFrame:
    found = raw.filter(F.col("kind") == "task")
    number = F.row_number().over(Window.orderBy(F.desc("seconds"))) - 1
    return found.select(number.alias("task"), F.col("numbers")[0].alias("requests"), "seconds")
