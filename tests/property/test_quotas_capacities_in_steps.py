"""A capacity with many classes is divided over several calls: with the result of a division in one.

`divided_at_once` is that division, over plain data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

import pytest

from quotas.definitions.classes import UNPROMISED_PART, Capacity, Terms, promised
from quotas.definitions.entities import BucketKey
from quotas.limiters.limiter import ALL_BROKERS
from quotas.sharing.budgets import budget_key
from quotas.sharing.capacities import LEND_MS, STEPS_AT_ONCE, Capacities
from quotas.sharing.lease_values import SHORT, LeaseTerms, LesseeId, Report, Wish, loan_key, rate_key
from quotas.sharing.lessor import Lessor

RATE = 80e6
_RAISE_PART = 0.002
_LOWER_PART = 0.005
_RAISE_OWN_PART = 0.02
_LOWER_OWN_PART = 0.1
_SUM_PART = 1e-9


@dataclass
class One:
    """A class: its terms, its demand as a part of the capacity, how much of that its lessees may use of the rate in
    bytes/s, and its loan.
    """

    terms: Terms
    rank: str
    wanted: float = 0.0
    weight: float = 0.0
    met: float = 0.0
    loan: float = 0.0

    @property
    def demand(self) -> float:
        return self.wanted * RATE

    @property
    def promised(self) -> float:
        return promised(self.terms, Capacity(RATE, cluster=True))

    @property
    def most(self) -> float:
        return max(self.terms.ceiling, self.promised)


def filled(wanted: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:
    weight = sum(weights)
    each = capacity / weight if weight > 0 else 0.0
    if each > 0 and all(want >= each * own for want, own in zip(wanted, weights, strict=True)):
        return [each * own for own in weights]
    parts = [0.0] * len(wanted)
    order = sorted(
        (index for index, weight in enumerate(weights) if weight > 0),
        key=lambda index: wanted[index] / weights[index],
    )
    remaining = list(accumulate(weights[index] for index in reversed(order)))
    left = capacity
    for index in order:
        parts[index] = min(wanted[index], max(0.0, left) * (weights[index] / remaining.pop()))
        left -= parts[index]
    return parts


def shrunk_rates(
    classes: list[One], wanted: list[float], room: float, shrunk: dict[str, float]
) -> list[float]:
    def within() -> list[float]:
        return [min(want, one.promised * shrunk[one.rank]) for one, want in zip(classes, wanted, strict=True)]

    least = RATE * UNPROMISED_PART
    together = sum(one.promised for one in classes if one.rank == "unpromised")
    if together > least:
        shrunk["unpromised"] = least / together
        wanted = within()
    below = sum(want for one, want in zip(classes, wanted, strict=True) if one.rank == "default")
    others = sum(wanted) - below
    if others + below > room * (1 + _SUM_PART) and below > least:
        parts = [one.promised if one.rank == "default" else 0.0 for one in classes]
        had = filled(wanted, parts, max(least, room - others))
        shrunk["default"] = max(
            (part / rate for part, rate in zip(had, parts, strict=True) if rate), default=1.0
        )
        wanted = within()
    if sum(wanted) > room * (1 + _SUM_PART):
        rates = [one.promised * shrunk[one.rank] for one in classes]
        wanted = filled(wanted, rates, room)
        largest = max((had / rate for had, rate in zip(wanted, rates, strict=True)), default=1.0)
        for rank in shrunk:
            shrunk[rank] *= max(largest, UNPROMISED_PART)
    return wanted


def lend_at_once(
    classes: list[One], used: list[float], rates: list[float], demands: list[float], left: float
) -> None:
    weights = [one.terms.weight for one in classes]
    loans = filled([demand - rate for demand, rate in zip(demands, rates, strict=True)], weights, left)
    for short in (True, False):
        rest = left - sum(loans)
        if rest > 0:
            more = [
                one.most - rate - loan if loan and one.weight and (one.weight > 1) == short else 0.0
                for one, rate, loan in zip(classes, rates, loans, strict=True)
            ]
            loans = [sum(pair) for pair in zip(loans, filled(more, weights, rest), strict=True)]
    lacks = (
        sum(max(one.loan, loan) for one, loan in zip(classes, loans, strict=True)) > left + _RAISE_PART * RATE
    )
    for one, loan in zip(classes, loans, strict=True):
        parts = (_RAISE_PART, _RAISE_OWN_PART) if lacks else (_LOWER_PART, _LOWER_OWN_PART)
        if loan < one.loan and (not loan or one.loan - loan >= min(parts[0] * RATE, parts[1] * one.loan)):
            one.loan = loan
    have = [max(one.loan, now) for one, now in zip(classes, used, strict=True)]
    raised = [max(0.0, loan - now) for loan, now in zip(loans, have, strict=True)]
    free = max(0.0, left - sum(have))
    scale = min(1.0, free / sum(raised)) if sum(raised) else 0.0
    for one, now, gain in zip(classes, have, raised, strict=True):
        lent = now + gain * scale
        if gain * scale and lent - one.loan >= min(_RAISE_PART * RATE, _RAISE_OWN_PART * lent):
            one.loan = lent


def divided_at_once(every: Mapping[str, One], used: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of keys that differ from the default; sets the loans."""
    found: dict[str, float] = {}
    keys = [key for key in every if not every[key].terms.exempt]
    classes = [every[key] for key in keys]
    exempt = 0.0
    for one in every.values():  # `sum` rounds otherwise
        exempt += one.demand if one.terms.exempt else 0.0
    room = max(0.0, RATE - exempt)
    demands = [min(one.demand, one.most) for one in classes]
    wanted = [min(demand, one.promised) for one, demand in zip(classes, demands, strict=True)]
    shrunk = {"named": 1.0, "default": 1.0, "unpromised": 1.0}
    if sum(wanted) > room:
        wanted = shrunk_rates(classes, wanted, room, shrunk)
    if shrunk["named"] == 1.0:
        for index, one in enumerate(classes):
            wanted[index] = min(wanted[index], one.met)
    for key, one in zip(keys, classes, strict=True):
        found[rate_key(key)] = shrunk[one.rank]
    have = [used.get(key, 0.0) * RATE for key in keys]
    lend_at_once(classes, have, wanted, demands, max(0.0, room - sum(wanted)))
    return found | {key: min(1.0, one.loan / RATE) for key, one in every.items() if not one.terms.exempt}


class Many:
    """Many classes of one capacity, whose lessees use all that they are lent after each division.

    Attributes:
        lessees: numbers of them.
        looks: how often a demand, or what is used or met, was asked for; each looks at all lessees.
        changes: of parts.
        reads: how often the terms of a class were asked for.
    """

    revision = 1
    lessees = range(1)
    looks = changes = reads = 0

    def __init__(self, draw: Random, count: int, together: float) -> None:
        self.classes: dict[str, One] = {}
        self.in_use: dict[str, float] = {}
        for index in range(count):
            rank = draw.choice(("named", "named", "default", "unpromised"))
            rate = 0.0 if rank == "unpromised" else draw.random() * 2 * together * RATE / count
            name = f"{rank}-{index}"
            key = loan_key(budget_key(("producer_byte_rate", BucketKey(None, name), ALL_BROKERS)))
            terms = Terms(
                rate, max(rate, RATE * draw.random() ** 4), draw.uniform(0.1, 5), draw.random() < 0.01
            )
            self.classes[key] = One(terms, rank)
        self.demand_anew(draw, set(self.classes))
        self.names = {key: key.rpartition(":")[2] for key in self.classes}
        self.terms_of = {self.names[key]: one.terms for key, one in self.classes.items()}
        self.capacities = Capacities(lambda: self)

    def divided_at_once(self) -> dict[str, float]:
        """Return what the former division gives, with the classes in the same order: sums are rounded by it."""
        (state,) = self.capacities.states()
        keys = {name: key for key, name in self.names.items()}
        order = [keys[one.bucket.client_id or ""] for one in state.classes if one.bucket is not None]
        return divided_at_once({key: self.classes[key] for key in order}, self.in_use)

    def demand_anew(self, draw: Random, keys: set[str]) -> None:
        for key in sorted(keys):
            one = self.classes[key]
            one.wanted = min(1.0, 3 * draw.random() / len(self.classes))
            one.weight = draw.choice((0.0, 1.0, 1.0 + SHORT))
            one.met = draw.uniform(0.5, 1) * one.promised

    def capacity(self, key: str) -> Capacity:
        return Capacity(RATE, cluster=True)

    def terms(self, key: str, bucket: BucketKey) -> Terms:
        self.reads += 1
        return self.terms_of[bucket.client_id or ""]

    def names_bucket(self, key: str, bucket: BucketKey) -> bool:
        return not (bucket.client_id or "").startswith("default")

    @property
    def keys(self) -> list[str]:
        return []

    def demand(self, key: str) -> Wish | None:
        self.looks += 1
        one = self.classes[key]
        return Wish(one.wanted, one.weight)

    def used(self, key: str) -> float:
        self.looks += 1
        return self.in_use.get(key, 0.0)

    def met(self, key: str, rate: float, capacity: float) -> tuple[float, float]:
        self.looks += 1
        return self.classes[key].met, RATE  # what is beyond the rate is bounded by the demand alone

    def resized(self, key: str) -> None:
        self.changes += 1

    def tell(self, factors: Mapping[str, float]) -> None:
        """All keys have one lessor."""


@pytest.mark.parametrize("together", [0.3, 0.9, 3.0])
@pytest.mark.parametrize("count", [100, 3000])
def test_a_division_over_several_calls_is_that_of_one(together: float, count: int) -> None:
    draw = Random(f"{together} {count}")
    many = Many(draw, count, together)
    now_ms, calls_max, changed = 0, 0, set(many.classes)
    for _ in range(4):
        now_ms += 5 * LEND_MS  # so many classes are divided no more often
        many.capacities.lend(many, changed, now_ms)
        due, calls = many.divided_at_once(), 1
        while {key: many.capacities(key) for key in due} != due:
            # Some 7 steps for each class, and 8 for each change of its parts: the loan may be lowered, then raised.
            assert calls * STEPS_AT_ONCE < 31 * count + STEPS_AT_ONCE
            many.capacities.lend(many, set(), now_ms)
            calls += 1
        assert calls == 1 or count > 1000
        calls_max = max(calls_max, calls)
        many.capacities.lend(many, set(), now_ms)  # the next one is not due yet
        assert {key: many.capacities(key) for key in due} == due
        many.in_use = {key: many.capacities(key) for key in many.classes}
        changed = set(draw.sample(sorted(many.classes), count // 10))
        many.demand_anew(draw, changed)
    assert (calls_max > 1) == (count > 1000)


@pytest.mark.parametrize("lessees", [1, 16, 100])
def test_a_call_is_as_long_with_many_lessees(lessees: int) -> None:
    """A look at a class is a step, and one more for each 3 lessees; a change is six, and 5 for each 4 lessees."""
    draw = Random(lessees)
    many = Many(draw, 3000, 0.3)
    many.lessees = range(lessees)
    many.capacities.lend(many, set(many.classes), 0)  # it reads the terms of each, since all are new
    look, change = 1 + lessees // 3, 6 + 5 * lessees // 4
    looks = changes = reads = 0
    for call in range(1, 500):
        if call == 400:
            many.revision += 1
        many.looks = many.changes = many.reads = 0
        many.capacities.lend(many, set(), call * LEND_MS)
        steps = many.looks * look + many.changes * change + many.reads * 6
        assert steps <= STEPS_AT_ONCE + 500, f"call {call}"  # and a slice
        looks, changes, reads = looks + many.looks, changes + many.changes, reads + many.reads
    assert (looks >= 3 * 3000, changes >= 1500, reads) == (True, True, 3000)
    due = many.divided_at_once()
    assert {key: many.capacities(key) for key in due} == due


def test_new_terms_are_used_once_a_division_has_ended() -> None:
    draw = Random(7)
    many = Many(draw, 3000, 0.9)
    many.capacities.lend(many, set(many.classes), 5 * LEND_MS)
    many.divided_at_once()  # the one that has begun
    for key, one in many.classes.items():
        one.terms = many.terms_of[many.names[key]] = one.terms._replace(weight=draw.uniform(0.1, 5))
    many.revision = 2
    for call in range(40):
        many.capacities.lend(many, set(), (10 + call) * LEND_MS)
    due = many.divided_at_once()
    assert {key: many.capacities(key) for key in due} == due


def test_a_division_ends_where_definitions_change_all_the_time() -> None:
    """Also where to read the terms takes several calls."""
    many = Many(Random(7), 3000, 0.9)
    many.capacities.lend(many, set(many.classes), 5 * LEND_MS)
    due = many.divided_at_once()
    for call in range(31 * 3000 // STEPS_AT_ONCE):
        many.revision += 1
        many.capacities.lend(many, set(), (6 + call) * LEND_MS)
        if {key: many.capacities(key) for key in due} == due:
            return
    raise AssertionError("no division has ended")


def test_a_capacity_of_few_classes_does_not_wait_for_one_of_many() -> None:
    many = Many(Random(7), 3000, 0.9)
    few = loan_key(budget_key(("consumer_byte_rate", BucketKey(None, "few"), ALL_BROKERS)))
    many.classes[few] = One(Terms(0.0, RATE), "unpromised", 1.0, 1.0)
    many.terms_of["few"] = many.classes[few].terms
    many.capacities.lend(many, set(many.classes) - {few}, 5 * LEND_MS)
    many.capacities.lend(many, {few}, 6 * LEND_MS)
    assert many.capacities(few) == 1


def test_the_largest_loan_is_lowered_first_where_many_are() -> None:
    """Of 9,000 borrowers one has a half of what an owner leaves, and the owner returns."""
    many = Many(Random(7), 9001, 0.0)
    owner, *keys, big = many.classes

    def want(own: float) -> None:
        for key, one in many.classes.items():
            promise = 0.9 * RATE if key == owner else 100.0
            one.terms = many.terms_of[many.names[key]] = Terms(promise, RATE, 9000.0 if key == big else 1.0)
            one.wanted, one.weight, one.met = (own if key == owner else 1.0), 1.0, promise if own else 0.0

    want(0.0)
    for call in range(100):
        many.capacities.lend(many, set() if call else set(many.classes), call * LEND_MS)
    before = {key: many.capacities(key) for key in (big, *keys)}
    assert before[big] > 0.45
    many.in_use = dict(before)
    want(0.9)
    for call in range(30):
        many.capacities.lend(many, set() if call else {owner}, (100 + call) * LEND_MS)
        if many.capacities(big) < 0.1:
            break
    assert many.capacities(big) < 0.1
    # Of the others a call's changes at most are lowered: each is six steps and more.
    assert sum(many.capacities(key) < before[key] for key in keys) <= STEPS_AT_ONCE / 6


@pytest.mark.parametrize("calls", [8, 9, 10, 11])
def test_loans_in_use_are_at_most_the_capacity_where_one_is_used_again_during_a_division(calls: int) -> None:
    """A half of a large loan is given back by one lessee, and later granted to another one, while loans are set."""
    many = Many(Random(7), 9000, 0.0)
    big, *keys = many.classes

    def want(large: float, small: float) -> None:
        for key, one in many.classes.items():
            one.terms = many.terms_of[many.names[key]] = Terms(100.0, RATE)
            one.wanted, one.weight, one.met = (large if key == big else small / 9000), 1.0, 0.0

    want(0.9, 0.05)
    many.capacities.lend(many, {big}, 0)  # it is looked at first
    for call in range(50):
        many.capacities.lend(many, set() if call else set(keys), call * LEND_MS)
    many.in_use = {key: many.capacities(key) for key in many.classes}
    many.in_use[big] /= 2
    want(0.45, 0.9)
    for call in range(30):
        many.capacities.lend(many, set() if call else set(many.classes), (50 + call) * LEND_MS)
        for key in keys if call < calls else many.classes:
            many.in_use[key] = max(many.in_use[key], many.capacities(key))
        assert sum(many.in_use.values()) <= 1 + 1e-9
    assert many.capacities(big) < 0.5


def test_lessor_says_that_a_division_goes_on() -> None:
    many = Many(Random(7), 1500, 0.9)
    lessor = Lessor(LeaseTerms(15_000, 1000, 1), 1, many.capacities, 0, 0)
    wishes = {key: Wish(one.wanted, one.weight) for key, one in many.classes.items()}
    lessor.report(Report(LesseeId("a", 1), 0, 1, 0, wishes, {}, 1), 0)
    calls, dividing = 0, True
    while dividing:
        list(lessor.grants(LEND_MS))
        calls, dividing = calls + 1, lessor.dividing
    # 1,500 classes need some 10 steps each, and many of their loans are raised.
    assert calls >= 3
