"""`[fleet]`: who holds, the group and its cluster, TLS, and what the keys must agree on."""

import pytest

from proxy.config import Address, ClusterOptions, ClusterTls, Config, FleetTls, PortTls
from tests.support import configurations

CLUSTER = '[cluster]\nbootstrap = "b:9092"\n[[listeners]]\n'
FLEET = '[fleet]\nname = "gw-1"\nholder = "gw-1:19070"\nbind = "0.0.0.0:19070"\n'


def parsed(text: str) -> Config:
    return configurations.parsed(CLUSTER + text)


def test_member_with_the_holders_address_is_the_holder() -> None:
    options = parsed(FLEET).fleet
    assert options.own_address == Address("gw-1", 19070)
    assert options.holds_by_name


def test_all_members_may_use_one_file() -> None:
    config = parsed(FLEET.replace('name = "gw-1"', 'name = "gw-2"') + 'secret_file = "x"\n')
    assert config.fleet.configured
    assert not config.fleet.holds_by_name
    assert not [warning for warning in config.warnings if warning.startswith("fleet.")]


@pytest.mark.parametrize(
    "text",
    [
        FLEET.replace('"gw-1:19070"', '"lb:7000"') + 'advertised = "lb:7000"\n',
        '[fleet]\nholder = "127.0.0.1:7000"\nbind = "127.0.0.1:7000"\n',
    ],
)
def test_address_that_members_reach_may_be_another_one(text: str) -> None:
    config = parsed(text + 'secret_file = "x"\n')
    assert config.fleet.holds_by_name
    assert config.fleet.own_name
    assert not [warning for warning in config.warnings if warning.startswith("fleet.")]


def test_group_chooses_the_holder_where_none_is_named() -> None:
    options = parsed('[fleet]\nname = "gw-1"\nbind = "0.0.0.0:19070"\nsecret_file = "x"\n').fleet
    assert options.configured
    assert options.may_hold
    assert not options.holds_by_name
    assert options.group == "__sluice"


GROUP = '[fleet]\nbind = "127.0.0.1:19070"\n'
OTHER = GROUP + 'bootstrap = "ops1:9092, ops2:9092"\n'


def test_group_and_topics_are_on_the_throttled_cluster_by_default() -> None:
    assert not parsed("").fleet.configured
    config = parsed(GROUP)
    assert config.fleet.cluster is None
    assert config.fleet_cluster is config.cluster


def test_other_cluster_has_its_own_login_and_inherits_none() -> None:
    login = '[cluster]\nbootstrap = "b:9092"\nsasl_mechanism = "PLAIN"\nusername = "u"\npassword_file = "p"\n'
    config = configurations.parsed(f"{login}[cluster.tls]\n[[listeners]]\n{OTHER}")
    assert config.fleet_cluster == ClusterOptions(bootstrap=(Address("ops1", 9092), Address("ops2", 9092)))
    assert config.fleet_bootstrap_key == "fleet.bootstrap"


def test_login_of_the_other_cluster_has_the_keys_of_a_cluster() -> None:
    table = (
        '[fleet.cluster]\nsasl_mechanism = "SCRAM-SHA-512"\nusername = "ops"\npassword_file = "ops.password"\n'
        '[fleet.cluster.tls]\nca_file = "ca.pem"\n'
    )
    found = parsed(OTHER + table).fleet_cluster
    assert (found.username, found.password_file) == ("ops", configurations.BASE / "ops.password")
    assert found.tls is not None
    assert found.tls.ca_file == configurations.BASE / "ca.pem"


def test_password_of_the_other_cluster_may_come_from_the_environment() -> None:
    table = '[fleet.cluster]\nsasl_mechanism = "PLAIN"\nusername = "ops"\n'
    variable = {"SLUICE_FLEET__CLUSTER__PASSWORD": "hush"}
    config = configurations.parsed(CLUSTER + OTHER + table, environ=variable)
    assert config.fleet_cluster.password == "hush"
    assert "hush" not in repr(config)
    assert not [warning for warning in config.warnings if "plain text" in warning]


TLS = '[fleet.tls]\ncert_file = "own.pem"\n'


def test_one_certificate_is_for_the_port_and_towards_the_holder() -> None:
    found = parsed(GROUP + TLS + 'client_ca_file = "ca.pem"\nverify_hostname = false\n').fleet.tls
    assert found is not None
    base = configurations.BASE
    assert found.port == PortTls(
        base / "own.pem", base / "own.pem", client_ca_file=base / "ca.pem", client_auth="required"
    )
    assert found.client == ClusterTls(
        base / "own.pem", base / "own.pem", ca_file=base / "ca.pem", verify_hostname=False
    )


def test_authority_of_the_holder_may_be_another_one() -> None:
    found = parsed(GROUP + TLS + 'client_ca_file = "ca.pem"\nca_file = "holders.pem"\n').fleet.tls
    assert found is not None
    assert found.client.ca_file == configurations.BASE / "holders.pem"


def test_member_without_a_port_needs_no_certificate() -> None:
    found = parsed('[fleet]\nholder = "h:1"\n[fleet.tls]\n').fleet.tls
    assert found == FleetTls(client_auth="none")
