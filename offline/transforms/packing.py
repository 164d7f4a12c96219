"""Requests -> packed runs as rows of Spark, and back, for the shuffle of the backtest.

A batch of requests becomes one row for each limiter in it, whose columns are the bytes of arrays
(`quotas.backtest.runs`). A request takes 16 bytes instead of a row, so the shuffle and the JVM handle a thousandth of
the rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offline.transforms.backtest_task import Limiters, Plan
from quotas.backtest.compiler import Ints
from quotas.backtest.runs import RUN_FIELDS, Packed, Rows, pack

__all__ = ["FIELDS", "PACKED", "Batches", "packed_batches", "rows_of", "unpacked"]

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


def rows_of(columns: list[Ints], plan: Plan, limiters: Limiters) -> Rows:
    """Convert the columns of `FIELDS` to the form that `quotas.backtest.runs.pack` takes."""
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
    """Pack each batch of requests."""
    for batch in batches:
        if batch.num_rows:
            columns = [column.to_numpy(zero_copy_only=False) for column in batch]
            yield _rows(pack(rows_of(columns, plan, limiters)))


def unpacked(limiters: Ints, columns: Sequence[pa.Array]) -> Packed:
    """Convert rows back.

    Args:
        limiters: the number of each row, in any order.
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
    """An array's bytes, cut into values."""
    buffers = [None, pa.py_buffer(cuts.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(cuts) - 1, buffers)


def _bytes(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return a copy of the bytes of all values, concatenated, and the length of each; the batch can then be freed."""
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    found = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].copy()
    return found, np.diff(offsets).astype(np.int64)
