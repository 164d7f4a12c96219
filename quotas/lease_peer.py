"""What one process may use of followers' quotas, from the answers of the lease holder (KIP-73 over several proxies).

    no lease                    an equal share, 1/N, of the quota that this process knows
    just started, no lease      the least share, until a lease that its former life may have held is over
    a lease                     the share it says; of followers that it does not name, the least share

What is more than an equal share ends when the holder said, counted from when the request was sent. What is less holds
for a whole lease from when the answer came, even if the holder is gone: others use what is lent. So a peer that loses
the holder comes to an equal share within one lease, from below or from above, and never to no throttle.

It is told of answers and of time; who sends and waits, `proxy.leases` knows.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from quotas.lease_terms import Grant, LeaseAnswer, LeaseRequest, LeaseTerms, Wish, of_quota

__all__ = ["LeasePeer"]

GAP_MS: Final = 100  # between two requests
_NEVER_MS: Final = 1 << 62
# An answer that takes so much of an equal share is acknowledged at once: others wait for it.
_LOWERED: Final = 0.05
# So much more, or less, must be wanted before it is said out of turn.
_RISEN: Final = 1.25
_FALLEN: Final = 0.5


class LeasePeer:
    """One process's leases.

    Args:
        name: of this peer, one of `terms.peers`.
        run: which life of the process this is.

    Attributes:
        terms: what all of them have agreed on.
        holding: whether the last answer gave a lease; False before the first, and while the holder learns.
    """

    def __init__(self, terms: LeaseTerms, name: str, run: int, now_ms: int) -> None:
        self.terms = terms
        self._name = name
        self._run = run
        self._number = 0
        self._taken = 0
        self._holder: int | None = None
        self._grants: dict[int, Grant] = {}
        self._granted_ms = 0  # when the request was sent that they answer
        self._lease_until_ms = now_ms - 1
        self._starts_until_ms = now_ms + terms.lease_ms + terms.slack_ms
        self._sent_ms = now_ms - GAP_MS
        self._wished: dict[int, Wish] = {}
        self._due_ms = now_ms
        self.holding = False

    def ask(self, wishes: Sequence[Wish], now_ms: int) -> LeaseRequest:
        """Make the next request; answers to earlier ones are not taken any more."""
        self._number += 1
        self._sent_ms = now_ms
        self._due_ms = now_ms + self.terms.period_ms
        self._wished = {wish.follower: wish for wish in wishes}
        return LeaseRequest(self._name, self._run, self._number, self._taken, tuple(wishes))

    def take(self, answer: LeaseAnswer, now_ms: int) -> bool:
        """Take an answer; tell whether it is the one that was waited for."""
        if (answer.run, answer.number) != (self._run, self._number) or answer.number <= self._taken:
            return False
        if answer.learning or (answer.holder != self._holder and now_ms < self._lease_until_ms):
            # What was promised to one holder is not for another to change.
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
        """Tell whether to ask now: it is time, or more is wanted than was, or others may have some of it."""
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
        """Give the part of a follower's quota that may be used now."""
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
        """Give a follower's quota: the smaller of what is known here and what the holder has told.

        Args:
            own: as it is known here; None for unlimited.
            known: whether it is known here at all. Then, without a lease, what was told does not count.
        """
        grant = self._grants.get(follower)
        told = inf if grant is None or (known and now_ms >= self._lease_until_ms) else grant.quota
        smaller = min(told, of_quota(own))
        return None if smaller == inf else smaller

    def rate(self, follower: int, own: float | None, known: bool, now_ms: int) -> float | None:
        """Give the bytes/s of a follower that this process may let through; None for as many as there are."""
        quota = self.quota(follower, own, known, now_ms)
        return None if quota is None else quota * self.share(follower, now_ms)

    def changes_ms(self, now_ms: int) -> int:
        """Give when a share changes next, if no answer comes."""
        ends = [self._lease_until_ms, self._starts_until_ms]
        ends += [
            self._granted_ms + grant.hold_ms
            for grant in self._grants.values()
            if grant.share > self.terms.equal
        ]
        return min((end for end in ends if end > now_ms), default=_NEVER_MS)

    def left_ms(self, now_ms: int) -> int:
        """Give for how long there is a lease still; 0 without one."""
        return max(0, self._lease_until_ms - now_ms)

    def _starves(self, wish: Wish, now_ms: int) -> bool:
        """Whether less than an equal share was given, though more is wanted: others have not given it back yet."""
        return self.share(wish.follower, now_ms) < 0.99 * self.terms.equal and wish.wanted > self._rate(
            wish, now_ms
        )

    def _rate(self, wish: Wish, now_ms: int) -> float:
        quota = self.quota(wish.follower, wish.quota, wish.quota < inf, now_ms)
        return inf if quota is None else quota * self.share(wish.follower, now_ms)
