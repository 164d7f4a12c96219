"""Work over thousands of things in portions, between which its caller may do something else.

    def told(self, replicas: dict[Key, Replica]) -> Portions[int]:
        yield from each(replicas.items(), self._tell)  # which is given a list of so many of them
        return 1

The caller iterates, a portion in each turn of its loop, and takes what is returned in the end. Few things are one
portion, and need no second turn. What is gone through may not be changed by others meanwhile.
"""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

__all__ = ["PORTION", "Portions", "each", "emptied", "taken"]

# A replica costs up to 10 us with all that is done about it in one turn.
PORTION: Final = 400

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
T = TypeVar("T")

Portions: TypeAlias = Generator[None, None, R]


def each(items: Iterable[T], work: Callable[[list[T]], object]) -> Portions[None]:
    """Have the work done on all, so many at a time."""
    iterator = iter(items)
    while portion := list(islice(iterator, PORTION)):
        work(portion)
        if len(portion) == PORTION:
            yield


def taken(items: dict[K, V], work: Callable[[list[tuple[K, V]]], object]) -> Portions[None]:
    """Take all away, the last ones first, and have the work done on them: to free thousands at once takes long."""
    while items:
        portion = [items.popitem() for _ in range(min(PORTION, len(items)))]
        work(portion)
        if len(portion) == PORTION:
            yield


def emptied(items: dict[Any, Any] | list[Any]) -> Portions[None]:
    """Take all away."""
    if isinstance(items, dict):
        yield from taken(items, _nothing)
        return
    while items:
        full = len(items) >= PORTION
        del items[-PORTION:]
        if full:
            yield


def _nothing(_portion: object) -> None:
    """Nothing is done with what is taken away."""
