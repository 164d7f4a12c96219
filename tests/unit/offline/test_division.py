"""How the backtest's work is divided among tasks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.transforms.backtest import chunks_of, places_of


def chunks(*requests: int, candidates: int = 20, cores: int) -> list[int]:
    return [int(parts) for parts in chunks_of(np.array(requests), np.full(len(requests), candidates), cores)]


def test_half_of_the_requests_are_one_of_two_cores_work() -> None:
    assert chunks(500, 100, 100, 100, 100, 100, cores=2) == [1, 1, 1, 1, 1, 1]


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


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=60),
    st.integers(1, 30),
    st.integers(1, 16),
)
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
