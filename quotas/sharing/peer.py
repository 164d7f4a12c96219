"""One process's shares of followers' quotas, from the lease holder's responses (KIP-73 over several proxies).

    no lease                    an equal share, 1/N, of the quota that this process knows
    just started, no lease      the least share, until a lease of its previous run must have ended
    a lease                     the leased share; for followers that it does not name, the least share

A share above the equal share ends at the holder's time, counted from when the request was sent. A smaller share holds
for a whole lease from when the response arrived, even if the holder is gone: others use the lent part. So a peer that
loses the holder returns to an equal share within one lease, from below or from above, and is never unthrottled.

Responses and times are arguments; `proxy.leases` sends and waits.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from quotas.sharing.terms import Grant, LeaseAnswer, LeaseRequest, LeaseTerms, Wish, of_quota

__all__ = ["LeasePeer"]

GAP_MS: Final = 100  # between two requests
_NEVER_MS: Final = 1 << 62
# A response that lowers a share by this part of an equal share is acknowledged at once: others wait for it.
_LOWERED: Final = 0.05
# The factors by which a wish must change for a request before the period is over.
_RISEN: Final = 1.25
_FALLEN: Final = 0.5


class LeasePeer:
    """One process's leases.

    Args:
        name: of this peer, one of `terms.peers`.
        run: identifies this run of the process.

    Attributes:
        terms: the configuration common to all peers.
        holding: whether the last response gave a lease; False before the first one, and while the holder learns.
    """

    def __init__(self, terms: LeaseTerms, name: str, run: int, now_ms: int) -> None:
        self.terms = terms
        self._name = name
        self._run = run
        self._number = 0
        self._taken = 0
        self._holder: int | None = None
        self._grants: dict[int, Grant] = {}
        self._granted_ms = 0  # when the request for these grants was sent
        self._lease_until_ms = now_ms - 1
        self._starts_until_ms = now_ms + terms.lease_ms + terms.slack_ms
        self._sent_ms = now_ms - GAP_MS
        self._wished: dict[int, Wish] = {}
        self._due_ms = now_ms
        self.holding = False

    def ask(self, wishes: Sequence[Wish], now_ms: int) -> LeaseRequest:
        """Create the next request; responses to earlier ones are ignored from now on."""
        self._number += 1
        self._sent_ms = now_ms
        self._due_ms = now_ms + self.terms.period_ms
        self._wished = {wish.follower: wish for wish in wishes}
        return LeaseRequest(self._name, self._run, self._number, self._taken, tuple(wishes))

    def take(self, answer: LeaseAnswer, now_ms: int) -> bool:
        """Apply a response; returns whether it is the one to the last request."""
        if (answer.run, answer.number) != (self._run, self._number) or answer.number <= self._taken:
            return False
        if answer.learning or (answer.holder != self._holder and now_ms < self._lease_until_ms):
            # A promise to one holder cannot be changed by another.
            self.holding = False
            return True
        before = {follower: self.share(follower, now_ms) for follower in {*self._grants, *self._wished}}
        self._holder, self._taken, self._granted_ms = answer.holder, answer.number, self._sent_ms
        self._grants = {grant.follower: grant for grant in answer.grants}
        begins = self._lease_until_ms <= now_ms
        self._lease_until_ms = now_ms + self.terms.lease_ms
        self.holding = True
        gap = self.terms.equal * _LOWERED
        if begins or any(share - self.share(follower, now_ms) > gap for follower, share in before.items()):
            self._due_ms = self._sent_ms + GAP_MS
        elif any(self._starves(wish, now_ms) for wish in self._wished.values()):
            self._due_ms = self._sent_ms + max(GAP_MS, self.terms.period_ms // 5)
        return True

    def due(self, wishes: Sequence[Wish], now_ms: int) -> bool:
        """Whether to send a request now: the period is over, or wishes have grown, or a part can be released."""
        if now_ms >= self._due_ms:
            return True
        if now_ms < self._sent_ms + GAP_MS:
            return False
        for wish in wishes:
            wished = self._wished.get(wish.follower)
            before = 0.0 if wished is None else wished.wanted
            if wish.wanted > before * _RISEN and wish.wanted > self._rate(wish, now_ms):
                return True
        wanted = {wish.follower: wish.wanted for wish in wishes}
        return any(
            wanted.get(follower, 0.0) < wished.wanted * _FALLEN
            and self.share(follower, now_ms) > self.terms.least
            for follower, wished in self._wished.items()
        )

    def share(self, follower: int, now_ms: int) -> float:
        """Return the share of a follower's quota that may be used now, 0 to 1."""
        terms = self.terms
        if now_ms >= self._lease_until_ms:
            return terms.least if now_ms < self._starts_until_ms else terms.equal
        grant = self._grants.get(follower)
        if grant is None:
            return terms.least
        if grant.share > terms.equal and now_ms >= self._granted_ms + grant.hold_ms:
            return terms.equal
        return grant.share

    def quota(self, follower: int, own: float | None, known: bool, now_ms: int) -> float | None:
        """Return a follower's quota: the smaller of this process's and the holder's.

        Args:
            own: the quota as this process knows it; None for unlimited.
            known: whether this process knows it. If so, the holder's does not count without a lease.
        """
        grant = self._grants.get(follower)
        told = inf if grant is None or (known and now_ms >= self._lease_until_ms) else grant.quota
        smaller = min(told, of_quota(own))
        return None if smaller == inf else smaller

    def rate(self, follower: int, own: float | None, known: bool, now_ms: int) -> float | None:
        """Return a follower's limit at this process in bytes/s; None for unlimited."""
        quota = self.quota(follower, own, known, now_ms)
        return None if quota is None else quota * self.share(follower, now_ms)

    def changes_ms(self, now_ms: int) -> int:
        """Return the next time at which a share changes without a response."""
        ends = [self._lease_until_ms, self._starts_until_ms]
        ends += [
            self._granted_ms + grant.hold_ms
            for grant in self._grants.values()
            if grant.share > self.terms.equal
        ]
        return min((end for end in ends if end > now_ms), default=_NEVER_MS)

    def left_ms(self, now_ms: int) -> int:
        """Return the remaining time of the lease; 0 without one."""
        return max(0, self._lease_until_ms - now_ms)

    def _starves(self, wish: Wish, now_ms: int) -> bool:
        """Whether the share is below the equal share although more is wanted: others have not returned it yet."""
        return self.share(wish.follower, now_ms) < 0.99 * self.terms.equal and wish.wanted > self._rate(
            wish, now_ms
        )

    def _rate(self, wish: Wish, now_ms: int) -> float:
        quota = self.quota(wish.follower, wish.quota, wish.quota < inf, now_ms)
        return inf if quota is None else quota * self.share(wish.follower, now_ms)
