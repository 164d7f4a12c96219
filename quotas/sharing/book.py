"""The lease holder's book: which peer may use which share of a follower's quota (KIP-73 over several proxies).

A peer without a lease uses an equal share, 1/N, which no other peer can get: so unreachable peers need no action, and
their unused part is lost. The rest follows:

- A peer *lends* if its lease is below 1/N. It promises to stay below until its lease ends. The promise counts from when
  the response was *sent*, once the peer's next request confirms that the response was taken.
- A peer *borrows* if its lease is above 1/N. The lease counts from when the peer sent its request, and ends before the
  first of the lenders' promises does.
- Only shares that no other peer may be using are granted: of the last two responses to a peer the larger share counts,
  until the peer confirms which of them is in force.

So at every moment the shares in use add up to at most 1, whichever messages are lost, delayed or repeated, and
whichever processes stop or restart; `slack_ms` covers differences of clocks. Shares are chosen by water filling over
the demands. A peer that is new to this holder gets no lease for the time of one lease: it may have promised something
to the previous holder, which this one does not know.

The book has one record for each peer, with two responses each; both are bounded (`terms`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from quotas.errors import QuotaError
from quotas.sharing.terms import (
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
    """A request is refused.

    Args:
        cause: one word, for a counter.
        problem: a sentence for the peer's operator.
    """

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Said:
    """A response, and the shares that its peer may be using with it in force."""

    number: int
    lends_until_ms: int  # the first moment at which what is not used may be used again
    grants: Mapping[int, Grant]
    sent_ms: int

    def share(self, follower: int, others: float, terms: LeaseTerms, now_ms: int) -> float:
        """The largest share of a follower that the peer uses now; `others`: the share of followers without a grant."""
        grant = self.grants.get(follower)
        if grant is None:
            return others
        share, equal = grant.share, terms.equal
        if share > equal:
            return share if now_ms < self.sent_ms + grant.hold_ms + terms.slack_ms else equal
        return share if now_ms < self.lends_until_ms else equal

    def others(self, terms: LeaseTerms, now_ms: int) -> float:
        """The largest share that the peer uses of each follower without a grant."""
        return terms.least if now_ms < self.lends_until_ms else terms.equal


_NOTHING: Final = _Said(0, -(1 << 60), {}, 0)


@dataclass(slots=True)
class _Peer:
    """The record of one peer.

    Attributes:
        taken: the response that the peer has confirmed.
        sent: a later response, which may be in force.
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
        run: identifies this run of the holder.
    """

    def __init__(self, terms: LeaseTerms, run: int) -> None:
        self._terms = terms
        self._run = run
        self._peers: dict[str, _Peer] = {}

    def answer(
        self, request: LeaseRequest, quota_of: Callable[[int], float | None], now_ms: int
    ) -> LeaseAnswer:
        """Respond to a peer's request.

        Args:
            quota_of: returns a follower's quota as the holder knows it.

        Raises:
            LeaseRefusedError: an unknown peer, another process under the same name, or an old request.
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
        """Return the number of peers with a request within the time of one lease."""
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
            peer.taken = (
                _NOTHING  # another holder's lease is in force, taken after the promises to this one had ended
            )
        peer.sent = None
        return peer

    def _begin_again(self, peer: _Peer, run: int) -> None:
        """Register a restart of the peer: it uses the least share until all its possible promises have ended."""
        peer.runs = [*peer.runs[-_RUNS_KEPT + 1 :], peer.run]
        peer.run, peer.number, peer.sent = run, 0, None
        peer.taken = _Said(0, peer.taken.lends_until_ms, {}, peer.taken.sent_ms)

    def _quota(self, follower: int, own: float, now_ms: int) -> float:
        """The smallest quota that any peer knows."""
        since_ms = now_ms - self._terms.lease_ms
        for peer in self._peers.values():
            wish = peer.wishes.get(follower)
            if wish is not None and wish.quota < own and peer.last_ms > since_ms:
                own = wish.quota
        return own

    def _give(self, wish: Wish, others: list["_Other"], quota: float, now_ms: int) -> tuple[float, int]:
        """Choose a share and its duration in ms."""
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
        # Never below the least share, which was counted for this peer.
        share = max(terms.least, min(target, 1.0 - used))
        if abs(share - equal) < _ROUNDING or (share > equal and ends_ms <= now_ms):
            share = equal  # a share that is not borrowed needs no promise of a lender
        return share, max(0, ends_ms - now_ms)


class _Other(NamedTuple):
    """Another peer than the requesting one, at this moment.

    Args:
        lends: whether a promise of it still holds, so that its wishes count.
        taken, taken_others: the confirmed response, and the share of followers without a grant in it.
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
        """The larger share of the two responses."""
        share = self.taken.share(follower, self.taken_others, terms, now_ms)
        if self.sent is None:
            return share
        return max(share, self.sent.share(follower, self.sent_others, terms, now_ms))


def _demand(wish: Wish | None, quota: float, terms: LeaseTerms) -> float:
    if wish is None:
        return terms.least
    return max(terms.least, min(1.0, wish.wanted / quota if quota > 0 else 1.0))
