"""Capacities: rates first, then loans by weight; a loan is raised only by what no lessee may be using."""

from collections.abc import Mapping

import pytest

from quotas.definitions.classes import UNPROMISED_PART, Capacity, Terms
from quotas.definitions.entities import BucketKey
from quotas.limiters.limiter import ALL_BROKERS
from quotas.sharing.budgets import budget_key
from quotas.sharing.capacities import LEND_MS, Capacities
from quotas.sharing.lease_values import DEFAULT_KEY, SHORT, Wish, factor_key, loan_key

PRODUCE = "producer_byte_rate"
RATE = 8e6


def rate_of(name: str, broker: int = ALL_BROKERS) -> str:
    return budget_key((PRODUCE, BucketKey(None, name), broker))


def loan_of(name: str, broker: int = ALL_BROKERS) -> str:
    return loan_key(rate_of(name, broker))


class Stated:
    """Definitions with one capacity; names that begin with "new" are below a default."""

    def __init__(self, terms: Mapping[str, Terms], *, cluster: bool = True) -> None:
        self.revision = 1
        self.stated: Capacity | None = Capacity(RATE, cluster)
        self.classes = dict(terms)

    def capacity(self, key: str) -> Capacity | None:
        return self.stated if key == PRODUCE else None

    def terms(self, key: str, bucket: BucketKey) -> Terms:
        assert bucket.client_id is not None
        return self.classes[bucket.client_id]

    def names_bucket(self, key: str, bucket: BucketKey) -> bool:
        return not str(bucket.client_id).startswith("new")


class Leases:
    """A lessor whose lessees use what they are lent, or what the test says.

    Attributes:
        rates: by loan key, the part of its rate that a class has where there is a demand.
        enough: loan keys of classes whose connections do not wait.
    """

    def __init__(self) -> None:
        self.demands: dict[str, float] = {}
        self.in_use: dict[str, float] = {}
        self.rates: dict[str, float] = {}
        self.enough: set[str] = set()
        self.changed: list[str] = []
        self.keys: list[str] = []
        self.told: dict[str, float] = {}
        self.lessees = range(1)

    def tell(self, factors: Mapping[str, float]) -> None:
        self.told = dict(factors)

    def demand(self, key: str) -> Wish | None:
        weight = 1 if key in self.enough else 1 + SHORT
        return Wish(self.demands[key], weight) if key in self.demands else None

    def used(self, key: str) -> float:
        return self.in_use.get(key, 0.0)

    def met(self, key: str, rate: float, capacity: float) -> tuple[float, float]:
        wanted = self.demands.get(key, 0.0) * capacity
        met = min(wanted, self.rates.get(key, 1.0) * rate)
        return met, wanted - met

    def resized(self, key: str) -> None:
        self.changed.append(key)


class World:
    """A capacity, and the demands for it."""

    def __init__(
        self, terms: Mapping[str, Terms], *, cluster: bool = True, factors: Mapping[str, float] | None = None
    ) -> None:
        self.quotas = Stated(terms, cluster=cluster)
        self.leases = Leases()
        self.factors = factors
        self.capacities = Capacities(lambda: self.quotas, None if factors is None else self._told)
        self.now_ms = 0

    def _told(self) -> Mapping[str, float]:
        assert self.factors is not None
        return self.factors

    def want(self, **demands: float) -> None:
        """Set demands in MB/s, and divide."""
        for name, demand in demands.items():
            self.leases.demands[loan_of(name)] = demand * 1e6 / RATE
        self.lend({loan_of(name) for name in demands})

    def lend(self, changed: set[str] | None = None) -> None:
        self.now_ms += LEND_MS
        for changes in (changed or set(), set(), set()):  # many classes need several calls
            self.capacities.lend(self.leases, changes, self.now_ms)

    def lent(self, name: str) -> float:
        """In MB/s."""
        return self.capacities(loan_of(name)) * RATE / 1e6


ALL = {"a": Terms(4e6, RATE), "b": Terms(2e6, RATE), "c": Terms(1e6, RATE, 2.0)}


def test_what_rates_leave_is_lent_by_weight() -> None:
    world = World(ALL)
    world.want(a=8, b=8, c=8)
    # 8 - (4 + 2 + 1) = 1 MB/s by weights 1, 1 and 2.
    assert [world.lent(name) for name in "abc"] == pytest.approx([0.25, 0.25, 0.5])
    assert [world.capacities(rate_of(name)) for name in "abc"] == [1.0, 1.0, 1.0]


def test_what_a_class_does_not_use_of_its_rate_is_lent() -> None:
    world = World(ALL)
    world.want(a=1, b=8, c=8)
    # 8 - (1 + 2 + 1) = 4 MB/s by weights 1 and 2.
    assert [world.lent(name) for name in "abc"] == pytest.approx([0, 4 / 3, 8 / 3])


def test_what_a_class_cannot_use_of_its_rate_where_it_has_a_demand_is_lent() -> None:
    world = World(ALL)
    world.leases.rates[loan_of("a")] = 0.25
    world.want(a=8, b=8, c=8)
    # 8 - (1 + 2 + 1) = 4 MB/s by weights 1, 1 and 2.
    assert [world.lent(name) for name in "abc"] == pytest.approx([1, 1, 2])
    world.leases.rates[loan_of("a")] = 1.0
    world.lend({rate_of("a")})
    assert [world.lent(name) for name in "abc"] == pytest.approx([0.25, 0.25, 0.5])


def test_a_loan_ends_at_the_ceiling_and_the_rest_goes_to_others() -> None:
    world = World({**ALL, "c": Terms(1e6, 1.2e6, 2.0)})
    world.want(a=8, b=8, c=8)
    # 1 MB/s is left: 0.2 up to the ceiling of c, 0.4 for each of the others.
    assert [world.lent(name) for name in "abc"] == pytest.approx([0.4, 0.4, 0.2])


def test_without_a_ceiling_above_its_rate_a_class_borrows_nothing() -> None:
    world = World({"a": Terms(4e6, 4e6), "b": Terms(2e6, RATE)})
    world.want(a=8, b=8)
    assert [world.lent("a"), world.lent("b")] == pytest.approx([0, 2])


def test_rates_beyond_the_capacity_shrink_in_proportion() -> None:
    world = World({"a": Terms(6e6, RATE), "b": Terms(4e6, RATE)})
    world.want(a=8, b=8)
    # 8 of 10 MB/s.
    assert [world.capacities(rate_of(name)) for name in "ab"] == pytest.approx([0.8, 0.8])
    assert (world.lent("a"), world.lent("b")) == (0, 0)
    (state,) = world.capacities.states()
    assert state.shrunk == pytest.approx(0.8)
    assert sorted(one.rate for one in state.classes) == pytest.approx([3.2e6, 4.8e6])


def test_rates_that_are_not_wanted_do_not_shrink_the_others() -> None:
    world = World({"a": Terms(6e6, RATE), "b": Terms(4e6, RATE)})
    world.want(a=8, b=1)
    assert world.capacities(rate_of("a")) == 1.0
    assert world.lent("a") == pytest.approx(1)  # 8 - 6 - 1


def test_a_class_without_a_promise_has_no_more_than_its_ceiling() -> None:
    world = World({"a": Terms(4e6, 4e6), "b": Terms(0, 0.1e6)})
    world.want(a=8, b=8)
    (state,) = world.capacities.states()
    assert sorted(one.rate + one.lent for one in state.classes) == pytest.approx([0.1e6, 4e6])


def test_many_classes_without_a_promise_take_nothing_from_one_that_is_promised() -> None:
    many = {f"b{number}": Terms(0, RATE) for number in range(40)}
    world = World({"a": Terms(7e6, 7e6), **many})
    world.want(a=8, **dict.fromkeys(many, 8))
    assert world.capacities(rate_of("a")) == 1.0
    (state,) = world.capacities.states()
    assert state.shrunk == 1.0
    each = [one.rate + one.lent for one in state.classes if one.bucket != BucketKey(None, "a")]
    assert each == pytest.approx([1e6 / 40] * 40)


def test_names_below_a_default_take_nothing_from_one_that_is_promised() -> None:
    many = {f"new{number}": Terms(1e6, 1e6) for number in range(20)}
    world = World({"a": Terms(6e6, 6e6), **many})
    world.want(a=8, **dict.fromkeys(many, 1))
    # 2 of 8 MB/s are left for 20.
    assert [world.capacities(rate_of(name)) for name in ("a", "new0")] == pytest.approx([1.0, 0.1])
    (state,) = world.capacities.states()
    assert state.shrunk == 1.0
    assert sorted(one.rate for one in state.classes) == pytest.approx([0.1e6] * 20 + [6e6])
    assert sorted(one.shrunk for one in state.classes) == pytest.approx([0.1] * 20 + [1.0])


def test_names_below_a_default_keep_a_small_part_together() -> None:
    many = {f"new{number}": Terms(1e6, 1e6) for number in range(20)}
    world = World({"a": Terms(9e6, 9e6), **many})
    world.want(a=9, **dict.fromkeys(many, 1))
    # 3 % of 8 MB/s, and then all shrink: 9.24 are wanted of 8.
    part = 8 / (9 + 8 * UNPROMISED_PART)
    assert world.capacities(rate_of("a")) == pytest.approx(part)
    assert world.capacities(rate_of("new0")) == pytest.approx(part * 8 * UNPROMISED_PART / 20)


def test_a_class_without_a_promise_has_a_small_part_and_what_is_left() -> None:
    world = World({"a": Terms(4e6, 4e6), "b": Terms(0, RATE)})
    world.want(a=8, b=8)
    assert world.lent("b") == pytest.approx(8 - 4 - 8 * UNPROMISED_PART)


def test_what_exempt_classes_use_is_taken_from_the_others() -> None:
    world = World({"a": Terms(0, 0, exempt=True), "b": Terms(2e6, RATE)})
    world.want(a=3, b=8)
    assert world.lent("b") == pytest.approx(8 - 3 - 2)
    world.want(a=7)
    world.leases.in_use[loan_of("b")] = 3e6 / RATE
    # 1 MB/s is left of a rate of 2.
    assert [world.lent("b"), world.capacities(rate_of("b"))] == pytest.approx([0, 0.5])


def test_a_class_that_becomes_exempt_borrows_no_more_and_has_all_of_its_rate() -> None:
    world = World({"a": Terms(6e6, RATE), "b": Terms(1e6, RATE)})
    world.want(a=8, b=1)
    assert world.lent("a") == pytest.approx(1)
    world.quotas.classes |= {"a": Terms(6e6, RATE, exempt=True), "b": Terms(6e6, RATE)}
    world.quotas.revision += 1
    world.want(a=6, b=8)
    assert (world.lent("a"), world.capacities(rate_of("a"))) == (0, 1.0)
    (state,) = world.capacities.states()
    assert {one.bucket.client_id: (one.rate, one.lent) for one in state.classes if one.bucket} == {
        "a": (6e6, 0),
        "b": (2e6, 0),
    }


def test_classes_keep_a_rate_where_exempt_ones_use_all() -> None:
    world = World({"a": Terms(0, 0, exempt=True), "b": Terms(2e6, RATE)})
    world.want(a=8, b=8)
    assert world.capacities(rate_of("b")) == UNPROMISED_PART


def test_a_loan_is_raised_only_by_what_is_not_in_use() -> None:
    world = World({"a": Terms(2e6, RATE), "b": Terms(2e6, RATE)})
    world.want(a=8)
    assert world.lent("a") == pytest.approx(6)
    world.leases.in_use[loan_of("a")] = 6e6 / RATE
    world.want(b=8)
    # 8 - 2 - 2 = 4 MB/s are left, 2 for each; a still uses 6.
    assert [world.lent("a"), world.lent("b")] == pytest.approx([2, 0])
    world.leases.in_use[loan_of("a")] = 3e6 / RATE
    world.lend()  # again, though no demand has changed
    assert world.lent("b") == pytest.approx(1)
    world.leases.in_use |= {loan_of("a"): 2e6 / RATE, loan_of("b"): 1e6 / RATE}
    world.lend()
    assert world.lent("b") == pytest.approx(2)


def test_a_class_without_a_demand_has_no_loan() -> None:
    world = World(ALL)
    world.want(a=8)
    del world.leases.demands[loan_of("a")]
    world.lend({loan_of("a")})
    assert world.lent("a") == 0
    assert not list(world.capacities.states())


def test_a_capacity_is_divided_again_after_some_ms_only() -> None:
    world = World(ALL)
    world.want(a=8)
    world.leases.demands[loan_of("b")] = 1.0
    world.capacities.lend(world.leases, {loan_of("b")}, world.now_ms + LEND_MS - 1)
    assert world.lent("b") == 0
    world.capacities.lend(world.leases, set(), world.now_ms + LEND_MS)
    (state,) = world.capacities.states()
    assert [one.demand for one in state.classes] == [8e6, 8e6]


def test_each_broker_has_a_capacity_of_its_own() -> None:
    world = World(ALL, cluster=False)
    for broker in (1, 2):
        world.leases.demands[loan_of("a", broker)] = 1.0
    world.lend({loan_of("a", 1), loan_of("a", 2)})
    assert [world.capacities(loan_of("a", broker)) * RATE for broker in (1, 2)] == pytest.approx([4e6, 4e6])
    assert {state.broker for state in world.capacities.states()} == {1, 2}


def test_capacity_of_the_cluster_has_a_class_of_each_broker_where_quotas_are_counted_there() -> None:
    world = World(ALL)
    for broker in (1, 2):
        world.leases.demands[loan_of("a", broker)] = 1.0
    world.lend({loan_of("a", 1), loan_of("a", 2)})
    (state,) = world.capacities.states()
    assert (state.broker, sorted(one.broker for one in state.classes)) == (ALL_BROKERS, [1, 2])


def test_altered_terms_are_used_at_once() -> None:
    world = World(ALL)
    world.want(a=8, b=8)
    world.quotas.classes["a"] = Terms(4e6, 4e6)
    world.quotas.revision += 1
    world.lend()
    assert [world.lent("a"), world.lent("b")] == pytest.approx([0, 2])


def test_a_capacity_that_goes_away_ends_loans_and_restores_rates() -> None:
    world = World({"a": Terms(6e6, RATE), "b": Terms(4e6, RATE)})
    world.want(a=8, b=8)
    world.leases.changed.clear()
    world.quotas.stated = None
    world.quotas.revision += 1
    world.lend()
    assert [world.capacities(rate_of(name)) for name in "ab"] == [1.0, 1.0]
    assert set(world.leases.changed) == {rate_of("a"), rate_of("b")}
    assert not list(world.capacities.states())


def test_a_lessor_that_begins_has_no_demands() -> None:
    world = World({"a": Terms(6e6, RATE), "b": Terms(4e6, RATE)})
    world.want(a=8, b=8)
    assert world.capacities.begin()(rate_of("a")) == 1.0


def test_a_demand_beyond_what_the_weight_gives_changes_nothing() -> None:
    honest, lying = World(ALL), World(ALL)
    honest.want(a=4.25, b=8, c=8)
    lying.want(a=8, b=8, c=8)
    assert lying.lent("a") == pytest.approx(honest.lent("a"))


def test_other_definitions_with_the_same_revision_are_read() -> None:
    world = World(ALL)
    world.want(a=8, b=8)
    world.quotas = Stated({**ALL, "a": Terms(4e6, 4e6)})
    world.lend()
    assert [world.lent("a"), world.lent("b")] == pytest.approx([0, 2])


def test_a_demand_that_came_before_its_capacity_is_served_when_that_is_stated() -> None:
    world = World(ALL)
    stated, world.quotas.stated = world.quotas.stated, None
    world.want(a=8)
    assert world.lent("a") == 0
    world.quotas.stated = stated
    world.quotas.revision += 1
    world.lend()
    assert world.lent("a") == pytest.approx(4)  # 8 - 4


def test_a_capacity_of_the_cluster_becomes_one_of_each_broker() -> None:
    world = World(ALL)
    for broker in (1, 2):
        world.leases.demands[loan_of("a", broker)] = 0.75
    world.lend({loan_of("a", 1), loan_of("a", 2)})
    # 8 MB/s for both, of which each is promised 4.
    assert [world.capacities(loan_of("a", broker)) for broker in (1, 2)] == [0, 0]
    world.quotas.stated = Capacity(RATE, cluster=False)
    world.quotas.revision += 1
    world.lend()
    # 6 MB/s are wanted at each, of which 4 are promised, and no one else wants the rest.
    assert [world.capacities(loan_of("a", broker)) * RATE for broker in (1, 2)] == pytest.approx([4e6, 4e6])


SHRINK = factor_key(PRODUCE, ALL_BROKERS)
SHRINK_BELOW = factor_key(PRODUCE, ALL_BROKERS, "default")
SHRINK_BARE = factor_key(PRODUCE, ALL_BROKERS, "unpromised")


def test_lessor_of_a_capacity_tells_by_how_much_rates_of_other_lessors_shrink() -> None:
    world = World({"a": Terms(6e6, RATE), "b": Terms(4e6, RATE)}, factors={})
    world.want(a=8, b=8)
    # 8 of 10 MB/s; what is told is a little less, so that it does not change at each division.
    assert world.leases.told[SHRINK] == world.leases.told[SHRINK_BARE] == pytest.approx(0.797)
    assert world.capacities(rate_of("a")) == 1.0  # until it is told so itself
    told = world.leases.told
    world.want(a=8, b=7.99)
    assert world.leases.told == told
    world.want(b=1)
    assert world.leases.told == {}
    world.want(b=8)
    world.quotas.stated, world.quotas.revision = None, 2
    world.lend()
    assert world.leases.told == {}


def test_classes_without_a_promise_have_a_factor_of_their_own() -> None:
    names = [f"bare-{number}" for number in range(10)]
    world = World({"a": Terms(7.7e6, RATE), **{name: Terms(0, RATE) for name in names}}, factors={})
    world.want(a=8, **dict.fromkeys(names, 8.0))
    # All ten have 3 % together, as one of them has elsewhere: a tenth of it each, and what is promised fits then.
    assert world.leases.told == {SHRINK_BARE: pytest.approx(0.1 - 0.003)}


def test_classes_without_a_promise_keep_a_rate_however_many_they_are() -> None:
    names = [f"bare-{number}" for number in range(400)]
    world = World({"a": Terms(7.7e6, RATE), **{name: Terms(0, RATE) for name in names}}, factors={})
    world.want(a=8, **dict.fromkeys(names, 8.0))
    # 3 % together: a 400th of it each. A factor of 0 would be a rate of 0.
    assert 0.5 / 400 <= world.leases.told[SHRINK_BARE] <= 1 / 400
    told = world.leases.told
    world.want(a=7.99)
    assert world.leases.told == told


def test_lessor_of_rates_uses_the_factors_that_it_was_told() -> None:
    terms = {"a": Terms(4e6, RATE), "bare": Terms(0, RATE), "free": Terms(1e6, RATE, exempt=True)}
    world = World(terms, factors={})
    world.leases.keys = [*map(rate_of, terms), loan_of("a"), "controller_mutation_rate@-1 -=:a"]
    world.lend()
    assert world.leases.changed == []
    world.factors = {SHRINK: 0.5, SHRINK_BARE: 0.1}
    world.lend()
    assert set(world.leases.changed) == {*world.leases.keys} - {loan_of("a")}
    assert [world.capacities(key) for key in world.leases.keys] == [0.5, 0.1, 1.0, 0.0, 1.0]
    assert world.capacities(DEFAULT_KEY) == 1.0
    world.leases.changed.clear()
    world.lend()
    assert world.leases.changed == []
    world.quotas.classes["free"], world.quotas.revision = Terms(1e6, RATE), 2
    world.lend()
    assert rate_of("free") in world.leases.changed
    assert world.capacities(rate_of("free")) == 0.5
    world.factors = {}
    world.lend()
    assert world.capacities(rate_of("a")) == 1.0


def test_names_below_a_default_shrink_with_the_others_where_an_older_member_tells_no_factor_of_theirs() -> (
    None
):
    world = World({"a": Terms(4e6, RATE), "new": Terms(4e6, RATE)}, factors={})
    world.leases.keys = [*map(rate_of, ("a", "new"))]
    world.factors = {SHRINK: 0.5}  # once one factor was that of all promised rates
    world.lend()
    assert [world.capacities(key) for key in world.leases.keys] == [0.5, 0.5]
    world.factors = {SHRINK: 0.5, SHRINK_BELOW: 0.1}
    world.lend()
    assert [world.capacities(key) for key in world.leases.keys] == [0.5, 0.1]


def test_factor_of_an_unknown_rank_as_a_newer_member_tells_it_changes_nothing() -> None:
    world = World({"a": Terms(4e6, RATE), "new": Terms(4e6, RATE)}, factors={})
    world.leases.keys = [*map(rate_of, ("a", "new"))]
    world.factors = {f"{SHRINK} later": 0.1, SHRINK_BELOW: 0.5}
    world.lend()
    assert [world.capacities(key) for key in world.leases.keys] == [1.0, 0.5]


def test_capacity_of_each_broker_shrinks_the_rates_of_its_own_classes() -> None:
    world = World({"a": Terms(4e6, RATE)}, cluster=False, factors={})
    world.leases.keys = [rate_of("a", 1), rate_of("a", 2)]
    world.factors = {factor_key(PRODUCE, 2): 0.5}
    world.lend()
    assert [world.capacities(key) for key in world.leases.keys] == [1.0, 0.5]


def test_many_classes_are_lent_a_small_part_each() -> None:
    names = [f"c{index}" for index in range(600)]
    world = World({name: Terms(1000, RATE) for name in names})
    world.want(**dict.fromkeys(names, 8))
    # 8 MB/s - 600 x 1 kB/s = 7.4 MB/s are lent, 1 / 600 of that each: 0.15 % of the capacity.
    assert [world.lent(name) for name in names] == pytest.approx([7.4 / 600] * 600)


def test_small_loans_are_lowered_for_another_class() -> None:
    names = [f"c{index}" for index in range(600)]
    world = World({name: Terms(1000, RATE) for name in (*names, "late")})
    world.want(**dict.fromkeys(names, 8))
    world.lend()
    world.leases.in_use |= {loan_of(name): world.capacities(loan_of(name)) for name in names}
    world.want(late=8, **dict.fromkeys(names, 0.005))  # each of the 600 uses 4 kB/s beyond its rate now
    world.lend()
    assert [world.lent(name) for name in names] == pytest.approx([0.004] * 600)
    world.leases.in_use |= {loan_of(name): world.capacities(loan_of(name)) for name in names}
    world.lend()
    # 8 MB/s - 601 x 1 kB/s - 600 x 4 kB/s = 4.999 MB/s; those that wait may have a part of what is left.
    assert world.lent("late") > 1


def test_what_no_demand_wants_goes_to_a_class_that_is_short_and_else_to_all_that_borrow() -> None:
    world = World({name: Terms(1e6, RATE) for name in "abc"})
    world.leases.enough = {loan_of("a"), loan_of("b")}
    world.want(a=3, b=2, c=1.5)
    # 8 - 3 MB/s are lent: 2, 1 and 0.5 are wanted, and c has the other 1.5.
    assert [world.lent(name) for name in "abc"] == pytest.approx([2, 1, 2])
    world.leases.enough.add(loan_of("c"))
    world.want(c=1.4)
    # 3.4 MB/s are wanted now; a third of the other 1.6 each.
    assert [world.lent(name) for name in "abc"] == pytest.approx([2 + 1.6 / 3, 1 + 1.6 / 3, 0.4 + 1.6 / 3])


@pytest.mark.parametrize("count", [25, 100])
def test_loans_are_lowered_for_a_class_that_is_short_also_by_small_parts(count: int) -> None:
    names = [f"c{index}" for index in range(count)]
    world = World({name: Terms(1, RATE) for name in (*names, "late")})
    world.want(late=1e-6, **dict.fromkeys(names, 8))
    world.leases.in_use = {loan_of(name): world.capacities(loan_of(name)) for name in names}
    world.leases.enough = set(world.leases.in_use)
    world.want(late=8, **dict.fromkeys(names, 0.95 * 8 / count))
    assert [world.lent(name) for name in names] == pytest.approx([0.95 * 8 / count] * count, rel=1e-4)
    world.leases.in_use = {loan_of(name): world.capacities(loan_of(name)) for name in names}
    world.lend()
    # Each is lent 5 % more than it wants: where no other class lacks it, that is worth no message.
    assert world.lent("late") == pytest.approx(0.05 * 8, rel=0.01)


def test_a_loan_is_raised_by_a_small_part_of_the_capacity() -> None:
    names = [f"c{index}" for index in range(100)]
    world = World({"owner": Terms(0.03 * RATE, RATE), **{name: Terms(1, RATE) for name in names}})
    world.want(owner=0.03 * 8, **dict.fromkeys(names, 8))
    assert [world.lent(name) for name in names] == pytest.approx([0.97 * 8 / 100] * 100, rel=1e-4)
    del world.leases.demands[loan_of("owner")]
    world.lend({loan_of("owner")})
    # By 3.1 % of itself.
    assert [world.lent(name) for name in names] == pytest.approx([8 / 100] * 100, rel=1e-4)
