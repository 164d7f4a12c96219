"""How long a single call holds its thread: CPU time, so that other processes of the machine do not count.

A target puts its readers' calls through `timed`; the slowest call of an input is what whoever runs the target looks at.
To ask for a thread's time is a system call, and dear; so a run looks at the wall clock, and again, `exactly`, at what
was slow by that. Under Atheris everything is several times slower, so what is slow there is looked at once more without
it (`confirm`).
"""

from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Final, NamedTuple, ParamSpec, TypeVar

__all__ = ["BOUND_SECONDS", "Slowest", "confirm", "slowest", "timed"]

P = ParamSpec("P")
R = TypeVar("R")

BOUND_SECONDS: Final = 0.005
_TRIES: Final = 3


class Slowest(NamedTuple):
    """The slowest call of an input: what it did, and its seconds."""

    label: str = ""
    seconds: float = 0.0


class _Watch:
    """The clock in use, and what it has shown."""

    clock: Callable[[], float] = staticmethod(perf_counter)
    found = Slowest()


def timed(label: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function and remember how long it took, also if it raises."""
    clock = _Watch.clock
    start = clock()
    try:
        return function(*args, **kwargs)
    finally:
        seconds = clock() - start
        if seconds > _Watch.found.seconds:
            _Watch.found = Slowest(label, seconds)


def slowest(run: Callable[[bytes], None], data: bytes, *, exactly: bool) -> Slowest:
    """Run an input and give its slowest call, by the wall clock or exactly."""
    _Watch.clock = thread_time if exactly else perf_counter
    _Watch.found = Slowest()
    run(data)
    return _Watch.found


def confirm(run: Callable[[bytes], None], data: bytes, bound_seconds: float = BOUND_SECONDS) -> Slowest:
    """Run an input a few times; give its slowest call at its best if that was over the bound, else nothing."""
    best = Slowest("", float("inf"))
    for _ in range(_TRIES):
        best = min(best, slowest(run, data, exactly=True), key=lambda found: found.seconds)
        if best.seconds <= bound_seconds:
            return Slowest()
    return best
