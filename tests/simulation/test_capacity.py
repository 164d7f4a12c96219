"""Capacities in virtual time: what each class gets, what all get together, and that tricks gain nothing."""

import pytest

from quotas.definitions.classes import SHARED_BURST_SECONDS, Terms
from quotas.definitions.entities import BucketKey, Entity
from quotas.definitions.kinds import CEILINGS, MEMBER, PRODUCE
from quotas.limiters.limiter import ALL_BROKERS
from quotas.sharing.budgets import budget_key
from quotas.sharing.lease_values import loan_key
from quotas.sharing.parts import Parts, part_of_capacity
from tests.bench.fleet.bound import Bound, worst
from tests.simulation import capacity_calm, capacity_fleet
from tests.simulation.capacity_world import MB, CapacityWorld
from tests.simulation.clock import largest_window
from tests.simulation.fleet_faults import NO_CUT_OFF

SEEDS = 60
FAULT_SEEDS = 30
RATE = 8 * MB
TERMS = {"a": Terms(4 * MB, RATE), "b": Terms(2 * MB, RATE), "c": Terms(1 * MB, RATE, 2.0)}
PROCESSES = pytest.mark.parametrize(("members", "workers"), [(1, 1), (1, 4), (2, 2)])
PARTS = 3  # of the keys of a fleet


@pytest.mark.parametrize("first", range(0, SEEDS, 15))
def test_classes_have_their_rates_and_their_parts_of_what_is_left(first: int) -> None:
    problems = {seed: list(capacity_calm.problems(seed)) for seed in range(first, first + 15)}
    assert not {seed: found for seed, found in problems.items() if found}


def test_classes_have_the_same_where_the_keys_are_in_several_parts() -> None:
    problems = {seed: list(capacity_calm.problems(seed, PARTS)) for seed in range(SEEDS // 2)}
    assert not {seed: found for seed, found in problems.items() if found}


def test_factors_that_do_not_arrive_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parts, "factors", lambda *_: {})
    assert any(list(capacity_calm.problems(seed, PARTS)) for seed in range(SEEDS))


@pytest.mark.parametrize("parts", [1, PARTS])
def test_loans_are_at_most_the_capacity_whatever_goes_wrong(parts: int) -> None:
    lent = max(capacity_fleet.chaotic(seed, parts=parts).lent for seed in range(FAULT_SEEDS))
    assert lent > 0.5, "nothing was lent"  # what is too much is found at each event


@pytest.mark.parametrize("parts", [1, PARTS])
def test_what_passes_in_10_s_is_bounded_while_no_member_is_cut_off(parts: int) -> None:
    worst = {
        seed: capacity_fleet.chaotic(seed, NO_CUT_OFF, parts=parts).largest for seed in range(FAULT_SEEDS)
    }
    assert {seed: part for seed, part in worst.items() if part > 1} == {}
    assert max(worst.values()) > 0.5, "no capacity was used"


@PROCESSES
def test_what_is_left_is_lent_by_weight_and_given_back_within_a_second(members: int, workers: int) -> None:
    world = CapacityWorld(RATE, TERMS, members=members, workers=workers)
    world.add("a", 4, stop_ms=20_000)
    world.add("a", 4, start_ms=30_000)
    world.add("b", 4)
    world.add("c", 4)
    world.world.run(45_000)
    # 8 - 7 MB/s are left, by weights 1, 1 and 2: 0.25, 0.25 and 0.5.
    for name, due in (("a", 4.25), ("b", 2.25), ("c", 1.5)):
        assert world.rate_of(name, 2000, 20_000) == pytest.approx(due * MB, rel=0.03)
    # 8 - 3 MB/s by weights 1 and 2.
    for name, due in (("b", 2 + 5 / 3), ("c", 1 + 10 / 3)):
        assert world.rate_of(name, 22_000, 30_000) == pytest.approx(due * MB, rel=0.03)
    assert world.rate_of("a", 30_000, 31_000) >= 0.95 * 4 * MB
    for name, due in (("a", 4.25), ("b", 2.25), ("c", 1.5)):
        assert world.rate_of(name, 33_000, 45_000) == pytest.approx(due * MB, rel=0.03)


@pytest.mark.parametrize("seed", [1, 2])
@PROCESSES
def test_a_class_that_returns_exceeds_the_capacity_by_its_burst_and_a_fifth_of_a_second(
    members: int, workers: int, seed: int
) -> None:
    """Messages between members take up to 50 ms; the clients are those of `make capacity`."""
    size, lowered_seconds = 50_000, 0.2
    world = CapacityWorld(RATE, TERMS, members=members, workers=workers, seed=seed, delay_ms=50)
    world.add("a", 24, size=size, stop_ms=10_000)
    world.add("a", 24, size=size, start_ms=20_000 + seed * 13)
    world.add("b", 16, size=size)
    world.add("c", 8, size=size)
    world.world.run(23_000)
    # What it saved while it was idle, and its rate until loans are lowered; and a request of each class and process.
    beyond = TERMS["a"].rate * (SHARED_BURST_SECONDS + lowered_seconds)
    passed = [(record.at_ms / 1000, record.size) for record in world.world.records]
    lives = [(0.0, 23.0)] * (members * workers * len(TERMS))
    found = worst(passed, lives, Bound(RATE, beyond / RATE, size))
    assert found.excess <= 0, f"from {found.began:.2f} to {found.ended:.2f} s"
    assert found.excess > -beyond, "nothing came beyond the capacity"


def test_a_member_cut_off_from_the_holder_of_the_capacity_has_its_rates_and_borrows_nothing() -> None:
    world = CapacityWorld(RATE, TERMS, members=2, parts=PARTS)
    for name in TERMS:
        world.add(name, 4)
    part = part_of_capacity(PRODUCE.key, PARTS)
    world.world.at(20_000, lambda: world.nodes[1].cut.add(part))
    world.world.run(40_000)
    (_, one), (_, cut) = ((node, node.workers[0]) for node in world.nodes)
    for name, terms in TERMS.items():
        key = budget_key((PRODUCE.key, BucketKey(None, name), ALL_BROKERS))
        assert cut.lessee.share(loan_key(key), 30_000) == 0
        assert cut.lessee.share(key, 30_000) == pytest.approx(0.5, rel=0.05)
        assert one.lessee.share(loan_key(key), 30_000) > 0
        # Half of the rate passes at each.
        assert world.rate_of(name, 22_000, 34_000) >= 0.97 * terms.rate
    assert sum(world.rate_of(name, 22_000, 34_000) for name in TERMS) <= 1.02 * RATE


def test_what_a_member_that_is_not_heard_does_not_use_is_lent_to_others() -> None:
    world = CapacityWorld(RATE, TERMS, members=2)
    for name in TERMS:
        world.add(name, 4)
    world.world.run(10_000)
    world.nodes[1].cut.add(0)
    world.world.run(22_000)  # its lease is not over
    # Two requests of each class at each member, more or less.
    assert world.world.ratio(RATE, 12_000, 22_000) == pytest.approx(1, abs=0.03 + 12 * 100_000 / RATE / 10)


@PROCESSES
@pytest.mark.parametrize(("on_ms", "off_ms"), [(1000, 1000), (500, 500), (250, 1000), (1000, 3000)])
def test_a_class_that_comes_and_goes_uses_its_rate_once(
    members: int, workers: int, on_ms: int, off_ms: int
) -> None:
    world = CapacityWorld(RATE, TERMS, members=members, workers=workers)
    for start_ms in range(2000, 30_000, on_ms + off_ms):
        world.add("a", 4, start_ms=start_ms, stop_ms=start_ms + on_ms)
    world.add("b", 4)
    world.add("c", 4)
    world.world.run(30_000)
    requests = 3 * members * workers * 100_000
    passed = [(record.at_ms, record.size) for record in world.world.records]
    assert largest_window(passed, 10_000) <= 1.02 * RATE * 10 + RATE * SHARED_BURST_SECONDS + requests
    assert world.world.ratio(RATE, 5000, 30_000) <= 1.02 + requests / RATE / 25


def share_of(name: str, **options: int) -> float:
    """What a class that wants all has for 20 s, with these clients; the others have four connections."""
    world = CapacityWorld(RATE, TERMS)
    connections = options.pop("connections", 4)
    for other in TERMS:
        world.add(other, *([connections] if other == name else [4]), **(options if other == name else {}))
    world.world.run(24_000)
    return world.rate_of(name, 4000, 24_000)


@pytest.mark.parametrize(
    "trick",
    [{"connections": 40}, {"in_flight": 5}, {"connections": 40, "in_flight": 5}, {"size": 1_000_000}],
    ids=["connections", "pipelining", "both", "large requests"],
)
def test_a_class_gains_nothing_by_claiming_more(trick: dict[str, int]) -> None:
    # Half a second of a request more or less at each end.
    assert share_of("b", **trick) <= 1.02 * share_of("b") + trick.get("size", 100_000) / 20


def share_of_group(names: int, connections: int, members: int = 1) -> float:
    """What a group with the terms of b has, whose members all want all; each name has so many connections."""
    classes = {name: terms for name, terms in TERMS.items() if name != "b"}
    world = CapacityWorld(RATE, classes, members=members)
    rate, ceiling, *_ = TERMS["b"]
    world.definitions.put(Entity(group="team"), {PRODUCE.key: rate, CEILINGS[PRODUCE.key]: ceiling})
    world.definitions.put(Entity(group="team", client_id="b-*"), {MEMBER: 1})
    for other in classes:
        world.add(other, 4)
    clients = [f"b-{number}" for number in range(names)]
    for name in clients:
        world.add(name, connections)
    world.world.run(24_000)
    return sum(world.rate_of(name, 4000, 24_000) for name in clients)


@pytest.mark.parametrize("members", [1, 2])
def test_a_group_gains_nothing_by_splitting_into_client_ids(members: int) -> None:
    one = share_of_group(1, 4, members)
    # 2 MB/s of its own, and of the 1 MB/s that is left a quarter.
    assert one == pytest.approx(2.25 * MB, rel=0.03)
    for names, connections in ((4, 1), (40, 1), (10, 4)):
        assert share_of_group(names, connections, members) <= 1.02 * one + 100_000 / 20


def test_a_class_gains_nothing_by_connecting_anew() -> None:
    world = CapacityWorld(RATE, TERMS)
    world.add("a", 4)
    world.add("c", 4)
    for start_ms in range(0, 24_000, 400):
        world.add("b", 4, start_ms=start_ms, stop_ms=start_ms + 400, closes=True)
    world.world.run(24_000)
    assert world.rate_of("b", 4000, 24_000) <= 1.02 * share_of("b") + 100_000 / 20


def test_consumers_far_away_have_their_rate_and_borrow() -> None:
    world = CapacityWorld(RATE, {"a": Terms(1 * MB, RATE)})
    world.world.latency_range_ms = (160, 170)  # back 320 ms after each mute
    world.add("a", 4, size=1_000_000, consumes=True)
    world.world.run(30_000)
    assert world.rate_of("a", 15_000, 30_000) >= 2.5 * MB


def test_an_unpromised_class_with_large_requests_is_not_left_without_any() -> None:
    terms = {"a": Terms(6 * MB, RATE), "b": Terms(0, RATE)}
    world = CapacityWorld(RATE, terms, workers=2)
    world.add("a", 6)
    world.add("b", 5, size=1_000_000)
    world.world.run(34_000)
    # 8 - 6 MB/s are left for both: 1 MB/s; one request more or less of each connection.
    assert world.rate_of("b", 4000, 34_000) >= 1 * MB - 5 * MB / 30
