"""Long work on the event loop, in turns: traffic goes first.

A thread would not do: it keeps the interpreter for 5 ms at a time (`sys.getswitchinterval`), and for the whole of one
call into C, such as that of `json.dumps` for 10,000 clients.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic_ns
from typing import Final, TypeVar

__all__ = ["TURN_NS", "in_turns", "without_collections"]

T = TypeVar("T")

TURN_NS: Final = 1_000_000


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; after each TURN_NS the loop does everything else that is due.

    Args:
        items: making and handling one of them takes much less than a turn.
    """
    until_ns = monotonic_ns() + TURN_NS
    for item in items:
        yield item
        if monotonic_ns() > until_ns:
            await asyncio.sleep(0)
            until_ns = monotonic_ns() + TURN_NS


_pauses = 0


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause Python's collection of cycles: one that looks at a list of 10,000 clients holds the loop for 15 ms.

    Such a list has no cycles, and is freed without it. Pauses may overlap.
    """
    global _pauses  # noqa: PLW0603 - the collector is one for the process, and so is this count
    _pauses += 1
    gc.disable()
    try:
        yield
    finally:
        _pauses -= 1
        if not _pauses:
            gc.enable()
