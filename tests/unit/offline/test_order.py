"""What is seen of requests that are there twice or out of order, what is left out, and which clocks cannot be right."""

from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.transforms.order import (
    Clock,
    in_order,
    rows_to_leave_out,
    sum_up,
    too_far_apart,
    whole_connections,
)

Rows = list[tuple[int, int, int]]


def batch(rows: Rows) -> pa.RecordBatch:
    names = ("connection", "seq", "mono_us")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return pa.RecordBatch.from_pydict(
        {**columns, "file": [f"f{index}" for index in range(len(rows))], "row": list(range(len(rows)))}
    )


def summed(*rows: tuple[int, int, int]) -> list[tuple[int, ...]]:
    found = sum_up(*(np.array(column) for column in zip(*rows, strict=True)))
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_connection_in_order_is_one_line_in_any_order_of_rows() -> None:
    assert summed((1, 2, 30), (2, 0, 5), (1, 0, 10), (1, 1, 10)) == [
        (1, 0, 2, 10, 30, False),
        (2, 0, 0, 5, 5, False),
    ]


@pytest.mark.parametrize("second", [(1, 0, 10), (1, 0, 11), (1, 1, 9)])
def test_a_number_twice_and_a_clock_that_goes_back_are_wrong(second: tuple[int, int, int]) -> None:
    assert [line[-1] for line in summed((1, 0, 10), second, (2, 0, 1))] == [True, False]


def test_connections_are_whole_wherever_batches_end() -> None:
    rows = [(1, 0, 1), (1, 1, 1), (2, 0, 1), (3, 0, 1), (3, 1, 1), (3, 2, 1), (4, 0, 1)]
    for cuts in combinations(range(1, len(rows)), 2):
        parts = [rows[: cuts[0]], rows[cuts[0] : cuts[1]], [], rows[cuts[1] :]]
        tables = [table.to_pylist() for table in whole_connections(map(batch, parts))]
        assert [(row["connection"], row["seq"]) for table in tables for row in table] == [
            row[:2] for row in rows
        ]
        last = [{row["connection"] for row in table} for table in tables]
        assert all(not one & other for one, other in combinations(last, 2))


def test_of_duplicate_rows_one_stays_and_the_other_is_reported() -> None:
    rows = [(1, 0, 1), (1, 0, 1), (1, 0, 1), (1, 1, 5), (2, 0, 9), (2, 1, 3), (2, 2, 10)]
    found = rows_to_leave_out(pa.Table.from_batches([batch(rows)])).to_pylist()
    assert [(row["row"], row["problem"][:19]) for row in found] == [
        (1, "is there twice: f0 "),
        (2, "is there twice: f1 "),
        (4, "is out of order: it"),  # 0 and 2, or 1 and 2: the clock that is ahead goes
    ]


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=9))
def test_the_longest_series_in_order_is_kept(requests: set[tuple[int, int]]) -> None:
    rows = sorted(requests)
    kept = in_order(*(np.array(column) for column in zip(*rows, strict=True)))
    chosen = [row for row, keep in zip(rows, kept, strict=True) if keep]
    assert goes_on(chosen)
    assert not any(goes_on(list(longer)) for longer in combinations(rows, len(chosen) + 1))


def goes_on(rows: list[tuple[int, int]]) -> bool:
    return all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(rows))


DAY_MS = 86_400_000
NOW_MS = 20_454 * DAY_MS  # 2026-01-01
GOOD = Clock("good", 1000, NOW_MS, NOW_MS + DAY_MS)
WRONG = Clock("wrong", 900, 5000, DAY_MS)


def test_captures_of_a_month_are_one_recording() -> None:
    assert not too_far_apart([GOOD._replace(first_ms=NOW_MS - 39 * DAY_MS), GOOD])
    assert too_far_apart([GOOD._replace(first_ms=NOW_MS - 40 * DAY_MS), GOOD])


@pytest.mark.parametrize("clocks", [[GOOD, WRONG], [WRONG, GOOD], [WRONG, GOOD, GOOD._replace(process="b")]])
def test_the_clock_that_fewer_requests_have_is_named(clocks: list[Clock]) -> None:
    said = too_far_apart(clocks)
    # 20,454 days from 1970 to 2026, and the day that the good one lasted, less five seconds.
    assert said.startswith("the capture would be 20,454 days long, from 1970-01-01 to 2026-01-02, and 40 are")
    assert "process wrong, which says that its 900 requests are from 1970-01-01 to 1970-01-02" in said
    assert "\n" not in said


def test_one_process_alone_is_named_itself() -> None:
    assert "process good" in too_far_apart([GOOD._replace(last_ms=NOW_MS + 500 * DAY_MS)])
