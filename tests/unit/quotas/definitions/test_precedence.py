"""Kafka's eight levels through the engine (kafka-quotas.md §1.3): exclusive and shared buckets, restarts, keys apart.

The definitions and expectations are those of ClientQuotaManagerTest.testQuotaConfigPrecedence, and of what the
reference says beside it. Windows are fresh, so S bytes at a quota of T give X = S/T - 10 s.
"""

from dataclasses import dataclass, field

import pytest

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, BucketKey, Entity, Name
from quotas.definitions.kinds import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quotas.engine import Engine
from quotas.limiters.limiter import Flow
from quotas.options import EngineOptions

Rates = dict[tuple[Name, Name], float]

KAFKAS: Rates = {
    (DEFAULT, None): 1000,
    (None, DEFAULT): 2000,
    (DEFAULT, DEFAULT): 3000,
    ("A", None): 4000,
    ("A", "c1"): 5000,
    ("B", None): 6000,
    ("B", "c1"): 7000,
    ("B", DEFAULT): 8000,
    ("C", None): 10_000,
    (None, "c1"): 9000,
}


def definitions(rates: Rates, key: str = PRODUCER_BYTE_RATE) -> Definitions:
    return Definitions({Entity(user, client_id): {key: rate} for (user, client_id), rate in rates.items()})


@dataclass
class World:
    """One engine; each (user, client id) has one channel."""

    rates: Rates
    engine: Engine = field(init=False)
    flows: dict[tuple[str, str], Flow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(EngineOptions(new_connections="as-kafka"), definitions(self.rates))

    def sent(self, user: str, client_id: str, size: int) -> int:
        """Send so much at time 0; gives the throttle time in ms."""
        throttle = self.engine.client(user, client_id, 1).produce
        flow = self.flows.setdefault((user, client_id), throttle.flow())
        return throttle.produce(flow, size, 0).throttle_ms

    def change(self, rates: Rates) -> None:
        self.engine.update(self.engine.options, definitions(rates), 0)


def without(rates: Rates, *dropped: tuple[Name, Name]) -> Rates:
    return {entity: rate for entity, rate in rates.items() if entity not in dropped}


@pytest.mark.parametrize(
    ("user", "client_id", "rate", "bucket"),
    [
        ("A", "c1", 5000, BucketKey("A", "c1")),  # 1: user and client id
        ("A", "c2", 4000, BucketKey("A", None)),  # 3: user
        ("A", "c3", 4000, BucketKey("A", None)),
        ("B", "c1", 7000, BucketKey("B", "c1")),
        ("B", "c2", 8000, BucketKey("B", "c2")),  # 2: user and default client
        ("B", "c3", 8000, BucketKey("B", "c3")),
        ("C", "c1", 10_000, BucketKey("C", None)),  # a user's own quota beats <default, default>
        ("C", "c2", 10_000, BucketKey("C", None)),
        ("D", "c1", 3000, BucketKey("D", "c1")),  # 5: default user and default client beats 7: client id
        ("D", "c2", 3000, BucketKey("D", "c2")),
        ("", "c1", 9000, BucketKey(None, "c1")),  # a principal that can not be read: client levels alone
        ("", "c9", 2000, BucketKey(None, "c9")),
        ("", "", 2000, BucketKey(None, "")),  # one bucket, as KIP-13 says; Kafka: unlimited (KAFKA-13341)
    ],
)
def test_level_of_kafkas_own_test(user: str, client_id: str, rate: float, bucket: BucketKey) -> None:
    assert definitions(KAFKAS).limit(PRODUCER_BYTE_RATE, user, client_id) == (rate, bucket)


LEVELS: list[tuple[tuple[Name, Name], BucketKey]] = [
    (("u", "c"), BucketKey("u", "c")),
    (("u", DEFAULT), BucketKey("u", "c")),
    (("u", None), BucketKey("u", None)),
    ((DEFAULT, "c"), BucketKey("u", "c")),
    ((DEFAULT, DEFAULT), BucketKey("u", "c")),
    ((DEFAULT, None), BucketKey("u", None)),
    ((None, "c"), BucketKey(None, "c")),
    ((None, DEFAULT), BucketKey(None, "c")),
]


@pytest.mark.parametrize("level", range(8))
def test_each_level_beats_all_below_it(level: int) -> None:
    rates: Rates = {entity: 100.0 + index for index, (entity, _) in enumerate(LEVELS) if index >= level}
    assert definitions(rates).limit(PRODUCER_BYTE_RATE, "u", "c") == (100.0 + level, LEVELS[level][1])


PAIR, USER = (DEFAULT, DEFAULT), (DEFAULT, None)


@pytest.mark.parametrize(
    ("dropped", "sent"),
    [
        # 40,000 B / 4,000 B/s - 10 s; the pair of A and c1 has its own: 50,000 B / 5,000 B/s - 10 s
        ([], [("A", "c2", 40_000, 0), ("A", "c3", 4000, 1000), ("A", "c1", 50_000, 0)]),
        ([], [("B", "c2", 88_000, 1000), ("B", "c3", 80_000, 0)]),  # 88,000 B / 8,000 B/s - 10 s
        ([], [("D", "c1", 33_000, 1000), ("D", "c2", 30_000, 0), ("E", "c1", 30_000, 0)]),
        ([PAIR], [("D", "c1", 11_000, 1000), ("F", "c4", 10_000, 0), ("F", "c5", 1000, 1000)]),
        (
            [PAIR, USER],
            [("F", "c4", 22_000, 1000), ("F", "c5", 20_000, 0), ("G", "c5", 2000, 1000), ("", "c5", 0, 1000)],
        ),
    ],
    ids=[
        "a user's client ids share one",
        "a user's default client: one for each",
        "default pair: one for each user and client",
        "default user: one for each user",
        "a client id: one over all users",
    ],
)
def test_budget_is_that_of_the_level(
    dropped: list[tuple[Name, Name]], sent: list[tuple[str, str, int, int]]
) -> None:
    world = World(without(KAFKAS, *dropped))
    told = [(user, client_id, size, world.sent(user, client_id, size)) for user, client_id, size, _ in sent]
    assert told == sent


def test_counter_restarts_where_another_budget_is_counted_against() -> None:
    # Kafka's test: "Metrics tags changed, restart counter".
    world = World(KAFKAS)
    assert world.sent("A", "c1", 55_000) == 1000
    world.change(without(KAFKAS, ("A", "c1")))  # now the user's own
    assert world.sent("A", "c1", 40_000) == 0
    assert world.sent("A", "c1", 4000) == 1000
    world.change(KAFKAS)
    assert world.sent("A", "c1", 50_000) == 0


def test_counter_goes_on_where_the_budget_stays_the_same() -> None:
    world = World({("u", "c"): 1000, ("u", DEFAULT): 2000})
    assert world.sent("u", "c", 20_000) == 10_000  # 20,000 B / 1,000 B/s - 10 s
    world.change({("u", DEFAULT): 2000})  # the same pair, at 2,000 B/s
    assert world.sent("u", "c", 2000) == 1000


def test_rates_of_each_key_have_levels_of_their_own() -> None:
    found = Definitions(
        {
            Entity("u", None): {CONSUMER_BYTE_RATE: 5},
            Entity(None, "c"): {PRODUCER_BYTE_RATE: 7, CONSUMER_BYTE_RATE: 9},
        }
    )
    assert found.limit(CONSUMER_BYTE_RATE, "u", "c") == (5, BucketKey("u", None))
    assert found.limit(PRODUCER_BYTE_RATE, "u", "c") == (7, BucketKey(None, "c"))


def test_names_are_not_patterns_and_not_encoded() -> None:
    found = definitions({("CN=a, O=b*", None): 5, (DEFAULT, None): 7})
    assert found.limit(PRODUCER_BYTE_RATE, "CN=a, O=b*", "c")[0] == 5
    assert found.limit(PRODUCER_BYTE_RATE, "CN%3Da%2C O%3Db%2A", "c")[0] == 7
    assert found.limit(PRODUCER_BYTE_RATE, "<default>", "c")[0] == 7
