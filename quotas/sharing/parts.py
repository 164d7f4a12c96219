"""The parts of a fleet's keys: each part has a lessor of its own, so that no member leases the shares of all keys.

A fleet's keys are divided into a fixed number of parts, the same in all members. The lessor of a part is one member
(`proxy.fleet.election`), and a member has one `Lessee` for each part. Each part by itself is the protocol of `lessor`
and `lessee`: sessions, leases, learning and rosters of different parts have nothing to do with each other. So a key is
never shared more than once, as long as all members agree on the number of parts, which the Kafka group ensures.

A capacity is divided by one lessor among all its classes: their loans belong to the part of the capacity, and their
rates to parts of their own. Where more is promised than there is, the lessor of the capacity tells all members by which
factor the rates shrink, and each member uses it for the rates that it leases to others itself (`capacities`).

`Parts` is what the rest of a process sees in place of one `Lessee`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol
from zlib import crc32

from quotas.definitions.kinds import capacity_key
from quotas.sharing.lease_values import (
    DEFAULT_KEY,
    Grants,
    LeaseTerms,
    LesseeId,
    Report,
    Wish,
    is_factor,
    is_loan,
    loan_key,
    quota_key_of,
    rate_key,
)
from quotas.sharing.lessee import Lessee

PARTS_MAX: Final = 64
_STEP_MS: Final = 50  # the demands of all parts are computed together, at most so often


def part_of(key: str, parts: int) -> int:
    """Return the number of the part to which a key belongs; a loan belongs to the part of its capacity.

    >>> part_of("producer_byte_rate@-1 -=:a", 1), part_of("producer_byte_rate@-1 -=:a", 64)
    (0, 24)
    >>> part_of("+producer_byte_rate@-1 -=:a", 64) == part_of_capacity("producer_byte_rate", 64)
    True
    """
    if is_loan(key):
        return part_of_capacity(capacity_key(quota_key_of(rate_key(key))), parts)
    return _hashed(key, parts)


def part_of_capacity(quota_key: str, parts: int) -> int:
    """Return the number of the part whose lessor divides the capacities with this quota key, of all brokers.

    A capacity of the cluster may have classes at each broker, so those of one direction are not in several parts.
    """
    return _hashed(loan_key(quota_key), parts)


def _hashed(key: str, parts: int) -> int:
    return crc32(key.encode("utf-8", "surrogatepass")) % parts


class Leasing(Protocol):
    """A member's use of its lease: the shares of the quotas in this process, and in its workers if it has any.

    With workers it is implemented by `quotas.sharing.member.Member`, without by `quotas.sharing.budgets.Budgets`.
    """

    def report(self, now_ms: int) -> Report | None:
        """End the lease if its time is over; return the report to send to the holder now, None if none is due."""

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply the holder's grants; return False if they do not belong to the open session, and were not applied."""


class Parts:
    """One process's leases of all parts: a `Lessee` for each part; has the methods of one `Lessee`.

    Args:
        lessees: of each part, all with the same name and terms.

    Attributes:
        lessees: the same.
        turn: the part whose report or grants are being handled (`PartLeasing`).
        told: the factors of the capacities of each part.
    """

    def __init__(self, lessees: Sequence[Lessee]) -> None:
        self.lessees = lessees
        self.told: list[dict[str, float]] = [{} for _ in lessees]
        self.turn = 0
        self.stepped_ms = -_STEP_MS
        self._now_ms = -1
        self._wishes: dict[str, Wish] = {}

    @property
    def name(self) -> LesseeId:
        """Identifies this process, from its start to its end."""
        return self.lessees[0].name

    @property
    def terms(self) -> LeaseTerms:
        """The terms of the leases, which are the same for all parts."""
        return self.lessees[0].terms

    @terms.setter
    def terms(self, terms: LeaseTerms) -> None:
        for lessee in self.lessees:
            lessee.terms = terms

    @property
    def until_ms(self) -> int:
        """The time at which the first lease ends, of those that were in force when last looked; -1 without any."""
        return min((one.until_ms for one in self.lessees if one.until_ms > self._now_ms), default=-1)

    @property
    def usable_until_ms(self) -> int:
        """The time until which no share need be read again: the earliest of the parts with a lease."""
        return min((one.usable_until_ms for one in self.lessees if one.until_ms > self._now_ms), default=-1)

    def live(self, now_ms: int) -> bool:
        """Register that the lessors' process runs (`Lessee.live`)."""
        lapsed = [lessee.live(now_ms) for lessee in self.lessees]  # of each
        return any(lapsed)

    @property
    def unconfirmed(self) -> bool:
        """Whether grants of any part were taken that `confirm` has not acknowledged yet."""
        return any(lessee.unconfirmed for lessee in self.lessees)

    @property
    def pending(self) -> bool:
        """Whether a report of any part should be sent before its period is over."""
        return any(lessee.pending for lessee in self.lessees)

    def leased(self, now_ms: int) -> bool:
        """Whether the lease of any part is in force."""
        self._now_ms = now_ms
        return any(lessee.leased(now_ms) for lessee in self.lessees)

    def cut_off(self, now_ms: int) -> bool:
        """Whether the lease of any part has ended, so that other processes may use this one's shares of it."""
        return any(lessee.cut_off(now_ms) for lessee in self.lessees)

    def share(self, key: str, now_ms: int) -> float:
        """Return the share (0 to 1) of the quota with this key that may be used now.

        Of DEFAULT_KEY the smallest of all parts, since it stands for keys of any part.
        """
        if key == DEFAULT_KEY:
            return min(lessee.share(key, now_ms) for lessee in self.lessees)
        return self.lessees[part_of(key, len(self.lessees))].share(key, now_ms)

    def lends_until_ms(self, now_ms: int) -> int:
        """Return when what this process leases on now has to end: with the first lease of any part, or the first that
        may be next where there is none (`Lessee.lends_until_ms`).
        """
        return min(lessee.lends_until_ms(now_ms) for lessee in self.lessees)

    def lends_loans_ms(self, now_ms: int) -> int:
        """Return for how many ms processes below may use loans: until those of any part end (`Lessee`)."""
        return min((one.lends_loans_ms(now_ms) for one in self.lessees if one.loans), default=0)

    def has(self, key: str) -> bool:
        """Whether a share of this key was granted, and not only the default share."""
        return self.lessees[part_of(key, len(self.lessees))].has(key)

    def lapse(self, now_ms: int) -> bool:
        """End the loans of which no grants have come (`Lessee.lapse`); returns whether any has ended now."""
        lapsed = [lessee.lapse(now_ms) for lessee in self.lessees]  # of each
        return any(lapsed)

    @property
    def loans(self) -> frozenset[str]:
        """The loan keys of which this process has a share."""
        return frozenset[str]().union(*(lessee.loans for lessee in self.lessees))

    @property
    def loans_lapsed(self) -> bool:
        """Whether loans have ended that the next grants of the part whose turn it is renew."""
        return self.lessees[self.turn].loans_lapsed

    def factors(self, now_ms: int) -> dict[str, float]:
        """Return the factors of all capacities, as told by lessors whose lease is in force; others are 1."""
        found: dict[str, float] = {}
        for lessee, told in zip(self.lessees, self.told, strict=True):
            if told and lessee.leased(now_ms):
                found |= told
        return found

    @property
    def named(self) -> Iterable[str]:
        """The keys (quotas) of which a share of their own was granted, and the default key."""
        return {key for lessee in self.lessees for key in lessee.named}

    def wish(self, wishes: Mapping[str, Wish]) -> None:
        """Replace this process's demands; each goes to the lessor of its part."""
        if wishes == self._wishes:
            return
        self._wishes = dict(wishes)
        count = len(self.lessees)
        divided: list[dict[str, Wish]] = [{} for _ in range(count)]
        for key, wish in wishes.items():
            divided[part_of(key, count)][key] = wish
        for lessee, own in zip(self.lessees, divided, strict=True):
            lessee.wish(own)

    def due(self, now_ms: int) -> bool:
        """Whether to send a report now, of the part whose turn it is."""
        return self.lessees[self.turn].due(now_ms)

    def report(self, now_ms: int) -> Report:
        """Create the next report of the part whose turn it is."""
        return self.lessees[self.turn].report(now_ms)

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Take the grants of the part whose turn it is; returns False if they were ignored."""
        self._now_ms = now_ms
        return self.lessees[self.turn].take(grants, now_ms)

    def confirm(self) -> None:
        """Register that all shares taken so far are in force here and in all workers."""
        for lessee in self.lessees:
            if lessee.unconfirmed:
                lessee.confirm()

    def expire(self, now_ms: int) -> bool:
        """End the sessions and drop the shares of parts whose lease has ended; returns whether that happened now."""
        self._now_ms = now_ms
        expired = [lessee.expire(now_ms) for lessee in self.lessees]  # of each
        return any(expired)


class PartLeasing:
    """The leases of one part, for the connection to its lessor.

    Args:
        leasing: the process's use of the leases of all parts; it uses `parts` as its lessee.
        part: the number of the part.
    """

    def __init__(self, parts: Parts, leasing: Leasing, part: int) -> None:
        self._parts = parts
        self._leasing = leasing
        self._part = part

    def report(self, now_ms: int) -> Report | None:
        """Return the report of this part to send to its lessor now; None if none is due."""
        parts, lessee = self._parts, self._parts.lessees[self._part]
        report = None
        if now_ms >= parts.stepped_ms + _STEP_MS or not lessee.leased(now_ms):
            parts.stepped_ms, parts.turn = now_ms, self._part
            report = self._leasing.report(now_ms)
        elif lessee.due(now_ms):
            report = lessee.report(now_ms)
        told = parts.told[self._part]
        if report is not None and told and not report.session and lessee.leased(now_ms):
            # A lessor that begins tells them on, until it has divided the capacity itself.
            return report._replace(held={**report.held, **told})
        return report

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply the grants of this part's lessor; return False if they were ignored."""
        parts = self._parts
        parts.turn = self._part
        factors = {key: factor for key, factor in grants.shares.items() if is_factor(key)}
        if factors:
            shares = {key: share for key, share in grants.shares.items() if key not in factors}
            grants = grants._replace(shares=shares)
        if not self._leasing.take(grants, now_ms):
            return False
        if factors or grants.complete:
            told = {} if grants.complete else parts.told[self._part]
            parts.told[self._part] = {
                key: factor for key, factor in (told | factors).items() if factor is not None
            }
        return True
