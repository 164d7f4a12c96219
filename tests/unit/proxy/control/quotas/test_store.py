"""proxy.control.quotas.store: nothing is lost, and long loops pause."""

import pytest

from proxy.control.quotas import store
from proxy.control.quotas.store import drain, with_pauses


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; an item takes 0.2 ms here."""
    made: list[float] = []
    clock = iter(range(0, 10**12, 200_000))
    monkeypatch.setattr(store, "sleep", made.append)
    monkeypatch.setattr(store, "monotonic_ns", lambda: next(clock))
    return made


def test_long_loop_pauses_for_as_long_as_it_works(pauses: list[float]) -> None:
    assert list(with_pauses(range(16 * 4))) == list(range(16 * 4))
    assert pauses == []
    list(with_pauses(range(16 * 60)))  # a look at the clock every 16 items; each look takes 0.2 ms here
    assert pauses == [0.001] * 10  # 60 looks, and one more after each pause: 1 ms is six of them


def test_spent_items_are_let_go_of_in_order(pauses: list[float]) -> None:
    items = [1, 2, 3]
    given = drain(items)
    assert next(given) == 1
    assert len(items) == 2
    assert list(given) == [2, 3]
    assert items == []
