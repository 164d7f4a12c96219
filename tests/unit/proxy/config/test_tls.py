"""The tables of TLS and the keys of the PROXY protocol: what goes together, where paths lead, what an error says."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy.config import ClusterTls, ListenerTls
from tests.support.configurations import BASE, parsed

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
