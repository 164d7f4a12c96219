"""A member of a fleet: leases shares from the holder, and leases them on to its workers.

What the workers may be using together is at most the member's share. A lowered share is acknowledged to the holder
when each worker has acknowledged its part or is past its own lease; and a worker's lease and its loans end no later
than its member's. Without workers, a process uses its `Lessee` directly.
"""

from collections.abc import Collection, Iterator

from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.parts import Parts


class Member:
    """A member of a fleet: leases shares of quotas from the holder, the fleet's lessor, and leases them to its workers.

    Args:
        lessee: this member's leases from the holder.
        terms: the terms on which it leases shares to its workers.
    """

    def __init__(self, lessee: Lessee | Parts, terms: LeaseTerms, now_ms: int) -> None:
        self.lessee = lessee
        self.workers = Lessor(terms, lessee.name.run, self._capacity, now_ms, 0)
        self._now_ms = now_ms
        self._wishes: dict[str, Wish] = {}
        self._lowered: set[str] = set()  # keys whose workers may be using more than the member's share

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply the holder's grants; returns False if they are ignored, since they are not of the open session."""
        self._now_ms = now_ms
        renewed = self.lessee.loans if self.lessee.loans_lapsed else frozenset[str]()
        taken = self.lessee.take(grants, now_ms)
        if taken and (grants.complete or grants.shares or renewed):  # most grants only renew the lease
            every = grants.complete or DEFAULT_KEY in grants.shares
            self._resize(None if every else grants.shares.keys() | renewed)
        return taken

    def report(self, now_ms: int) -> Report | None:
        """Return the report to send to the holder, or None if none is due."""
        self._step(now_ms)
        return self.lessee.report(now_ms) if self.lessee.due(now_ms) else None

    def grants(self, now_ms: int) -> Iterator[tuple[LesseeId, Grants]]:
        """Yield the grants to send to the workers now."""
        self._step(now_ms)
        lessee = self.lessee
        lease_ms = lessee.lends_until_ms(now_ms) - now_ms
        yield from self.workers.grants(now_ms, lease_ms, lessee.lends_loans_ms(now_ms))

    def _step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self.lessee.expire(now_ms):
            self._resize(None)
        elif self.lessee.lapse(now_ms):
            self._resize(self.lessee.loans)
        self.workers.expire(now_ms)
        if self._lowered:
            self._lowered = {
                key for key in self._lowered if not self.workers.within(key, self._capacity(key))
            }
        if self.lessee.unconfirmed and not self._lowered:
            self.lessee.confirm()
        for key in self.workers.changed_demands():
            wish = self.workers.demand(key)
            if wish is None:
                self._wishes.pop(key, None)
            else:
                self._wishes[key] = wish
        self.lessee.wish(self._wishes)

    def _resize(self, keys: Collection[str] | None) -> None:
        """Divide these keys among the workers again; None for all keys."""
        workers = self.workers
        if keys is None:
            workers.pin({key for key in self.lessee.named if key != DEFAULT_KEY})
            keys = [DEFAULT_KEY, *workers.keys]
        else:
            for key in keys:
                workers.pin_one(key, pinned=self.lessee.has(key))
        for key in keys:
            workers.resized(key)
            self._lowered.add(key)

    def _capacity(self, key: str) -> float:
        return self.lessee.share(key, self._now_ms)
