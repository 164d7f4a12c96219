"""Work in portions: everything once and in order, so many at a time, and nothing kept of what was taken away."""

import pytest

from protocol import primitives
from protocol.primitives import PORTION, clear, drain, for_each
from tests.support.portions import counted


@pytest.mark.parametrize(
    ("count", "turns"), [(0, 1), (1, 1), (PORTION - 1, 1), (PORTION, 2), (3 * PORTION + 1, 4)]
)
def test_full_portions_take_a_turn_each(count: int, turns: int) -> None:
    done: list[int] = []
    assert counted(for_each(range(count), done.extend)) == (None, turns)
    assert done == list(range(count))

    items = dict.fromkeys(range(count))
    popped: list[tuple[int, None]] = []
    assert counted(drain(items, popped.extend)) == (None, turns)
    assert popped == [(index, None) for index in reversed(range(count))]
    assert items == {}


@pytest.mark.parametrize("make", [list, dict.fromkeys])
def test_collection_is_emptied_in_portions(make: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitives, "PORTION", 3)
    items = make(range(7))
    left = [len(items) for _ in clear(items)]
    assert left == [4, 1]
    assert not items
