"""Loops in a thread that yield the processor to the event loop.

A computing thread of a Python process releases the interpreter only after 5 ms (`sys.getswitchinterval`), and the event
loop may have to wait that long after each of its system calls. A loop over 100,000 quotas would delay every relayed
frame. So such a loop works for a millisecond and then sleeps for one; a frame waits for at most a millisecond.

Rejected: a shorter switch interval (permanently more expensive for the event loop), a helper process (unpacking its
result would take 100 ms at once), slices on the event loop (the same delays, between waiting frames).

Non-obvious:

- Sluice's threads sleep half of their time. Python's threads take turns; a loop over 100,000 quotas without pauses
  would delay the event loop by 5 ms at each system call.
"""

from collections.abc import Iterable, Iterator
from time import monotonic_ns, sleep
from typing import Final, TypeVar

T = TypeVar("T")

_WORK_NS: Final = 1_000_000
_PAUSE_SECONDS: Final = 0.001
_ITEMS_PER_CHECK: Final = 16


def with_pauses(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, with pauses."""
    until = monotonic_ns() + _WORK_NS
    for index, item in enumerate(items):
        yield item
        if not index % _ITEMS_PER_CHECK and monotonic_ns() > until:
            sleep(_PAUSE_SECONDS)
            until = monotonic_ns() + _WORK_NS


def drain(items: list[T]) -> Iterator[T]:
    """Yield and remove the items, with pauses: freeing 10,000 at once would stop all threads."""
    items.reverse()
    return (items.pop() for _ in with_pauses(range(len(items))))
