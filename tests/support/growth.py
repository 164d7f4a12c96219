"""How something grew: sizes read again and again, and what they say of rates.

Reading takes a while, and on a busy machine a long one: a sample is a size and the time within which it was read. What
came in any one second is judged by the outer ends, so that a slow reader never makes a second look fuller than it was.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final, NamedTuple

_SAMPLE_SECONDS: Final = 0.02


class Sample(NamedTuple):
    """A size, and when it was read."""

    begun: float
    ended: float
    size: int


class Milestone(NamedTuple):
    """An action as soon as there are so many bytes; run by the watching thread, since brokers end with theirs."""

    size: int
    action: Callable[[], None]


@dataclass(slots=True)
class Growth:
    """The samples, from the last one before the first byte on."""

    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.samples[-1].ended - self.samples[0].ended

    @property
    def bytes(self) -> int:
        return self.samples[-1].size - self.samples[0].size

    @property
    def rate(self) -> float:
        return self.bytes / self.seconds

    def seconds_until(self, size: int) -> float:
        """How long it took until so much was there; for ever where it never was."""
        reached = (sample.ended for sample in self.samples if sample.size >= size)
        return next(reached, float("inf")) - self.samples[0].ended

    def largest(self, seconds: float = 1.0) -> int:
        """The most bytes that surely came within so many seconds.

        >>> Growth([Sample(0.0, 0.1, 0), Sample(0.9, 1.0, 5), Sample(1.0, 1.2, 9)]).largest()
        5
        """
        most = first = 0
        for _, ended, size in self.samples:
            while self.samples[first].begun < ended - seconds and self.samples[first].ended < ended:
                first += 1
            most = max(most, size - self.samples[first].size)
        return most

    def largest_second(self) -> int:
        """The most bytes that surely came within one second."""
        return self.largest()


def watch(
    read: Callable[[], int],
    done: Callable[[int], bool],
    seconds_max: float,
    milestones: Sequence[Milestone] = (),
) -> Growth:
    """Read until it is done.

    Args:
        read: gives the size.
        done: whether this size is what was waited for.
        milestones: in the order of their sizes.

    Raises:
        TimeoutError: it took longer than `seconds_max`.
        Exception: what an action has raised.
    """
    due: SimpleQueue[Milestone | None] = SimpleQueue()
    with ThreadPoolExecutor(max_workers=1) as pool:
        found = pool.submit(_sample, read, done, seconds_max, list(milestones), due)
        found.add_done_callback(lambda _: due.put(None))
        while (milestone := due.get()) is not None:
            milestone.action()
        return found.result()


def _sample(
    read: Callable[[], int],
    done: Callable[[int], bool],
    seconds_max: float,
    waiting: list[Milestone],
    due: SimpleQueue[Milestone | None],
) -> Growth:
    found = Growth()
    deadline = time.monotonic() + seconds_max
    before: Sample | None = None
    while True:
        begun = time.monotonic()
        size = read()
        now = Sample(begun, time.monotonic(), size)
        if before is not None and not found.samples and size > before.size:
            found.samples.append(before)
        if found.samples:
            found.samples.append(now)
        before = now
        while waiting and size >= waiting[0].size:
            due.put(waiting.pop(0))
        if done(size):
            return found
        if begun > deadline:
            raise TimeoutError(f"{size} bytes after {seconds_max:.0f} s")
        time.sleep(_SAMPLE_SECONDS)
