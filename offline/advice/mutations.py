"""What is recommended beside byte quotas: the partition mutation quota and the replication throttle. Pure.

Partition mutations (KIP-599): a steady rate, and the burst that admits the recorded requests. Replication (KIP-73, Q&A
4): IN < T < N - IN / R, from producers' recorded rates.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quotas.reassignment.estimate import Estimate

WINDOW_S: Final = 60
# KIP-599: a client's burst in Kafka is its rate times all windows (11 of one second).
KAFKA_BURST_S: Final = 11


@dataclass(frozen=True, slots=True)
class MutationQuota:
    """The recommended partition mutation quotas, in mutations and mutations/s.

    Attributes:
        rate, burst: `partition_mutations_rate` and `_burst`, of all clients together.
        client_rate: the default client's `controller_mutation_rate`, whose burst is eleven times as much.
    """

    rate: float
    burst: float
    client_rate: float


def mutation_quota(
    by_client: Mapping[tuple[str, str], Mapping[int, int]], headroom: float
) -> MutationQuota | None:
    """Return quotas that would not have rejected any request; None without mutations.

    Args:
        by_client: mutations of each (user, client id) by second.
        headroom: the factor by which rates and bursts are larger than what was needed.

    >>> mutation_quota({("", "a"): {0: 100, 600: 20}}, 1.0)
    MutationQuota(rate=1.7, burst=99.0, client_rate=9.0)
    """
    together: dict[int, int] = {}
    for seconds in by_client.values():
        for second, count in seconds.items():
            together[second] = together.get(second, 0) + count
    if not together:
        return None
    rate = _tenths(_busiest(together) / WINDOW_S * headroom)
    client_rate = max(_client_rate(seconds) for seconds in by_client.values())
    return MutationQuota(
        rate=rate,
        burst=float(math.ceil(burst_for(together, rate) * headroom)),
        client_rate=float(math.ceil(client_rate * headroom)),
    )


def burst_for(seconds: Mapping[int, int], rate: float) -> float:
    """Return the smallest burst with which a bucket of this rate is never overdrawn before a request.

    A request of any size is admitted while the bucket is not below 0, so only the mutations before it count. The last
    request of a second is taken to have one mutation; all others of that second were made before it.

    >>> burst_for({0: 10, 1: 10, 2: 10}, 2.0)  # 9; then 10 - 2 + 9; then 20 - 4 + 9
    25.0
    """
    taken = burst = 0.0
    before = None
    for second in sorted(seconds):
        if before is not None:
            taken = max(0.0, taken - rate * (second - before))
        burst = max(burst, taken + seconds[second] - 1)
        taken += seconds[second]
        before = second
    return burst


def _busiest(seconds: Mapping[int, int]) -> int:
    """Return the largest number of mutations in any minute."""
    ordered = sorted(seconds)
    best = total = first = 0
    for second in ordered:
        total += seconds[second]
        while ordered[first] <= second - WINDOW_S:
            total -= seconds[ordered[first]]
            first += 1
        best = max(best, total)
    return best


def _client_rate(seconds: Mapping[int, int]) -> float:
    """Return the smallest rate, in mutations/s, for which a burst of eleven seconds is enough."""
    low, high = 0.0, float(sum(seconds.values()))
    for _ in range(40):
        middle = (low + high) / 2
        if middle > 0 and burst_for(seconds, middle) <= middle * KAFKA_BURST_S:
            high = middle
        else:
            low = middle
    return math.ceil(high * 10 - 1e-6) / 10


def _tenths(rate: float) -> float:
    return math.ceil(rate * 10 - 1e-9) / 10


@dataclass(frozen=True, slots=True)
class ReplicationThrottle:
    """The recommended replication throttle (KIP-73) during a reassignment.

    Attributes:
        rate: bytes/s for `leader.replication.throttled.rate` and the follower's; None if no rate is possible.
        lower: the rate in bytes/s above which replication keeps up with the producers.
        upper: the rate in bytes/s below which the network has room for clients.
    """

    rate: float | None
    lower: float
    upper: float


def replication_throttle(
    bytes_in_max: float, network: float, replication_factor: float
) -> ReplicationThrottle:
    """Return the throttle in the middle between its bounds, so that replication keeps up and leaves room for clients.

    Args:
        bytes_in_max: the highest rate in bytes/s at which clients produce to a broker.
        network: a broker's network throughput in bytes/s.

    >>> replication_throttle(20e6, 100e6, 2.0)  # 20 < T < 100 - 20 / 2
    ReplicationThrottle(rate=55000000.0, lower=20000000.0, upper=90000000.0)
    >>> replication_throttle(80e6, 100e6, 2.0).rate is None  # 80 < T < 60
    True
    """
    whole = Estimate(0, 0, 0, 0, 0, 0, bytes_in_max, replication_factor, ())
    lower, upper = whole.bounds(network)
    assert upper is not None, "with a network there is an upper bound"
    return ReplicationThrottle(float(round((lower + upper) / 2)) if upper > lower else None, lower, upper)
