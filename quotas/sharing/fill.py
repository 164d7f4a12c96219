"""Weighted max-min fairness (water filling): how a budget is divided by demand."""

from collections.abc import Sequence
from itertools import accumulate

__all__ = ["fill"]


def fill(wanted: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:
    """Divide the capacity in proportion to the weights; no part is larger than what is wanted.

    Capacity that one demand leaves goes to the others. Demands of weight 0 get nothing.

    >>> fill([0.1, 0.6, 0.9], [1, 1, 1], 1.0)
    [0.1, 0.45, 0.45]
    >>> fill([1, 1], [3, 1], 1.0)  # three connections here, one there
    [0.75, 0.25]
    >>> fill([0.1, 0.2], [1, 9], 1.0)
    [0.1, 0.2]
    """
    parts = [0.0] * len(wanted)
    order = sorted(
        (index for index, weight in enumerate(weights) if weight > 0),
        key=lambda index: wanted[index] / weights[index],
    )
    # Added up from the end: subtracting weights of very different sizes would leave 0, or less.
    remaining = list(accumulate(weights[index] for index in reversed(order)))
    left = capacity
    for index in order:
        parts[index] = min(wanted[index], max(0.0, left) * (weights[index] / remaining.pop()))
        left -= parts[index]
    return parts
