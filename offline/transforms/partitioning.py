"""Divides the backtest among tasks: a limiter's candidates into parts, and the parts among Spark's partitions.

Each part reads all requests of its limiter, which costs as much as deciding on a few candidates. So a limiter is
divided only if it would keep one core busy long after the others have finished. Parts are assigned by cost, the most
expensive first, since Spark begins with partition 0.
"""

import heapq
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["chunks_of", "places_of"]

Ints = npt.NDArray[np.int64]

# Candidates at which a request is decided in the time that a task takes to put it in order.
_ORDERED_AS_DECIDED: Final = 5
# Of a core's fair share: so much stays whole, where one more part would cost more than it brings.
_SHARES_WHOLE: Final = 5 / 4


def chunks_of(requests: Ints, candidates: Ints, cores: int) -> Ints:
    """Return the number of parts into which each limiter's candidates are divided.

    >>> chunks_of(np.array([1000, 10, 10]), np.array([20, 20, 20]), 4).tolist()  # the first has nearly everything
    [4, 1, 1]
    >>> chunks_of(np.array([500, 300, 200]), np.array([20, 20, 20]), 2).tolist()  # one core for it, one for the others
    [1, 1, 1]
    """
    shares = requests / max(1.0, float(requests.sum()) / cores)
    parts = np.ceil(shares - (_SHARES_WHOLE - 1))
    found: Ints = np.clip(parts, 1, np.maximum(1, np.minimum(candidates, cores))).astype(np.int64)
    return found


def places_of(requests: Ints, candidates: Ints, chunks: Ints, partitions: int) -> list[list[int]]:
    """Return the partition of each part of each limiter.

    The most expensive part is assigned first, each to the partition with the least work so far.

    >>> places_of(np.array([100, 60, 50]), np.array([20, 20, 20]), np.array([1, 1, 1]), 2)
    [[0], [1], [1]]
    """
    costs = requests * (_ORDERED_AS_DECIDED + candidates / chunks)
    found = [[0] * int(parts) for parts in chunks]
    loads = [(0.0, partition) for partition in range(partitions)]
    for limiter in np.argsort(-costs, kind="stable").tolist():
        for part in range(len(found[limiter])):
            load, partition = heapq.heappop(loads)
            found[limiter][part] = partition
            heapq.heappush(loads, (load + float(costs[limiter]), partition))
    return found
