"""How a capacity is divided: at most all of it, rates first, max-min by weight, more for a larger weight."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.definitions.classes import UNPROMISED_PART, Capacity, Terms, promised
from quotas.definitions.entities import BucketKey
from quotas.limiters.limiter import ALL_BROKERS
from quotas.sharing.budgets import budget_key
from quotas.sharing.capacities import LEND_MS, Capacities, fill
from quotas.sharing.lease_values import Wish, loan_key, rate_key
from tests.simulation.capacity_cases import divide

RATE = 1e6
_PARTS = st.floats(0, 1).map(lambda part: round(part, 4))
_WEIGHTS = st.floats(0.1, 10)


@st.composite
def classes(draw: st.DrawFn) -> dict[str, tuple[Terms, float]]:
    """Draw the terms of classes, and their demands in bytes/s."""
    found: dict[str, tuple[Terms, float]] = {}
    for index in range(draw(st.integers(1, 8))):
        rate = draw(_PARTS) * RATE
        terms = Terms(rate, max(rate, draw(_PARTS) * RATE), draw(_WEIGHTS), draw(st.integers(0, 9)) == 0)
        found[f"class-{index}"] = terms, draw(_PARTS) * RATE
    return found


class Divided:
    """A capacity that is divided once; no loans are in use. Names that begin with "new" are below a default.

    Args:
        waiting: the connections of each class that wait for more than their processes have.
    """

    revision = 1
    lessees = range(1)

    def __init__(self, given: dict[str, tuple[Terms, float]], waiting: int) -> None:
        self.given = given
        self.waiting = waiting
        self.keys = {
            name: loan_key(budget_key(("producer_byte_rate", BucketKey(None, name), ALL_BROKERS)))
            for name in given
        }
        self.names = {key: name for name, key in self.keys.items()}
        self.capacities = Capacities(lambda: self)
        self.capacities.lend(self, set(self.names), LEND_MS)

    def capacity(self, key: str) -> Capacity:
        return Capacity(RATE, cluster=True)

    def terms(self, key: str, bucket: BucketKey) -> Terms:
        return self.given[bucket.client_id or ""][0]

    def names_bucket(self, key: str, bucket: BucketKey) -> bool:
        return not (bucket.client_id or "").startswith("new")

    def demand(self, key: str) -> Wish | None:
        wanted = self.given[self.names[key]][1] / RATE
        return Wish(wanted, self.waiting) if wanted else None

    def used(self, key: str) -> float:
        return 0.0

    def met(self, key: str, rate: float, capacity: float) -> tuple[float, float]:
        wanted = self.given[self.names[key]][1]
        return min(wanted, rate), wanted - min(wanted, rate)

    def resized(self, key: str) -> None:
        """Nothing is leased here."""

    def tell(self, factors: Mapping[str, float]) -> None:
        """All keys have one lessor."""

    def parts(self, name: str) -> tuple[float, float]:
        """The bytes/s that a class may have of its rate, and beyond it."""
        key, (terms, demand) = self.keys[name], self.given[name]
        rate = promised(terms, Capacity(RATE, cluster=True)) * self.capacities(rate_key(key))
        return demand if terms.exempt else min(rate, demand), self.capacities(key) * RATE


@given(classes())
def test_all_together_have_at_most_the_capacity(given_classes: dict[str, tuple[Terms, float]]) -> None:
    divided = Divided(given_classes, 1)
    exempt = sum(demand for terms, demand in given_classes.values() if terms.exempt)
    others = [name for name, (terms, _) in given_classes.items() if not terms.exempt]
    total = sum(sum(divided.parts(name)) for name in others)
    # A class keeps a thousandth of its rate where exempt ones use all.
    floor = UNPROMISED_PART * sum(given_classes[name][0].rate or RATE for name in others)
    assert total <= max(0.0, RATE - exempt) + floor + 1


@given(classes(), classes())
def test_names_below_a_default_take_little_from_others(
    named: dict[str, tuple[Terms, float]], below: dict[str, tuple[Terms, float]]
) -> None:
    named = {name: (terms._replace(exempt=False), demand) for name, (terms, demand) in named.items()}
    many = {f"new-{name}": (terms._replace(exempt=False), demand) for name, (terms, demand) in below.items()}
    alone, beside = Divided(named, 1), Divided({**named, **many}, 1)
    for name in (name for name, (terms, _) in named.items() if terms.rate):
        # A small part each for these names and for classes that are promised nothing.
        assert beside.parts(name)[0] >= alone.parts(name)[0] - 2 * UNPROMISED_PART * RATE - 1


@given(classes())
def test_the_division_is_that_of_the_reference(given_classes: dict[str, tuple[Terms, float]]) -> None:
    divided = Divided(given_classes, 0)
    due = divide(
        RATE,
        {name: terms for name, (terms, _) in given_classes.items()},
        {name: demand for name, (_, demand) in given_classes.items()},
    )
    for name, part in due.items():
        rate, lent = divided.parts(name)
        assert lent == pytest.approx(part.lent, abs=0.002 * RATE)  # less is not worth a message
        assert rate >= part.rate - 1
    more = Divided(given_classes, 1)  # with waiting connections they may want more than they know
    for name, part in due.items():
        assert more.parts(name)[1] >= part.lent - 0.002 * RATE


@given(st.lists(st.tuples(_PARTS, _WEIGHTS), min_size=2, max_size=10), _PARTS, st.floats(1, 5))
def test_a_larger_weight_never_gives_less(
    demands: list[tuple[float, float]], capacity: float, times: float
) -> None:
    wanted = [want for want, _ in demands]
    weights = [weight for _, weight in demands]
    before = fill(wanted, weights, capacity)[0]
    assert fill(wanted, [weights[0] * times, *weights[1:]], capacity)[0] >= before - 1e-9


@given(st.lists(st.tuples(_PARTS, _WEIGHTS), min_size=1, max_size=10), _PARTS)
def test_a_part_below_its_demand_is_the_largest_for_its_weight(
    demands: list[tuple[float, float]], capacity: float
) -> None:
    wanted, weights = [want for want, _ in demands], [weight for _, weight in demands]
    parts = fill(wanted, weights, capacity)
    assert sum(parts) == pytest.approx(min(capacity, sum(wanted)), abs=1e-9)
    largest = max(part / weight for part, weight in zip(parts, weights, strict=True))
    for part, want, weight in zip(parts, wanted, weights, strict=True):
        assert part >= want - 1e-9 or part / weight >= largest - 1e-6


@given(st.lists(st.tuples(_PARTS, _WEIGHTS), min_size=1, max_size=10), _PARTS, _PARTS)
def test_a_larger_demand_never_takes_from_what_the_weight_gives(
    demands: list[tuple[float, float]], capacity: float, claim: float
) -> None:
    wanted, weights = [want for want, _ in demands], [weight for _, weight in demands]
    before = fill(wanted, weights, capacity)
    after = fill([max(wanted[0], claim), *wanted[1:]], weights, capacity)
    if before[0] < wanted[0]:  # it had what its weight gives already
        assert after == pytest.approx(before)
