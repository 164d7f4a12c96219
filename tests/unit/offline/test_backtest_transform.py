"""How the backtest is divided among tasks, and how a task takes its rows, without Spark."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.transforms.backtest import (
    UNORDERED,
    chunks_of,
    decide_packed,
    decide_sorted,
    packed_batches,
    pieces_of,
    places_of,
)
from offline.transforms.backtest_task import Limiters, Plan
from quotas.options import EngineOptions

PLAN = Plan(
    produce=(1000.0, 2000.0, 1e6),
    fetch=(1000.0,),
    engine=EngineOptions(),
    start_s=0,
    seconds=10,
    group_ms=10_000,
)
# Three limiters; the first one's candidates are in two parts.
LIMITERS = Limiters(
    broker=np.array([1, 1, 2], dtype=np.int32),
    consumes=np.array([False, False, True]),
    heavy=np.array([1, -1, -1], dtype=np.int32),
    chunks=np.array([2, 1, 1]),
)
NAMES = ("limiter", "connection", "seq", "at_us", "bytes", "service_us", "delay_ms", "throttle_ms", "group")
# (limiter, connection, seq) of twelve requests, a tenth of a second apart, as a proxy writes them.
ROWS = [
    (number % 3, 7 + number % 2, number, number * 100_000, 900 + number, 500, 0, 0, 0) for number in range(12)
]


def batch(rows: Sequence[tuple[int, ...]]) -> pa.RecordBatch:
    types = {"limiter": pa.int32(), "delay_ms": pa.int32(), "throttle_ms": pa.int32(), "group": pa.int8()}
    columns = [
        pa.array(values, types.get(name, pa.int64()))
        for name, values in zip(NAMES, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(NAMES))


def with_chunk(packed: pa.RecordBatch, chunk: int) -> pa.RecordBatch:
    column = pa.array([chunk] * packed.num_rows, pa.int32())
    return pa.RecordBatch.from_arrays([column, *packed.columns], names=["chunk", *packed.schema.names])


def decided(batches: Sequence[Sequence[tuple[int, ...]]], *, runs_max: int = 1000) -> list[dict[str, Any]]:
    packed = [packed for packed in packed_batches(map(batch, batches), PLAN, LIMITERS) if packed.num_rows]
    parts = [with_chunk(one, 0) for one in packed]
    parts += [with_chunk(one.filter(pa.compute.equal(one["limiter"], 0)), 1) for one in packed]
    found = pa.Table.from_batches(decide_packed(parts, PLAN, LIMITERS, runs_max)).to_pylist()
    return [row for row in found if row["kind"] != "task"]


def sorted_and_decided(rows: Sequence[tuple[int, ...]]) -> list[dict[str, Any]]:
    chunks = [(row, 0) for row in rows] + [(row, 1) for row in rows if row[0] == 0]
    chunks.sort(key=lambda each: (each[0][0], each[1], each[0][1], each[0][2]))
    whole = batch([row for row, _ in chunks])
    column = pa.array([chunk for _, chunk in chunks], pa.int32())
    one = pa.RecordBatch.from_arrays([column, *whole.columns], names=["chunk", *NAMES])
    halves = [one.slice(0, 5), one.slice(5)]
    found = pa.Table.from_batches(decide_sorted(halves, PLAN, LIMITERS)).to_pylist()
    return [row for row in found if row["kind"] != "task"]


def test_packed_rows_are_decided_as_sorted_ones() -> None:
    expected = sorted_and_decided(ROWS)
    assert [row["quota"] for row in expected if row["kind"] == "outcome" and row["limiter"] == 0] == [
        1000.0,
        1e6,
        2000.0,
    ]
    assert sum(row["numbers"][0] for row in expected if row["kind"] == "outcome") == 4 * (3 + 3 + 1)
    assert decided([ROWS]) == expected
    assert decided([ROWS[:5], ROWS[5:]]) == expected
    assert decided([ROWS[5:], ROWS[:5]]) == expected


def test_limiters_whose_rows_overlap_are_left_out_by_name() -> None:
    mixed = [ROWS[0], ROWS[6], *ROWS[1:3], ROWS[4]]  # limiter 0 has its requests 0 and 6
    behind = [
        ROWS[3],
        *ROWS[7:9],
        ROWS[9],
        ROWS[5],
    ]  # and on connection 8 number 9 behind 3; limiter 2: 5 behind 8
    found = decided([mixed, behind, [(0, 7, 3, 300_000, 1, 1, 0, 0, 0)]])
    assert [(row["limiter"], row["numbers"]) for row in found if row["kind"] == UNORDERED] == [
        (0, [0]),
        (0, [1]),
    ]
    assert {row["limiter"] for row in found if row["kind"] == "outcome"} == {1, 2}


def test_a_task_with_too_many_runs_leaves_everything_out() -> None:
    found = decided([[row] for row in ROWS], runs_max=3)
    assert [(row["kind"], row["limiter"], row["numbers"]) for row in found] == [
        (UNORDERED, 0, [0]),
        (UNORDERED, 0, [1]),
        (UNORDERED, 1, [0]),
        (UNORDERED, 2, [0]),
    ]


def test_batches_are_cut_where_a_limiter_or_part_ends() -> None:
    def rows(*each: tuple[int, int, int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(column) for column in zip(*each, strict=True)], names=list("abc")
        )

    assert list(pieces_of([])) == []
    batches = [rows((0, 1, 10), (0, 1, 11)), rows((0, 1, 12), (1, 1, 13), (0, 2, 14)), rows((0, 2, 15))]
    assert [(key, columns[1].tolist()) for key, columns in pieces_of(batches)] == [
        ((1, 0), [10, 11]),
        ((1, 0), [12]),
        ((1, 1), [13]),
        ((2, 0), [14]),
        ((2, 0), [15]),
    ]


def chunks(*requests: int, candidates: int = 20, cores: int) -> list[int]:
    return [int(parts) for parts in chunks_of(np.array(requests), np.full(len(requests), candidates), cores)]


def test_half_of_the_requests_are_divided_among_eight_cores() -> None:
    # A core's fair share is 125, so 500 are four.
    assert chunks(500, 100, 100, 100, 100, 100, cores=8) == [4, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(("share", "parts"), [(62, 1), (63, 2), (100, 2)])
def test_a_little_more_than_its_share_stays_whole(share: int, parts: int) -> None:
    # 63 % are 1.26 fair shares, more than 5 / 4.
    assert chunks(share, 100 - share, cores=2)[0] == parts


def test_no_more_parts_than_candidates() -> None:
    assert chunks(1000, candidates=3, cores=8) == [3]


def test_costliest_parts_are_assigned_first() -> None:
    requests = np.array([10, 100, 60, 30])
    candidates = np.array([20, 20, 20, 20])
    # Two parts of 100 x (5 + 10) = 1500; 60 x 25 = 1500 on the third. Then 30 x 25, 10 x 25.
    found = places_of(requests, candidates, np.array([1, 2, 1, 1]), 3)
    assert found == [[1], [0, 1], [2], [0]]


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60), st.integers(1, 30), st.integers(1, 16))
def test_no_partition_has_more_than_its_share_and_the_dearest_part(
    requests: list[int], candidates: int, cores: int
) -> None:
    """Graham's bound for the dealing out: mean + largest."""
    rows = np.array(requests)
    each = np.full(len(rows), candidates)
    parts = chunks_of(rows, each, cores)
    assert all(1 <= count <= min(candidates, cores) for count in parts)
    partitions = 4 * cores
    placed = places_of(rows, each, parts, partitions)
    assert [len(one) for one in placed] == parts.tolist()
    loads = np.zeros(partitions)
    for count, part_count, places in zip(requests, parts, placed, strict=True):
        for place in places:
            loads[place] += count * (5 + candidates / part_count)
    costs = rows * (5 + each / parts)
    assert loads.max() <= loads.sum() / partitions + costs.max() + 1e-6
    assert placed[int(np.argmax(costs))][0] == 0, "Spark begins with the first partition"
