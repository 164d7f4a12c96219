"""Work on thousands of items in portions, so that the caller can do other work between them.

    def written(self, replicas: dict[Key, Replica]) -> Portions[int]:
        yield from for_each(replicas.items(), self._write)  # called with lists of at most PORTION items
        return 1

The caller iterates, one portion in each turn of its event loop, and uses the value returned at the end. A small number
of items is one portion. The collection must not be changed by others meanwhile.
"""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

__all__ = ["PORTION", "Portions", "clear", "drain", "for_each"]

# A replica costs up to 10 us in one turn.
PORTION: Final = 400

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
T = TypeVar("T")

Portions: TypeAlias = Generator[None, None, R]


def for_each(items: Iterable[T], work: Callable[[list[T]], object]) -> Portions[None]:
    """Call the work with portions of all items."""
    iterator = iter(items)
    while portion := list(islice(iterator, PORTION)):
        work(portion)
        if len(portion) == PORTION:
            yield


def drain(items: dict[K, V], work: Callable[[list[tuple[K, V]]], object]) -> Portions[None]:
    """Remove all items, the last ones first, and call the work with them: freeing thousands at once takes long."""
    while items:
        portion = [items.popitem() for _ in range(min(PORTION, len(items)))]
        work(portion)
        if len(portion) == PORTION:
            yield


def clear(items: dict[Any, Any] | list[Any]) -> Portions[None]:
    """Remove all items."""
    if isinstance(items, dict):
        yield from drain(items, _nothing)
        return
    while items:
        full = len(items) >= PORTION
        del items[-PORTION:]
        if full:
            yield


def _nothing(_portion: object) -> None:
    """Do nothing with removed items."""
