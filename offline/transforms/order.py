"""Finds rows that cannot be in order: duplicates, rows whose clock goes backwards, and processes with a wrong clock.

Rows of one connection are near each other in a capture. So each batch of rows is sorted by itself and summarized, one
line for each connection: first and last number, first and last time. If the lines of a connection do not overlap, its
requests are in order. Only the rows of the other connections are shuffled and compared one by one, whatever file, split
or batch they are in; so a copied file is found as well.

As few rows as possible are left out: one of several equal rows is kept, and of rows out of order the longest series in
order.

The clocks of all processes must agree: together they must have recorded at most forty days. A machine without a clock
battery starts in 1970. One process with such a clock beside one with a correct clock would make a recording of half a
century, and each table by second as long.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

DUPLICATE: Final = "is there twice: {0} has the same request"
BACKWARDS: Final = (
    "is out of order: its clock is behind that of the request before it, or its number is another's"
)
FILE_AND_ROW: Final = ("file", "row")
_SUMS: Final = (
    "connection bigint, first_seq bigint, last_seq bigint, first_us bigint, last_us bigint, wrong boolean"
)
_BAD: Final = "file string, row bigint, problem string"

Ints = npt.NDArray[np.int64]
Batches = Iterable[pa.RecordBatch]

SPAN_DAYS_MAX: Final = (
    40  # a task of the backtest keeps a number for each second and candidate: 0.6 GB with 20
)
_DAY_MS: Final = 86_400_000


def possibly_disordered(numbered: DataFrame) -> DataFrame:
    """Return the connections whose requests may be out of order: a cheap test before `disordered`.

    Args:
        numbered: the columns `connection` (over all processes), `seq` and `mono_us`.
    """
    sums = numbered.select("connection", "seq", "mono_us").mapInArrow(_sum_up_all, _SUMS)
    before = Window.partitionBy("connection").orderBy("first_seq", "last_seq")

    def lies_behind(name: str) -> Column:
        return F.lag(f"last_{name}").over(before)

    overlaps = (F.col("first_seq") <= lies_behind("seq")) | (F.col("first_us") < lies_behind("us"))
    return (
        sums.withColumn("possibly_disordered", F.col("wrong") | F.coalesce(overlaps, F.lit(False)))
        .filter("possibly_disordered")
        .select("connection")
        .distinct()
    )


def disordered(numbered: DataFrame) -> DataFrame:
    """Return the rows to leave out (`file`, `row`, `problem`) so that each connection is in order.

    Args:
        numbered: all rows of some connections, with `file` and `row` too.
    """
    columns = ("connection", "seq", "mono_us")
    together = numbered.select(*columns, *FILE_AND_ROW).repartition("connection")
    return together.sortWithinPartitions(*columns, *FILE_AND_ROW).mapInArrow(_find_all, _BAD)


def sum_up(connection: Ints, seq: Ints, mono_us: Ints) -> pa.RecordBatch:
    """Return one row for each connection: its first and last number and time, and whether a request is out of order.

    >>> sum_up(*map(np.array, ([7, 8, 7], [1, 0, 0], [30, 15, 20]))).to_pylist()[0]
    {'connection': 7, 'first_seq': 0, 'last_seq': 1, 'first_us': 20, 'last_us': 30, 'wrong': False}
    """
    order = np.lexsort((seq, connection))
    connection, seq, mono_us = connection[order], seq[order], mono_us[order]
    same = connection[1:] == connection[:-1]
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    ends = np.append(starts[1:], len(connection)) - 1
    broken = np.concatenate(([False], same & ((seq[1:] == seq[:-1]) | (mono_us[1:] < mono_us[:-1]))))
    return pa.RecordBatch.from_pydict(
        {
            "connection": connection[starts],
            "first_seq": seq[starts],
            "last_seq": seq[ends],
            "first_us": mono_us[starts],
            "last_us": mono_us[ends],
            "wrong": np.logical_or.reduceat(broken, starts),
        }
    )


def in_order(seq: Ints, mono_us: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of the requests of one connection to keep.

    They are the longest series in which numbers increase and times do not decrease.

    Args:
        seq, mono_us: ordered by number and then by time, none of them twice.

    >>> in_order(np.array([0, 1, 2, 3]), np.array([10, 900, 12, 13])).tolist()
    [True, False, True, True]
    """
    # Of one number the latest comes first: then a series that goes on has at most one of them.
    order = np.lexsort((-mono_us, seq))
    ends_us: list[int] = []  # of the best series of each length, the last time
    ends: list[int] = []  # and whose it is
    before = np.full(len(order), -1)
    for place, at_us in enumerate(mono_us[order].tolist()):
        length = bisect_right(ends_us, at_us)
        if length:
            before[place] = ends[length - 1]
        ends_us[length : length + 1] = [at_us]
        ends[length : length + 1] = [place]
    kept = np.zeros(len(order), dtype=np.bool_)
    place = ends[-1]
    while place >= 0:
        kept[order[place]] = True
        place = int(before[place])
    return kept


def _numbers(rows: pa.RecordBatch | pa.Table) -> tuple[Ints, Ints, Ints]:
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    return table["connection"].to_numpy(), table["seq"].to_numpy(), table["mono_us"].to_numpy()


def _sum_up_all(batches: Batches) -> Iterator[pa.RecordBatch]:
    return (sum_up(*_numbers(batch)) for batch in batches if batch.num_rows)


def _find_all(batches: Batches) -> Iterator[pa.RecordBatch]:
    for table in whole_connections(batches):
        found = rows_to_leave_out(table)
        if found.num_rows:
            yield found


def whole_connections(batches: Batches) -> Iterator[pa.Table]:
    """Regroup rows, sorted by connection, into tables that do not end within a connection, as a batch may."""
    pieces: list[pa.RecordBatch] = []
    for batch in batches:
        connection = batch.column("connection").to_numpy(zero_copy_only=False)
        if not len(connection):
            continue
        if pieces and pieces[-1].column("connection")[-1].as_py() != connection[0]:
            yield pa.Table.from_batches(pieces)
            pieces = []
        starts = np.flatnonzero(np.diff(connection)) + 1
        if len(starts):
            yield pa.Table.from_batches([*pieces, batch.slice(0, int(starts[-1]))])
            pieces = [batch.slice(int(starts[-1]))]
        else:
            pieces.append(batch)
    if pieces:
        yield pa.Table.from_batches(pieces)


def rows_to_leave_out(table: pa.Table) -> pa.RecordBatch:
    """Return the rows to leave out so that each connection is in order; `table` has whole connections, sorted."""
    connection, seq, mono_us = _numbers(table)
    again = (np.diff(connection) == 0) & (np.diff(seq) == 0) & (np.diff(mono_us) == 0)
    twice = np.flatnonzero(again) + 1
    files = table.column("file")
    problems = [DUPLICATE.format(name) for name in files.take(twice - 1).to_pylist()]
    single = np.flatnonzero(np.concatenate(([True], ~again)))
    backwards = single[~_kept(connection[single], seq[single], mono_us[single])]
    bad = np.concatenate((twice, backwards))
    problems += [BACKWARDS] * len(backwards)
    return pa.RecordBatch.from_pydict(
        {
            "file": files.take(bad).combine_chunks(),
            "row": table.column("row").take(bad).combine_chunks(),
            "problem": pa.array(problems, pa.string()),
        }
    )


def _kept(connection: Ints, seq: Ints, mono_us: Ints) -> npt.NDArray[np.bool_]:
    same = connection[1:] == connection[:-1]
    broken = np.flatnonzero(same & ((seq[1:] == seq[:-1]) | (mono_us[1:] < mono_us[:-1])))
    kept = np.ones(len(connection), dtype=np.bool_)
    for number in np.unique(connection[broken]):
        begin, end = np.searchsorted(connection, [number, number + 1])
        kept[begin:end] = in_order(seq[begin:end], mono_us[begin:end])
    return kept


class Clock(NamedTuple):
    """The clock of one process: the number of its requests, and their first and last time in ms."""

    process: str
    requests: int
    first_ms: int
    last_ms: int


def too_far_apart(clocks: Sequence[Clock]) -> str:
    """Return why these processes' clocks cannot belong to one recording; "" if they are within SPAN_DAYS_MAX days.

    The message names the process whose times are farthest from the start of the process with the median request.
    """
    first_ms, last_ms = min(clock.first_ms for clock in clocks), max(clock.last_ms for clock in clocks)
    days = (last_ms - first_ms) // _DAY_MS
    if last_ms - first_ms <= SPAN_DAYS_MAX * _DAY_MS:
        return ""
    middle_ms = _middle_ms(clocks)
    outlying = max(
        clocks, key=lambda clock: max(abs(clock.first_ms - middle_ms), abs(clock.last_ms - middle_ms))
    )
    return (
        f"the capture would be {days:,} days long, from {_day(first_ms)} to {_day(last_ms)}, and "
        f"{SPAN_DAYS_MAX} are taken at most: look at process {outlying.process}, which says that its "
        f"{outlying.requests:,} requests are from {_day(outlying.first_ms)} to {_day(outlying.last_ms)}; "
        "its files bear its name and can be left out"
    )


def _middle_ms(clocks: Sequence[Clock]) -> int:
    """Return the first time, in ms, of the process that has the middle request."""
    half = sum(clock.requests for clock in clocks) / 2
    for clock in sorted(clocks, key=lambda clock: clock.first_ms):
        half -= clock.requests
        if half <= 0:
            return clock.first_ms
    raise AssertionError("half of the requests are before the last process's end")


def _day(at_ms: int) -> str:
    """Format a time as a date, or as a number if it is beyond the calendar.

    >>> _day(0), _day(10**18)
    ('1970-01-01', '1000000000000000000 ms')
    """
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
