"""The shares of one process, applied to its limiters; and its demands, from limiters that made connections wait.

A limiter that makes no connection wait costs nothing here: it has the default share, or the granted one. When it makes
a connection wait, its key is *named*: the demand is the whole quota while connections wait, weighted by their number,
and twice the limiter's rate for a while afterwards.

A limiter of a class that shares a capacity (`capacities`) is measured from its first byte on, since what it uses is
taken from what others may borrow; its demand is that of its loan key. While a class may get more at any moment, its
mutes are short.

A process begins without a burst, since its predecessor may have used it. While the shares of a named key are being
moved, or are no more than the least share, mutes are shortened: a long mute would be computed from a rate that is soon
out of date. This is done only if the limiter decides again on the connection's next request (`schedule`).
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, cast

from quotas.definitions.classes import NEWCOMERS, REPLICATION_BUCKET
from quotas.definitions.entities import BucketKey, code, entity_of
from quotas.definitions.kinds import REPLICATION_KEYS, capacity_key
from quotas.limiters.limiter import Borrowing, Decision, Lendable, LimiterKey
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, Report, Wish, is_loan, loan_key, rate_key
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Parts
from quotas.sharing.replication import ReplicationShares
from quotas.sharing.uses import BACK_MS, Use

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
# Every client id that is counted by itself fits (`engine.CLIENT_ID_CHARACTERS_MAX`), with a user of some length: of a
# class without its names the terms are not known (`capacities`).
_KEY_CHARACTERS_MAX: Final = 2048
_RENEWED_AT_ONCE: Final = 500  # two milliseconds' work
# By how much the sum of the rates promised here has to change before all limiters take their shares again.
_PROMISED_STEP: Final = 1.25


class Limiters(Protocol):
    """The owner of the limiters: the engine, as far as `Budgets` uses it."""

    lease_until_ms: int | None  # from then on limiters take their shares again before they are used

    def names(self, limiter_key: LimiterKey) -> bool:
        """Whether an entry is about exactly the clients of this limiter; names below a default are without a bound."""

    def admit_newcomers(self, now_ms: int) -> None:
        """Give new names that have sent something a limiter of their own."""

    def forget_newcomers(self, limiter: Borrowing, limiter_key: LimiterKey, now_ms: int) -> None:
        """Remove the limiter of new names, of which none is left, if another one would begin in the same state."""

    def capacity(self, limiter_key: LimiterKey) -> float:
        """Return the capacity in bytes/s that a limiter's class shares; 0 if none is stated."""

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
    text = f"{quota}@{broker} {code(bucket.user, bucket.client_id, group=bucket.group)}"
    if len(text) <= _KEY_CHARACTERS_MAX:
        return text
    return f"{quota}@{broker} #{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def limiter_key_of(key: str) -> tuple[str, BucketKey | None, int]:
    """Return the limiter key that `budget_key` has made a key of; its bucket is None if the names were too long.

    A rate of replication (`replication_key`) has the bucket REPLICATION_BUCKET.

    >>> limiter_key_of("producer_byte_rate@-1 -=:reports")
    ('producer_byte_rate', BucketKey(user=None, client_id='reports', group=None), -1)
    """
    place, _, names = key.partition(" ")
    if place in REPLICATION_KEYS:
        return place, REPLICATION_BUCKET, int(names)
    quota, _, broker = place.rpartition("@")
    if names.startswith("#"):
        return quota, None, int(broker)
    entity = entity_of(names)
    return quota, BucketKey(_text(entity.user), _text(entity.client_id), entity.group), int(broker)


def _text(name: object) -> str | None:
    return name if isinstance(name, str) else None


class _Named:
    """A key with a demand: its limiter, and the connections that wait."""

    __slots__ = (
        "key",
        "limiter",
        "rate",
        "returning",
        "sample",
        "since_ms",
        "waited_ms",
        "waiting",
        "weight",
    )

    def __init__(self, key: str, limiter: Lendable, now_ms: int) -> None:
        self.key = key
        self.limiter = limiter
        self.since_ms = self.waited_ms = now_ms
        self.waiting: dict[object, int] = {}  # connections, and when each comes back
        self.returning: dict[object, int] = {}  # those of them that are known to have more to send
        self.weight = 1
        self.sample = (now_ms, limiter.used())
        self.rate = 0.0  # bytes/s

    def waits(self, waiting: object, until_ms: int, now_ms: int, *, held: bool) -> None:
        """Register that a connection waits.

        A connection that is muted after its request may have nothing more to send. It has if it is held, or was back
        soon after its last mute: a consumer that is far away needs a round trip more, and is never held.
        """
        before_ms = self.waiting.get(waiting)
        if held or (before_ms is not None and now_ms <= before_ms + WAITING_MS):
            self.returning[waiting] = until_ms
        self.waiting[waiting] = until_ms

    def returning_since(self, ms: int) -> int:
        """Return the number of connections with more to send whose mutes or holds end at a time or later."""
        for one in [one for one, until_ms in self.returning.items() if until_ms < ms]:
            del self.returning[one]
        return len(self.returning)

    def wish(self, now_ms: int) -> Wish:
        """Return the demand; its weight stays the last one unless the number of connections has changed much."""
        since_ms = now_ms - WAITING_MS
        for one in [one for one, until_ms in self.waiting.items() if until_ms < since_ms]:
            del self.waiting[one]
            self.returning.pop(one, None)
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
        replication: the shares and demands of the rates of replication; None where brokers do not replicate.
    """

    def __init__(self, limiters: Limiters, lessee: Lessee | Parts, now_ms: int) -> None:
        self._owner = limiters
        self._lessee = lessee
        self._began_ms = now_ms
        self._limiters: dict[str, Lendable] = {}
        self._named: dict[Lendable, _Named] = {}  # in the order in which their demands were computed
        self._wishes: dict[str, Wish] = {}
        # Of classes that share a capacity, in the order of their measurement.
        self._uses: dict[Lendable, Use] = {}
        self._promised: dict[tuple[str, int], float] = {}  # bytes/s in sum, by quota key and broker
        # The part of its rate that a class without a demand has, if no entry names it.
        self._standby: dict[tuple[str, int], float] = {}
        self.replication: ReplicationShares | None = None
        self.begins: Callable[[], object] = lambda: None

    @property
    def busy(self) -> bool:
        """Whether to call `report` often, since there are demands for shares, or a message for the lessor."""
        replicates = self.replication is not None and self.replication.busy
        return bool(self._wishes or self._uses) or replicates or self._lessee.pending

    def begin(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Store a new limiter and set its share; its burst counts as used up when the process began.

        In a class that shares a capacity it has no burst: further names would be further bursts. That of newcomers is
        one for all.
        """
        self.lend(limiter, limiter_key, now_ms)
        use = self._uses.get(limiter)
        if use is None:
            limiter.begin_empty(self._began_ms, now_ms)
        else:
            use.begin_empty(self._began_ms if limiter_key[1] == NEWCOMERS else now_ms, now_ms)

    def lend(self, limiter: Lendable, limiter_key: LimiterKey, now_ms: int) -> None:
        """Set a limiter's share to the current one, after all shares or quotas have changed."""
        key = budget_key(limiter_key)
        self._limiters[key] = limiter  # a process by itself begins to lend while limiters are in use
        capacity = self._owner.capacity(limiter_key)
        use = self._uses.get(limiter)
        if (use.capacity if use is not None else 0.0) != capacity:
            use = self._join(limiter, limiter_key, key, capacity, now_ms)
        elif use is not None:
            before, use.promised, use.named = use.standby, limiter.limit, self._owner.names(limiter_key)
            if use.standby != before:
                self._promise(limiter_key, use.standby - before, capacity)
        self._set(limiter, key, use, now_ms)

    def lent(self, limiter: Lendable, now_ms: int) -> float:
        """Return what a limiter has beyond its rate, in bytes/s."""
        use = self._uses.get(limiter)
        return 0.0 if use is None else use.capacity * self._lessee.share(use.key, now_ms)

    def end(self, limiter: Lendable) -> None:
        """Remove a limiter that is no longer used, and its demand for a share."""
        self._named.pop(limiter, None)
        if limiter.limiter_key is not None:
            key = budget_key(limiter.limiter_key)
            self._limiters.pop(key, None)
            self._wishes.pop(key, None)
            if limiter in self._uses:
                self._join(limiter, limiter.limiter_key, key, 0.0, 0)

    def _set(self, limiter: Lendable, key: str, use: Use | None, now_ms: int) -> None:
        """Set a limiter's share, and its loan."""
        lessee = self._lessee
        share = lessee.share(key, now_ms)
        if use is None:
            limiter.lend(share, now_ms)
            return
        if not use.named and not lessee.has(key):
            assert limiter.limiter_key is not None, "a limiter of a class has a key"
            share *= self._standby.get(_place(limiter.limiter_key), 1.0)
        use.lend(share, use.capacity * lessee.share(use.key, now_ms), now_ms)

    def _join(
        self, limiter: Lendable, limiter_key: LimiterKey, key: str, capacity: float, now_ms: int
    ) -> Use | None:
        """Register that a limiter's class shares a capacity in bytes/s; 0: it shares none any more."""
        before = self._uses.pop(limiter, None)
        if before is not None:
            self._wishes.pop(before.key, None)
        use = None
        if capacity:
            borrowing = cast(Borrowing, limiter)
            named = self._owner.names(limiter_key)
            use = self._uses[limiter] = Use(loan_key(key), borrowing, capacity, named, now_ms)
        change = (0.0 if use is None else use.standby) - (0.0 if before is None else before.standby)
        self._promise(limiter_key, change, capacity or (0.0 if before is None else before.capacity))
        return use

    def _promise(self, limiter_key: LimiterKey, change: float, capacity: float) -> None:
        """Change the sum of the rates that classes have without a demand, and the part of them that each has then.

        Many that were idle may begin at the same moment: together they have no more than the capacity then.
        """
        place = _place(limiter_key)
        promised = self._promised[place] = self._promised.get(place, 0.0) + change
        standby = min(1.0, capacity / promised) if promised > 0 else 1.0
        last = self._standby.get(place, 1.0)
        if standby < last / _PROMISED_STEP or standby > last * _PROMISED_STEP or standby == 1.0 != last:
            self._standby[place] = standby
            self._owner.refresh(self._owner.lease_until_ms)

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
            if decision.throttle_ms > _UNSETTLED_MUTE_MS and (
                self._unsettled(named, now_ms) or limiter in self._uses
            ):
                decision = replace(decision, throttle_ms=_UNSETTLED_MUTE_MS)
            until_ms = now_ms + decision.throttle_ms
        named.waits(waiting, max(until_ms, now_ms), now_ms, held=decision.hold_until_ms > 0)
        return decision

    def would_wait(self, limiter: Lendable, waiting: object, ms: int, now_ms: int) -> None:
        """Register that a connection would wait for `ms` if quotas were enforced, if its class shares a capacity: what
        the class could borrow depends on such demands. Shares of rates do not.
        """
        use = self._uses.get(limiter)
        if use is not None:
            use.predicted[waiting] = now_ms + min(ms, _UNSETTLED_MUTE_MS)

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
        self._lessee.lapse(now_ms)  # the end of loans is not that of the lease
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
        elif lessee.lapse(now_ms):
            self._owner.refresh(lessee.usable_until_ms)
        self._owner.admit_newcomers(now_ms)
        self._renew(now_ms)
        self._measure(now_ms)
        lessee.wish(
            self._wishes if self.replication is None else self._wishes | self.replication.wishes(now_ms)
        )
        return lessee.report(now_ms) if lessee.due(now_ms) else None

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply the lessor's grants to the limiters.

        Returns False if the grants were ignored, because they do not belong to the open session.
        """
        lessee = self._lessee
        lapsed = lessee.loans_lapsed
        if not lessee.take(grants, now_ms):
            return False
        if grants.complete or lapsed or DEFAULT_KEY in grants.shares:
            self._owner.refresh(lessee.usable_until_ms)
        else:
            self._owner.lease_until_ms = lessee.usable_until_ms
            for key in {rate_key(key) if is_loan(key) else key for key in grants.shares}:
                limiter = self._limiters.get(key)
                if limiter is not None:
                    self._set(limiter, key, self._uses.get(limiter), now_ms)
        self._apply(now_ms)
        lessee.confirm()
        return True

    def _apply(self, now_ms: int) -> None:
        if self.replication is not None:
            self.replication.apply(now_ms)

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

    def _measure(self, now_ms: int) -> None:
        """Measure what classes use of their capacities, a bounded number of them, those measured longest ago first."""
        for _ in range(min(len(self._uses), _RENEWED_AT_ONCE)):
            limiter, use = next(iter(self._uses.items()))
            if use.measured(now_ms):
                return
            del self._uses[limiter]
            self._uses[limiter] = use
            assert limiter.limiter_key is not None, "a limiter of a class has a key"
            if not self._owner.capacity(limiter.limiter_key):
                self.lend(limiter, limiter.limiter_key, now_ms)  # its clients may never send again
            if not use.limiter.throttles:
                self._owner.forget_newcomers(use.limiter, limiter.limiter_key, now_ms)
            if limiter not in self._uses or use.costly(now_ms):
                continue
            named = self._named.get(limiter)
            share = self._lessee.share(rate_key(use.key), now_ms)
            waiting = use.would_wait_since(now_ms - BACK_MS)
            waiting += 0 if named is None else named.returning_since(now_ms - BACK_MS)
            if use.renew(waiting, share, now_ms):
                if use.wish is None:
                    self._wishes.pop(use.key, None)
                else:
                    self._wishes[use.key] = use.wish

    def __len__(self) -> int:
        return len(self._named)


def _place(limiter_key: LimiterKey) -> tuple[str, int]:
    """Return the quota key of the capacity and the broker of a limiter."""
    return capacity_key(limiter_key[0]), limiter_key[2]
