"""Requests x candidates -> outcomes and loads: the one Python function of the pipeline, which runs
`quotas.backtest.outcomes`.

A limiter is one entity at one broker in one direction; its requests are decided in order, so one task has to see all of
them. What can be divided is the candidates: a heavy limiter's rows go to several tasks, each with a part of the
candidates (`partitioning`; the table `tasks` says what became of it).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.transforms.backtest_task import Group, Limiters, Plan, Row, Task

__all__ = ["RAW", "raw_outcomes"]

# One row of what the tasks give: outcome, load or task, in one table so that it is made once.
RAW: Final = (
    "kind string, limiter int, heavy boolean, consumes boolean, broker int, quota double, "
    "numbers array<bigint>, start_s bigint, seconds double"
)
_NAMES: Final = ["kind", "limiter", "heavy", "consumes", "broker", "quota", "numbers", "start_s", "seconds"]
_TYPES: Final = [
    pa.string(),
    pa.int32(),
    pa.bool_(),
    pa.bool_(),
    pa.int32(),
    pa.float64(),
    pa.list_(pa.int64()),
    pa.int64(),
    pa.float64(),
]
_LOW_BITS: Final = 32  # of a connection's number; as many are left for limiters and their parts
_FIELDS: Final = (
    "limiter",
    "chunk",
    "connection",
    "at_us",
    "bytes",
    "service_us",
    "delay_ms",
    "throttle_ms",
    "group",
)


def raw_outcomes(rows: DataFrame, plan: Plan, limiters: Limiters, partitions: int) -> DataFrame:
    """Run the backtest of all limiters.

    Args:
        rows: the columns `limiter`, `places` (the partition of each of its parts), `seq`, and what `_FIELDS` names but
            `chunk`.
    """
    # A row of a heavy limiter goes to each of its parts.
    parted = rows.select("*", F.posexplode("places").alias("chunk", "place"))
    # Spark compares eight bytes of the first column quickly and rows slowly: in these eight is all that tells most rows
    # apart. Connections whose low halves are the same are told apart by the column behind.
    part = F.col("limiter").cast("bigint") * int(limiters.chunks.max(initial=1)) + F.col("chunk")
    order = F.shiftleft(part, _LOW_BITS).bitwiseOR(F.col("connection").bitwiseAND((1 << _LOW_BITS) - 1))
    placed = (
        parted.withColumn("order", order)
        .repartitionById(partitions, "place")
        .sortWithinPartitions("order", "connection", "seq")
    )
    return placed.select(*_FIELDS).mapInArrow(_decider(plan, limiters), RAW)


Batches = Iterable[pa.RecordBatch]


def _decider(plan: Plan, limiters: Limiters) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def decide(batches: Batches) -> Iterator[pa.RecordBatch]:
        task = Task(plan, limiters)
        for (limiter, chunk), pieces in groupby(pieces_of(batches), key=lambda piece: piece[0]):
            yield from map(_batch, task.decide(limiter, chunk, (columns for _, columns in pieces)))
        yield from map(_batch, task.finish())

    return decide


def pieces_of(batches: Batches) -> Iterator[tuple[tuple[int, int], Group]]:
    """Yield the rows of one limiter and part at a time, with that key.

    Spark orders the rows so, but a batch may end anywhere.
    """
    for batch in batches:
        columns = [column.to_numpy(zero_copy_only=False) for column in batch]
        starts = np.flatnonzero(np.diff(columns[0]) | np.diff(columns[1])) + 1
        for begin, end in pairwise((0, *starts.tolist(), batch.num_rows)):
            if begin < end:
                key = (int(columns[0][begin]), int(columns[1][begin]))
                yield key, [column[begin:end] for column in columns[2:]]


def _batch(rows: list[Row]) -> pa.RecordBatch:
    arrays = [
        pa.array(values, type=kind) for values, kind in zip(zip(*rows, strict=True), _TYPES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_NAMES)
