"""What the sharers of a follower's quota have agreed on, and what they say to each other (KIP-73 over several proxies).

With a sidecar a broker the leaders of one follower stand behind different processes, its *peers* here. One process, the
*holder*, leases each of them a share of the follower's quota (`leases`); `lease_peer` is the other end. A lease is a
share, a part of 1, and no rate: so a quota that changes changes every rate at once, and the shares still add up.

All times that travel are durations. Nothing here knows a socket or a clock.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Final, NamedTuple

__all__ = ["FOLLOWERS_MAX", "PEERS_MAX", "Grant", "LeaseAnswer", "LeaseRequest", "LeaseTerms", "Wish", "fill"]

PEERS_MAX: Final = 64
FOLLOWERS_MAX: Final = 256  # named in one request; the others have the least share
# The part of a quota that is never lent, all peers together: whoever begins has something to begin with.
NEVER_LENT: Final = 0.02
_PERIODS: Final = 5  # in one lease: so many requests may be lost but one


@dataclass(frozen=True)  # without slots, since what follows from it is kept
class LeaseTerms:
    """Who shares, and for how long a lease holds; the same for all of them.

    >>> terms = LeaseTerms(("a", "b", "c", "d"), 5000)
    >>> terms.equal, terms.least, terms.period_ms, terms.slack_ms
    (0.25, 0.005, 1000, 110)
    """

    peers: tuple[str, ...]
    lease_ms: int

    @cached_property
    def equal(self) -> float:
        """The share of whoever has no lease."""
        return 1 / len(self.peers)

    @cached_property
    def least(self) -> float:
        """The share that nobody is without."""
        return NEVER_LENT / len(self.peers)

    @property
    def period_ms(self) -> int:
        """How often a peer asks, at least."""
        return self.lease_ms // _PERIODS

    @cached_property
    def slack_ms(self) -> int:
        """By how much sooner what is borrowed ends than what was lent: clocks may differ by 1 % of a lease each."""
        return self.lease_ms // 50 + 10


class Wish(NamedTuple):
    """What a peer wants of a follower's quota.

    Args:
        follower: the broker that fetches.
        quota: what the peer takes its quota for, in bytes/s; infinite where it knows of none.
        wanted: what it could use, in bytes/s.
    """

    follower: int
    quota: float
    wanted: float


class Grant(NamedTuple):
    """What a peer gets of a follower's quota.

    Args:
        quota: the smallest that anybody knows; infinite where nobody knows of one.
        share: the part of it.
        hold_ms: for how long, from when the peer sent its request, if the share is more than an equal one.
            An equal or smaller one holds for a whole lease from when the answer came.
    """

    follower: int
    quota: float
    share: float
    hold_ms: int


class LeaseRequest(NamedTuple):
    """What a peer asks.

    Args:
        name: who asks.
        run: which life of that process it is.
        number: of the request; each is larger than the one before.
        taken: the number of the last request whose answer is in force; 0 for none.
        wishes: by follower. Of all others nothing is wanted.
    """

    name: str
    run: int
    number: int
    taken: int
    wishes: tuple[Wish, ...]


class LeaseAnswer(NamedTuple):
    """What the holder says.

    Args:
        run: of the request.
        number: of the request.
        holder: which life of the holder it is.
        learning: nothing is said yet: what the peer holds, it holds.
        grants: by follower. Of all others the peer has the least share.
    """

    run: int
    number: int
    holder: int
    learning: bool
    grants: tuple[Grant, ...]


def fill(demands: list[float], capacity: float) -> list[float]:
    """Share out so that the smallest part is as large as can be, and nobody gets more than he wants.

    >>> fill([0.1, 0.6, 0.9], 1.0)
    [0.1, 0.45, 0.45]
    >>> fill([0.1, 0.2], 1.0)
    [0.1, 0.2]
    """
    shares = [0.0] * len(demands)
    left = capacity
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for place, index in enumerate(order):
        shares[index] = min(demands[index], max(0.0, left) / (len(order) - place))
        left -= shares[index]
    return shares


def of_quota(quota: float | None) -> float:
    """Write no limit as an infinite one."""
    return inf if quota is None else quota
