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

T = TypeVar("T")

TURN_NS: Final = 1_000_000
_LONG_TURN_NS: Final = 3_000_000
_PART: Final = 8  # of the time that everything else has just taken


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; after each turn the loop does everything else that is due.

    A turn is TURN_NS. Where traffic occupies the loop, everything else takes tens of milliseconds, and work of 100 ms
    would take seconds: there a turn is an eighth of what the rest has just taken, and _LONG_TURN_NS at most.

    Args:
        items: making and handling one of them takes much less than a turn.
    """
    until_ns = monotonic_ns() + TURN_NS
    for item in items:
        yield item
        ended_ns = monotonic_ns()
        if ended_ns > until_ns:
            await asyncio.sleep(0)
            now_ns = monotonic_ns()
            until_ns = now_ns + min(max(TURN_NS, (now_ns - ended_ns) // _PART), _LONG_TURN_NS)


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
