"""The terms of leases, and their requests and responses (KIP-73 over several proxies).

With one sidecar per broker, the leaders of one follower are behind different processes, the *peers*. One process, the
*holder*, leases each peer a share of the follower's quota (`book`); `peer` is the other side. A lease is a
share, a part of 1, and not a rate: so a changed quota changes every rate at once, and the shares still add up to 1.

All transmitted times are durations. Sockets and clocks are in `proxy.leases`.

Non-obvious:

- A lender counts from the response, a borrower from the request. So what is borrowed ends first, whatever the
  network does; the holder learns which response a peer uses only from its next request, and until then counts the
  larger of two.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Final, NamedTuple

__all__ = ["FOLLOWERS_MAX", "PEERS_MAX", "Grant", "LeaseAnswer", "LeaseRequest", "LeaseTerms", "Wish", "fill"]

PEERS_MAX: Final = 64
FOLLOWERS_MAX: Final = 256  # in one request; others have the least share
# The part of a quota that is never lent, for all peers together: a starting peer has a share of it.
NEVER_LENT: Final = 0.02
_PERIODS: Final = 5  # in one lease: one less than this number of requests may be lost


@dataclass(frozen=True)  # without slots, since what follows from it is kept
class LeaseTerms:
    """The peers and the length of a lease; the same for all peers.

    >>> terms = LeaseTerms(("a", "b", "c", "d"), 5000)
    >>> terms.equal, terms.least, terms.period_ms, terms.slack_ms
    (0.25, 0.005, 1000, 110)
    """

    peers: tuple[str, ...]
    lease_ms: int

    @cached_property
    def equal(self) -> float:
        """The share of a peer without a lease, 1/N."""
        return 1 / len(self.peers)

    @cached_property
    def least(self) -> float:
        """The smallest share of a peer."""
        return NEVER_LENT / len(self.peers)

    @property
    def period_ms(self) -> int:
        """The longest time between two requests of a peer, in ms."""
        return self.lease_ms // _PERIODS

    @cached_property
    def slack_ms(self) -> int:
        """The time by which borrowed shares end before lent ones: each clock may deviate by 1 % of a lease."""
        return self.lease_ms // 50 + 10


class Wish(NamedTuple):
    """A peer's demand for a follower's quota.

    Args:
        follower: the broker that fetches.
        quota: the follower's quota as the peer knows it, in bytes/s; infinite without one.
        wanted: the rate that it could use, in bytes/s.
    """

    follower: int
    quota: float
    wanted: float


class Grant(NamedTuple):
    """A peer's lease of a follower's quota.

    Args:
        quota: the smallest quota that any peer knows; infinite without one.
        share: the leased part of it.
        hold_ms: the duration of a share above the equal share, from when the peer sent its request. An equal or smaller
            share holds for a whole lease from when the response arrived.
    """

    follower: int
    quota: float
    share: float
    hold_ms: int


class LeaseRequest(NamedTuple):
    """A peer's request.

    Args:
        name: the peer.
        run: identifies the run of its process.
        number: the request's number, increasing.
        taken: the number of the last request whose response is in force; 0 for none.
        wishes: by follower; a follower without a wish has no demand.
    """

    name: str
    run: int
    number: int
    taken: int
    wishes: tuple[Wish, ...]


class LeaseAnswer(NamedTuple):
    """The holder's response.

    Args:
        run: the request's.
        number: the request's.
        holder: identifies the run of the holder.
        learning: the holder has just started and grants nothing; the peer keeps its leases.
        grants: by follower; of others the peer has the least share.
    """

    run: int
    number: int
    holder: int
    learning: bool
    grants: tuple[Grant, ...]


def fill(demands: list[float], capacity: float) -> list[float]:
    """Divide the capacity by max-min fairness (water filling): no demand gets more than it asks for.

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
    """Convert None (unlimited) to infinity."""
    return inf if quota is None else quota
