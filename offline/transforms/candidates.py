"""The candidate quotas: a ladder over the clients' demands, with more steps where more clients are. Pure."""

import math
from collections.abc import Sequence
from typing import Final

__all__ = ["ladder", "rounded"]

# Where the clients are: quantiles of their peaks, each with some room.
_QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_ROOM: Final = 1.1
_RATE_MIN: Final = 1000.0


def ladder(
    peaks: Sequence[float], highest: float, count: int, *, headroom: float = 1.0, least: float = 0.0
) -> list[float]:
    """Return at most `count` candidates in bytes/s, ascending; the last one exceeds every client's demand.

    If `count` is too small for all quantiles, they are taken evenly from the lowest to the highest.

    Args:
        peaks: each client's mean over the busiest ten seconds.
        highest: the largest demand of any client in one second.
        headroom: the factor of the last candidate above the one that is enough for `highest`.
        least: the smallest permitted value of the last candidate.

    >>> ladder([1e6, 1.2e6, 1.5e6, 9e6], 12e6, 8)
    [600000.0, 1200000.0, 1400000.0, 1700000.0, 2200000.0, 4000000.0, 9900000.0, 14000000.0]
    """
    assert count >= 2, "a ladder has two ends"
    ordered = sorted(max(peak, _RATE_MIN) for peak in peaks)
    if not ordered:
        return []
    found = {
        rounded(_ROOM * ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]) for quantile in _QUANTILES
    }
    enough = max(rounded(_ROOM * max(highest, ordered[-1])), least)
    found |= {enough, rounded(enough * max(headroom, 1.0))}
    if len(found) >= count:
        marks = sorted(found)
        return [marks[place * (len(marks) - 1) // (count - 1)] for place in range(count)]
    low, high = rounded(ordered[len(ordered) // 4] / 2), max(found)
    steps = count - len(found) + 2
    ratio = (high / low) ** (1 / (steps - 1))
    for step in range(steps):
        if len(found) < count:
            found.add(rounded(low * ratio**step))
    return sorted(found)


def rounded(rate: float) -> float:
    """Round up to two significant digits, as an operator would write the rate.

    >>> rounded(1_234_567.0), rounded(99_100.0), rounded(1000.0)
    (1300000.0, 100000.0, 1000.0)
    """
    digit = 10.0 ** (math.floor(math.log10(max(rate, 1.0))) - 1)
    return float(round(math.ceil(round(rate / digit, 6)) * digit))
