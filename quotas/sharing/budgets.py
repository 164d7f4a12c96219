"""The shares of one process, applied to its limiters; and its demands, from limiters that made connections wait.

A limiter that makes no connection wait costs nothing here: it has the default share, or the granted one. When it makes
a connection wait, its key is *named*: the demand is the whole quota while connections wait, weighted by their number,
and twice the limiter's rate for a while afterwards.

A process begins without a burst, since its predecessor may have used it. While the shares of a named key are being
moved, or are no more than the least share, mutes are shortened: a long mute would be computed from a rate that is soon
out of date. This is done only if the limiter decides again on the connection's next request (`schedule`).
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from quotas.definitions.entities import code
from quotas.limiters.limiter import Decision, Lendable, LimiterKey
from quotas.sharing.followers import FollowerShares
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Parts

# A connection counts as waiting for this time after the end of its mute or hold: it comes back a round trip later.
WAITING_MS: Final = 1000
# A key without a connection that waits keeps its name for this time.
NAMED_MS: Final = 10_000
# While shares are being moved, and for how long a connection is muted then.
UNSETTLED_MS: Final = 3000
_UNSETTLED_MUTE_MS: Final = 250
_RATE_MS: Final = 1000  # a rate is measured over at least this time
_HEADROOM: Final = 2.0
# A number of waiting connections that differs by less than this part is not worth a message.
_WEIGHT_PART: Final = 8
_KEY_CHARACTERS_MAX: Final = 1024
_RENEWED_AT_ONCE: Final = 500  # two milliseconds' work


class Limiters(Protocol):
    """The owner of the limiters: the engine, as far as `Budgets` uses it."""

    lease_until_ms: int | None  # from then on limiters take their shares again before they are used

    def refresh(self, lease_until_ms: int | None) -> None:
        """Make every limiter read its share again before its next use, and once more when the lease ends.

        Args:
            lease_until_ms: the end of the lease; None if there is none.
        """


def budget_key(limiter_key: LimiterKey) -> str:
    """Return the key under which shares of a limiter's quota are leased, the same in every process.

    >>> from quotas.definitions.entities import BucketKey
    >>> budget_key(("producer_byte_rate", BucketKey(None, "reports"), -1))
    'producer_byte_rate@-1 -=:reports'
    """
    quota, bucket, broker = limiter_key
    text = f"{quota}@{broker} {code(bucket.user, bucket.client_id)}"
    if len(text) <= _KEY_CHARACTERS_MAX:
        return text
    return f"{quota}@{broker} #{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


class _Named:
    """A key with a demand: its limiter, and the connections that wait."""

    __slots__ = ("key", "limiter", "rate", "sample", "since_ms", "waited_ms", "waiting", "weight")

    def __init__(self, key: str, limiter: Lendable, now_ms: int) -> None:
        self.key = key
        self.limiter = limiter
        self.since_ms = self.waited_ms = now_ms
        self.waiting: dict[object, int] = {}  # connections, and when each comes back
        self.weight = 1
        self.sample = (now_ms, limiter.used())
        self.rate = 0.0  # bytes/s

    def wish(self, now_ms: int) -> Wish:
        """Return the demand; its weight stays the last one unless the number of connections has changed much."""
        since_ms = now_ms - WAITING_MS
        for one in [one for one, until_ms in self.waiting.items() if until_ms < since_ms]:
            del self.waiting[one]
        began_ms, began = self.sample
        if now_ms - began_ms >= _RATE_MS:
            total = self.limiter.used()
            self.rate = max(0, total - began) * 1000 / (now_ms - began_ms)
            self.sample = now_ms, total
        waiting = len(self.waiting)
        if abs(waiting - self.weight) >= max(1, self.weight // _WEIGHT_PART):
            self.weight = max(1, waiting)
        wanted = 1.0 if waiting else min(1.0, round(_HEADROOM * self.rate / self.limiter.limit, 2))
        return Wish(wanted, self.weight)


class Budgets:
    """Sets this process's leased shares of quotas at its limiters, and computes its demands for larger ones.

    Args:
        lessee: the shares that this process has leased.
        now_ms: when the process began; limiters start without a burst at that time, since its predecessor may have
            used it.

    Attributes:
        begins: called when a limiter first makes a connection wait, since a report to the lessor is due soon.
        followers: the shares and demands of followers' replication quotas; None without such quotas.
    """

    def __init__(self, limiters: Limiters, lessee: Lessee | Parts, now_ms: int) -> None:
        self._owner = limiters
        self._lessee = lessee
        self._began_ms = now_ms
        self._limiters: dict[str, Lendable] = {}
        self._named: dict[Lendable, _Named] = {}  # in the order in which their demands were computed
        self._wishes: dict[str, Wish] = {}
        self.followers: FollowerShares | None = None
        self.begins: Callable[[], object] = lambda: None

    @property
    def busy(self) -> bool:
        """Whether to call `report` often, since there are demands for shares, or a message for the lessor."""
        return bool(self._wishes or self.followers) or self._lessee.pending

    def begin(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Store a new limiter and set its share; its burst counts as used up when the process began."""
        key = budget_key(limiter_key)
        self._limiters[key] = limiter
        limiter.lend(self._lessee.share(key, now_ms), now_ms)
        limiter.begin_empty(self._began_ms, now_ms)

    def lend(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Set a limiter's share to the current one, after all shares or quotas have changed."""
        limiter.lend(self._lessee.share(budget_key(limiter_key), now_ms), now_ms)

    def end(self, limiter: Lendable) -> None:
        """Remove a limiter that is no longer used, and its demand for a share."""
        self._named.pop(limiter, None)
        if limiter.limiter_key is not None:
            key = budget_key(limiter.limiter_key)
            self._limiters.pop(key, None)
            self._wishes.pop(key, None)

    def waits(self, limiter: Lendable, waiting: object, decision: Decision, now_ms: int) -> Decision:
        """Register that a decision makes a connection wait: this is a demand for a larger share of the limit.

        Args:
            waiting: identifies the connection.

        Returns:
            The decision, with a shorter mute if the share may change soon.
        """
        named = self._named.get(limiter)
        if named is None:
            if limiter.limiter_key is None:
                return decision
            named = self._named[limiter] = _Named(budget_key(limiter.limiter_key), limiter, now_ms)
            self._wishes[named.key] = Wish(1.0, 1)
            self.begins()
        named.waited_ms = now_ms
        until_ms = decision.hold_until_ms
        if decision.throttle_ms:
            if decision.throttle_ms > _UNSETTLED_MUTE_MS and self._unsettled(named, now_ms):
                decision = replace(decision, throttle_ms=_UNSETTLED_MUTE_MS)
            until_ms = now_ms + decision.throttle_ms
        named.waiting[waiting] = max(until_ms, now_ms)
        return decision

    def _unsettled(self, named: _Named, now_ms: int) -> bool:
        """Whether the share may change soon, so that a mute computed from it may be shortened."""
        if not named.limiter.decides_again:
            return False
        if now_ms < named.since_ms + UNSETTLED_MS:
            return True
        # No lease, or the first moments of one: at this rate one request would take minutes.
        return self._lessee.share(named.key, now_ms) <= self._lessee.terms.least

    def live(self, now_ms: int) -> None:
        """Register that the lessor's process is running: the leased shares may be used for another LIVE_MS.

        Call it more often than that. Shares that have lapsed may then be used again.
        """
        lessee = self._lessee
        if lessee.live(now_ms):
            self._owner.refresh(lessee.usable_until_ms if lessee.leased(now_ms) else None)
            self._apply(now_ms)
        elif lessee.leased(now_ms):
            self._owner.lease_until_ms = lessee.usable_until_ms

    def leased_until_ms(self, now_ms: int) -> int | None:
        """Return until when the present shares may be used; None if no lease is in force."""
        until_ms = self._lessee.usable_until_ms if self._lessee.leased(now_ms) else now_ms
        return until_ms if until_ms > now_ms else None

    def report(self, now_ms: int) -> Report | None:
        """Return the report to send to the lessor; None if none is due. Call it several times in
        `LeaseTerms.period_ms`.
        """
        lessee = self._lessee
        if lessee.expire(now_ms):
            self._owner.refresh(self.leased_until_ms(now_ms))
            self._apply(now_ms)
        self._renew(now_ms)
        lessee.wish(self._wishes if self.followers is None else self._wishes | self.followers.wishes(now_ms))
        return lessee.report(now_ms) if lessee.due(now_ms) else None

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply the lessor's grants to the limiters.

        Returns False if the grants were ignored, because they do not belong to the open session.
        """
        lessee = self._lessee
        if not lessee.take(grants, now_ms):
            return False
        if grants.complete or DEFAULT_KEY in grants.shares:
            self._owner.refresh(lessee.usable_until_ms)
        else:
            self._owner.lease_until_ms = lessee.usable_until_ms
            for key in grants.shares:
                limiter = self._limiters.get(key)
                if limiter is not None:
                    limiter.lend(lessee.share(key, now_ms), now_ms)
        self._apply(now_ms)
        lessee.confirm()
        return True

    def _apply(self, now_ms: int) -> None:
        if self.followers is not None:
            self.followers.apply(now_ms)

    def _renew(self, now_ms: int) -> None:
        """Compute demands again, a bounded number of them, those computed longest ago first."""
        least = self._lessee.share(DEFAULT_KEY, now_ms)
        for _ in range(min(len(self._named), _RENEWED_AT_ONCE)):
            limiter = next(iter(self._named))
            named = self._named.pop(limiter)
            wish = named.wish(now_ms)
            if now_ms >= named.waited_ms + NAMED_MS and wish.wanted <= least:
                del self._wishes[named.key]
            else:
                self._wishes[named.key] = wish
                self._named[limiter] = named

    def __len__(self) -> int:
        return len(self._named)
