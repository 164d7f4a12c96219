"""The clients that share a budget, as the engine knows them."""

from proxy.explain.documents import Neighbour, largest
from proxy.explain.rules import NEIGHBOURS_MAX, Rule, Sharers
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions

PRODUCE = Rule("produce", "producer_byte_rate")
ENTRIES = {
    Entity("ann"): {"producer_byte_rate": 5000, "consumer_byte_rate": 7000},
    Entity(client_id=DEFAULT): {"producer_byte_rate": 1000},
}


def engine() -> Engine:
    """Five seconds in which each client has sent 1,000 B/s times its number."""
    found = Engine(EngineOptions(), Definitions(ENTRIES))
    for number, (user, client_id, broker) in enumerate(
        [("ann", "a", 1), ("ann", "b", 1), ("ann", "a", 2), ("bob", "a", 1)], start=1
    ):
        throttle = found.client(user, client_id, broker).produce
        flow = throttle.flow()
        for second in range(6):
            throttle.produce(flow, 1000 * number if second else 0, 1000 * second)
    return found


def sharers(quotas: Engine, user: str, client_id: str, rule: Rule = PRODUCE) -> tuple[Neighbour, ...]:
    found = Sharers(quotas, rule, user, client_id, lambda user, _: user == "ann")
    list(found.look(5000))
    return found.found()


def test_clients_of_one_user_share_its_budget_at_all_brokers() -> None:
    assert sharers(engine(), "ann", "a") == (Neighbour("ann", "a", 4000.0), Neighbour("ann", "b", 2000.0))


def test_client_of_the_default_has_a_budget_of_its_own() -> None:
    assert sharers(engine(), "bob", "a") == (Neighbour("bob", "a", 4000.0),)


def test_clients_that_have_waited_for_a_topic_share_it() -> None:
    found = sharers(engine(), "ann", "a", Rule("topic", "producer_byte_rate", "orders"))
    assert found == (Neighbour("ann", "a", 4000.0), Neighbour("ann", "b", 2000.0))  # bob has not


def test_connection_rates_have_no_neighbours() -> None:
    assert sharers(engine(), "ann", "a", Rule("connection", "connection_creation_rate", "ann")) == ()


def test_largest_are_kept() -> None:
    found = largest((Neighbour("", str(number), number) for number in range(50)), NEIGHBOURS_MAX)
    assert len(found) == NEIGHBOURS_MAX
    assert found[0] == Neighbour("", "49", 49)
