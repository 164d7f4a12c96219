"""Who may use which share of a follower's quota, at the process that holds the leases (KIP-73 over several proxies).

Whoever has no lease uses an equal share, 1/N, and nobody can take that away: so peers that hear nothing may be left
alone, and what they do not use is lost. All the rest follows from it:

- A peer *lends* when its lease is less than 1/N. It has promised to stay below until its lease ends, and the promise
  counts once its next request says that the answer was taken, from when the answer was *sent*.
- A peer *borrows* when its lease is more than 1/N. It counts from when it sent its request, and what it has borrowed
  ends before the first of the lenders' promises does.
- Only what nobody else may be using is given: of an answer that was sent and of the one before it, the larger counts,
  until the peer says which of the two it goes by.

So at every moment the shares in use add up to 1 at most, whichever messages are lost, delayed or repeated, and whoever
stops or starts again; that two clocks differ is what `slack_ms` is for. Shares are chosen by water filling over what
is wanted. A peer that was not heard of before learns for one lease that it has none: it may have promised something to
the holder before this one, and not know.

The book holds one record a peer, of two answers each; both are bounded (`lease_terms`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from quotas.errors import QuotaError
from quotas.lease_terms import (
    FOLLOWERS_MAX,
    Grant,
    LeaseAnswer,
    LeaseRequest,
    LeaseTerms,
    Wish,
    fill,
    of_quota,
)

__all__ = ["LeaseBook", "LeaseRefusedError"]

_RUNS_KEPT: Final = 8
_ROUNDING: Final = 1e-9


class LeaseRefusedError(QuotaError):
    """A request that gets no lease.

    Args:
        cause: one word, for a counter.
        problem: a sentence, for whoever set up the peer.
    """

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Said:
    """An answer: what its peer may be using if it goes by it."""

    number: int
    lends_until_ms: int  # the first moment at which what is not used may be used again
    grants: Mapping[int, Grant]
    sent_ms: int

    def share(self, follower: int, others: float, terms: LeaseTerms, now_ms: int) -> float:
        """The most that the peer uses of a follower's quota now; `others`: of those that the answer does not name."""
        grant = self.grants.get(follower)
        if grant is None:
            return others
        share, equal = grant.share, terms.equal
        if share > equal:
            return share if now_ms < self.sent_ms + grant.hold_ms + terms.slack_ms else equal
        return share if now_ms < self.lends_until_ms else equal

    def others(self, terms: LeaseTerms, now_ms: int) -> float:
        """The most that it uses of each follower's quota that the answer does not name."""
        return terms.least if now_ms < self.lends_until_ms else terms.equal


_NOTHING: Final = _Said(0, -(1 << 60), {}, 0)


@dataclass(slots=True)
class _Peer:
    """What is known of one peer.

    Attributes:
        taken: the answer that it has said to go by.
        sent: a later one, that it may go by.
    """

    run: int
    first_ms: int
    last_ms: int
    number: int = 0
    taken: _Said = _NOTHING
    sent: _Said | None = None
    wishes: dict[int, Wish] = field(default_factory=dict)
    runs: list[int] = field(default_factory=list)

    def lends_until_ms(self) -> int:
        until_ms = self.taken.lends_until_ms
        return until_ms if self.sent is None else min(until_ms, self.sent.lends_until_ms)


class LeaseBook:
    """The shares of all followers' quotas.

    Args:
        run: which life of the holder this is.
    """

    def __init__(self, terms: LeaseTerms, run: int) -> None:
        self._terms = terms
        self._run = run
        self._peers: dict[str, _Peer] = {}

    def answer(
        self, request: LeaseRequest, quota_of: Callable[[int], float | None], now_ms: int
    ) -> LeaseAnswer:
        """Answer a peer.

        Args:
            quota_of: a follower's quota as the holder itself knows it.

        Raises:
            LeaseRefusedError: it is nobody's, somebody else's, or an old one.
        """
        peer = self._admit(request, now_ms)
        peer.last_ms, peer.number = now_ms, request.number
        peer.wishes = {wish.follower: wish for wish in request.wishes[:FOLLOWERS_MAX]}
        terms = self._terms
        if now_ms < peer.first_ms + terms.lease_ms + terms.slack_ms:
            return LeaseAnswer(request.run, request.number, self._run, True, ())
        others = [_Other.of(each, terms, now_ms) for each in self._peers.values() if each is not peer]
        grants = [
            Grant(follower, quota, *self._give(peer.wishes[follower], others, quota, now_ms))
            for follower in peer.wishes
            if (quota := self._quota(follower, of_quota(quota_of(follower)), now_ms)) < inf
        ]
        lends_until_ms = now_ms + terms.lease_ms - terms.slack_ms
        peer.sent = _Said(request.number, lends_until_ms, {grant.follower: grant for grant in grants}, now_ms)
        return LeaseAnswer(request.run, request.number, self._run, False, tuple(grants))

    def present(self, now_ms: int) -> int:
        """Count the peers that were heard of within a lease."""
        return sum(now_ms < peer.last_ms + self._terms.lease_ms for peer in self._peers.values())

    def _admit(self, request: LeaseRequest, now_ms: int) -> _Peer:
        name = request.name
        if name not in self._terms.peers:
            raise LeaseRefusedError("unknown", f"{name[:80]!r} is not one of the holder's leases.peers")
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = _Peer(request.run, now_ms, now_ms)
        elif request.run in peer.runs:
            raise LeaseRefusedError("twice", f"another process has begun to use the name {name!r}")
        elif request.run != peer.run:
            self._begin_again(peer, request.run)
        elif request.number <= peer.number:
            raise LeaseRefusedError("order", f"request {request.number} comes after {peer.number}")
        if peer.sent is not None and request.taken == peer.sent.number:
            peer.taken = peer.sent
        elif request.taken != peer.taken.number:
            peer.taken = _NOTHING  # it went by another holder's, and only after our promises were over
        peer.sent = None
        return peer

    def _begin_again(self, peer: _Peer, run: int) -> None:
        """Its process was started anew: it uses the least share until all that it may have promised is over."""
        peer.runs = [*peer.runs[-_RUNS_KEPT + 1 :], peer.run]
        peer.run, peer.number, peer.sent = run, 0, None
        peer.taken = _Said(0, peer.taken.lends_until_ms, {}, peer.taken.sent_ms)

    def _quota(self, follower: int, own: float, now_ms: int) -> float:
        """The smallest that anybody knows."""
        since_ms = now_ms - self._terms.lease_ms
        for peer in self._peers.values():
            wish = peer.wishes.get(follower)
            if wish is not None and wish.quota < own and peer.last_ms > since_ms:
                own = wish.quota
        return own

    def _give(self, wish: Wish, others: list["_Other"], quota: float, now_ms: int) -> tuple[float, int]:
        """Choose a share, and for how long it holds."""
        terms, follower = self._terms, wish.follower
        equal = terms.equal
        silent = (len(terms.peers) - 1 - len(others)) * equal
        used = silent
        ends_ms = now_ms + terms.lease_ms
        capacity = 1.0 - silent
        demands = [_demand(wish, quota, terms)]
        for other in others:
            share = other.share(follower, terms, now_ms)
            used += share
            if share < equal:
                ends_ms = min(ends_ms, other.lends_until_ms)
            if other.lends:
                demands.append(_demand(other.wishes.get(follower), quota, terms))
            else:
                capacity -= equal
        target = fill(demands, capacity)[0]
        # Never less than the least: it is part of what this peer itself was counted with.
        share = max(terms.least, min(target, 1.0 - used))
        if abs(share - equal) < _ROUNDING or (share > equal and ends_ms <= now_ms):
            share = equal  # what is not borrowed needs nobody's promise
        return share, max(0, ends_ms - now_ms)


class _Other(NamedTuple):
    """Another peer than the one that is answered, as it is at this moment.

    Args:
        lends: whether it has promised anything that still holds, so that its wishes are weighed.
        taken, taken_others: the answer that it goes by, and what that means for followers it does not name.
    """

    wishes: Mapping[int, Wish]
    lends_until_ms: int
    lends: bool
    taken: _Said
    taken_others: float
    sent: _Said | None
    sent_others: float

    @classmethod
    def of(cls, peer: _Peer, terms: LeaseTerms, now_ms: int) -> "_Other":
        until_ms = peer.lends_until_ms()
        taken, sent = peer.taken, peer.sent
        sent_others = 0.0 if sent is None else sent.others(terms, now_ms)
        others = taken.others(terms, now_ms)
        return cls(peer.wishes, until_ms, now_ms < until_ms, taken, others, sent, sent_others)

    def share(self, follower: int, terms: LeaseTerms, now_ms: int) -> float:
        """The larger of what it may use by either answer."""
        share = self.taken.share(follower, self.taken_others, terms, now_ms)
        if self.sent is None:
            return share
        return max(share, self.sent.share(follower, self.sent_others, terms, now_ms))


def _demand(wish: Wish | None, quota: float, terms: LeaseTerms) -> float:
    if wish is None:
        return terms.least
    return max(terms.least, min(1.0, wish.wanted / quota if quota > 0 else 1.0))
