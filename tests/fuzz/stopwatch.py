"""How long a single call holds its thread: CPU time, so that other processes of the machine do not count.

A target puts its readers' calls through `timed`; the slowest call of an input is the one that counts.
To ask for a thread's time is a system call, and dear; so a run looks at the wall clock, and again, `exactly`, at what
was slow by that. Under Atheris everything is several times slower, so what is slow there is looked at once more without
it (`confirm`).
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import perf_counter, thread_time
from typing import Final, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

BOUND_SECONDS: Final = 0.005
_TRIES: Final = 3
_ENOUGH: Final = 20  # times the bound, and there is nothing more to learn
_INPUT_SECONDS_MAX: Final = 2.0


class Slowest(NamedTuple):
    """The slowest call of an input: what it did, and its seconds."""

    label: str = ""
    seconds: float = 0.0


class TooLongError(BaseException):
    """An input has been slow enough to know it, or long enough: the rest of it would keep the fuzzer from others."""


class _Watch:
    """The clock in use, and what it has shown.

    Attributes:
        enough_seconds: a call that took so long ends its input.
        end_seconds: when an input ends that has many calls.
    """

    clock: Callable[[], float] = perf_counter
    found = Slowest()
    enough_seconds = inf
    end_seconds = inf


def timed(label: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function and remember how long it took, also if it raises."""
    clock = _Watch.clock
    start = clock()
    try:
        return function(*args, **kwargs)
    finally:
        end = clock()
        if end - start > _Watch.found.seconds:
            _Watch.found = Slowest(label, end - start)
            if end - start > _Watch.enough_seconds:
                raise TooLongError
        if end > _Watch.end_seconds:
            raise TooLongError


def slowest(
    run: Callable[[bytes], None], data: bytes, *, exactly: bool, enough_seconds: float = inf
) -> Slowest:
    """Run an input and give its slowest call, by the wall clock or exactly.

    Args:
        enough_seconds: the input ends with a call that took so long.
    """
    _Watch.clock = thread_time if exactly else perf_counter
    _Watch.found = Slowest()
    _Watch.enough_seconds = enough_seconds
    _Watch.end_seconds = _Watch.clock() + _INPUT_SECONDS_MAX
    with suppress(TooLongError):
        run(data)
    return _Watch.found


def confirm(run: Callable[[bytes], None], data: bytes, bound_seconds: float = BOUND_SECONDS) -> Slowest:
    """Run an input a few times; give its slowest call at its best if that was over the bound, else nothing."""
    best = Slowest("", float("inf"))
    for _ in range(_TRIES):
        found = slowest(run, data, exactly=True, enough_seconds=_ENOUGH * bound_seconds)
        best = min(best, found, key=lambda found: found.seconds)
        if best.seconds <= bound_seconds:
            return Slowest()
    return best
