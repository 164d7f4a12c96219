"""The lessor: leases the shares of all keys to its lessees, so that together they never exceed the capacity.

    report(…)   takes a lessee's report: its demands, and the grants that it has applied
    grants(…)   returns what to send now: a response to each report, and changes that other lessees wait for
    leave(…)    removes a lessee that is known to be gone: its shares are free immediately

A lessee that has not reported for one lease (and `slack_ms`) is taken for gone: its own lease, which began when it sent
the report, has ended before. From then on it uses the cut-off share at most (`lessee`); only this share can exceed a
budget.

A lessee whose processes are known to have ended is gone GONE_MS later (`ended`), and not a lease later.

A lessor that begins has to learn what its predecessors have leased. Each lessee reports first what it may be using,
and keeps it; no share is raised until `learning_ms` is over, when every lessee has reported here or is gone. If no
lease of a predecessor can still last (`lasting_ms`), there is nothing to learn.
Learning ends earlier if the lessees of all predecessors are known (`awaited`): as soon as each has reported here, or
has ended. A lessor writes down whom it leases to (`roster`) where its successor reads it, numbers each change, and
leases to a newcomer only when a roster with it is surely written (`enlist`). So the last roster has every lessee whose
lease may last. A lessee that has reported here takes no grants from a predecessor any more, and what it may be using is
in its report; hence nothing is unknown when all have reported.

A predecessor that still runs is harmless: it leases the share of a silent or unknown lessee to others only if it was
confirmed as the lessor (`confirm`) after the end of that lease, and it stops without confirmation (`proxy.fleet`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import Final

from quotas.errors import QuotaError
from quotas.sharing.capacities import Capacities, fill
from quotas.sharing.lease_values import (
    DEFAULT_KEY,
    GONE_MS,
    KEYS_MAX,
    LOAN_MS,
    Grants,
    LeaseTerms,
    LesseeId,
    Report,
    Wish,
    is_factor,
    is_loan,
    rate_key,
)

# ----------------------------------------------------------------------------------------------------
# The shares of one key: what each lessee may be using, what it wants, and what it is granted next.
#
# A lessee *may be using* the larger of two shares: the last one that it has acknowledged, and the one sent after it. A
# share is raised only by a part of the capacity that no lessee may be using, so the sum never exceeds the capacity,
# even if messages are lost or late. At most one change of a part is under way.
#
# A share of None follows the lessee's share of `DEFAULT_KEY`. Time, messages and sessions are in `lessor`.

# A share is lowered only if that changes it by this part, so that small changes of demand cost no messages; unless all
# together exceed the capacity: a member acknowledges a lowered share when its workers do not exceed it any more.
_GAP: Final = 0.02
# A smaller part of the capacity is not worth a message; all parts together leave no more than that unused.
_GRAIN: Final = 0.002

Change = tuple[LesseeId, float | None]


class Part:
    """One lessee's share of one quota (key), as far as the lessor knows, and its demand.

    Attributes:
        share: the share that it has acknowledged; None if it follows its default share.
        sent: the share that was sent after that, if `version` is above 0; None for the default share.
        version: the version of the grants with `sent`; 0 if no change is under way.
        wish: its demand; None if it has none.
    """

    __slots__ = ("sent", "share", "version", "wish")

    def __init__(self, share: float | None, wish: Wish | None = None) -> None:
        self.share = share
        self.sent: float | None = None
        self.version = 0
        self.wish = wish

    def upper(self, default: float) -> float:
        """Return the largest share that the lessee may be using.

        Args:
            default: the largest share of the default key that it may be using.
        """
        share = default if self.share is None else self.share
        if not self.version:
            return share
        return max(share, default if self.sent is None else self.sent)


class KeyShares:
    """The shares that all lessees have of one quota (key): a `Part` for each.

    Args:
        default: the shares of the default key, which a lessee has where it has no other; None if this is that key.
    """

    __slots__ = ("_default", "parts")

    def __init__(self, default: "KeyShares | None") -> None:
        self._default = default
        self.parts: dict[LesseeId, Part] = {}

    def upper(self, lessee: LesseeId) -> float:
        """Return the largest share of the key that a lessee may be using, with any change that it has not
        acknowledged.
        """
        part = self.parts[lessee]
        if part.share is not None and not part.version:
            return part.share  # as nearly always: its default share does not matter
        return part.upper(0.0 if self._default is None else self._default.upper(lessee))

    def used(self) -> float:
        """Return the largest share that all lessees together may be using."""
        used = 0.0
        for lessee, part in self.parts.items():
            # `upper` written out: a division reads this twice for each class, and a call would double its time.
            share = part.share
            used += self.upper(lessee) if share is None or part.version else share
        return used

    @property
    def has_demand(self) -> bool:
        """Whether any lessee has a demand."""
        return any(part.wish is not None for part in self.parts.values())

    def acknowledge(self, lessee: LesseeId, version: int) -> None:
        """Set the lessee's share to the sent one, if the lessee has applied the grants up to that version."""
        part = self.parts[lessee]
        if 0 < part.version <= version:
            part.share, part.version = part.sent, 0

    def divide(self, capacity: float, least: float) -> list[Change]:
        """Return the changed shares to send now; demands beyond the capacity are divided by weight.

        Args:
            capacity: the share of the key that all lessees together may use.
            least: the share that each lessee has without a demand.

        Capacity beyond the demands goes to the lessees with a demand, so that they have room to grow. A share is
        lowered when another lessee needs it, or when all together exceed the capacity; where none has a demand, all in
        proportion. Without a demand no share is raised.
        """
        uppers: list[float] = []
        wanted: list[float] = []
        weights: list[float] = []
        for (
            lessee,
            part,
        ) in self.parts.items():  # the holder's CPU is spent here: a hot key has a part of each member
            share, wish = part.share, part.wish
            uppers.append(self.upper(lessee) if share is None or part.version else share)
            wanted.append(0.0 if wish is None else max(0.0, min(1.0, wish.wanted) - least))
            weights.append(0.0 if wish is None else wish.weight)
        room = max(0.0, capacity - least * len(uppers))
        needed = [least + extra for extra in fill(wanted, weights, room)]
        used = sum(uppers)
        free = capacity - used
        grain = capacity * _GRAIN
        exceeded = free < -grain / 1000
        lowers = exceeded or any(
            need - upper > grain and need - upper > upper * _GAP
            for need, upper in zip(needed, uppers, strict=True)
        )
        if not lowers and free <= grain:
            return []
        weight = sum(weights)
        if weight:
            more = max(0.0, capacity - sum(needed)) / weight
            targets = [need + more * own for need, own in zip(needed, weights, strict=True)]
        else:
            scale = min(1.0, capacity / used) if used else 0.0
            targets = [max(need, upper * scale) for need, upper in zip(needed, uppers, strict=True)]
        changes: list[Change] = []
        if lowers:
            gap = 0.0 if exceeded else _GAP
            changes += [
                (lessee, target)
                for (lessee, part), upper, target in zip(self.parts.items(), uppers, targets, strict=True)
                if upper > target * (1 + gap) and not part.version
            ]
        if free > grain:
            changes += self._raised(uppers, targets, free)
        return changes

    def equalize(self, share: float, capacity: float) -> list[Change]:
        """Return the changed shares to send now, so that each lessee gets this `share`; used for the default key."""
        uppers = {lessee: self.upper(lessee) for lessee in self.parts}
        changes: list[Change] = [
            (lessee, share)
            for lessee, upper in uppers.items()
            if upper > share and not self.parts[lessee].version
        ]
        free = capacity - sum(uppers.values())
        return [*changes, *self._raised(list(uppers.values()), [share] * len(uppers), free)]

    def release(self) -> list[Change]:
        """Return the changed shares to send now, so that all lessees use their default share again.

        First larger shares are lowered to it; later, None is sent: the key has no share of its own any more.
        """
        assert self._default is not None, "the default key is not released"
        changes: list[Change] = []
        for lessee, part in self.parts.items():
            default = self._default.parts[lessee].share
            assert default is not None, "a default share is a number"
            if self.upper(lessee) > default and not part.version:
                changes.append((lessee, default))
        if changes or any(part.version and part.sent is not None for part in self.parts.values()):
            return changes
        return [
            (lessee, None)
            for lessee, part in self.parts.items()
            if part.share is not None and not part.version
        ]

    @property
    def released(self) -> bool:
        """Whether all lessees use their default share for this key, and no change is under way."""
        return all(part.share is None and not part.version for part in self.parts.values())

    def _raised(self, uppers: list[float], targets: list[float], free: float) -> Iterator[Change]:
        """Yield raised shares, the largest difference first, until `free` capacity is used; in the order of `parts`."""
        gains = [
            (target - upper, upper, lessee)
            for (lessee, part), upper, target in zip(self.parts.items(), uppers, targets, strict=True)
            if target > upper and not part.version
        ]
        gains.sort(key=lambda gain: -gain[0])
        for wanted, upper, lessee in gains:
            gain = min(wanted, free)
            if gain <= 0:
                return
            free -= gain
            yield lessee, upper + gain


IDLE_MS: Final = 10_000  # a key without a demand for this time loses its shares
_RELEASED_AT_ONCE: Final = 500  # keys that are released with one call


class LeaseRefusedError(QuotaError):
    """The lessor refuses a lessee's report, so that the lessee gets no lease.

    Args:
        cause: one word, under which it is counted.
        problem: a sentence for the lessee's operator.
    """

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause


class SessionLostError(QuotaError):
    """The report's session is not open here, or a report before it is missing; the lessee opens a new session."""


class _Lessee:
    """A lessee's session, and the time until which its lease may last.

    Attributes:
        until_ms: the time at which it is taken for gone.
        loans_until_ms: the time at which its loans have ended unless it reports; 0 if they have.
        unheard: its demands for loans, while these have ended.
        unacknowledged: the keys of each version that was sent and not acknowledged.
        changes: the shares to send with the next grants.
        enlisted: the number of the first roster that has it, and all since.
    """

    __slots__ = (
        "changes",
        "complete",
        "enlisted",
        "lessees_max",
        "loans_until_ms",
        "number",
        "owed",
        "session",
        "unacknowledged",
        "unheard",
        "until_ms",
        "version",
    )

    def __init__(self, enlisted: int) -> None:
        self.enlisted = enlisted
        self.session = 0
        self.number = 0
        self.version = 0
        self.until_ms = 0
        self.loans_until_ms = 0
        self.unheard: dict[str, Wish] = {}
        self.lessees_max = 1
        self.owed = False
        self.complete = False
        self.changes: dict[str, float | None] = {}
        self.unacknowledged: deque[tuple[int, tuple[str, ...]]] = deque()


class Lessor:
    """Leases shares of quotas to lessees, so that these never use more than the capacity together.

    Args:
        run: a number that identifies the lessor's process, from its start to its end.
        capacity: returns which share (0 to 1) of a key's quota may be leased; at the top lessor `Capacities`, which
            give 1 unless a capacity is stated.
        learning_ms: the longest time for which no share is raised, since leases of predecessors may last.
        awaited: the lessees to which predecessors may have leased, by `LesseeId.run`; None if they are not known.
    """

    def __init__(
        self,
        terms: LeaseTerms,
        run: int,
        capacity: Callable[[str], float],
        now_ms: int,
        learning_ms: int,
        awaited: frozenset[int] | None = None,
    ) -> None:
        self.terms = terms
        self._run = run
        self._capacity = capacity
        # Not now: what is confirmed is a little older, and so nothing would be leased until the next confirmation.
        self._learning_until_ms = now_ms + learning_ms if learning_ms else -1
        self._confirmed_ms: float = inf
        self._awaited = awaited if learning_ms else frozenset()  # those that have not reported, nor ended
        self._ended: dict[int, int] = {}  # awaited ones that have ended, and when their shares are free
        self._roster = 0  # its number
        self._enlisted: float = inf  # the last roster that is surely written
        self._lessees: dict[LesseeId, _Lessee] = {}
        self._default = KeyShares(None)
        self._nothing = KeyShares(None)  # the default share of loan keys
        self._keys: dict[str, KeyShares] = {}
        self._changed: set[str] = set()  # keys to divide again
        self._postponed: set[str] = set()  # those that were changed while it learns
        self._idle: dict[str, int] = {}  # keys without a demand, and since when
        self._demands: set[str] = set()  # keys whose demand has changed since it was last asked for
        self._moved: set[str] = set()  # keys of rates whose shares have changed since capacities were divided
        self._pinned: set[str] = set()
        self._factors: dict[str, float] = {}  # as told to all lessees
        self._sessions = 0
        self._even = True  # whether all lessees have their default share

    @property
    def lessees(self) -> list[LesseeId]:
        """The lessees that have reported, and whose leases may still last."""
        return list(self._lessees)

    def lasting_ms(self, now_ms: int) -> int:
        """Return the longest time in ms that leases of this lessor or a predecessor may last, if it grants no more."""
        ends_ms = (lessee.until_ms for lessee in self._lessees.values())
        return max(now_ms, self._learning_until_ms, *ends_ms) - now_ms

    def learning(self, now_ms: int) -> bool:
        """Whether it is still learning which shares predecessors have leased; until then no share is raised."""
        return self._known_ms(now_ms) < self._learning_until_ms

    def roster(self) -> tuple[int, frozenset[int] | None]:
        """Return the roster: its number, and the `LesseeId.run` of each lessee whose lease may last.

        The second is None if not all such lessees are known. The roster is to be stored for a successor of this lessor;
        its number grows with each change.
        """
        if self._awaited is None:
            return self._roster, None
        return self._roster, self._awaited.union(name.run for name in self._lessees)

    def enlist(self, number: int) -> None:
        """Register that the roster with this number is stored durably; only lessees in a stored roster get leases."""
        self._enlisted = number

    def ended(self, run: int, now_ms: int) -> None:
        """Register that a lessee's processes, except its workers, have ended: its shares are free after GONE_MS.

        Args:
            run: the lessee's `LesseeId.run`.
        """
        free_ms = now_ms + GONE_MS
        for name, lessee in self._lessees.items():
            if name.run == run:
                lessee.until_ms = min(lessee.until_ms, free_ms)
        if self._awaited is not None and run in self._awaited:
            self._ended.setdefault(run, free_ms)

    @property
    def keys(self) -> list[str]:
        """The keys with shares of their own."""
        return list(self._keys)

    def used(self, key: str) -> float:
        """Return the largest share of a key that all lessees together may be using."""
        shares = self._keys.get(key)
        return self._default.used() if shares is None else shares.used()

    def shares(self, key: str) -> dict[LesseeId, float]:
        """Return the largest share of a key that each lessee may be using."""
        shares = self._keys.get(key, self._default)
        return {lessee: shares.upper(lessee) for lessee in shares.parts}

    @property
    def dividing(self) -> bool:
        """Whether capacities of many classes are being divided: the next call of `grants` goes on with it."""
        return isinstance(self._capacity, Capacities) and self._capacity.dividing

    def changed_demands(self) -> set[str]:
        """Return the keys whose demand has changed since the last call."""
        changed, self._demands = self._demands, set()
        return changed

    def demand(self, key: str) -> Wish | None:
        """Return the demand of all lessees together for a key; None if there is none."""
        shares = self._keys.get(key)
        found: Wish | None = None
        wanted = weight = 0.0
        for part in () if shares is None else shares.parts.values():
            wish = part.wish
            if wish is not None:
                found, wanted, weight = wish, wanted + wish.wanted, weight + wish.weight
        return None if found is None else Wish(min(1.0, wanted), weight)

    def tell(self, factors: Mapping[str, float]) -> None:
        """Tell all lessees these factors with the next grants, in place of those told before."""
        before = self._factors
        if factors == before:
            return
        changes: dict[str, float | None] = {key: None for key in before if key not in factors}
        changes |= {key: factor for key, factor in factors.items() if factor != before.get(key)}
        self._factors = dict(factors)
        for lessee in self._lessees.values():
            lessee.changes |= changes

    def met(self, key: str, rate: float, capacity: float) -> tuple[float, float]:
        """Return how much of the demands for a loan key lessees may use of their shares of the rate, and the rest.

        The rest of a demand of weight 0 does not count: no loan is used there.

        Args:
            rate: of the class, in bytes/s.
            capacity: in bytes/s.
        """
        loans, rates = self._keys.get(key), self._keys.get(rate_key(key), self._default)
        met = rest = 0.0
        for lessee, part in () if loans is None else loans.parts.items():
            wish = part.wish
            if wish is not None:
                of_rate = rates.parts[lessee]  # `upper` written out, as in `used`
                share = of_rate.share
                upper = rates.upper(lessee) if share is None or of_rate.version else share
                wanted, own = wish.wanted * capacity, upper * rate
                met += min(wanted, own)
                rest += max(0.0, wanted - own) if wish.weight else 0.0
        return met, rest

    def configure(self, terms: LeaseTerms) -> None:
        """Change the terms of leases; the next grants adapt the shares to them."""
        self.terms = terms
        self._even = False

    def confirm(self, now_ms: int) -> None:
        """Register that this process was still the lessor at this time; only leases that had ended by then are over.

        Before the first call, those that have ended by now are over.
        """
        self._confirmed_ms = now_ms

    def report(self, report: Report, now_ms: int) -> None:
        """Process a lessee's report: renew its lease, acknowledge its grants, and store its demands.

        Raises:
            LeaseRefusedError: there are too many lessees.
            SessionLostError: the lessee has to open a new session.
        """
        lessee = self._opened(report, now_ms) if not report.session else self._continued(report)
        lessee.number = report.number
        lessee.owed = True
        lessee.until_ms = now_ms + self.terms.lease_ms + self.terms.slack_ms
        lessee.loans_until_ms = now_ms + LOAN_MS + self.terms.slack_ms
        if lessee.lessees_max != report.lessees_max:
            lessee.lessees_max = report.lessees_max
            self._even = False
        self._acknowledge(report.lessee, lessee, report.applied)
        wishes: dict[str, Wish | None] = {**lessee.unheard, **report.wishes}
        lessee.unheard = {}
        for key, wish in wishes.items():
            self._wish(report.lessee, key, wish)

    def leave(self, lessee: LesseeId) -> None:
        """Remove a lessee that is known to have ended; its shares are free immediately."""
        if self._lessees.pop(lessee, None) is None:
            return
        del self._default.parts[lessee], self._nothing.parts[lessee]
        self._roster += 1
        self._even = False
        for key, shares in self._keys.items():
            if shares.parts.pop(lessee).wish is not None:
                self._demands.add(key)
            self._changed.add(key)

    def pin(self, keys: set[str]) -> None:
        """Set the keys of which each lessee always has a share of its own.

        The shares of other keys are released (`KeyShares.release`) once no lessee has had a demand for some time.
        """
        self._pinned = keys
        for key in keys:
            self._named(key, KEYS_MAX)

    def pin_one(self, key: str, *, pinned: bool) -> None:
        """Add a key to those of `pin`, or remove it."""
        if pinned:
            self._pinned.add(key)
            self._named(key, KEYS_MAX)
        else:
            self._pinned.discard(key)

    def resized(self, key: str) -> None:
        """Register that a key's capacity has changed: the next grants divide it again."""
        if key == DEFAULT_KEY:
            self._even = False
            self._changed.update(self._keys)
        elif key in self._keys:
            self._changed.add(key)

    def within(self, key: str, capacity: float) -> bool:
        """Whether all lessees together may be using at most this share of the quota with this key."""
        return self.used(key) <= capacity * (1 + 1e-9)

    def grants(
        self, now_ms: int, lease_ms: int | None = None, loans_ms: int = LOAN_MS
    ) -> Iterator[tuple[LesseeId, Grants]]:
        """Yield the grants to send now, each with its lessee: in response to a report, or with changed shares.

        Args:
            lease_ms: the length of the leases, if it is shorter than the terms'.
            loans_ms: for how long loans are valid.
        """
        self.expire(now_ms)
        self._learn(now_ms)
        if self.learning(now_ms):
            self._reduce()
        else:
            if isinstance(self._capacity, Capacities):
                moved, self._moved = self._moved, set()
                self._capacity.lend(self, self.changed_demands() | moved, now_ms)
            self._divide(now_ms)
        length_ms = self.terms.lease_ms if lease_ms is None else min(lease_ms, self.terms.lease_ms)
        most = self._lessees_max
        for name, lessee in self._lessees.items():
            if (not lessee.owed and not lessee.changes) or lessee.enlisted > self._enlisted:
                continue
            lessee.version += 1
            changes, lessee.changes = lessee.changes, {}
            if changes:
                lessee.unacknowledged.append((lessee.version, tuple(changes)))
            complete, lessee.complete, lessee.owed = lessee.complete, False, False
            yield (
                name,
                Grants(
                    self._run,
                    lessee.session,
                    lessee.version,
                    lessee.number,
                    length_ms,
                    changes,
                    complete,
                    most,
                    loans_ms,
                ),
            )

    @property
    def _lessees_max(self) -> int:
        """The largest number of lessees that any process is configured with."""
        return max((lessee.lessees_max for lessee in self._lessees.values()), default=self.terms.lessees_max)

    def _opened(self, report: Report, now_ms: int) -> _Lessee:
        """Begin a session with the shares that the lessee holds; grants of its last session that it has not applied
        are void. Loans that have ended meanwhile are not held: others may have them now.
        """
        name = report.lessee
        lessee = self._lessees.get(name)
        borrows = self.learning(now_ms) if lessee is None else lessee.loans_until_ms > 0
        if lessee is None:
            if len(self._lessees) >= 2 * self.terms.lessees_max:
                raise LeaseRefusedError("lessees_max", f"{len(self._lessees)} lessees hold shares already")
            lessee = self._lessees[name] = self._newcomer(name.run)
            self._even = False
        elif report.number <= lessee.number:
            raise SessionLostError(f"report {report.number} comes after {lessee.number}")
        self._sessions += 1
        lessee.session, lessee.version, lessee.complete = self._sessions, 0, True
        lessee.unacknowledged.clear()
        lessee.unheard.clear()
        held = report.held
        if not borrows:
            held = {key: share for key, share in held.items() if not is_loan(key)}
        default = held.get(DEFAULT_KEY, self.terms.equal)
        self._default.parts[name], self._nothing.parts[name] = Part(default), Part(0.0)
        told = {key: held[key] for key in held if is_factor(key)}
        if told and len(self._factors) + len(told) <= KEYS_MAX:
            self.tell(told | self._factors)  # by a predecessor: it holds until this lessor knows more
        for key in held:
            if key != DEFAULT_KEY and key not in told:
                self._named(key, KEYS_MAX)  # what is in use counts, also beyond the bound of new keys
        for key, shares in self._keys.items():
            before = shares.parts.get(name)
            if before is not None and before.wish is not None:
                self._demands.add(key)
            shares.parts[name] = Part(held.get(key, 0.0 if is_loan(key) else default))
            self._changed.add(key)
        lessee.changes = {DEFAULT_KEY: default}
        lessee.changes |= {key: shares.parts[name].share for key, shares in self._keys.items()}
        lessee.changes |= self._factors
        return lessee

    def _newcomer(self, run: int) -> _Lessee:
        """Return a new lessee, which is in the next roster; one that was awaited is in all rosters."""
        if self._awaited is not None and run in self._awaited:
            self._awaited -= {run}
            self._ended.pop(run, None)
            return _Lessee(0)
        self._roster += 1
        return _Lessee(self._roster)

    def _learn(self, now_ms: int) -> None:
        """End learning if no share that a predecessor has leased is unknown any more."""
        awaited = self._awaited
        if not self.learning(now_ms):
            if awaited is None or awaited:
                self._awaited = frozenset()
                self._roster += 1
        elif awaited is not None:
            gone = {run for run in awaited if self._ended.get(run, now_ms + 1) <= now_ms}
            if gone:
                self._awaited = awaited - gone
                self._roster += 1
            if not self._awaited:
                self._learning_until_ms = -1

    def _continued(self, report: Report) -> _Lessee:
        lessee = self._lessees.get(report.lessee)
        if lessee is None or lessee.session != report.session:
            raise SessionLostError("the session is not open here")
        if report.number != lessee.number + 1:
            raise SessionLostError(f"report {report.number} comes after {lessee.number}")
        return lessee

    def _acknowledge(self, name: LesseeId, lessee: _Lessee, applied: int) -> None:
        waiting = lessee.unacknowledged
        while waiting and waiting[0][0] <= applied:
            version, keys = waiting.popleft()
            for key in keys:
                if key == DEFAULT_KEY:
                    self._default.acknowledge(name, version)
                    self._even = False
                elif key in self._keys:
                    self._keys[key].acknowledge(name, version)
                    self._changed.add(key)
                    self._move(key)

    def _wish(self, name: LesseeId, key: str, wish: Wish | None) -> None:
        if key == DEFAULT_KEY:
            return
        if wish is None and key not in self._keys:
            return
        shares = self._named(key)
        if shares is not None:
            shares.parts[name].wish = wish
            self._changed.add(key)
            self._demands.add(key)

    def _named(self, key: str, further: int = 0) -> KeyShares | None:
        """Return the shares of a key, at first each lessee's default share; None if there are too many keys."""
        shares = self._keys.get(key)
        if shares is None and len(self._keys) < KEYS_MAX + further:
            shares = self._keys[key] = KeyShares(self._nothing if is_loan(key) else self._default)
            shares.parts = {lessee: Part(None) for lessee in self._default.parts}
            self._changed.add(key)
        return shares

    def expire(self, now_ms: int) -> None:
        """Remove the lessees whose leases are over."""
        known_ms = self._known_ms(now_ms)
        for name in [name for name, lessee in self._lessees.items() if lessee.until_ms <= known_ms]:
            self.leave(name)
        for name, lessee in self._lessees.items():
            if 0 < lessee.loans_until_ms <= known_ms:
                lessee.loans_until_ms = 0
                self._end_loans(name, lessee)

    def _end_loans(self, name: LesseeId, lessee: _Lessee) -> None:
        """Take back the loans of a lessee that is not heard: it uses none until it takes grants, which then say so.

        Its demands for loans have weight 0 until it is heard, since it uses its shares of the rates alone; later they
        are not reported anew, unless they have changed.
        """
        for key, shares in self._keys.items():
            if not is_loan(key):
                continue
            part = shares.parts[name]
            if part.wish is not None:
                lessee.unheard[key], part.wish = part.wish, Wish(part.wish.wanted, 0.0)
                self._demands.add(key)
                self._changed.add(key)
            if shares.upper(name):
                self._send(key, [(name, 0.0)])
                part.share = 0.0
                self._changed.add(key)

    def _known_ms(self, now_ms: int) -> float:
        """Return the last time at which this process surely was the lessor: leases that ended by then are over."""
        return min(now_ms, self._confirmed_ms)

    def _divide(self, now_ms: int) -> None:
        if not self._even:
            self._equalize()
        changed, self._changed, self._postponed = self._changed | self._postponed, set(), set()
        for key in changed & self._keys.keys():
            shares, capacity = self._keys[key], self._capacity(key)
            if shares.has_demand or key in self._pinned:
                self._idle.pop(key, None)
            else:
                self._idle.setdefault(key, now_ms)
            lent = capacity * (1 - self._never_lent(key))
            if now_ms < self._idle.get(key, now_ms) + IDLE_MS or shares.used() > lent:
                self._redistribute(key, capacity)
        self._release(now_ms)

    def _release(self, now_ms: int) -> None:
        """Let lessees follow their default shares again in keys that were idle for IDLE_MS, the longest first."""
        for key, since_ms in list(islice(self._idle.items(), _RELEASED_AT_ONCE)):
            if now_ms < since_ms + IDLE_MS:
                return
            shares = self._keys[key]
            if shares.used() <= self._capacity(key):
                self._send(key, shares.release())
                if shares.released:
                    del self._keys[key], self._idle[key]

    def _reduce(self) -> None:
        """Lower shares where all together exceed the capacity, as after the return of lessees that were cut off;
        raise none.
        """
        changed, self._changed = self._changed, set()
        self._postponed |= changed
        for key in changed & self._keys.keys():
            shares, capacity = self._keys[key], self._capacity(key)
            if shares.used() > capacity:
                self._redistribute(key, capacity)

    def _redistribute(self, key: str, capacity: float) -> None:
        """Divide a key among the lessees by their demands; of a loan nothing is left to those without one."""
        least = 0.0 if is_loan(key) else self.terms.least * capacity
        self._send(key, self._keys[key].divide(capacity * (1 - self._never_lent(key)), least))

    def _never_lent(self, key: str) -> float:
        """Return the share of a key that is not leased: new processes use it of each rate, and borrow nothing."""
        return 0.0 if is_loan(key) else self.terms.never_lent

    def _equalize(self) -> None:
        """Give all lessees the same default share; before it is raised, keys that follow it get shares of their own."""
        capacity = self._capacity(DEFAULT_KEY) * (1 - self.terms.never_lent)
        count = max(self._lessees_max, len(self._lessees))
        changes = self._default.equalize(capacity / count, capacity)
        kept: list[Change] = []
        for name, share in changes:
            assert share is not None, "a default share is a number"
            if share <= self._default.upper(name) or not self._follows(name):
                kept.append((name, share))
        self._send(DEFAULT_KEY, kept)
        self._even = all(
            not part.version and abs((part.share or 0.0) - capacity / count) <= 1e-12
            for part in self._default.parts.values()
        )

    def _follows(self, name: LesseeId) -> bool:
        """Whether any of the lessee's keys follows its default share; each such key is given a share of its own."""
        follows = False
        for key, shares in self._keys.items():
            part = shares.parts[name]
            if is_loan(key):
                continue
            if part.share is None or (part.version and part.sent is None):
                follows = True
                if not part.version:
                    self._send(key, [(name, shares.upper(name))])
        return follows

    def _send(self, key: str, changes: list[Change]) -> None:
        """Put changes into the next grants; from now on the lessees may be using them."""
        shares = self._default if key == DEFAULT_KEY else self._keys[key]
        if changes:
            self._move(key)
        for name, share in changes:
            lessee, part = self._lessees[name], shares.parts[name]
            lessee.changes[key] = share
            part.sent, part.version = share, lessee.version + 1

    def _move(self, key: str) -> None:
        """Register that shares of a key change: what is guaranteed of a capacity depends on those of a rate (`met`)."""
        if isinstance(self._capacity, Capacities) and not is_loan(key):
            self._moved.add(key)
