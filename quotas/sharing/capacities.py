"""Divides capacities among classes: what promised rates leave is lent, by weight, to classes that could use it.

The top lessor asks it which part of each key it may lease: the holder of a fleet, the control process of several
workers, or a process by itself. Two keys belong to a class in one direction (`lease_values`): the key of its rate, and
its *loan key*, whose shares are parts of the capacity. The demand for a loan key is the whole demand of the class.

    d  demand       what the class uses, or more while its connections wait (`uses`)
    g  guaranteed   the smaller of d and its rate, at each process of its share of that; together at most the capacity,
                    else they shrink as the rates do: first those of names below a default, which are without a bound,
                    to what the others leave
    b  lent         what all g leave of the capacity, divided by weighted max-min fairness among the demands d - g; and
                    what is left then, among those that are short of it, else among all that borrow

Guaranteed rates come first, without asking: a class that returns has its rate at once. Until loans are lowered, the
capacity is then exceeded by that rate at most. A loan is raised only by what no lessee may be using, and a lessee that
is not heard uses none after LOAN_MS.

Where the keys of a fleet are in several parts, a capacity is divided by the lessor of one part, which has the loans of
all its classes; their rates are leased by others (`parts`). What has to shrink rates is then told to all members, and
used by those that lease the rates: until it has arrived, the capacity is exceeded as by a class that returns.

A demand that is stated and not used gains nothing, since a part is at most what the weight gives. What is used counts,
whatever is stated.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Final, NamedTuple, Protocol

from quotas.definitions.classes import REPLICATION_BUCKET, UNPROMISED_PART, Capacity, Terms, promised
from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import REPLICATION_KEYS, capacity_key
from quotas.limiters.limiter import ALL_BROKERS
from quotas.sharing.budgets import limiter_key_of
from quotas.sharing.lease_values import Rank, Wish, factor_key, is_loan, loan_key, quota_key_of, rate_key

# Between two divisions of one capacity; and the parts of it that a loan must change by to be worth a message. For a
# small loan it is a part of itself: many small changes together are a large part of the capacity.
LEND_MS: Final = 50
_RAISE_PART: Final = 0.002
_LOWER_PART: Final = 0.005
_RAISE_OWN_PART: Final = 0.02
_LOWER_OWN_PART: Final = 0.1
# A factor that is told is up to twice this below the real one, but at least a quarter of it, and never above it: a
# change of it concerns all rates.
_FACTOR_STEP: Final = 0.003
# Of so many classes a division takes some milliseconds: it is made less often.
_MANY: Final = 1000
_MANY_MS: Final = 250
# A call of `lend` makes so many steps of nearly 1 µs. What needs more, as a division of many classes of many lessees,
# goes on with the next call. It may be interrupted after _SLICE steps at most, except in a pass over all classes.
STEPS_AT_ONCE: Final = 5000
_SLICE: Final = 500
_STEPS_A_POOL: Final = 20
_STEPS_A_TERM: Final = 6  # to read the terms of a class
_CLASSES_A_STEP: Final = 10  # in a pass over all classes without a look at their lessees
_LESSEES_A_STEP: Final = 3  # in one look at a class
_STEPS_A_CHANGE: Final = 6  # of a part, which the lessor then divides among its lessees: 1.25 more for each
_WHOLE: Final[Mapping[Rank, float]] = {"named": 1.0, "default": 1.0, "unpromised": 1.0}
_SUM_PART: Final = 1e-9  # by which a sum of parts may exceed the whole


# ----------------------------------------------------------------------------------------------------
# Weighted max-min fairness (water filling): how a budget is divided by demand.


def fill(wanted: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:
    """Divide a capacity among demands in proportion to their weights (max-min fairness); none gets more than it wants.

    Capacity that one demand leaves goes to the others. Demands of weight 0 get nothing.

    >>> fill([0.1, 0.6, 0.9], [1, 1, 1], 1.0)
    [0.1, 0.45, 0.45]
    >>> fill([1, 1], [3, 1], 1.0)  # three connections here, one there
    [0.75, 0.25]
    >>> fill([0.1, 0.2], [1, 9], 1.0)
    [0.1, 0.2]
    """
    parts = _filled_evenly(wanted, weights, capacity)
    if parts is None:
        parts = [0.0] * len(wanted)
        _pour(parts, *_by_need(wanted, weights), wanted, weights, capacity)
    return parts


def _fill(
    wanted: Sequence[float], weights: Sequence[float], capacity: float
) -> Generator[int, None, list[float]]:
    """Do as `fill` does; yields how many steps come next, wherever it may be interrupted."""
    yield _passes(wanted, 1)
    parts = _filled_evenly(wanted, weights, capacity)
    if parts is not None:
        return parts
    yield _passes(wanted, 3)
    parts = [0.0] * len(wanted)
    order, remaining = _by_need(wanted, weights)
    for begin in range(0, len(order), _SLICE):
        end = begin + _SLICE
        yield len(order[begin:end]) // 2
        capacity = _pour(parts, order[begin:end], remaining[begin:end], wanted, weights, capacity)
    return parts


def _filled_evenly(wanted: Sequence[float], weights: Sequence[float], capacity: float) -> list[float] | None:
    """Return the parts by weight if no demand is smaller, as usually: then nothing has to be sorted. Else None."""
    weight = sum(weights)
    each = capacity / weight if weight > 0 else 0.0
    if each > 0 and all(want >= each * own for want, own in zip(wanted, weights, strict=True)):
        return [each * own for own in weights]
    return None


def _by_need(wanted: Sequence[float], weights: Sequence[float]) -> tuple[list[int], list[float]]:
    """Return the demands with a weight, the smallest for its weight first; and the sums of weights from each on."""
    ratios = [want / own if own > 0 else 0.0 for want, own in zip(wanted, weights, strict=True)]
    order = sorted([index for index, own in enumerate(weights) if own > 0], key=ratios.__getitem__)
    # Added up from the end: subtracting weights of very different sizes would leave 0, or less.
    remaining = list(accumulate([weights[index] for index in reversed(order)]))
    remaining.reverse()
    return order, remaining


def _pour(
    parts: list[float],
    order: Sequence[int],
    remaining: Sequence[float],
    wanted: Sequence[float],
    weights: Sequence[float],
    left: float,
) -> float:
    """Set the parts of some demands, in the order of `_by_need`; returns what they leave."""
    for index, weight in zip(order, remaining, strict=True):
        if left <= 0:  # so the others get nothing
            break
        part = left * (weights[index] / weight)
        want = wanted[index]
        parts[index] = part = min(want, part)
        left -= part
    return left


def _passes(classes: Sequence[object], times: int) -> int:
    """Return how many steps it takes to go through all classes so many times without a look at their lessees."""
    return (len(classes) * times + _CLASSES_A_STEP - 1) // _CLASSES_A_STEP


# ----------------------------------------------------------------------------------------------------
# Capacities and their classes.


class Quotas(Protocol):
    """The definitions, as far as capacities need them; `revision` changes with every change."""

    revision: int

    def capacity(self, key: str) -> Capacity | None:
        """Return the capacity that classes with this quota key share; None if none is stated."""

    def terms(self, key: str, bucket: BucketKey) -> Terms:
        """Return the terms of the class whose requests count against this bucket."""

    def names_bucket(self, key: str, bucket: BucketKey) -> bool:
        """Whether an entry is about exactly this bucket."""


class Leases(Protocol):
    """The lessor, as far as capacities need it."""

    @property
    def lessees(self) -> Collection[object]:
        """Those that have reported, and whose leases may still last."""

    @property
    def keys(self) -> Iterable[str]:
        """The keys with shares of their own."""

    def demand(self, key: str) -> Wish | None:
        """Return the demand of all lessees together for a key; None if there is none."""

    def used(self, key: str) -> float:
        """Return the largest share of a key that all lessees together may be using."""

    def met(self, key: str, rate: float, capacity: float) -> tuple[float, float]:
        """Return how much of the demands for a loan key lessees may use of their shares of the rate, and the rest of
        those that have a weight, in bytes/s.
        """

    def resized(self, key: str) -> None:
        """Register that a key's capacity has changed."""

    def tell(self, factors: Mapping[str, float]) -> None:
        """Tell all lessees these factors, in place of those told before."""


class ClassState(NamedTuple):
    """One class of a capacity, in bytes/s.

    Args:
        quota_key: of its rate: what is read behind the log's end is a class of its own.
        bucket: whose requests it counts; None if the name is too long for a key.
        terms: as stated; the rate is 0 where none is promised.
        demand: what it could use.
        rate: what it has of its rate.
        lent: what it has beyond its rate.
        broker: where its requests are counted: with quotas for each broker, a capacity of the cluster has a class of
            each bucket and broker. ALL_BROKERS with quotas over all brokers.
        shrunk: the part of its rate that it has at any time: 1 unless more is promised than there is.
    """

    quota_key: str
    bucket: BucketKey | None
    terms: Terms
    demand: float
    rate: float
    lent: float
    broker: int = ALL_BROKERS
    shrunk: float = 1.0


class CapacityState(NamedTuple):
    """One capacity, as it was divided last.

    Args:
        quota_key: producer_byte_rate for what brokers take, consumer_byte_rate for what they give.
        broker: ALL_BROKERS for a capacity of the cluster.
        rate: bytes/s.
        shrunk: the part of its rate that each class with an entry has: 1 unless these together exceed the capacity.
        left: bytes/s that no class uses.
        classes: those with a demand.
    """

    quota_key: str
    broker: int
    rate: float
    shrunk: float
    left: float
    classes: tuple[ClassState, ...]


@dataclass(slots=True, eq=False)
class _Class:
    """A class with a demand.

    Attributes:
        key: of its loan.
        quota_key: of its rate.
        bucket: None if its name is too long to be in a key; then it borrows nothing.
        rank: whose promise it is.
        promised: the rate that it has at any time, in bytes/s; a small one where none is promised.
        borrows: whether a process of it wants more than it has of its rate.
        is_short: whether connections wait although all that it has is used.
        lent: what it has beyond its rate, of what it wants.
        loan: the same with what it may have in addition, since nothing else wants it.
    """

    key: str
    quota_key: str
    bucket: BucketKey | None
    broker: int
    terms: Terms
    rank: Rank
    promised: float
    demand: float = 0.0
    borrows: bool = False
    is_short: bool = False
    rate: float = 0.0
    lent: float = 0.0
    loan: float = 0.0

    @property
    def most(self) -> float:
        """The rate in bytes/s up to which it may borrow."""
        return max(self.terms.ceiling, self.promised)


@dataclass(slots=True, eq=False)
class _Pool:
    """A capacity that is in use: its classes, and when it was divided last.

    Attributes:
        shrunk: the part of its rate that each class has, by its rank.
    """

    rate: float
    classes: dict[str, _Class] = field(default_factory=dict)
    divided_ms: int = -_MANY_MS
    due: bool = True  # whether a demand has changed, or loans could not be raised yet
    shrunk: dict[Rank, float] = field(default_factory=lambda: dict(_WHOLE))
    left: float = 0.0


class _Costs:
    """How many steps it takes to look at a class, and to change a part of one, with so many lessees."""

    __slots__ = ("change", "look", "slice")

    def __init__(self, lessees: int) -> None:
        self.look: Final = 1 + lessees // _LESSEES_A_STEP
        self.change: Final = _STEPS_A_CHANGE + lessees + (lessees + 3) // 4
        # So many classes are in a slice: it may look twice at each, and change both of its parts.
        self.slice: Final = max(1, _SLICE // (2 * (self.look + self.change)))

    def slices(self, classes: int) -> Iterator[range]:
        """Yield the indexes of so many classes in slices."""
        for begin in range(0, classes, self.slice):
            yield range(begin, min(begin + self.slice, classes))


class Capacities:
    """Says which part of each key the top lessor may lease: all of a rate that a capacity carries, and loans.

    Args:
        quotas: returns the definitions in force.
        told: if the keys are in several parts, returns the factors that this member was told for the rates of each
            capacity; None: the lessor has the rates of all classes whose loans it has.
    """

    def __init__(
        self, quotas: Callable[[], Quotas], told: Callable[[], Mapping[str, float]] | None = None
    ) -> None:
        self._quotas = quotas
        self._told = told
        self._used: Mapping[str, float] = {}  # the factors used for the rates of this lessor
        self._factors: dict[str, float] = {}  # those to tell, of the capacities of this lessor
        self._read: tuple[object, int] = None, -1  # the definitions whose terms were read, and their revision
        self._unplaced: set[str] = set()  # loan keys of which no capacity is stated
        self._pools: dict[tuple[str, int], _Pool] = {}
        self._places: dict[str, tuple[str, int]] = {}  # of loan keys
        self._parts: dict[str, float] = {}  # those that differ from the default
        # What is under way, the next one first: the division of each capacity, or (None) the reading of terms. Each
        # with the number of steps that it makes next.
        self._under_way: dict[tuple[str, int] | None, tuple[int, Iterator[int]]] = {}
        self._changes = 0  # of parts, with this call
        self._costs = _Costs(1)

    def begin(self) -> "Capacities":
        """Forget all demands, for a lessor that begins; returns this object."""
        self._unplaced.clear()
        self._under_way.clear()
        self._pools.clear()
        self._places.clear()
        self._parts.clear()
        self._used = {}
        self._factors.clear()
        return self

    def __call__(self, key: str) -> float:
        """Return the part of a key's quota, or for a loan key of the capacity, that may be leased."""
        if is_loan(key):
            return self._parts.get(key, 0.0)
        return self._factor(key) if self._used else self._parts.get(key, 1.0)

    def _factor(self, key: str) -> float:
        """Return the factor for the rate of a class; 1 if it shares no capacity, or its capacity carries all rates."""
        quotas = self._quotas()
        if quotas.capacity(quota_key_of(key)) is None:
            return 1.0
        quota_key, bucket, broker = limiter_key_of(key)
        found = stated_terms(quota_key, bucket, quotas)
        if found is None or found[1].exempt:
            return 1.0
        capacity, terms = found
        place = capacity_key(quota_key), _broker(capacity, broker)
        # Others shrink at least as much as those with an entry; a member that does not tell their factor has told none.
        named = self._used.get(factor_key(*place), 1.0)
        return self._used.get(factor_key(*place, rank_of(quota_key, bucket, terms, quotas)), named)

    def lend(self, leases: Leases, changed: set[str], now_ms: int) -> None:
        """Divide the capacities again whose demands have changed.

        A call makes about STEPS_AT_ONCE steps. What changes while a division of many classes goes on is looked at with
        the next one, as if it had come after it; so are new terms. They are read while no division goes on, and each
        reading is followed by a division of each capacity: however often terms change, divisions end.

        Args:
            changed: the keys whose demand or shares have changed since the last call.
        """
        quotas = self._quotas()
        self._costs = _Costs(len(leases.lessees))
        altered = self._read[0] is not quotas or self._read[1] != quotas.revision
        if altered and not self._under_way:
            altered, self._read = False, (quotas, quotas.revision)
            known = [(place, pool, [*pool.classes.values()]) for place, pool in self._pools.items()]
            unplaced, self._unplaced = self._unplaced, set()
            self._under_way[None] = 0, self._read_terms(known, unplaced, quotas, leases)
        for key in changed:
            if is_loan(key):
                self._learn(key, quotas)
            elif self._pools and (place := self._places.get(loan_key(key))) is not None:
                self._pools[place].due = True
        if not altered and None not in self._under_way:
            self._begin(leases, now_ms)
        self._go_on(leases, now_ms)
        if self._told is not None:
            leases.tell(self._factors)
            self._resize_rates(leases)

    def _begin(self, leases: Leases, now_ms: int, *, anew: bool = False) -> None:
        """Begin the divisions that are due.

        Args:
            anew: whether terms were read: then none waits until some time after the last one.
        """
        for place, pool in self._pools.items():
            gap_ms = LEND_MS if len(pool.classes) < _MANY else _MANY_MS
            if pool.due and (anew or now_ms >= pool.divided_ms + gap_ms) and place not in self._under_way:
                pool.due, pool.divided_ms = False, now_ms
                self._under_way[place] = 0, self._divide(pool, leases)

    def _go_on(self, leases: Leases, now_ms: int) -> None:
        """Go on with what is under way, in turn: a small division does not wait for a large one."""
        steps = self._changes = 0
        while self._under_way:
            place, (next_steps, work) = next(iter(self._under_way.items()))
            made = steps + self._changes * self._costs.change
            if made and made + next_steps > STEPS_AT_ONCE:
                return
            del self._under_way[place]
            steps += next_steps
            then = next(work, None)
            if then is not None:
                self._under_way[place] = then, work
            elif place is None:
                self._begin(leases, now_ms, anew=True)
            else:
                steps += _STEPS_A_POOL
                self._set_factors(place, self._pools[place])
                if not self._pools[place].classes:
                    del self._pools[place]

    def _set_factors(self, place: tuple[str, int], pool: _Pool) -> None:
        """Set what to tell about the rates of a capacity's classes."""
        for rank, factor in pool.shrunk.items():
            key = factor_key(*place, rank)
            if factor >= 1:
                self._factors.pop(key, None)
            elif not max(factor / 4, factor - 2 * _FACTOR_STEP) <= self._factors.get(key, 1.0) <= factor:
                self._factors[key] = max(factor / 2, factor - _FACTOR_STEP)

    def _resize_rates(self, leases: Leases, *, anew: bool = False) -> None:
        """Use the factors that were told now for the rates of this lessor.

        Args:
            anew: whether the terms of classes may have changed.
        """
        told = {} if self._told is None else self._told()
        if anew or told != self._used:
            self._used = told
            for key in leases.keys:
                if not is_loan(key):
                    leases.resized(key)

    @property
    def dividing(self) -> bool:
        """Whether a division goes on with the next call of `lend`."""
        return bool(self._under_way)

    def states(self) -> Iterator[CapacityState]:
        """Yield the capacities in use, as they were divided last."""
        for (quota_key, broker), pool in self._pools.items():
            classes = tuple(
                ClassState(
                    one.quota_key,
                    one.bucket,
                    one.terms,
                    one.demand,
                    one.rate,
                    one.lent,
                    one.broker,
                    pool.shrunk[one.rank],
                )
                for one in pool.classes.values()
            )
            yield CapacityState(quota_key, broker, pool.rate, pool.shrunk["named"], pool.left, classes)

    def _learn(self, key: str, quotas: Quotas) -> None:
        """Register that the demand for a loan key has changed."""
        place = self._places.get(key)
        if place is None:
            quota_key, bucket, broker = limiter_key_of(rate_key(key))
            found = stated_terms(quota_key, bucket, quotas)
            if found is None:
                self._unplaced.add(key)
                return
            capacity, terms = found
            place = self._places[key] = capacity_key(quota_key), _broker(capacity, broker)
            pool = self._pools.setdefault(place, _Pool(capacity.rate))
            rank, rate = rank_of(quota_key, bucket, terms, quotas), promised(terms, capacity)
            pool.classes[key] = _Class(key, quota_key, bucket, broker, terms, rank, rate)
        self._pools[place].due = True

    def _read_terms(
        self,
        known: Iterable[tuple[tuple[str, int], _Pool, Sequence[_Class]]],
        unplaced: set[str],
        quotas: Quotas,
        leases: Leases,
    ) -> Iterator[int]:
        """Read the terms of all known classes again, since definitions have changed.

        Yields how many steps come next, wherever it may be interrupted. No division goes on meanwhile; what is lent is
        at most what the last ones gave.

        Args:
            unplaced: the loan keys of which no capacity was stated.
        """
        for place, pool, classes in known:
            for part in self._costs.slices(len(classes)):
                yield len(part) * _STEPS_A_TERM
                for one in classes[part.start : part.stop]:
                    found = stated_terms(one.quota_key, one.bucket, quotas)
                    if found is None or place[1] != _broker(found[0], one.broker):
                        self._forget(pool, one, leases)
                        unplaced.add(one.key)
                    else:
                        capacity, one.terms = found
                        one.rank = rank_of(one.quota_key, one.bucket, one.terms, quotas)
                        pool.rate, one.promised = capacity.rate, promised(one.terms, capacity)
            pool.due = True
            if not pool.classes:
                self._set_factors(place, _Pool(0.0))
                del self._pools[place]
        keys = list(unplaced)
        for part in self._costs.slices(len(keys)):
            yield len(part) * (_STEPS_A_TERM + self._costs.look)
            for key in keys[part.start : part.stop]:
                if leases.demand(key) is not None:
                    self._learn(key, quotas)
        self._resize_rates(leases, anew=bool(self._used))

    def _forget(self, pool: _Pool, one: _Class, leases: Leases) -> None:
        """Remove a class without a demand."""
        del pool.classes[one.key], self._places[one.key]
        self._set(one.key, 0.0, 0.0, leases)
        self._shrink(one, 1.0, leases)

    def _shrink(self, one: _Class, part: float, leases: Leases) -> None:
        """Set the part of its rate that a class has, unless its rate is of another lessor."""
        if self._told is None:
            self._set(rate_key(one.key), part, 1.0, leases)

    def _set(self, key: str, part: float, default: float, leases: Leases) -> None:
        if part == self._parts.get(key, default):
            return
        if part == default:
            del self._parts[key]
        else:
            self._parts[key] = part
        self._changes += 1
        leases.resized(key)

    def _divide(self, pool: _Pool, leases: Leases) -> Iterator[int]:
        """Divide one capacity among its classes: their rates first, then what is left as loans.

        Yields how many steps come next, wherever it may be interrupted.
        """
        exempt = 0.0
        every = list(pool.classes.values())
        classes: list[_Class] = []
        for part in self._costs.slices(len(every)):
            yield len(part) * (1 + self._costs.look)
            for one in every[part.start : part.stop]:
                wish = leases.demand(one.key)
                one.demand = 0.0 if wish is None else wish.wanted * pool.rate
                if wish is None and not leases.used(one.key):
                    self._forget(pool, one, leases)
                elif one.terms.exempt:
                    exempt += one.demand
                    one.rate, one.lent, one.loan = one.demand, 0.0, 0.0
                    self._set(one.key, 0.0, 0.0, leases)
                    self._shrink(one, 1.0, leases)
                else:
                    one.demand = min(one.demand, one.most)
                    one.borrows = (
                        wish is not None and wish.weight > 0 and one.quota_key not in REPLICATION_KEYS
                    )
                    one.is_short = wish is not None and wish.is_short
                    classes.append(one)
        left = yield from self._guarantee(pool, classes, max(0.0, pool.rate - exempt), leases)
        yield _passes(classes, 2)
        wanted = [one.demand - one.rate for one in classes]
        weights = [one.terms.weight for one in classes]
        loans = yield from _fill(wanted, weights, left)
        pool.left = max(0.0, left - sum(loans))
        # Those that wait may want more than they know; of the others a burst need not wait.
        for short in (True, False):
            rest = left - sum(loans)
            if rest > 0:
                yield _passes(classes, 3)
                more = [
                    one.most - one.rate - loan if loan and one.borrows and one.is_short == short else 0.0
                    for one, loan in zip(classes, loans, strict=True)
                ]
                more = yield from _fill(more, weights, rest)
                loans = list(map(add, loans, more))
        yield from self._lend(pool, classes, loans, left, leases)
        yield _passes(classes, 2)
        for one, want in zip(classes, wanted, strict=True):
            one.lent = min(want, one.loan)

    def _guarantee(
        self, pool: _Pool, classes: list[_Class], room: float, leases: Leases
    ) -> Generator[int, None, float]:
        """Set what each class has of its rate; returns what is left of the capacity."""
        yield _passes(classes, 3)
        shrunk: dict[Rank, float] = dict(_WHOLE)
        wanted = [min(one.demand, one.promised) for one in classes]
        if sum(wanted) > room:
            wanted = yield from self._shrunk(pool, shrunk, classes, wanted, room)
        pool.shrunk = shrunk
        met_too = self._told is None and shrunk["named"] == 1.0
        for part in self._costs.slices(len(classes)):
            yield len(part) * (1 + 2 * self._costs.look if met_too else 1)
            for index in part:
                one = classes[index]
                if met_too:
                    # A share of a rate that is more than its process wants is lent, as a rate that is not wanted is.
                    met, rest = leases.met(one.key, one.promised, pool.rate)
                    wanted[index] = min(wanted[index], met)
                    one.demand = min(one.demand, met + rest)
                one.rate = wanted[index]
                self._shrink(one, shrunk[one.rank], leases)
        return max(0.0, room - sum(wanted))

    def _shrunk(
        self, pool: _Pool, shrunk: dict[Rank, float], classes: list[_Class], wanted: list[float], room: float
    ) -> Generator[int, None, list[float]]:
        """Set in `shrunk` which part of its rate each rank has where more is wanted than there is.

        Returns what each class has.
        """
        yield _passes(classes, 4)
        least = pool.rate * UNPROMISED_PART
        # Classes that are promised nothing have no more together than one of them, before a promise is broken.
        together = sum(one.promised for one in classes if one.rank == "unpromised")
        if together > least:
            shrunk["unpromised"] = least / together
            wanted = _within(classes, wanted, shrunk)
        # Names below a default are without a bound: together they have what the others leave of their promises.
        below = sum(want for one, want in zip(classes, wanted, strict=True) if one.rank == "default")
        others = sum(wanted) - below
        if others + below > room * (1 + _SUM_PART) and below > least:
            yield _passes(classes, 1)
            parts = [one.promised if one.rank == "default" else 0.0 for one in classes]
            had = yield from _fill(wanted, parts, max(least, room - others))
            yield _passes(classes, 3)
            shrunk["default"] = max(
                (part / rate for part, rate in zip(had, parts, strict=True) if rate), default=1.0
            )
            wanted = _within(classes, wanted, shrunk)
        if sum(wanted) > room * (1 + _SUM_PART):
            yield _passes(classes, 1)
            rates = [one.promised * shrunk[one.rank] for one in classes]
            wanted = yield from _fill(wanted, rates, room)
            yield _passes(classes, 1)
            largest = max((had / rate for had, rate in zip(wanted, rates, strict=True)), default=1.0)
            largest = max(largest, UNPROMISED_PART)  # where exempt classes use all of it
            for rank in shrunk:
                shrunk[rank] *= largest
        return wanted

    def _lend(
        self, pool: _Pool, classes: list[_Class], loans: list[float], left: float, leases: Leases
    ) -> Iterator[int]:
        """Set which part of the capacity each class may borrow: loans are lowered first.

        Then they are raised by what no lessee may be using. What it may be using rises up to its loan at any time, so
        this counts as used, and may be read over several calls.
        """
        yield _passes(classes, 2)
        wanted = sum(max(one.loan, loan) for one, loan in zip(classes, loans, strict=True))
        short = wanted > left + pool.rate * _RAISE_PART
        lower: list[int] = []
        for part in self._costs.slices(len(classes)):
            yield (len(part) + 1) // 2
            for index in part:
                before, loan = classes[index].loan, loans[index]
                if loan < before and (not loan or _matters(before, loan, pool.rate, short=short)):
                    lower.append(index)
        # What a class that has returned needs comes from the largest loans first: a change takes more than a look.
        yield _passes(classes, 3)
        change = [loan - one.loan for one, loan in zip(classes, loans, strict=True)]
        lower.sort(key=change.__getitem__)
        for part in self._costs.slices(len(lower)):
            yield len(part)
            for index in lower[part.start : part.stop]:
                self._set_loan(pool, classes[index], loans[index], leases)
        used: list[float] = []
        for part in self._costs.slices(len(classes)):
            yield len(part) * self._costs.look
            used += [
                max(one.loan, leases.used(one.key) * pool.rate) for one in classes[part.start : part.stop]
            ]
        yield _passes(classes, 3)
        raised = [max(0.0, loan - now) for loan, now in zip(loans, used, strict=True)]
        free, wanted = max(0.0, left - sum(used)), sum(raised)
        scale = min(1.0, free / wanted) if wanted else 0.0
        pool.due |= wanted > free + pool.rate * _RAISE_PART or sum(used) > left
        for part in self._costs.slices(len(classes)):
            yield (len(part) + 1) // 2
            for index in part:
                one, now, more = classes[index], used[index], raised[index]
                if more * scale and _matters(one.loan, now + more * scale, pool.rate):
                    self._set_loan(pool, one, now + more * scale, leases)

    def _set_loan(self, pool: _Pool, one: _Class, loan: float, leases: Leases) -> None:
        one.loan = loan
        self._set(one.key, min(1.0, loan / pool.rate), 0.0, leases)


def _matters(before: float, after: float, capacity: float, *, short: bool = False) -> bool:
    """Whether the change of a loan is worth a message.

    Args:
        short: whether another class lacks what this one does not want.
    """
    if after > before or short:
        return abs(after - before) >= min(_RAISE_PART * capacity, _RAISE_OWN_PART * max(before, after))
    return before > after and before - after >= min(_LOWER_PART * capacity, _LOWER_OWN_PART * before)


def _within(classes: list[_Class], wanted: list[float], shrunk: Mapping[Rank, float]) -> list[float]:
    """Return what classes want of rates that have shrunk."""
    return [min(want, one.promised * shrunk[one.rank]) for one, want in zip(classes, wanted, strict=True)]


def rank_of(quota_key: str, bucket: BucketKey | None, terms: Terms, quotas: Quotas) -> Rank:
    """Return whose promise it is that a class has."""
    if not terms.rate:
        return "unpromised"
    if bucket is None or bucket == REPLICATION_BUCKET or quotas.names_bucket(quota_key, bucket):
        return "named"
    return "default"


def stated_terms(quota_key: str, bucket: BucketKey | None, quotas: Quotas) -> tuple[Capacity, Terms] | None:
    """Return the capacity that a class shares, and its terms; None if none is stated."""
    capacity = quotas.capacity(quota_key)
    if capacity is None:
        return None
    if bucket is None:
        return capacity, Terms(0.0, 0.0, exempt=True)
    return capacity, quotas.terms(quota_key, bucket)


def _broker(capacity: Capacity, broker: int) -> int:
    """Return the broker of which a class at this broker shares the capacity."""
    return ALL_BROKERS if capacity.cluster else broker
