"""How the work of the backtest is divided, and how rows come back together."""

import numpy as np
import pyarrow as pa

from offline.transforms.backtest import _pieces, chunks_of


def test_a_limiter_with_half_of_the_requests_is_divided() -> None:
    requests = np.array([500, 100, 100, 100, 100, 100])
    parts = chunks_of(requests, candidates=20, shares=8)
    assert parts.tolist() == [4, 1, 1, 1, 1, 1]  # each of eight equal shares is 125
    assert (requests / parts).max() <= 125


def test_no_more_parts_than_candidates() -> None:
    assert chunks_of(np.array([1000]), candidates=3, shares=8).tolist() == [3]


def test_batches_are_cut_where_a_limiter_or_part_ends() -> None:
    def batch(*rows: tuple[int, int, int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(column) for column in zip(*rows, strict=True)], names=list("abc")
        )

    batches = [
        batch((1, 0, 10), (1, 0, 11)),
        batch((1, 0, 12), (1, 1, 13), (2, 0, 14)),
        batch((2, 0, 15)),
    ]
    assert [(key, columns[0].tolist()) for key, columns in _pieces(batches)] == [
        ((1, 0), [10, 11]),
        ((1, 0), [12]),
        ((1, 1), [13]),
        ((2, 0), [14]),
        ((2, 0), [15]),
    ]


def test_no_rows_are_no_pieces() -> None:
    assert list(_pieces([])) == []
