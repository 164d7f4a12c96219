"""`[fleet]`: who holds, the group and its cluster, TLS, and what the keys must agree on."""

import pytest

from proxy.config import Address, ClusterOptions, ClusterTls, Config, FleetTls, ListenerTls
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
    assert any(
        "fleet.cluster.password: is plain text" in warning and "SLUICE_FLEET__CLUSTER__PASSWORD" in warning
        for warning in parsed(OTHER + table + 'password = "hush"\n').warnings
    )


def test_other_cluster_without_a_group_and_topics_has_no_effect() -> None:
    named = '[fleet]\nholder = "h:1"\nbootstrap = "ops1:9092"\n'
    assert any(warning.startswith("fleet.bootstrap: has no effect") for warning in parsed(named).warnings)
    assert not parsed(named + '[quotas]\nstore = "topic"\n').warnings
    assert not [one for one in parsed(OTHER).warnings if one.startswith("fleet.bootstrap")]


TLS = '[fleet.tls]\ncert_file = "own.pem"\n'


def test_one_certificate_is_for_the_port_and_towards_the_holder() -> None:
    found = parsed(GROUP + TLS + 'client_ca_file = "ca.pem"\nverify_hostname = false\n').fleet.tls
    assert found is not None
    base = configurations.BASE
    assert found.port == ListenerTls(
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


def test_members_certificates_are_as_good_as_a_secret() -> None:
    wide = '[fleet]\nname = "gw-1"\nbind = "0.0.0.0:19070"\n'
    assert any("may take shares" in warning for warning in parsed(wide + TLS).warnings)
    found = parsed(wide + TLS + 'client_ca_file = "ca.pem"\n').warnings
    assert not any("may take shares" in warning for warning in found)
    assert any("can be the holder" in warning for warning in found)  # the group is another matter


def test_port_without_a_secret_is_a_warning() -> None:
    assert "fleet.bind: every host that reaches it may take shares; fleet.secret_file prevents that" in (
        parsed(FLEET).warnings
    )


def test_windows_of_replication_are_a_warning() -> None:
    listener = 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
    found = parsed(listener + FLEET + 'secret_file = "x"\n[replication]\npolicy = "kip73"\n').warnings
    (warning,) = found
    assert warning.startswith("fleet: with replication.policy kip73 shares hold on an average")


HELD = '[fleet]\nholder = "h:1"\n'
BEHIND = '[listeners.upstreams]\n1 = "b:9092"\n[fleet]\nbind = "127.0.0.1:19070"\n'
IAM = '[fleet.cluster]\nsasl_mechanism = "AWS_MSK_IAM"\n[fleet.cluster.tls]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BEHIND, "cluster.bootstrap: with a group that chooses the fleet's holder"),
        (GROUP + '[fleet.cluster]\nusername = "u"\n', "fleet.bootstrap: must name the brokers"),
        (OTHER + '[fleet.cluster]\nbootstrap = "c:1"\n', "it is the key fleet.bootstrap: leave it out"),
        (OTHER + "cluster = true\n", "fleet.cluster: must be a table: [fleet.cluster]"),
        (OTHER + '[fleet.cluster]\nusername = "u"\n', "fleet.cluster.sasl_mechanism: is needed"),
        (OTHER + IAM, "fleet.holder: is needed with AWS_MSK_IAM"),
        (GROUP + 'bootstrap = "127.0.0.1:19090"\n', "fleet.bootstrap: is the address of Sluice itself"),
        (GROUP + "[fleet.tls]\n", "fleet.tls.cert_file: must name the certificate of this member's port"),
        (GROUP + '[fleet.tls]\nkey_file = "k"\n', "fleet.tls.cert_file: must be given with a key"),
        (GROUP + TLS + 'client_auth = "required"\n', "fleet.tls.client_ca_file: must be given with"),
        (
            GROUP + TLS + 'principal_mapping_rules = "DEFAULT"\n',
            "fleet.tls.principal_mapping_rules: unknown key",
        ),
        (GROUP + TLS + 'key_password = "a"\nkey_password_file = "b"\n', "fleet.tls.key_password_file: and"),
        (GROUP + "tls = true\n", "fleet.tls: must be a table: [fleet.tls]"),
        ('[fleet]\nname = "a"\n', "fleet.bind: is needed with fleet."),
        ('[fleet]\nsecret_file = "x"\n', "fleet.bind: is needed with fleet."),
        (HELD + 'name = " a"\n', "must be a name of printable ASCII"),
        (HELD + "members_max = 257\n", "must be between 1 and 256"),
        (HELD + 'cut_off = "all"\n', 'must be "share" or "least"'),
        (HELD + 'advertised = "a:1"\n', "fleet.bind: is needed with fleet.advertised"),
        (
            '[fleet]\nholder = "127.0.0.1:19080"\nbind = "127.0.0.1:19080"\n',
            "fleet.bind: port 19080 is bound already by admin.bind",
        ),
    ],
)
def test_fleet_that_cannot_be_is_an_error(text: str, problem: str) -> None:
    assert problem in configurations.refused(CLUSTER + text)
