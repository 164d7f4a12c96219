"""The tables of TLS and the keys of the PROXY protocol: what goes together, where paths lead, what an error says."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy.config import ClusterTls, ListenerTls
from tests.support.configurations import BASE, parsed, refused

CLUSTER = '[cluster]\nbootstrap = "127.0.0.1:9092"\n'
LISTENER = "[[listeners]]\n"
TLS = '[listeners.tls]\ncert_file = "own.pem"\n'


def listener_tls(text: str) -> ListenerTls:
    found = parsed(CLUSTER + LISTENER + text).listeners[0].tls
    assert found is not None
    return found


def cluster_tls(text: str) -> ClusterTls:
    found = parsed(f"{CLUSTER}[cluster.tls]\n{text}\n{LISTENER}").cluster.tls
    assert found is not None
    return found


def test_paths_are_relative_to_the_configuration_file() -> None:
    found = listener_tls(
        TLS + 'key_file = "/keys/own.key"\nclient_ca_file = "ca.pem"\nkey_password_file = "p"'
    )
    assert found.cert_file == BASE / "own.pem"
    assert found.key_file == Path("/keys/own.key")
    assert found.files == (BASE / "own.pem", Path("/keys/own.key"), BASE / "p", BASE / "ca.pem")


def test_key_is_in_the_certificates_file_by_default() -> None:
    assert listener_tls(TLS).key_file == BASE / "own.pem"
    assert cluster_tls('cert_file = "own.pem"').key_file == BASE / "own.pem"


@pytest.mark.parametrize(
    ("keys", "auth"),
    [
        ("", "none"),
        ('client_ca_file = "ca.pem"', "required"),
        ('client_ca_file = "ca.pem"\nclient_auth = "requested"', "requested"),
        ('client_ca_file = "ca.pem"\nclient_auth = "none"', "none"),
    ],
)
def test_authority_requires_client_certificates(keys: str, auth: str) -> None:
    assert listener_tls(TLS + keys).client_auth == auth


def test_empty_table_uses_the_systems_authorities() -> None:
    found = cluster_tls("")
    assert found == ClusterTls()
    assert found.files == ()


def test_password_comes_from_the_environment_and_is_shown_nowhere() -> None:
    config = parsed(CLUSTER + LISTENER + TLS, environ={"SLUICE_LISTENERS__0__TLS__KEY_PASSWORD": "hush"})
    assert config.listeners[0].tls is not None
    assert config.listeners[0].tls.key_password == "hush"
    assert "hush" not in repr(config)


def test_networks_are_a_list_or_a_text_with_commas() -> None:
    text = CLUSTER + LISTENER + "proxy_protocol = true\nproxy_protocol_sources = "
    wanted = (ip_network("10.0.0.0/8"), ip_network("2001:db8::1/128"))
    for written in ('"10.0.0.0/8, 2001:db8::1"', '["10.0.0.0/8", "2001:db8::1"]'):
        assert parsed(text + written).listeners[0].proxy_protocol_sources == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LISTENER + "tls = true", "listeners[0].tls: must be a table: [listeners.tls] (got True)"),
        ('[cluster]\nbootstrap = "a:1"\ntls = "on"', "cluster.tls: must be a table: [cluster.tls] (got 'on')"),
        (LISTENER + "[listeners.tls]\n", "listeners[0].tls.cert_file: must name the listener's certificate"),
        (LISTENER + TLS + 'key_fil = "k"', "listeners[0].tls.key_fil: unknown key; did you mean 'key_file'?"),
        (LISTENER + TLS + 'client_auth = "required"', "listeners[0].tls.client_ca_file: must be given with"),
        (LISTENER + TLS + 'client_auth = "always"', 'listeners[0].tls.client_auth: must be "none" or "requested"'),
        (LISTENER + TLS + 'key_password = "a"\nkey_password_file = "b"', "listeners[0].tls.key_password_file: and"),
        (LISTENER + TLS + 'principal_mapping_rules = "RULE:a"', "listeners[0].tls.principal_mapping_rules: not a rule"),
        (LISTENER + '[cluster.tls]\nkey_file = "k"', "cluster.tls.cert_file: must be given with a key"),
        (LISTENER + '[cluster.tls]\nverify_hostname = "perhaps"', "cluster.tls.verify_hostname: must be true or false"),
        (LISTENER + "proxy_protocol = true", "listeners[0].proxy_protocol_sources: must be the networks"),
        (LISTENER + 'proxy_protocol_sources = "10.0.0.1"', "listeners[0].proxy_protocol_sources: has no effect"),
        (LISTENER + 'proxy_protocol_sources = "10.0.0.1/8"', "listeners[0].proxy_protocol_sources: is not a network"),
        (LISTENER + "proxy_protocol_sources = [7]", "listeners[0].proxy_protocol_sources[0]: must be a network"),
        (LISTENER + "proxy_protocol_sources = []", "listeners[0].proxy_protocol_sources: must be 1 to 1000"),
    ],
)  # fmt: skip
def test_contradicting_keys_are_refused(text: str, message: str) -> None:
    assert refused(text if text.startswith("[cluster]\n") else CLUSTER + text).startswith(message)
