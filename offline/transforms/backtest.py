"""Requests x candidates -> outcomes and loads, by `quotas.backtest.outcomes`: the pipeline's only Python function.

A limiter is one entity at one broker in one direction; its requests are decided in order, so one task has to see all of
them. Only the candidates can be divided: a heavy limiter's requests go to several tasks, each with a part of the
candidates (`partitioning`; the table `tasks` shows the time that each task took).

Requests are shuffled as packed runs (`packing`) and put in order by the task, which keeps 16 bytes of each. Limiters
whose requests did not arrive in order are left out, and reported in rows of the kind `UNORDERED`. For these,
`sorted_outcomes` lets Spark sort the rows first, which costs more than all other steps together, but needs the memory
of one limiter at a time only.
"""

from collections.abc import Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.transforms.backtest_task import NO_ID, Limiters, Plan, Row, Task
from offline.transforms.packing import FIELDS, PACKED, Batches, packed_batches, rows_of, unpacked
from quotas.backtest.compiler import Ints
from quotas.backtest.runs import Assembly, pack

__all__ = ["RAW", "UNORDERED", "raw_outcomes", "sorted_outcomes"]

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
# The kind of a row that names a limiter, and in `numbers` its part, that was left out.
UNORDERED: Final = "unordered"
# Of one task, 112 bytes each. Requests in order have one run for each connection in a batch.
_RUNS_MAX: Final = 4_000_000


def raw_outcomes(
    rows: DataFrame, places: DataFrame, plan: Plan, limiters: Limiters, partitions: int
) -> DataFrame:
    """Run the backtest of all limiters whose requests come in order.

    Args:
        rows: the columns `FIELDS`.
        places: for each `limiter`, and each `chunk` (part) of its candidates, its partition (`place`).
    """
    packed = rows.select(*FIELDS).mapInArrow(partial(packed_batches, plan=plan, limiters=limiters), PACKED)
    placed = packed.join(F.broadcast(places), on="limiter", how="inner").repartitionById(partitions, "place")
    return placed.select("chunk", *packed.columns).mapInArrow(
        partial(decide_packed, plan=plan, limiters=limiters), RAW
    )


def sorted_outcomes(
    rows: DataFrame, places: DataFrame, plan: Plan, limiters: Limiters, partitions: int
) -> DataFrame:
    """Run the backtest of the limiters and parts in `places` only, whose requests may arrive in any order."""
    placed = rows.join(F.broadcast(places), on="limiter", how="inner").repartitionById(partitions, "place")
    ordered = placed.sortWithinPartitions("limiter", "chunk", "connection", "seq")
    return ordered.select("chunk", *FIELDS).mapInArrow(
        partial(decide_sorted, plan=plan, limiters=limiters), RAW
    )


def decide_packed(
    batches: Batches, plan: Plan, limiters: Limiters, runs_max: int = _RUNS_MAX
) -> Iterator[pa.RecordBatch]:
    """Run one task on rows of `chunk` and `PACKED`, in any order."""
    task = Task(plan, limiters)
    parts = max(1, int(limiters.chunks.max(initial=1)))
    assembly, left_out = Assembly(), set[int]()
    too_many = False
    for batch in batches:
        if not batch.num_rows:
            continue
        chunk, limiter, *columns = batch.columns
        keys = limiter.to_numpy().astype(np.int64) * parts + chunk.to_numpy()
        if too_many:
            left_out.update(keys.tolist())
            continue
        assembly.add(unpacked(keys, columns))
        too_many = assembly.runs > runs_max
        if too_many:
            left_out.update(assembly.limiters())
            assembly = Assembly()
    for number, recording in assembly.recordings():
        if recording is None:
            left_out.add(number)
        else:
            yield from map(_batch, task.decide(*divmod(number, parts), recording))
    if left_out:
        yield _batch([_left_out(*divmod(number, parts)) for number in sorted(left_out)])
    yield from map(_batch, task.finish())


def decide_sorted(batches: Batches, plan: Plan, limiters: Limiters) -> Iterator[pa.RecordBatch]:
    """Run one task on rows of `chunk` and `FIELDS`, sorted by limiter, chunk, connection and number."""
    task = Task(plan, limiters)
    for (limiter, chunk), pieces in groupby(pieces_of(batches), key=lambda piece: piece[0]):
        assembly = Assembly()
        for _, columns in pieces:
            assembly.add(pack(rows_of(columns, plan, limiters)))
        for _, recording in assembly.recordings():
            assert recording is not None, "Spark sorted the rows"
            yield from map(_batch, task.decide(limiter, chunk, recording))
    yield from map(_batch, task.finish())


def pieces_of(batches: Batches) -> Iterator[tuple[tuple[int, int], list[Ints]]]:
    """Yield the rows of one limiter and part at a time, as the columns behind `chunk`, with (limiter, part).

    Spark orders the rows so, but a batch may end anywhere.
    """
    for batch in batches:
        chunk, *columns = [column.to_numpy(zero_copy_only=False) for column in batch]
        starts = np.flatnonzero(np.diff(columns[0]) | np.diff(chunk)) + 1
        for begin, end in pairwise((0, *starts.tolist(), batch.num_rows)):
            if begin < end:
                key = (int(columns[0][begin]), int(chunk[begin]))
                yield key, [column[begin:end] for column in columns]


def _left_out(limiter: int, chunk: int) -> Row:
    return (UNORDERED, limiter, False, False, NO_ID, 0.0, [chunk], 0, 0.0)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    arrays = [
        pa.array(values, type=kind) for values, kind in zip(zip(*rows, strict=True), _TYPES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_NAMES)
