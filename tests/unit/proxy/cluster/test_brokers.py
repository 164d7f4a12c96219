"""Which broker is where, and what clients are told of it."""

import pytest

from proxy.channel.settings import ANY_BROKER
from proxy.cluster import BrokerMap
from proxy.config import Address
from proxy.config.options import ListenerOptions
from proxy.stats import Stats

LISTENER = ListenerOptions(
    advertised_host="sluice.example", advertised_first_broker_port=19100, broker_id_max=3
)
BOOTSTRAP = Address("10.0.0.9", 9092)


@pytest.fixture
def brokers() -> BrokerMap:
    """A map that knows the bootstrap address alone."""
    return BrokerMap((BOOTSTRAP,), Stats())


def test_learned_broker_is_found(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    assert brokers.upstream(1) == (1, ("10.0.0.1", 9092))


def test_unknown_broker_is_not_found(brokers: BrokerMap) -> None:
    assert brokers.upstream(1) == (1, None)


def test_broker_that_moves_is_found_where_it_is(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    brokers.learn(1, "10.0.0.2", 9092)
    assert brokers.upstream(1) == (1, ("10.0.0.2", 9092))


def test_broker_by_name_is_found_once_its_name_is_resolved(brokers: BrokerMap) -> None:
    brokers.learn(1, "broker-1.example", 9092)
    assert (brokers.upstream(1), brokers.unresolved) == ((1, None), {"broker-1.example"})
    brokers.resolved("broker-1.example", "10.0.0.1")
    assert (brokers.upstream(1), brokers.unresolved) == ((1, ("10.0.0.1", 9092)), set())


def test_names_are_asked_for_again(brokers: BrokerMap) -> None:
    brokers.learn(1, "broker-1.example", 9092)
    brokers.learn(2, "::1", 9092)
    brokers.resolved("broker-1.example", "10.0.0.1")
    assert brokers.hosts() == {"broker-1.example"}


@pytest.mark.parametrize(("broker", "host"), [(-1, "10.0.0.1"), (1, "")])
def test_no_broker_is_not_learned(brokers: BrokerMap, broker: int, host: str) -> None:
    brokers.learn(broker, host, 9092)
    assert not brokers.addresses()


def test_map_is_bounded(brokers: BrokerMap) -> None:
    for broker in range(10_001):
        brokers.learn(broker, "10.0.0.1", 9092)
    assert len(brokers.addresses()) == 10_000


def test_news_are_marked(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    assert brokers.changed


def test_no_news_are_not_marked(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    brokers.changed = False
    brokers.learn(1, "10.0.0.1", 9092)
    assert not brokers.changed


def test_bootstrap_port_leads_past_those_that_were_tried(brokers: BrokerMap) -> None:
    for broker in (1, 2, 3):
        brokers.learn(broker, f"10.0.0.{broker}", 9092)
    brokers.set_live([1, 2, 3])
    dead = [("10.0.0.3", 9092), ("10.0.0.1", 9092)]
    assert {brokers.upstream(ANY_BROKER, dead) for _ in range(6)} == {(2, ("10.0.0.2", 9092))}
    dead.append(("10.0.0.2", 9092))
    assert brokers.upstream(ANY_BROKER, dead) == (ANY_BROKER, ("10.0.0.9", 9092)), (
        "the bootstrap address is left"
    )
    assert brokers.upstream(ANY_BROKER, [*dead, ("10.0.0.9", 9092)]) == (ANY_BROKER, None)


def test_bootstrap_port_leads_to_the_living_in_turn(brokers: BrokerMap) -> None:
    for broker in (1, 2, 3):
        brokers.learn(broker, f"10.0.0.{broker}", 9092)
    brokers.set_live([1, 3])
    assert {brokers.upstream(ANY_BROKER)[0] for _ in range(4)} == {1, 3}


def test_bootstrap_port_leads_to_the_bootstrap_address_before_anything_is_known(brokers: BrokerMap) -> None:
    assert brokers.upstream(ANY_BROKER) == (ANY_BROKER, ("10.0.0.9", 9092))


def test_bootstrap_port_leads_nowhere_without_an_address() -> None:
    assert BrokerMap((), Stats()).upstream(ANY_BROKER) == (ANY_BROKER, None)


def test_bootstrap_port_passes_over_an_unresolved_broker(brokers: BrokerMap) -> None:
    brokers.learn(1, "broker-1.example", 9092)
    brokers.learn(2, "10.0.0.2", 9092)
    brokers.set_live([1, 2])
    assert {brokers.upstream(ANY_BROKER)[0] for _ in range(4)} == {2}


def test_metadata_is_asked_of_the_configured_addresses_first(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    assert brokers.targets() == [("10.0.0.9", 9092), ("10.0.0.1", 9092)]


def test_client_is_told_the_advertised_address(brokers: BrokerMap) -> None:
    assert brokers.address_map(LISTENER, 2, "10.0.0.2", 9092) == ("sluice.example", 19102)


def test_address_told_to_a_client_is_learned_on_its_way(brokers: BrokerMap) -> None:
    brokers.address_map(LISTENER, 2, "10.0.0.2", 9092)
    assert brokers.upstream(2) == (2, ("10.0.0.2", 9092))


def test_broker_without_a_port_is_never_named() -> None:
    stats = Stats()
    assert BrokerMap((), stats).address_map(LISTENER, 4, "10.0.0.4", 9092) is None
    assert stats.unnamed_brokers == 1


def test_broker_that_is_none_stays_none(brokers: BrokerMap) -> None:
    assert brokers.address_map(LISTENER, -1, "", -1) == ("", -1)


@pytest.mark.parametrize("port", [-1, 0, 65_536, 2**31 - 1])
def test_port_that_is_none_is_nobodys(port: int) -> None:
    brokers = BrokerMap((), Stats())
    brokers.learn(1, "10.0.0.1", port)
    assert not brokers.addresses()
