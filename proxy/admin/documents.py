"""Large JSON documents, encoded row by row: traffic goes first."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from typing import Any, Final, TypeVar

from proxy.admin.http import Page
from proxy.turns import in_turns

T = TypeVar("T")

JSON: Final = "application/json"
_PORTION_BYTES: Final = 65_536  # a list of 10,000 clients is 8 MB, of which each copy takes milliseconds
_SORTED_AT_ONCE: Final = 500  # well below a millisecond
_encode: Final = json.JSONEncoder().encode


def page(status: int, document: Mapping[str, Any]) -> Page:
    """Return a small document."""
    return Page(status, JSON, (_encode(document) + "\n").encode())


async def rows_page(document: Mapping[str, Any], name: str, rows: Iterable[Mapping[str, Any]]) -> Page:
    """Return a document that has a list of rows, too, under this name; rows are made as they are encoded."""
    portion = bytearray((_encode(document)[:-1] + f', "{name}": [').encode())
    portions: list[bytes] = []
    separator = b""
    async for row in in_turns(rows):
        portion += separator + _encode(row).encode()
        separator = b",\n"
        if len(portion) >= _PORTION_BYTES:
            portions.append(bytes(portion))
            portion.clear()
    portion += b"]}\n"
    first, *more = (*portions, bytes(portion))
    return Page(200, JSON, first, tuple(more))


async def sorted_in_turns(items: list[T], key: Callable[[T], float]) -> Iterator[T]:
    """Return an iterator over the items, those with the highest keys first."""
    keyed = [(-key(items[place]), place) async for place in in_turns(range(len(items)))]
    starts = range(0, len(keyed), _SORTED_AT_ONCE)
    runs = [sorted(keyed[start : start + _SORTED_AT_ONCE]) async for start in in_turns(starts)]
    return (items[place] for _, place in merge(*runs))
