"""`[leases]` of earlier releases is read as `[fleet]`."""

import pytest

from proxy.config import Address
from tests.support.configurations import BASE, parsed

CLUSTER = '[cluster]\nbootstrap = "b:9092"\n[[listeners]]\n'
REPLICATES = CLUSTER + 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
PEERS = '[leases]\npeers = "a, b,c"\nname = "b"\n'


def test_sidecar_becomes_a_member_of_a_fleet_with_that_holder() -> None:
    fleet = parsed(REPLICATES + PEERS + 'holder = "h:1"\nsecret_file = "s"\n').fleet
    assert (fleet.name, fleet.members_max, fleet.holder) == ("b", 3, Address("h", 1))
    assert fleet.secret_file == BASE / "s"
    assert not fleet.may_hold


@pytest.mark.parametrize(
    ("holder", "bind"),
    [
        ("10.0.0.1:19070", "10.0.0.1:19070"),
        ("localhost:19070", "127.0.0.1:19070"),
        ("127.0.0.1:19070", "0.0.0.0:19070"),
        ("b:19070", "0.0.0.0:19070"),
    ],
)
def test_holder_stays_the_holder(holder: str, bind: str) -> None:
    fleet = parsed(REPLICATES + PEERS + f'holder = "{holder}"\nbind = "{bind}"\n').fleet
    assert fleet.holds_by_name
    assert str(fleet.own_address) == holder


def test_holder_is_known_by_the_hosts_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "kafka1.example.org")
    text = REPLICATES + PEERS + 'holder = "kafka1:19070"\nbind = "0.0.0.0:19070"\n'
    config = parsed(text)
    assert config.fleet.holds_by_name
    assert (
        'bind = "0.0.0.0:19070", advertised = "kafka1:19070", holder = "kafka1:19070"' in config.warnings[0]
    )
    assert not parsed(text.replace("kafka1", "kafka2")).fleet.holds_by_name


def test_process_that_may_not_be_the_holder_is_none() -> None:
    """All sidecars could use one file: two of them that hold would each lease the whole of a quota."""
    config = parsed(REPLICATES + PEERS + 'holder = "elsewhere:19070"\nbind = "0.0.0.0:19070"\n')
    assert config.fleet.configured
    assert not config.fleet.holds_by_name


def test_holder_without_followers_of_its_own_is_the_holder() -> None:
    fleet = parsed(CLUSTER + '[leases]\npeers = "a,b"\nbind = "10.0.0.1:19070"\n').fleet
    assert fleet.holds_by_name
    assert fleet.members_max == 2
    assert fleet.holder == Address("10.0.0.1", 19070)


def test_fleet_comes_first_and_without_followers_there_is_none() -> None:
    leases = PEERS + 'holder = "h:1"\n'
    assert parsed(REPLICATES + leases + '[fleet]\nholder = "g:2"\n').fleet.holder == Address("g", 2)
    assert not parsed(CLUSTER + leases).fleet.configured
