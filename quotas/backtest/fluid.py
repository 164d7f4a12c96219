"""How long a client would wait with a quota, from its bytes by second: the schedule's arithmetic as a fluid.

The backtest (`outcomes`) needs every request. This module needs bytes by second only, so that a week of a client takes
milliseconds. In each second of the client's own time the budget gains one second of quota, up to the burst, and loses
bytes / quota; what is missing is waited for:

    free = min(burst, free + 1 - bytes / quota);  below 0: waited -= free, free = 0

As in the backtest's closed loop, a wait delays all that follows, and the client's own pauses stay. Bytes are taken to
be spread evenly over their second and to be divisible, so a client that sends all of them at the beginning of a second
waits up to a second longer than this says.

A larger quota never makes a client wait for longer: bytes / quota falls, so `free` is not lower in any second.
"""

import numpy as np

from quotas.backtest.compiler import Floats, Ints, inlined, kept

# Halvings of the interval in which the need lies, as logarithms: 2^16 parts of a factor of 4096 are 0.013 % each.
_HALVINGS = 16
_RANGE = 4096.0


def waits(seconds: Ints, sizes: Floats, cuts: Ints, quotas: Floats, burst_s: float) -> Floats:
    """Return how long a client would wait in each day with each quota, in seconds: a row for each day.

    Args:
        seconds: those in which it sends, ascending.
        sizes: the bytes of each.
        cuts: where each day begins in `seconds`, and at last their number. A day begins with an unused burst.
        quotas: a row for each day: quotas in bytes/s, above 0.
        burst_s: seconds of quota that an idle client may send at once.

    >>> two = waits(np.array([0, 1]), np.array([4e6, 1e6]), np.array([0, 2]), np.array([[1e6, 2e6]]), 1.0)
    >>> two.tolist()  # 4 MB at 1 MB/s, of which 2 s are free; all of it at 2 MB/s
    [[2.0, 0.0]]
    """
    found: Floats = np.zeros(quotas.shape)
    _waits(
        np.ascontiguousarray(seconds, np.int64),
        np.ascontiguousarray(sizes, np.float64),
        np.ascontiguousarray(cuts, np.int64),
        np.ascontiguousarray(quotas, np.float64),
        burst_s,
        found,
    )
    return found


def needs(seconds: Ints, sizes: Floats, cuts: Ints, burst_s: float, tolerated_s: float) -> Floats:
    """Return each day's need: the smallest quota with which the client waits for at most `tolerated_s`, in bytes/s.

    It is 0 for a day without bytes, and exact to 0.1 %. Arguments are those of `waits`.

    >>> needs(np.array([0, 5]), np.array([4e6, 1e6]), np.array([0, 2]), 1.0, 0.0).round(-4).tolist()
    [2000000.0]
    """
    found: Floats = np.zeros(len(cuts) - 1)
    _needs(
        np.ascontiguousarray(seconds, np.int64),
        np.ascontiguousarray(sizes, np.float64),
        np.ascontiguousarray(cuts, np.int64),
        burst_s,
        tolerated_s,
        found,
    )
    return found


@inlined
def _waited(
    seconds: Ints, sizes: Floats, begin: int, end: int, quota: float, burst_s: float, most_s: float
) -> float:
    """Return the wait in one day; some value above `most_s` if it is longer than that."""
    free, waited = burst_s, 0.0
    before = seconds[begin] - 1
    for place in range(begin, end):
        free = min(burst_s, free + (seconds[place] - before - 1))
        before = seconds[place]
        free = min(burst_s, free + 1.0 - sizes[place] / quota)
        if free < 0.0:
            waited -= free
            free = 0.0
            if waited > most_s:
                break
    return waited


@kept
def _waits(seconds: Ints, sizes: Floats, cuts: Ints, quotas: Floats, burst_s: float, found: Floats) -> None:
    for day in range(len(cuts) - 1):
        if cuts[day] == cuts[day + 1]:
            continue
        for place in range(quotas.shape[1]):
            found[day, place] = _waited(
                seconds, sizes, cuts[day], cuts[day + 1], quotas[day, place], burst_s, np.inf
            )


@kept
def _needs(
    seconds: Ints, sizes: Floats, cuts: Ints, burst_s: float, tolerated_s: float, found: Floats
) -> None:
    for day in range(len(cuts) - 1):
        begin, end = cuts[day], cuts[day + 1]
        high = 0.0
        for place in range(begin, end):
            high = max(high, sizes[place])
        if high == 0.0:
            continue
        low = high / _RANGE
        for _ in range(_HALVINGS):
            middle = np.sqrt(low * high)
            if _waited(seconds, sizes, begin, end, middle, burst_s, tolerated_s) > tolerated_s:
                low = middle
            else:
                high = middle
        found[day] = high
