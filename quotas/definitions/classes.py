"""Capacities, and the terms on which a class of clients uses one: a promised rate, a ceiling, a weight.

The words are those of Linux's HTB: a *class* always gets its rate, may borrow up to its ceiling what others leave of
the capacity, and gets of that a part by its weight. A class is the bucket of a quota entity (`BucketKey`).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import FOLLOWER_RATE, FOLLOWER_UNTHROTTLED, LEADER_RATE, LEADER_UNTHROTTLED

# The part of a capacity that a class without a promised rate gets even when nothing is left: a schedule needs a rate.
UNPROMISED_PART: Final = 0.03
# The class of all clients that no entry promises anything. One class, or each new name would be another part.
UNPROMISED: Final = BucketKey(None, None, "")
# The class of what new names below a default send first: they belong to no class of their own yet.
NEWCOMERS: Final = BucketKey(None, None, "\0")
# It may send so many seconds of its rate at once, so that many clients may begin together. Names that go on pay for
# their first requests themselves; so this is what names that are used once may have at once, beyond the rate.
NEWCOMERS_BURST_SECONDS: Final = 8.0
# The bucket of replication, which is no client's; its quota key says which side of it.
REPLICATION_BUCKET: Final = BucketKey(None, None)
# An idle class may send so many seconds of its rate at once, at most: it still counts as one with a demand for about so
# long, and what it leaves after that is lent to others.
SHARED_BURST_SECONDS: Final = 0.4


class Terms(NamedTuple):
    """What one class may use of a capacity, in one direction.

    Args:
        rate: the promised rate in bytes/s, which it gets at any time; 0: none is promised.
        ceiling: the rate in bytes/s up to which it may borrow; the rate itself: it borrows nothing.
        weight: its part of what is left, in proportion to the weights of the others.
        exempt: whether its bytes are counted and never delayed.
    """

    rate: float
    ceiling: float
    weight: float = 1.0
    exempt: bool = False


class Capacity(NamedTuple):
    """The bytes/s that brokers take from clients, or give to them.

    Args:
        rate: bytes/s.
        cluster: whether it is that of all brokers together; else that of each broker.
    """

    rate: float
    cluster: bool


def promised(terms: Terms, capacity: Capacity) -> float:
    """Return the rate in bytes/s that a class has at any time.

    >>> [promised(terms, Capacity(8e6, cluster=False)) for terms in (Terms(0, 8e6), Terms(0, 1e5), Terms(2e6, 8e6))]
    [240000.0, 100000.0, 2000000.0]
    """
    if terms.rate:
        return terms.rate
    unpromised = capacity.rate * UNPROMISED_PART
    return min(unpromised, terms.ceiling) if terms.ceiling else unpromised


def replication_terms(leader: Terms | None, follower: Terms | None) -> Mapping[str, Terms]:
    """Return the terms of the classes of replication, by quota key; none for a side that shares no capacity.

    Args:
        leader, follower: the terms of what each broker sends as a leader, and receives as a follower.
    """
    found: dict[str, Terms] = {}
    for terms, throttled, unthrottled in (
        (leader, LEADER_RATE, LEADER_UNTHROTTLED),
        (follower, FOLLOWER_RATE, FOLLOWER_UNTHROTTLED),
    ):
        if terms is not None:
            found[throttled] = terms
            found[unthrottled] = Terms(0.0, 0.0, exempt=True)
    return found
