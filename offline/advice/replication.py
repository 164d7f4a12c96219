"""The replication throttle (KIP-73, Q&A 4): IN < T < N - IN / R, from what producers were recorded to write. Pure."""

from dataclasses import dataclass
from typing import Final

from quotas.move_estimate import Estimate

__all__ = ["ReplicationThrottle", "replication_throttle"]

_ROOM_MIN: Final = 1.05  # T is above IN: at IN itself a move would never catch up


@dataclass(frozen=True, slots=True)
class ReplicationThrottle:
    """What is recommended.

    Attributes:
        rate: bytes/s for `leader.replication.throttled.rate` and the follower's; None: there is none that works.
        lower, upper: T lies between them; upper None: the network was not stated.
    """

    rate: float | None
    lower: float
    upper: float | None


def replication_throttle(
    bytes_in_max: float, network: float | None, replication_factor: float, headroom: float
) -> ReplicationThrottle:
    """Half-way between the bounds, so that it keeps up and leaves room; without a stated network just above the lower.

    >>> replication_throttle(20e6, 100e6, 2.0, 1.1)  # 20 < T < 100 - 20 / 2
    ReplicationThrottle(rate=55000000.0, lower=20000000.0, upper=90000000.0)
    >>> replication_throttle(80e6, 100e6, 2.0, 1.1).rate is None  # 80 < T < 60
    True
    """
    whole = Estimate(0, 0, 0, 0, 0, 0, bytes_in_max, replication_factor, ())
    lower, upper = whole.bounds(network)
    if upper is None:
        above = round(lower * max(headroom, _ROOM_MIN) ** 2)
        return ReplicationThrottle(float(max(above, int(lower) + 1)), lower, None)
    rate = float(round((lower + upper) / 2)) if upper > lower else None
    return ReplicationThrottle(rate, lower, upper)
