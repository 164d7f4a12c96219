"""Requests x candidates -> outcomes and loads, by `quotas.backtest.outcomes`: the pipeline's only Python function.

A limiter is one entity at one broker in one direction; its requests are decided in order, so one task has to see all
of them. Only the candidates can be divided: a heavy limiter's requests go to several tasks, each with a part of the
candidates (the table `tasks` shows the time that each task took). Each part reads all requests of its limiter, which
costs as much as deciding on a few candidates. So a limiter is divided only if it would keep one core busy long after
the others have finished. Parts are assigned by cost, the most expensive first, since Spark begins with partition 0.

Requests are shuffled as packed runs and put in order by the task: a batch of requests becomes one row for each
limiter in it, whose columns are the bytes of arrays (`quotas.backtest.recording`). A request takes 16 bytes instead
of a row, so the shuffle and the JVM handle a thousandth of the rows.

Limiters whose requests did not arrive in order are left out, and reported in rows of the kind `UNORDERED`. For these,
`sorted_outcomes` lets Spark sort the rows first, which costs more than all other steps together, but needs the memory
of one limiter at a time only.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offline.transforms.backtest_task import NO_ID, Limiters, Plan, Row, Task
from quotas.backtest.compiler import Ints
from quotas.backtest.recording import RUN_FIELDS, Assembly, Packed, Rows, pack

PACKED: Final = "limiter int, runs binary, sizes binary, service_us binary, gap_us binary"
# What is read of a request.
FIELDS: Final = (
    "limiter",
    "connection",
    "seq",
    "at_us",
    "bytes",
    "service_us",
    "delay_ms",
    "throttle_ms",
    "group",
)
_LINE_BYTES: Final = 8 * RUN_FIELDS

Batches = Iterable[pa.RecordBatch]

# Candidates at which a request is decided in the time that a task takes to put it in order.
ORDERED_AS_DECIDED: Final = 5
# Of a core's fair share: so much stays whole, where one more part would cost more than it brings.
_SHARES_WHOLE: Final = 5 / 4


def rows_of(columns: list[Ints], plan: Plan, limiters: Limiters) -> Rows:
    """Convert requests, as arrays of the columns `FIELDS`, to the argument of `quotas.backtest.recording.pack`."""
    limiter, connection, seq, at_us, size, service_us, delay_ms, throttle_ms, group = columns
    return Rows(
        limiter=limiter.astype(np.int64),
        connection=connection,
        seq=seq,
        at_us=at_us,
        sizes=size,
        service_us=service_us,
        delay_us=delay_ms.astype(np.int64) * 1000,
        throttle_us=throttle_ms.astype(np.int64) * 1000,
        group_ms=group.astype(np.int64) * plan.group_ms,
        consumes=limiters.consumes[limiter],
    )


def packed_batches(batches: Batches, plan: Plan, limiters: Limiters) -> Iterator[pa.RecordBatch]:
    """Pack each batch of requests (columns `FIELDS`): yield one row for each limiter in it, in the schema `PACKED`."""
    for batch in batches:
        if batch.num_rows:
            columns = [column.to_numpy(zero_copy_only=False) for column in batch]
            yield _rows(pack(rows_of(columns, plan, limiters)))


def unpacked(limiters: Ints, columns: Sequence[pa.Array]) -> Packed:
    """Convert rows of `PACKED` back to arrays.

    Args:
        limiters: the limiter's number of each row, in any order.
        columns: the other columns of `PACKED`.
    """
    runs, sizes, service_us, gap_us = columns
    lines, lengths = _bytes(runs)
    return Packed(
        np.repeat(limiters, lengths // _LINE_BYTES),
        lines.view(np.int64).reshape(-1, RUN_FIELDS),
        _bytes(sizes)[0].view(np.int32),
        _bytes(service_us)[0].view(np.int32),
        _bytes(gap_us)[0].view(np.int64),
    )


def _rows(packed: Packed) -> pa.RecordBatch:
    starts = np.flatnonzero(np.diff(packed.limiters, prepend=-1))
    run_cuts = np.append(starts, len(packed.limiters))
    row_cuts = packed.row_cuts(run_cuts)
    arrays = [
        pa.array(packed.limiters[starts].astype(np.int32)),
        _binary(packed.runs, run_cuts * _LINE_BYTES),
        _binary(packed.sizes, row_cuts * packed.sizes.itemsize),
        _binary(packed.service_us, row_cuts * packed.service_us.itemsize),
        _binary(packed.gap_us, row_cuts * packed.gap_us.itemsize),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["limiter", "runs", "sizes", "service_us", "gap_us"])


def _binary(values: npt.NDArray[Any], cuts: Ints) -> pa.Array:
    """Return an Arrow binary array whose values are the bytes of `values` between consecutive `cuts` (byte offsets)."""
    buffers = [None, pa.py_buffer(cuts.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(cuts) - 1, buffers)


def _bytes(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return a copy of the bytes of all values, concatenated, and the length of each. The batch can then be freed."""
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    found = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].copy()
    return found, np.diff(offsets).astype(np.int64)


# One row of what the tasks give: outcome, load or task, in one table so that it is made once.
RAW: Final = (
    "kind string, limiter int, heavy boolean, consumes boolean, broker int, quota double, "
    "numbers array<bigint>, start_s bigint, seconds double"
)
_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "array<bigint>": pa.list_(pa.int64()),
    "bigint": pa.int64(),
}
_RAW: Final = pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, RAW.split(", "))])
# The kind of a row that names a limiter, and in `numbers` its part, that was left out.
UNORDERED: Final = "unordered"
# Of one task, 112 bytes each. Requests in order have one run for each connection in a batch.
_RUNS_MAX: Final = 4_000_000


def raw_outcomes(
    rows: DataFrame, places: DataFrame, plan: Plan, limiters: Limiters, partitions: int
) -> DataFrame:
    """Run the backtest of all limiters whose requests come in order; return rows in the schema `RAW`.

    A limiter without order has a row of the kind `UNORDERED`, for `sorted_outcomes`.

    Args:
        rows: the requests, with the columns `FIELDS`.
        places: for each `limiter`, and each part (`chunk`) of its candidates, the Spark partition (`place`) to run in.
        partitions: the number of Spark partitions.
    """
    packed = rows.select(*FIELDS).mapInArrow(partial(packed_batches, plan=plan, limiters=limiters), PACKED)
    placed = packed.join(F.broadcast(places), on="limiter", how="inner").repartitionById(partitions, "place")
    return placed.select("chunk", *packed.columns).mapInArrow(
        partial(decide_packed, plan=plan, limiters=limiters), RAW
    )


def sorted_outcomes(
    rows: DataFrame, places: DataFrame, plan: Plan, limiters: Limiters, partitions: int
) -> DataFrame:
    """Run the backtest of the limiters in `places`, whose requests Spark sorts first; as `raw_outcomes` otherwise."""
    placed = rows.join(F.broadcast(places), on="limiter", how="inner").repartitionById(partitions, "place")
    ordered = placed.sortWithinPartitions("limiter", "chunk", "connection", "seq")
    return ordered.select("chunk", *FIELDS).mapInArrow(
        partial(decide_sorted, plan=plan, limiters=limiters), RAW
    )


def decide_packed(
    batches: Batches, plan: Plan, limiters: Limiters, runs_max: int = _RUNS_MAX
) -> Iterator[pa.RecordBatch]:
    """Run one Spark task on packed requests in any order (`chunk` and the columns of `PACKED`); yield rows of `RAW`.

    Args:
        runs_max: the largest number of runs to keep in memory; a run is successive requests of one connection, in
            order. If there are more, each limiter of the task only gets a row of the kind `UNORDERED`.
    """
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
    """Run one Spark task on requests that are sorted by limiter, chunk, connection and number; yield rows of `RAW`."""
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
    """Divide sorted batches: yield (limiter, part) with the columns of its rows, without the column `chunk`.

    A limiter and part may be yielded several times in succession, since a batch may end within it.
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
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, _RAW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_RAW)


def chunks_of(requests: Ints, candidates: Ints, cores: int) -> Ints:
    """Return, for each limiter, the number of parts into which its candidates are divided; usually 1.

    Args:
        requests: the number of requests of each limiter.
        candidates: the number of candidates of each limiter.
        cores: the number of tasks that run at once.

    >>> chunks_of(np.array([1000, 10, 10]), np.array([20, 20, 20]), 4).tolist()  # the first has nearly everything
    [4, 1, 1]
    >>> chunks_of(np.array([500, 300, 200]), np.array([20, 20, 20]), 2).tolist()  # one core for it, one for the others
    [1, 1, 1]
    """
    shares = requests / max(1.0, float(requests.sum()) / cores)
    parts = np.ceil(shares - (_SHARES_WHOLE - 1))
    found: Ints = np.clip(parts, 1, np.maximum(1, np.minimum(candidates, cores))).astype(np.int64)
    return found


def places_of(requests: Ints, candidates: Ints, chunks: Ints, partitions: int) -> list[list[int]]:
    """Return, for each limiter, the Spark partitions to which the parts of its candidates are assigned.

    The most expensive part is assigned first, each to the partition with the least work so far.

    >>> places_of(np.array([100, 60, 50]), np.array([20, 20, 20]), np.array([1, 1, 1]), 2)
    [[0], [1], [1]]
    """
    costs = requests * (ORDERED_AS_DECIDED + candidates / chunks)
    found = [[0] * int(parts) for parts in chunks]
    loads = [(0.0, partition) for partition in range(partitions)]
    for limiter in np.argsort(-costs, kind="stable").tolist():
        for part in range(len(found[limiter])):
            load, partition = heapq.heappop(loads)
            found[limiter][part] = partition
            heapq.heappush(loads, (load + float(costs[limiter]), partition))
    return found
