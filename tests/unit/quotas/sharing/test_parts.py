"""A process's leases of several parts of the keys, each from a lessor of its own."""

import pytest

from quotas.sharing.lease_values import (
    DEFAULT_KEY,
    KEYS_MAX,
    Grants,
    LeaseTerms,
    LesseeId,
    Report,
    Wish,
    factor_key,
    loan_key,
)
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.member import Member
from quotas.sharing.parts import PartLeasing, Parts, part_of, part_of_capacity

TERMS = LeaseTerms(15_000, 1000, 4)
PARTS = 4
KEYS = [f"producer_byte_rate@-1 -=:client-{number}" for number in range(64)]


class Process:
    """A process that uses its shares itself, and a lessor of each part."""

    def __init__(self) -> None:
        self.parts = Parts([Lessee(TERMS, LesseeId("a", 1), 0) for _ in range(PARTS)])
        self.wishes: dict[str, Wish] = {}
        self.lessors = [Lessor(TERMS, part, lambda _: 1.0, 0, 0) for part in range(PARTS)]
        self.links = [PartLeasing(self.parts, self, part) for part in range(PARTS)]

    def report(self, now_ms: int) -> Report | None:
        """Return the report that is due."""
        self.parts.expire(now_ms)
        self.parts.wish(self.wishes)
        return self.parts.report(now_ms) if self.parts.due(now_ms) else None

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply grants."""
        taken = self.parts.take(grants, now_ms)
        if taken:
            self.parts.confirm()
        return taken

    def exchange(self, now_ms: int, parts: range = range(PARTS)) -> list[set[str]]:
        """Report to the lessors of these parts; return the keys that each was told of."""
        told = []
        for part in parts:
            report = self.links[part].report(now_ms)
            if report is None:
                continue
            told.append(set(report.wishes))
            self.lessors[part].report(report, now_ms)
            for _, grants in self.lessors[part].grants(now_ms):
                self.links[part].take(grants, now_ms)
        return told

    def run(self, until_ms: int, parts: range = range(PARTS)) -> None:
        """Exchange with these lessors until then."""
        for now_ms in range(0, until_ms, 100):
            self.exchange(now_ms, parts)


def test_each_demand_is_told_to_the_lessor_of_its_part_alone() -> None:
    process = Process()
    process.run(2000)
    process.wishes = dict.fromkeys(KEYS, Wish(1.0, 1.0))
    told: list[set[str]] = [set() for _ in range(PARTS)]
    for now_ms in range(2000, 2400, 100):
        for part in range(PARTS):
            for keys in process.exchange(now_ms, range(part, part + 1)):
                told[part] |= keys
    assert [{part_of(key, PARTS) for key in keys} for keys in told] == [{part} for part in range(PARTS)]
    assert set.union(*told) == set(KEYS)


def test_key_has_the_share_that_the_lessor_of_its_part_has_granted() -> None:
    process = Process()
    process.wishes = dict.fromkeys(KEYS, Wish(1.0, 1.0))
    process.run(3000, range(1))
    for key in KEYS:
        expected = pytest.approx(0.995) if part_of(key, PARTS) == 0 else TERMS.least
        assert process.parts.share(key, 3000) == expected


def test_default_share_is_the_smallest_of_all_parts() -> None:
    process = Process()
    process.run(2000, range(1, PARTS))
    assert process.parts.share(DEFAULT_KEY, 2000) == TERMS.least
    process.run(2000)
    assert process.parts.share(DEFAULT_KEY, 2000) == pytest.approx(0.995 / 4)


def test_shares_are_read_again_when_the_first_of_the_leases_ends() -> None:
    process = Process()
    process.exchange(1000, range(1))
    process.exchange(4000, range(1, PARTS))
    parts = process.parts
    assert parts.leased(5000)
    assert parts.usable_until_ms == parts.until_ms == 1000 + TERMS.lease_ms
    assert parts.leased(1000 + TERMS.lease_ms)
    assert parts.usable_until_ms == parts.until_ms == 4000 + TERMS.lease_ms
    assert not parts.leased(4000 + TERMS.lease_ms)
    assert parts.until_ms == -1


def test_part_whose_lease_has_ended_is_cut_off_and_the_others_are_not() -> None:
    process = Process()
    process.wishes = dict.fromkeys(KEYS, Wish(1.0, 1.0))
    process.run(3000)
    for now_ms in range(3000, 20_000, 100):
        process.exchange(now_ms, range(1, PARTS))
    assert process.parts.cut_off(20_000)
    for key in KEYS:
        expected = TERMS.equal if part_of(key, PARTS) == 0 else pytest.approx(0.995)
        assert process.parts.share(key, 20_000) == expected


def test_workers_lease_ends_no_later_than_a_part_that_was_cut_off_when_it_began() -> None:
    parts = Parts([Lessee(TERMS, LesseeId("a", 1), 0) for _ in range(2)])
    member = Member(parts, TERMS, 0)
    worker = Lessee(TERMS, LesseeId("w", 2), 0)
    links = [PartLeasing(parts, member, part) for part in range(2)]
    key = next(key for key in KEYS if part_of(key, 2) == 0)
    worker.wish({key: Wish(1.0, 1.0)})

    def answer(part: int, report: Report | None, shares: dict[str, float | None], now_ms: int) -> None:
        assert report is not None
        assert links[part].take(Grants(1, 1, 1, report.number, TERMS.lease_ms, shares, True, 4), now_ms)

    def exchange(now_ms: int) -> None:
        member.workers.report(worker.report(now_ms), now_ms)
        for _, grants in member.grants(now_ms):
            worker.take(grants, now_ms)
            worker.confirm()

    first = links[0].report(0)
    answer(1, links[1].report(800), {DEFAULT_KEY: 0.25}, 820)
    exchange(850)
    answer(0, first, {DEFAULT_KEY: 0.25, key: 0.9}, 900)
    for now_ms in (950, 1000):
        exchange(now_ms)
    # The process of the workers' lessor may be stopped from now on.
    assert worker.share(key, TERMS.lease_ms - 1) > 0.8
    assert worker.until_ms == parts.lessees[0].until_ms == TERMS.lease_ms


def test_loans_of_all_classes_of_a_capacity_are_of_one_part() -> None:
    keys = [*KEYS, "producer_byte_rate@7 -=:a", "producer_byte_rate@8 g=:web"]
    assert {part_of(loan_key(key), 64) for key in keys} == {part_of_capacity("producer_byte_rate", 64)}
    taken = [
        "catch_up_byte_rate@-1 -=:a",
        "consumer_byte_rate@-1 -=:a",
        "leader.replication.throttled.rate 3",
    ]
    (consumed,) = {part_of(loan_key(key), 64) for key in taken}
    assert consumed != part_of_capacity("producer_byte_rate", 64)


FACTOR = factor_key("producer_byte_rate", -1)


def test_factor_is_told_to_all_and_is_no_share() -> None:
    process = Process()
    process.run(1000)
    process.lessors[2].tell({FACTOR: 0.8})
    process.run(2000)
    assert process.parts.factors(2000) == {FACTOR: 0.8}
    assert FACTOR not in set(process.parts.named)
    process.lessors[2].tell({})
    process.run(4000)
    assert process.parts.factors(4000) == {}


def test_factor_is_told_on_by_the_next_lessor_until_that_knows_more() -> None:
    process = Process()
    process.lessors[2].tell({FACTOR: 0.8})
    process.run(1000)
    process.lessors[2] = successor = Lessor(TERMS, 9, lambda _: 1.0, 1000, TERMS.lease_ms)
    process.parts.lessees[2].lose()
    process.run(3000)
    assert successor.learning(3000)
    assert process.parts.factors(3000) == {FACTOR: 0.8}
    assert FACTOR not in successor.keys
    other = Lessee(TERMS, LesseeId("b", 2), 3000)
    successor.report(other.report(3000), 3000)
    (grants,) = [grants for name, grants in successor.grants(3000) if name == other.name]
    assert grants.shares[FACTOR] == 0.8
    successor.tell({})
    process.run(5000)
    assert process.parts.factors(5000) == {}


def test_more_factors_than_there_may_be_are_not_told_on() -> None:
    lessor, one, other = (
        Lessor(TERMS, 9, lambda _: 1.0, 0, TERMS.lease_ms),
        Lessee(TERMS, LesseeId("a", 1), 0),
        Lessee(TERMS, LesseeId("b", 2), 0),
    )
    held = {factor_key("producer_byte_rate", broker): 0.5 for broker in range(KEYS_MAX + 1)}
    lessor.report(one.report(0)._replace(held={DEFAULT_KEY: 0.25, **held}), 0)
    lessor.report(other.report(0), 0)
    for _, grants in lessor.grants(0):
        assert set(grants.shares) == {DEFAULT_KEY}
    assert lessor.keys == []


def test_factor_ends_with_the_lease_of_its_part() -> None:
    process = Process()
    process.lessors[2].tell({FACTOR: 0.8})
    process.run(3000)
    for now_ms in range(3000, 20_000, 100):
        process.exchange(now_ms, range(2))
    assert process.parts.factors(20_000) == {}


def test_process_that_never_had_a_lease_borrows_nothing() -> None:
    process = Process()
    process.wishes = {loan_key(KEYS[0]): Wish(1.0, 1.0)}
    process.run(20_000, range(0))
    assert process.parts.share(KEYS[0], 20_000) == TERMS.equal
    assert process.parts.share(loan_key(KEYS[0]), 20_000) == 0


def test_any_key_has_a_part() -> None:
    assert part_of("producer_byte_rate@-1 -=:\ud800", 64) in range(64)
    assert part_of(KEYS[0], 1) == 0
    counts = [sum(part_of(f"{key} {number}", 8) == 0 for key in KEYS) for number in range(8)]
    assert min(counts) > 0
    assert max(counts) < 32
