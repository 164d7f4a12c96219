"""proxy.config.fleet_options."""

import pytest

from proxy.config import Address, Config
from proxy.errors import ConfigError
from tests.support import configurations

CLUSTER = '[cluster]\nbootstrap = "b:9092"\n[[listeners]]\n'
FLEET = '[fleet]\nname = "gw-1"\nholder = "gw-1:19070"\nbind = "0.0.0.0:19070"\n'


def parsed(text: str) -> Config:
    return configurations.parsed(CLUSTER + text)


def test_process_without_a_holder_is_no_member() -> None:
    assert not parsed("").fleet.configured


def test_member_with_the_holders_address_is_the_holder() -> None:
    options = parsed(FLEET).fleet
    assert options.own_address == Address("gw-1", 19070)
    assert options.holds_by_name


def test_all_members_may_use_one_file() -> None:
    config = parsed(FLEET.replace('name = "gw-1"', 'name = "gw-2"') + 'secret_file = "x"\n')
    assert config.fleet.configured
    assert not config.fleet.holds_by_name
    assert not [warning for warning in config.warnings if warning.startswith("fleet.")]


def test_address_that_members_reach_may_be_another_one() -> None:
    config = parsed(FLEET.replace('"gw-1:19070"', '"lb:7000"') + 'advertised = "lb:7000"\n')
    assert config.fleet.holds_by_name


def test_group_chooses_the_holder_where_none_is_named() -> None:
    options = parsed('[fleet]\nname = "gw-1"\nbind = "0.0.0.0:19070"\nsecret_file = "x"\n').fleet
    assert options.configured
    assert options.may_hold
    assert not options.holds_by_name
    assert options.group == "__sluice"


def test_group_behind_sluice_is_an_error() -> None:
    text = (
        '[cluster]\nbootstrap = "b:9092"\n[[listeners]]\n[listeners.upstreams]\n1 = "b:9092"\n'
        '[fleet]\nbind = "127.0.0.1:19070"\n'
    )
    with pytest.raises(
        ConfigError, match=r"cluster\.bootstrap: with a group that chooses the fleet's holder"
    ):
        configurations.parsed(text)


def test_bind_that_is_no_wildcard_is_the_address() -> None:
    config = parsed('[fleet]\nholder = "127.0.0.1:7000"\nbind = "127.0.0.1:7000"\n')
    assert config.fleet.holds_by_name
    assert not [warning for warning in config.warnings if warning.startswith("fleet.")]


def test_hosts_name_is_the_members_name() -> None:
    assert parsed('[fleet]\nholder = "gw-1:19070"\n').fleet.own_name


@pytest.mark.parametrize("key", ['name = "a"', 'secret_file = "x"'])
def test_keys_of_a_member_that_has_no_port_and_no_holder_are_an_error(key: str) -> None:
    with pytest.raises(ConfigError, match=r"fleet\.bind: is needed with fleet\."):
        parsed(f"[fleet]\n{key}\n")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ('name = " a"', "must be a name of printable ASCII"),
        ("members_max = 257", "must be between 1 and 256"),
        ('cut_off = "all"', 'must be "share" or "least"'),
        ('advertised = "a:1"', r"fleet\.bind: is needed with fleet\.advertised"),
    ],
)
def test_key_that_cannot_be_is_an_error(key: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parsed(f'[fleet]\nholder = "h:1"\n{key}\n')


def test_port_of_the_holder_that_is_bound_twice_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"fleet\.bind: port 19080 is bound already by admin\.bind"):
        parsed('[fleet]\nholder = "127.0.0.1:19080"\nbind = "127.0.0.1:19080"\n')


def test_port_without_a_secret_is_a_warning() -> None:
    assert "fleet.bind: every host that reaches it may take shares; fleet.secret_file prevents that" in (
        parsed(FLEET).warnings
    )


def test_windows_of_replication_are_a_warning() -> None:
    listener = 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
    found = parsed(listener + FLEET + 'secret_file = "x"\n[replication]\npolicy = "kip73"\n').warnings
    (warning,) = found
    assert warning.startswith("fleet: with replication.policy kip73 shares hold on an average")
