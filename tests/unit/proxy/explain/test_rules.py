"""The clients that share a budget, as the engine knows them."""

import pytest

from proxy.explain.documents import Neighbour, largest
from proxy.explain.rules import NEIGHBOURS_MAX, Rule, Sharers, class_of
from quotas.definitions.classes import UNPROMISED
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, BucketKey, Entity
from quotas.engine import Engine
from tests.support.engines import engine_with

PRODUCE = Rule("produce", "producer_byte_rate")
ENTRIES = {
    Entity("ann"): {"producer_byte_rate": 5000, "consumer_byte_rate": 7000},
    Entity(client_id=DEFAULT): {"producer_byte_rate": 1000},
}


def engine() -> Engine:
    """Five seconds in which each client has sent 1,000 B/s times its number."""
    found = engine_with(ENTRIES)
    for number, (user, client_id, broker) in enumerate(
        [("ann", "a", 1), ("ann", "b", 1), ("ann", "a", 2), ("bob", "a", 1)], start=1
    ):
        throttle = found.client(user, client_id, broker).produce
        flow = throttle.flow()
        for second in range(6):
            throttle.produce(flow, 1000 * number if second else 0, 1000 * second)
    return found


OF_ANN = (Neighbour("ann", "a", 4000.0), Neighbour("ann", "b", 2000.0))


@pytest.mark.parametrize(
    ("user", "rule", "expected"),
    [
        ("ann", PRODUCE, OF_ANN),
        ("bob", PRODUCE, (Neighbour("bob", "a", 4000.0),)),
        ("ann", Rule("topic", "producer_byte_rate", "orders"), OF_ANN),
        ("ann", Rule("connection", "connection_creation_rate", "ann"), ()),
    ],
    ids=["a user's, at all brokers", "of the default", "those that waited for a topic", "connections: none"],
)
def test_clients_that_share_a_budget(user: str, rule: Rule, expected: tuple[Neighbour, ...]) -> None:
    found = Sharers(engine(), rule, user, "a", lambda user, _: user == "ann")
    list(found.look(5000))
    assert found.found() == expected


def test_largest_are_kept() -> None:
    found = largest((Neighbour("", str(number), number) for number in range(50)), NEIGHBOURS_MAX)
    assert len(found) == NEIGHBOURS_MAX
    assert found[0] == Neighbour("", "49", 49)


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [
        ("promised", BucketKey(None, "promised")),
        ("ceiling", BucketKey(None, "ceiling")),
        ("exempt", BucketKey(None, "exempt")),
        ("other", UNPROMISED),
    ],
)
def test_class_of_a_client_is_that_of_the_engine(client_id: str, expected: BucketKey) -> None:
    definitions = Definitions(
        {
            Entity(capacity="cluster"): {PRODUCE.key: 8e6},
            Entity(client_id="promised"): {PRODUCE.key: 1e6},
            Entity(client_id="ceiling"): {"producer_byte_rate_ceiling": 4e6},
            Entity(client_id="exempt"): {"exempt": 1},
        }
    )
    assert class_of(definitions, PRODUCE.key, "", client_id) == expected
