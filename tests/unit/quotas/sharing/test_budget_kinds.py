"""Every kind of rate is shared alike: request time, mutations, topics, and connections of users and addresses."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.kinds import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.sharing.budgets import Budgets
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Wish
from quotas.sharing.lessee import Lessee
from quotas.throttles.connections import ConnectionRates

# Whatever the kind: 10 units per second, and the windows or the bucket have room for 100 or 110.
LIMITS = Definitions(
    {
        Entity(user="ann"): {
            REQUEST_PERCENTAGE: 10 / 10_000,  # 10 us/s
            CONTROLLER_MUTATION_RATE: 10,
            CONNECTION_CREATION_RATE: 10,
        },
        Entity(ip="192.0.2.1"): {CONNECTION_CREATION_RATE: 10},
        Entity(topic="orders"): {PRODUCER_BYTE_RATE: 10},
    }
)
TERMS = LeaseTerms(60_000, 1000, 4)
START_MS = 30_000  # windows and buckets have filled by then

# Uses one unit; returns the time in ms for which it has to wait.
Use = Callable[["Process", int], int]


class Process:
    """An engine with a quarter of each budget."""

    def __init__(self) -> None:
        options = EngineOptions(scope="cluster", partition_mutations_rate=10, partition_mutations_burst=110)
        self.engine = Engine(options, LIMITS)
        self.lessee = Lessee(TERMS, LesseeId("w", 1), 0)
        self.budgets = Budgets(self.engine, self.lessee, 0)
        self.engine.share(self.budgets)
        self.rates = ConnectionRates(self.engine)
        self.stats = SimpleNamespace(connections_throttled=0, connections_would_throttle=0)
        self.version = 0
        self.grant({DEFAULT_KEY: 0.25}, 0)

    def grant(self, shares: dict[str, float | None], now_ms: int) -> None:
        number = self.lessee.report(now_ms).number
        self.version += 1
        grants = Grants(1, 1, self.version, number, 60_000, shares, self.version == 1, 4)
        assert self.budgets.take(grants, now_ms)

    def used(self, use: Use, now_ms: int) -> int:
        """How many units pass at once."""
        count = 0
        while use(self, now_ms) == 0:
            count += 1
            assert count < 1000, "nothing limits"
        return count


def request(process: Process, now_ms: int) -> int:
    return process.engine.client("ann", "a", 1).requests.record(1, now_ms)


def mutation(process: Process, now_ms: int) -> int:
    throttle = process.engine.client("ann", "a", 1).mutations
    throttle.record(1, now_ms)
    return throttle.throttle_ms(now_ms)


def cluster_mutation(process: Process, now_ms: int) -> int:
    throttle = process.engine.client("bob", "b", 1).mutations
    throttle.record(1, now_ms)
    return throttle.throttle_ms(now_ms)


def topic(process: Process, now_ms: int) -> int:
    found = process.engine.topics.charge(PRODUCER_BYTE_RATE, 1, {"orders": 1}, now_ms)
    return 0 if found is None else found[1]


def user_connection(process: Process, now_ms: int) -> int:
    found = process.engine.connections.connect("ann", 1, process.stats, now_ms, exactly=True)
    return 0 if found is None else found[1]


def address_connection(process: Process, now_ms: int) -> int:
    return process.rates.connect("192.0.2.1", 1, now_ms).wait_ms


KINDS = [
    pytest.param(request, "request_percentage@-1 3-:ann", id="request time"),
    pytest.param(mutation, "controller_mutation_rate@-1 3-:ann", id="mutations"),
    pytest.param(cluster_mutation, "partition_mutations_rate@-1 --:", id="mutations of all clients"),
    pytest.param(topic, "topic_producer_byte_rate@-1 -=:orders", id="topic"),
    pytest.param(user_connection, "connection_creation_rate@-1 3-:ann", id="connections of a user"),
    pytest.param(
        address_connection, "ip_connection_creation_rate@-1 -=:192.0.2.1", id="connections of an address"
    ),
]


@pytest.mark.parametrize(("use", "key"), KINDS)
def test_a_process_has_its_share_of_what_may_pass_at_once(use: Use, key: str) -> None:
    whole = 110  # 11 windows of a second, of which Kafka's sampled rates leave one out
    assert Process().used(use, START_MS) == pytest.approx(whole / 4, abs=4)


@pytest.mark.parametrize(("use", "key"), KINDS)
def test_one_that_waits_makes_a_demand(use: Use, key: str) -> None:
    process = Process()
    process.used(use, START_MS)
    process.grant({}, START_MS)
    report = process.budgets.report(START_MS + 1000)
    assert report is not None
    assert report.wishes[key] == Wish(1.0, 1)


@pytest.mark.parametrize(("use", "key"), KINDS)
def test_a_raised_share_brings_no_more_at_once_and_then_its_rate(use: Use, key: str) -> None:
    process = Process()
    process.used(use, START_MS)
    process.grant({key: 1.0}, START_MS)
    assert process.used(use, START_MS) <= 1
    assert process.used(use, START_MS + 1000) <= 12  # 10 a second


@pytest.mark.parametrize(("use", "key"), KINDS)
def test_the_end_of_a_lease_is_noticed_by_the_next_use(use: Use, key: str) -> None:
    process = Process()
    process.grant({key: 1.0}, 0)
    use(process, 0)
    # 60 s later the lease is over, and nothing but this use has noticed: a quarter again.
    assert process.used(use, 61_000) == pytest.approx(110 / 4, abs=4)


@pytest.mark.parametrize(("use", "key"), KINDS)
def test_a_process_begins_without_a_burst(use: Use, key: str) -> None:
    assert Process().used(use, 0) <= 1


@pytest.mark.parametrize(("use", "key"), [KINDS[1], KINDS[2], KINDS[4]])
def test_a_share_below_one_token_a_period_passes_one_after_the_other(use: Use, key: str) -> None:
    process = Process()
    rate = 10 * 0.002  # a token in 50 s, where a process reports each second
    now_ms, granted_ms, passed = START_MS, 0, 0
    while now_ms < START_MS + 1_000_000:
        if now_ms >= granted_ms + 30_000:  # leases are of 60 s
            process.grant({key: 0.002}, now_ms)
            granted_ms = now_ms
        now_ms += max(1, min(use(process, now_ms), 50_000))
        passed += 1
    assert passed == pytest.approx(1000 * rate, abs=2)  # one at once, and no dead end after it
