"""How a task of the backtest takes its rows."""

import pyarrow as pa

from offline.transforms.backtest import pieces_of


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
    assert [(key, columns[0].tolist()) for key, columns in pieces_of(batches)] == [
        ((1, 0), [10, 11]),
        ((1, 0), [12]),
        ((1, 1), [13]),
        ((2, 0), [14]),
        ((2, 0), [15]),
    ]


def test_empty_batches_have_no_pieces() -> None:
    assert list(pieces_of([])) == []
