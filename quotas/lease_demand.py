"""How much of each follower's quota this process could use: what came lately, and whether more was held back.

A peer that is held back, and does use what it has, wants the whole quota; the lease holder shares it out fairly. One
that is not wants half as much again as came: so what its leader can not send is free for others, and it still finds
room when it sends more. Held back is who was granted less than it asked for; that alone says little, since a follower
asks for more than there is, so what came is looked at too (`_USED`).
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from quotas.lease_terms import FOLLOWERS_MAX, LeaseTerms, Wish, of_quota

__all__ = ["Demands", "Followed"]

_WINDOW_MS: Final = 1000
_SAMPLE_MS: Final = 100
_HEADROOM: Final = 1.5
_USED: Final = 0.5
# A wish for everything holds so long: until what came of a larger share can be measured.
_INSISTS_MS: Final = 2 * _WINDOW_MS


class Measured(Protocol):
    """A follower's rate (`quotas.replication_rate`), as far as demand goes by it."""

    limit: float | None
    total: int
    held_ms: int


class Followed(NamedTuple):
    """A follower, as this process knows it.

    Args:
        own: its quota by this process's own knowledge; None for unlimited.
        quota: the one that counts, since the lease holder may know of a smaller one.
        rate: None where nothing was fetched yet.
    """

    follower: int
    own: float | None
    quota: float | None
    rate: Measured | None


class Demands:
    """Looks at the rates now and then, and says what they want."""

    def __init__(self, terms: LeaseTerms) -> None:
        self._terms = terms
        self._samples: dict[int, deque[tuple[int, int]]] = {}
        self._insists_until_ms: dict[int, int] = {}

    def wishes(self, followers: Iterable[Followed], now_ms: int) -> list[Wish]:
        """Give the wishes of all followers, the greediest first."""
        found = [
            Wish(
                followed.follower,
                of_quota(followed.own),
                0.0 if followed.rate is None else self._wanted(followed, followed.rate, now_ms),
            )
            for followed in followers
        ]
        found.sort(key=lambda wish: -wish.wanted)
        return found[:FOLLOWERS_MAX]

    def _wanted(self, followed: Followed, rate: Measured, now_ms: int) -> float:
        follower, quota = followed.follower, followed.quota
        came = self._per_second(follower, rate.total, now_ms)
        if quota is None or rate.limit is None:
            return came * _HEADROOM
        held = now_ms - rate.held_ms < _WINDOW_MS
        if held and (rate.limit <= quota * self._terms.equal or came >= rate.limit * _USED):
            self._insists_until_ms[follower] = now_ms + _INSISTS_MS
        if now_ms < self._insists_until_ms.get(follower, now_ms):
            return quota
        return min(quota, came * _HEADROOM)

    def _per_second(self, follower: int, total: int, now_ms: int) -> float:
        samples = self._samples.setdefault(follower, deque([(now_ms, total)]))
        if now_ms >= samples[-1][0] + _SAMPLE_MS:
            samples.append((now_ms, total))
        while len(samples) > 1 and samples[1][0] <= now_ms - _WINDOW_MS:
            samples.popleft()
        since_ms, before = samples[0]
        return max(0, total - before) * 1000 / max(now_ms - since_ms, _WINDOW_MS)
