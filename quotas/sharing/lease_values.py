"""The terms between a lessor and its lessees, and the messages that they send each other, as frozen values.

A *lessor* leases the shares of quotas to *lessees*: the holder of a fleet to its members, a member to its workers.
A *key* names one quota at one place, as text; `DEFAULT_KEY` stands for every key that has no shares of its own.

A lease is a promise of the lessor to a process that runs. Where the end of a lessee is certain, its shares are free
earlier: processes below it use them for LIVE_MS after they have last seen it run, and GONE_MS covers that.

A *loan* is a part of a capacity that a class has beyond its rate (`capacities`). Its key is that of the rate with
LOAN_MARK before it. Loans are leased as shares are, except that their default is nothing, and that they are valid for
LOAN_MS only: a process that is cut off borrows nothing.

A *factor* is the part of their rates that classes of a capacity have, where more is promised than there is. Its key
begins with FACTOR_MARK. It is no share: each lessee is told the same (`parts`).

A *session* is one ordered exchange of reports and grants. Both are numbered without gaps and contain only changes, so a
missing one ends the session, and the next session begins with the whole state. All transmitted times are durations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta

DEFAULT_KEY: Final = ""
# A worker uses its shares for so long after it has last seen that its control process runs (`Lessee.live`).
LIVE_MS: Final = 500
# So long after the end of a lessee no process uses its shares: LIVE_MS, 1 % for each of two clocks, and 10 ms.
GONE_MS: Final = LIVE_MS + LIVE_MS // 50 + 10
KEYS_MAX: Final = 10_000  # with shares of their own; the clients of further keys have the default share
WEIGHT_MAX: Final = 1e9
# Added to a weight: a binary fraction, so that sums of it and of whole weights are exact.
SHORT: Final = 2.0**-20
LOAN_MARK: Final = "+"
LOAN_MS: Final = 1000
FACTOR_MARK: Final = "*"


def loan_key(key: str) -> str:
    """Return the key of a class's loans.

    Args:
        key: of its rate.
    """
    return LOAN_MARK + key


def rate_key(loan: str) -> str:
    """Return the key of the rate of the class with this loan key."""
    return loan[len(LOAN_MARK) :]


def quota_key_of(key: str) -> str:
    """Return the quota key of a key that is no loan key.

    >>> quota_key_of("producer_byte_rate@-1 -=:reports"), quota_key_of("follower.replication.throttled.rate 3")
    ('producer_byte_rate', 'follower.replication.throttled.rate')
    """
    return key.partition(" ")[0].partition("@")[0]


def is_loan(key: str) -> bool:
    """Whether this is the key of a class's loans."""
    return key.startswith(LOAN_MARK)


Rank = Literal["named", "default", "unpromised"]
"""Whose promise is kept longest: of a class with an entry of its own, below a default, or of none."""


def factor_key(quota_key: str, broker: int, rank: Rank = "named") -> str:
    """Return the key of the factor of a capacity's classes of one rank.

    Args:
        quota_key: of the capacity.
        broker: of the capacity; -1 for that of the cluster.

    >>> factor_key("producer_byte_rate", -1), factor_key("producer_byte_rate", -1, "default")
    ('*producer_byte_rate@-1', '*producer_byte_rate@-1 default')
    """
    return f"{FACTOR_MARK}{quota_key}@{broker}{'' if rank == 'named' else ' ' + rank}"


def is_factor(key: str) -> bool:
    """Whether this is the key of a factor."""
    return key.startswith(FACTOR_MARK)


Share = Annotated[float, Meta(ge=0, le=1)]
"""A part of a quota; the range holds for what is decoded, and excludes NaN."""


@dataclass(frozen=True)  # without slots: cached properties
class LeaseTerms:
    """The terms on which shares of quotas are leased: how long, and among how many lessees.

    Args:
        period_ms: the longest time between two reports.
        lessees_max: how many lessees share a quota; each has 1 / lessees_max of it while none has a demand for it.
        never_lent: the share of each quota (0 to 1) that is not leased; new processes use it before their first lease.

    >>> terms = LeaseTerms(15_000, 1000, 8)
    >>> terms.equal, terms.least, terms.slack_ms
    (0.125, 0.0003125, 310)
    """

    lease_ms: int
    period_ms: int
    lessees_max: int
    never_lent: float = 0.005

    @cached_property
    def equal(self) -> float:
        """The share (0 to 1) of a quota that each lessee has while none has a demand for it.

        A lessee that is cut off from its lessor has this share of every quota.
        """
        return 1 / self.lessees_max

    @cached_property
    def least(self) -> float:
        """The share (0 to 1) of each quota that a process uses before its first lease.

        It comes from `never_lent`, and is small enough for twice `lessees_max` processes that begin together.
        """
        return self.never_lent / (2 * self.lessees_max)

    @cached_property
    def slack_ms(self) -> int:
        """By how many ms a lease ends earlier at the lessee than at the lessor: each clock may deviate by 1 %."""
        return self.lease_ms // 50 + 10

    def lasting_ms(self, tenure_ms: int) -> int:
        """Return for how many ms leases may still last after a fleet's holder was last confirmed as the holder.

        Args:
            tenure_ms: for how many ms after a confirmation the holder may grant further leases.

        >>> LeaseTerms(15_000, 1000, 8).lasting_ms(5000)
        20310
        """
        return tenure_ms + self.lease_ms + self.slack_ms


class LesseeId(NamedTuple):
    """Identifies a lessee: one run of one process. A process that was restarted is another lessee."""

    name: str
    run: Annotated[int, Meta(ge=0)]


class Wish(NamedTuple):
    """A lessee's demand for a share of one quota.

    Args:
        wanted: the share (0 to 1) that it could use; 1 while its connections wait for more.
        weight: the number of connections that want it, so that connections are equal wherever they are. In a demand
            for a loan SHORT is added while they wait although all is used, and remains in the sums over lessees.
    """

    wanted: Share
    weight: Annotated[float, Meta(ge=0, le=WEIGHT_MAX)]

    @property
    def is_short(self) -> bool:
        """Whether connections wait although all is used, where that is said."""
        return self.weight % 1 > 0


class Report(NamedTuple):
    """A lessee's message to its lessor.

    Args:
        session: the session that the lessor has opened; 0 opens one, with all wishes and `held`.
        number: counts the reports of the lessee, without gaps within a session.
        applied: the version of the last grants that are in force here, and in all processes below.
        wishes: the demands that have changed, by key; None ends one.
        held: if this report opens a session, the shares that the lessee may be using, by key, also of `DEFAULT_KEY`;
            and the factors that it was told.
        lessees_max: as the lessee is configured.
    """

    lessee: LesseeId
    session: int
    number: int
    applied: int
    wishes: Mapping[str, Wish | None]
    held: Mapping[str, float]
    lessees_max: int


class Grants(NamedTuple):
    """A lessor's message to a lessee.

    Args:
        run: a number that identifies the lessor's process, from its start to its end.
        session: the session to which it belongs; a number above 0.
        version: counts the grants of a session, without gaps.
        number: the number of the last report that has arrived; the lease begins at the time when that was sent.
        lease_ms: the length of the lease.
        shares: the shares that have changed; None: the key has no share of its own any more. Also factors; None: 1.
        complete: whether these are the first grants of a session: keys without a share in them have none of their own.
        lessees_max: the largest `lessees_max` that any process is configured with.
        loans_ms: for how long loans are valid from then on. Less than LOAN_MS only from a member to its workers.
    """

    run: int
    session: int
    version: int
    number: int
    lease_ms: int
    shares: Mapping[str, float | None]
    complete: bool
    lessees_max: int
    loans_ms: int = LOAN_MS
