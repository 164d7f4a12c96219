"""The replication throttle (KIP-73, Q&A 4): IN < T < N - IN / R, from producers' recorded rates. Pure."""

from dataclasses import dataclass

from quotas.reassignment.estimate import Estimate

__all__ = ["ReplicationThrottle", "replication_throttle"]


@dataclass(frozen=True, slots=True)
class ReplicationThrottle:
    """The recommended throttle.

    Attributes:
        rate: bytes/s for `leader.replication.throttled.rate` and the follower's; None if no rate is possible.
        lower, upper: the bounds of T.
    """

    rate: float | None
    lower: float
    upper: float


def replication_throttle(
    bytes_in_max: float, network: float, replication_factor: float
) -> ReplicationThrottle:
    """Return the middle between the bounds, so that replication keeps up and leaves room.

    Both bounds depend on the network: without its throughput there is no recommendation.

    >>> replication_throttle(20e6, 100e6, 2.0)  # 20 < T < 100 - 20 / 2
    ReplicationThrottle(rate=55000000.0, lower=20000000.0, upper=90000000.0)
    >>> replication_throttle(80e6, 100e6, 2.0).rate is None  # 80 < T < 60
    True
    """
    whole = Estimate(0, 0, 0, 0, 0, 0, bytes_in_max, replication_factor, ())
    lower, upper = whole.bounds(network)
    assert upper is not None, "with a network there is an upper bound"
    return ReplicationThrottle(float(round((lower + upper) / 2)) if upper > lower else None, lower, upper)
