"""Rates of replication with shares: limits of this process, and the demand; and as a class of a capacity."""

from datetime import UTC, datetime

import pytest

from quotas.definitions.classes import REPLICATION_BUCKET, Capacity, Terms, replication_terms
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import BucketKey, Entity
from quotas.definitions.kinds import FOLLOWER_RATE, LEADER_RATE
from quotas.replication.rates import PacedRate
from quotas.replication.replication_quotas import BrokerLimits, ReplicationOptions, ReplicationQuotas
from quotas.sharing.budgets import budget_key
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import DEFAULT_KEY, LOAN_MS, Grants, LeaseTerms, LesseeId, Wish, loan_key
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.replication import BROKERS_MAX, Demands, ReplicationShares, replication_key

Q = 4_000_000.0


KEY = replication_key(FOLLOWER_RATE, 3)


def leased(share: float) -> Lessee:
    lessee = Lessee(LeaseTerms(15_000, 1000, 4), LesseeId("a", 1), 0)
    number = lessee.report(0).number
    lessee.take(Grants(1, 1, 1, number, 15_000, {DEFAULT_KEY: 0.25, KEY: share}, True, 4), 0)
    return lessee


def quotas_with(limit: float | None) -> ReplicationQuotas:
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.limit(BrokerLimits(), BrokerLimits(default=limit))
    return quotas


def shares_of(share: float) -> tuple[ReplicationShares, PacedRate]:
    """A follower's quota of 4 MB/s, of which this process has a share."""
    quotas = quotas_with(Q)
    shares = ReplicationShares(quotas, leased(share), lambda: None)
    rate = quotas.follower(3, 0)
    assert isinstance(rate, PacedRate)
    return shares, rate


def test_a_follower_has_this_processs_share_of_its_quota_until_the_lease_is_over() -> None:
    quotas = quotas_with(Q)
    changes: list[str] = []
    shares = ReplicationShares(quotas, leased(0.6), lambda: changes.append("limits"))
    rate = quotas.follower(3, 0)
    assert rate.limit == 0.6 * Q
    assert shares.changes_ms(0) == 15_000
    shares.apply(15_000)
    assert rate.limit == 0.25 * Q
    assert changes == ["limits"]


def test_an_unlimited_follower_stays_unlimited() -> None:
    quotas = quotas_with(None)
    shares = ReplicationShares(quotas, leased(0.1), lambda: None)
    assert quotas.follower(3, 0).limit is None
    assert shares.wishes(0) == {}


def test_a_follower_that_is_held_back_wants_the_whole_quota() -> None:
    shares, rate = shares_of(0.25)
    rate.held_ms = 0
    assert shares.wishes(0) == {KEY: Wish(1.0, 1.0)}


def test_a_follower_that_is_not_held_back_wants_twice_its_rate() -> None:
    shares, rate = shares_of(0.5)
    wishes = {}
    for now_ms in range(0, 5000, 100):
        rate.record(20_000, now_ms)  # 0.2 MB/s
        wishes = shares.wishes(now_ms)
    assert wishes == {KEY: Wish(0.1, 1.0)}


def test_a_follower_without_traffic_wants_nothing() -> None:
    shares, _ = shares_of(0.5)
    assert shares.wishes(0) == {}


def test_only_the_largest_demands_are_named() -> None:
    quotas = quotas_with(Q)
    shares = ReplicationShares(quotas, leased(0.5), lambda: None)
    for broker in range(BROKERS_MAX + 1):
        quotas.follower(broker, 0)
    shares.wishes(0)
    for broker in range(BROKERS_MAX + 1):
        quotas.follower(broker, 0).record(20_000 + 80_000 * (broker > 0), 0)
    found = shares.wishes(1000)
    assert len(found) == BROKERS_MAX
    assert replication_key(FOLLOWER_RATE, 0) not in found


def spend(demands: Demands, rate: PacedRate, since_ms: int, until_ms: int, size: int, held: bool) -> float:
    """Count `size` bytes a second; returns what is wanted at the end."""
    found = 0.0
    for now_ms in range(since_ms, until_ms, 100):
        rate.total += size // 10
        if held:
            rate.held_ms = now_ms
        found = demands.wanted(("follower", 3), Q, rate, now_ms)
    return found


def test_follower_that_is_held_back_and_uses_its_share_wants_the_quota() -> None:
    assert spend(Demands(), PacedRate(3_000_000.0, 0), 0, 3000, 2_900_000, True) == Q


def test_follower_that_is_held_back_and_gets_nothing_wants_the_quota_at_once() -> None:
    rate = PacedRate(40_000.0, 0)  # the least share
    rate.held_ms = 0
    assert Demands().wanted(("follower", 3), Q, rate, 0) == Q


def test_larger_share_that_is_not_used_is_wanted_no_more_after_two_seconds() -> None:
    demands, rate = Demands(), PacedRate(40_000.0, 0)
    assert spend(demands, rate, 0, 1000, 40_000, True) == Q
    rate.limit = 0.98 * Q
    assert spend(demands, rate, 1000, 2900, 400_000, True) == Q
    assert spend(demands, rate, 2900, 5000, 400_000, True) == 800_000


def test_slow_leader_keeps_to_its_headroom() -> None:
    """It is always granted less than a follower asks for, and still sends 400 kB/s of its 800, in few responses."""
    demands, rate = Demands(), PacedRate(800_000.0, 0)
    found = []
    for now_ms in range(0, 10_000, 100):
        rate.held_ms = now_ms
        rate.total += 300_000 * (now_ms % 750 < 100)
        found.append(demands.wanted(("follower", 3), Q, rate, now_ms))
    # In two seconds lie two or three responses: 300 to 450 kB/s.
    assert set(found[50:]) == {900_000.0}


def test_load_that_stops_is_forgotten_within_a_second() -> None:
    demands, rate = Demands(), PacedRate(Q / 2, 0)
    assert spend(demands, rate, 0, 3000, 2_000_000, True) == Q
    assert spend(demands, rate, 3000, 4200, 0, False) == 0


# -- as a class of a capacity

CAPACITY = 8_000_000.0
FLOOR, CEILING = 1_000_000.0, 6_000_000.0
ALONE = LeaseTerms(15_000, 100, 1, never_lent=0.0)
STEP_MS = 50
BATCH, MAX_BYTES = 20_000, 40_000
CLIENTS = loan_key(budget_key(("producer_byte_rate", BucketKey(None, "a"), 3)))


class Broker:
    """Broker 3, which receives replicas beside a client that produces, in one process that lends to itself."""

    def __init__(self, weight: float = 1.0) -> None:
        self.definitions = Definitions(
            {
                Entity(capacity="broker"): {"producer_byte_rate": CAPACITY},
                Entity(client_id="a"): {"producer_byte_rate": 4e6, "producer_byte_rate_ceiling": 8e6},
            }
        )
        self.definitions.elapse(datetime(2026, 1, 1, tzinfo=UTC))
        self.definitions.replication = replication_terms(None, Terms(FLOOR, CEILING, weight))
        self.quotas = quotas_with(FLOOR)
        self.lessee = Lessee(ALONE, LesseeId("a", 1), 0, cut_off=1.0, first=1.0)
        self.lessor = Lessor(ALONE, 1, Capacities(lambda: self.definitions), 0, 0)
        self.shares = ReplicationShares(self.quotas, self.lessee, lambda: None, self.class_of)
        self.rate = self.quotas.follower(3, 0)
        self.now_ms = 0
        self.clients = 0.0  # what they could use, in bytes/s
        self.unthrottled = 0.0  # bytes/s

    def class_of(self, key: str) -> tuple[Capacity, Terms] | None:
        capacity = self.definitions.capacity(key)
        return None if capacity is None else (capacity, self.definitions.terms(key, REPLICATION_BUCKET))

    def run(self, milliseconds: int, held: bool = True) -> None:
        """The follower takes all that it may have, and is held back, or else takes a half of that."""
        for _ in range(0, milliseconds, STEP_MS):
            self.now_ms += STEP_MS
            assert self.rate.limit is not None
            self.rate.record(int(self.rate.limit * STEP_MS / 1000 * (1.0 if held else 0.5)), self.now_ms)
            if held:
                self.rate.held_ms = self.now_ms
            self.quotas.record_unthrottled(1, 3, int(self.unthrottled * STEP_MS / 1000))
            self.lend()

    def lend(self) -> None:
        """Report what is wanted, and take what is lent."""
        wishes = self.shares.wishes(self.now_ms)
        if self.clients:
            wishes[CLIENTS] = Wish(self.clients / CAPACITY, 1)
        self.lessee.wish(wishes)
        if self.lessee.due(self.now_ms):
            self.lessor.report(self.lessee.report(self.now_ms), self.now_ms)
        for _, grants in self.lessor.grants(self.now_ms):
            assert self.lessee.take(grants, self.now_ms)
            self.shares.apply(self.now_ms)
            self.lessee.confirm()

    def fetch(self, milliseconds: int) -> list[tuple[int, int]]:
        """The follower asks for all that it may have, every 10 ms; returns when how many bytes came."""
        came = []
        for _ in range(0, milliseconds, 10):
            self.now_ms += 10
            granted = self.rate.grant(BATCH, MAX_BYTES, self.now_ms)
            self.rate.reserve(granted)
            self.rate.settle(granted, granted, self.now_ms)
            self.rate.held_ms = self.now_ms
            came.append((self.now_ms, granted))
            self.quotas.record_unthrottled(1, 3, int(self.unthrottled / 100))
            if self.now_ms % STEP_MS == 0:
                self.lend()
        return came

    @property
    def limit(self) -> float:
        assert self.rate.limit is not None
        return self.rate.limit


def test_replication_borrows_up_to_its_ceiling_what_clients_leave() -> None:
    broker = Broker()
    assert broker.limit == FLOOR
    broker.run(2000)
    assert broker.limit == pytest.approx(CEILING, rel=0.01)


def test_replication_gives_back_what_clients_want_within_half_a_second_and_keeps_its_rate() -> None:
    broker = Broker()
    broker.run(2000)
    broker.clients = 4e6
    broker.run(500)
    assert broker.limit == pytest.approx(CAPACITY - 4e6, rel=0.01)
    broker.clients = 8e6  # 3 MB/s are left of the promised rates, in equal parts
    broker.run(500)
    assert broker.limit == pytest.approx(FLOOR + 1.5e6, rel=0.01)


def test_a_weight_divides_what_is_left() -> None:
    broker = Broker(weight=2.0)
    broker.clients = 8e6
    broker.run(2000)
    assert broker.limit == pytest.approx(FLOOR + 2e6, rel=0.01)


def test_replication_that_leaves_something_has_no_more_than_it_needs() -> None:
    """It takes a half of what it may have: what it borrows falls to its headroom, and others have the rest."""
    broker = Broker()
    broker.run(2000)
    broker.run(10_000, held=False)
    assert broker.limit == FLOOR


def test_replicas_that_are_not_throttled_are_counted_and_reduce_what_is_left() -> None:
    broker = Broker()
    broker.unthrottled = 5e6
    broker.run(3000)
    assert broker.limit == pytest.approx(CAPACITY - 5e6, rel=0.03)


@pytest.mark.parametrize("late_ms", [0, 30, 70])
def test_replication_falls_within_two_seconds_of_a_surge_and_keeps_its_rate(late_ms: int) -> None:
    """Replicas in sync receive 2 MB/s, then 6.5: of 6 MB/s, 1.5 are left."""
    broker = Broker()
    broker.unthrottled = 2e6
    broker.fetch(4000 + late_ms)
    assert broker.limit == pytest.approx(CAPACITY - 2e6, rel=0.01)
    surge_ms = broker.now_ms
    broker.unthrottled = 6.5e6
    came = broker.fetch(6000)
    assert broker.limit == pytest.approx(CAPACITY - 6.5e6, rel=0.1)
    seconds = {
        at_ms: sum(size for when_ms, size in came if at_ms < when_ms <= at_ms + 1000)
        for at_ms in range(surge_ms, surge_ms + 5001, 10)
    }
    assert min(seconds.values()) >= FLOOR - MAX_BYTES
    fallen_ms = next(at_ms for at_ms, size in seconds.items() if size <= 1.5e6 + BATCH) + 1000
    assert fallen_ms - surge_ms <= 2000
    # As long as that was exceeded, it has no more than its rate; all that is left, once it is not.
    assert seconds[surge_ms + 5000] == pytest.approx(1.5e6, rel=0.1)


def test_rates_shrink_in_proportion_where_replicas_in_sync_use_the_capacity() -> None:
    """1 MB/s is left for two promised rates of 1 and 4 MB/s, of which 1 MB/s each is wanted: 0.2 and 0.8 MB/s."""
    broker = Broker()
    broker.unthrottled = 7e6
    broker.clients = 1e6
    broker.run(3000)
    assert broker.limit == pytest.approx(0.2e6, rel=0.05)


def test_a_follower_that_is_sent_nothing_borrows_nothing() -> None:
    """It asks all the time and is held back, as a peer may that only says it is a broker."""
    broker = Broker()
    forged = broker.quotas.follower(4, 0)
    for _ in range(40):
        forged.held_ms = broker.now_ms
        broker.run(STEP_MS)
    assert forged.limit == FLOOR
    assert broker.limit == pytest.approx(CEILING, rel=0.01)


def test_without_a_ceiling_the_rate_is_what_it_was() -> None:
    broker = Broker()
    broker.definitions.replication = {}
    broker.run(2000)
    assert broker.limit == FLOOR


def test_a_ceiling_that_ends_takes_back_what_was_borrowed() -> None:
    broker = Broker()
    broker.run(2000)
    broker.definitions.replication = {}
    broker.run(200)
    assert broker.limit == FLOOR


def test_a_leader_without_a_ceiling_has_its_whole_rate() -> None:
    broker = Broker()
    broker.quotas.limit(BrokerLimits(default=Q), BrokerLimits(default=FLOOR))
    assert broker.quotas.leader(3, 0).limit == Q


def test_a_process_that_alone_replicates_has_the_whole_rate_without_a_lease() -> None:
    quotas = quotas_with(Q)
    lessee = Lessee(LeaseTerms(15_000, 1000, 4), LesseeId("a", 1), 0)
    shares = ReplicationShares(quotas, lessee, lambda: None, alone=True)
    quotas.follower(3, 0).held_ms = 0
    assert quotas.follower(3, 0).limit == Q
    assert shares.wishes(0) == {}


def test_a_leader_borrows_of_what_brokers_give() -> None:
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.limit(BrokerLimits(default=FLOOR), BrokerLimits())
    loan = loan_key(replication_key(LEADER_RATE, 1))
    lessee = Lessee(ALONE, LesseeId("a", 1), 0)
    lessee.report(0)
    lessee.take(Grants(1, 1, 1, 1, 15_000, {DEFAULT_KEY: 1.0, loan: 0.25}, True, 1), 0)
    terms = Capacity(CAPACITY, cluster=True), Terms(FLOOR, CEILING)
    shares = ReplicationShares(
        quotas, lessee, lambda: None, lambda key: terms if key == LEADER_RATE else None
    )
    rate = quotas.leader(1, 0)
    assert rate.limit == FLOOR + 2e6
    assert shares.changes_ms(0) == LOAN_MS
    shares.apply(LOAN_MS)
    assert rate.limit == FLOOR
