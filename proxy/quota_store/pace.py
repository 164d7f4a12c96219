"""Loops in a thread that leave the processor to the event loop.

Threads of one Python process take turns: whoever computes is asked to let go after 5 ms
(`sys.getswitchinterval`), and each time the event loop comes back from a system call it may have to wait so long.
A loop over 100,000 quotas would slow every relayed frame down. So it works for a millisecond and then sleeps for
one, during which the event loop has the processor for itself, and a frame waits for a millisecond at most.

Rejected: a shorter switch interval (it makes the event loop's every turn dearer, for good), a helper process (what
it has read has to be unpacked here, in one go of 100 ms), doing it on the event loop in slices (the same slices,
between frames that are waiting).
"""

from collections.abc import Iterable, Iterator
from time import monotonic_ns, sleep
from typing import Final, TypeVar

__all__ = ["paced", "spent"]

T = TypeVar("T")

_WORK_NS: Final = 1_000_000
_PAUSE_SECONDS: Final = 0.001
_ITEMS_A_LOOK: Final = 16


def paced(items: Iterable[T]) -> Iterator[T]:
    """Give the items one by one, with pauses."""
    until = monotonic_ns() + _WORK_NS
    for index, item in enumerate(items):
        yield item
        if not index % _ITEMS_A_LOOK and monotonic_ns() > until:
            sleep(_PAUSE_SECONDS)
            until = monotonic_ns() + _WORK_NS


def spent(items: list[T]) -> Iterator[T]:
    """Give the items one by one with pauses, and let go of each: freeing 10,000 at once is a pause for everybody."""
    items.reverse()
    return (items.pop() for _ in paced(range(len(items))))
