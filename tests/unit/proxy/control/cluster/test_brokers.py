"""Which broker is where, and what clients are told of it."""

from pathlib import Path

import pytest

from proxy.channel.settings import ANY_BROKER
from proxy.config import Address
from proxy.config.options import ListenerOptions
from proxy.control.cluster import BrokerMap, MapFile
from proxy.system.stats import Stats

LISTENER = ListenerOptions(
    advertised_host="sluice.example", advertised_first_broker_port=19100, broker_id_max=3
)
BOOTSTRAP = Address("10.0.0.9", 9092)


@pytest.fixture
def brokers() -> BrokerMap:
    """A map that knows the bootstrap address alone."""
    return BrokerMap((BOOTSTRAP,), Stats())


def test_broker_is_found_at_the_address_that_was_learned_last(brokers: BrokerMap) -> None:
    assert brokers.upstream(1) == (1, None)
    for host in ("10.0.0.1", "10.0.0.2"):
        brokers.changed = False
        brokers.learn(1, host, 9092)
        assert (brokers.upstream(1), brokers.changed) == ((1, (host, 9092)), True)
    brokers.changed = False
    brokers.learn(1, host, 9092)
    assert not brokers.changed


def test_broker_by_name_is_found_once_its_name_is_resolved(brokers: BrokerMap) -> None:
    brokers.learn(1, "broker-1.example", 9092)
    brokers.learn(2, "::1", 9092)
    assert (brokers.upstream(1), brokers.hosts()) == ((1, None), ["broker-1.example"])
    brokers.resolved("broker-1.example", "10.0.0.1")
    assert brokers.upstream(1) == (1, ("10.0.0.1", 9092))
    assert brokers.hosts() == ["broker-1.example"], "it is asked for again"


def test_brokers_that_change_their_ids_or_addresses_are_told_apart(brokers: BrokerMap) -> None:
    for broker in (1, 2, 3):
        brokers.learn(broker, f"10.0.0.{broker}", 9092)
    brokers.learn(7, "10.0.0.2", 9092)  # broker 2 has a new id; 3 is only down
    brokers.set_live((1, 7))
    brokers.changed = False
    brokers.retire()
    assert (sorted(brokers.addresses()), brokers.changed) == ([1, 3, 7], True)
    brokers.changed = False
    brokers.retire()
    assert not brokers.changed
    brokers.learn(1, "10.0.0.2", 9092)  # 1 and 7 have changed places
    brokers.learn(7, "10.0.0.1", 9092)
    brokers.retire()
    assert (brokers.upstream(1)[1], brokers.upstream(7)[1]) == (("10.0.0.2", 9092), ("10.0.0.1", 9092))


def test_identity_of_a_broker_is_its_id_and_the_clusters(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    assert brokers.identity(("10.0.0.1", 9092)) is None, "the cluster is not known"
    before = brokers.version
    brokers.set_cluster("c")
    assert brokers.version == before + 1, "workers have to know it"
    assert brokers.known().cluster_id == "c"
    assert brokers.identity(("10.0.0.1", 9092)) == ("c", 1)
    assert brokers.identity(("10.0.0.9", 9092)) is None, "a bootstrap address may be any broker's"
    brokers.learn(2, "10.0.0.1", 9092)
    assert brokers.identity(("10.0.0.1", 9092)) is None, "one of two"


def test_name_that_is_not_used_any_more_is_forgotten(brokers: BrokerMap) -> None:
    brokers.learn(1, "old.example", 9092)
    brokers.resolved("old.example", "10.0.0.1")
    brokers.learn(1, "new.example", 9092)
    brokers.hosts()
    brokers.learn(1, "old.example", 9092)
    assert brokers.upstream(1) == (1, None)


@pytest.mark.parametrize(
    ("broker", "host", "port", "wrong"),
    [
        (-1, "10.0.0.1", 9092, "id"),
        (2**31, "10.0.0.1", 9092, "id"),
        (2**70, "10.0.0.1", 9092, "id"),
        (1, "", 9092, "host"),
        (1, "a..b", 9092, "host"),
        (1, "x" * 64, 9092, "host"),
        (1, "x\0y", 9092, "host"),
        (1, "b\xfccher.example", 9092, "host"),
        (1, "a b", 9092, "host"),
        (1, "\udcff", 9092, "host"),
        (1, "fe80::1%\0", 9092, "host"),
        (1, "fe80::1%" + "e" * 16, 9092, "host"),
        (1, ".".join(["x" * 63] * 4), 9092, "host"),
        (1, "10.0.0.1", 0, "port"),
        (1, "10.0.0.1", -1, "port"),
        (1, "10.0.0.1", 65_536, "port"),
    ],
)
def test_impossible_address_is_refused_and_logged_once(
    caplog: pytest.LogCaptureFixture, broker: int, host: str, port: int, wrong: str
) -> None:
    stats = Stats()
    brokers = BrokerMap((BOOTSTRAP,), stats)
    for _ in range(3):
        brokers.learn(broker, host, port)
    assert (dict(brokers.addresses()), stats.brokers_refused) == ({}, {wrong: 3})
    assert caplog.messages == ["a broker's address is rejected"]


def test_logged_refusals_are_bounded(brokers: BrokerMap, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1000):
        brokers.learn(1, f"a..b{number}", 9092)
    assert len(caplog.records) == 100


def test_brokers_that_are_gone_make_room_for_those_that_are_alive(brokers: BrokerMap) -> None:
    for broker in range(10_000):
        brokers.learn(broker, "10.0.0.1", 9092)
    brokers.learn(10_000, "10.0.0.1", 9092)
    assert len(brokers.addresses()) == 10_000, "the map is bounded"
    brokers.set_live([5, 10_007])
    brokers.learn(10_007, "10.0.0.7", 9092)
    assert sorted(brokers.addresses()) == [5, 10_007]


def test_few_of_many_brokers_are_asked_in_turn(brokers: BrokerMap) -> None:
    for broker in range(40):
        brokers.learn(broker, f"10.0.1.{broker}", 9092)
    asked = [brokers.targets() for _ in range(5)]
    assert [len(targets) for targets in asked] == [17] * 5  # the bootstrap address, and 16 of them
    assert all(targets[0] == BOOTSTRAP for targets in asked)
    assert len({target for targets in asked for target in targets}) == 41


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
    assert brokers.upstream(ANY_BROKER) == (ANY_BROKER, ("10.0.0.9", 9092)), "nothing else is known"
    for broker, host in ((1, "10.0.0.1"), (2, "10.0.0.2"), (3, "10.0.0.3"), (4, "broker-4.example")):
        brokers.learn(broker, host, 9092)
    brokers.set_live([1, 3, 4])
    assert {brokers.upstream(ANY_BROKER)[0] for _ in range(6)} == {1, 3}, "4 is not resolved"
    assert BrokerMap((), Stats()).upstream(ANY_BROKER) == (ANY_BROKER, None)


def test_metadata_is_asked_of_the_configured_addresses_first(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    assert brokers.targets() == [("10.0.0.9", 9092), ("10.0.0.1", 9092)]


def test_client_is_told_the_advertised_address_and_the_real_one_is_learned(brokers: BrokerMap) -> None:
    assert brokers.address_map(LISTENER, 2, "10.0.0.2", 9092) == ("sluice.example", 19102)
    assert brokers.upstream(2) == (2, ("10.0.0.2", 9092))
    assert brokers.address_map(LISTENER, -1, "", -1) == ("", -1), "it is of no broker"


def test_broker_without_a_port_is_never_named() -> None:
    stats = Stats()
    assert BrokerMap((), stats).address_map(LISTENER, 4, "10.0.0.4", 9092) is None
    assert stats.unnamed_brokers == 1


def test_another_process_takes_over_the_whole_map(brokers: BrokerMap) -> None:
    brokers.learn(1, "10.0.0.1", 9092)
    brokers.learn(2, "broker-2.example", 9092)
    brokers.resolved("broker-2.example", "10.0.0.2")
    brokers.set_live([1])
    other = BrokerMap((BOOTSTRAP,), Stats())
    other.learn(3, "10.0.0.3", 9092)
    other.replace(brokers.known())
    assert [other.upstream(broker)[1] for broker in (1, 2, 3)] == [
        ("10.0.0.1", 9092),
        ("10.0.0.2", 9092),
        None,
    ]
    assert (other.live(), other.changed) == ((1,), False)


def test_version_grows_with_changes_only(brokers: BrokerMap) -> None:
    versions = [brokers.version]
    for _ in range(2):
        brokers.learn(1, "broker-1.example", 9092)
        brokers.set_live([1])
        brokers.resolved("broker-1.example", "10.0.0.1")
        versions.append(brokers.version)
    assert versions == [0, 3, 3]


MAP = {1: Address("10.0.0.1", 9092), 12: Address("broker-12.example", 9093)}


def test_map_is_written_in_a_directory_that_is_made(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "sluice"
    assert MapFile(directory, Stats()).read() == {}
    assert MapFile(directory, Stats()).write(MAP)
    assert MapFile(directory, Stats()).read() == MAP
    assert [path.name for path in directory.iterdir()] == ["brokers.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": ["h", 1]}', '{"1": ["h"]}', '{"1": 5}', "\xff"])
def test_damaged_map_is_empty_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    (tmp_path / "brokers.json").write_text(text, encoding="latin-1")
    assert MapFile(tmp_path, Stats()).read() == {}
    assert caplog.messages == ["broker map not read"]


def test_map_that_can_not_be_written_is_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    stats = Stats()
    file = MapFile(tmp_path / "state", stats)
    for _ in range(3):
        assert not file.write(MAP)
    assert caplog.messages == ["broker map not written"]
    assert stats.broker_map_writes == {"failed": 3}
