"""quotas.sharing.lessor."""

import pytest

from quotas.sharing.lessor import fill


def test_weights_of_very_different_sizes_lose_no_part() -> None:
    assert fill([1.0, 1.0], [1e9, 1e-9], 1.0) == pytest.approx([1.0, 1e-18])
    assert sum(fill([0.5, 1.0, 1.0], [1e9, 1e-300, 1e-300], 1.0)) == pytest.approx(1.0)


def test_entries_without_weight_get_nothing() -> None:
    assert fill([1.0, 0.2], [0.0, 1.0], 1.0) == [0.0, 0.2]
