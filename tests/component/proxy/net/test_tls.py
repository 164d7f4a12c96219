"""Contexts from files: what is refused, under which key, and that no password is asked for at a terminal."""

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.config import ClusterTls, ListenerTls
from proxy.config.options import ListenerOptions, TlsVersion
from proxy.net.server_name import BrokerNames
from proxy.net.tls import BrokerTls, ServerTls
from proxy.system.errors import ConfigError
from tests.component.proxy.net.tls_rig import Papers

PATH = "listeners[0].tls"
SYSTEMS_MAXIMUM = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).maximum_version  # MaxProtocol of openssl.cnf


def refused(options: ListenerTls) -> str:
    with pytest.raises(ConfigError) as caught:
        ServerTls(options, PATH)
    return str(caught.value)


@pytest.mark.parametrize(
    ("auth", "mode"),
    [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_client_auth_is_applied_as_configured(papers: Papers, auth: str, mode: ssl.VerifyMode) -> None:
    context = ServerTls(papers.listener(auth), PATH).context
    assert (context.verify_mode, context.minimum_version) == (mode, ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize(
    ("names", "lowest", "highest"),
    [
        (("TLSv1.2",), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (("TLSv1.3",), ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        (("TLSv1.3", "TLSv1.3"), ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        (("TLSv1.3", "TLSv1.2"), ssl.TLSVersion.TLSv1_2, SYSTEMS_MAXIMUM),
    ],
)
def test_versions_are_those_that_are_enabled(
    papers: Papers, names: tuple[TlsVersion, ...], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> None:
    for context in (
        ServerTls(replace(papers.listener(), enabled_protocols=names), PATH).context,
        BrokerTls(replace(papers.cluster(), enabled_protocols=names)).context,
    ):
        assert (context.minimum_version, context.maximum_version) == (lowest, highest)


def test_ciphers_of_tls_1_2_are_those_of_the_list(papers: Papers) -> None:
    context = ServerTls(replace(papers.listener(), ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"), PATH).context
    older = [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    for wrong in ("NO-SUCH", "TLS_AES_128_GCM_SHA256", "AES128\0"):
        message = refused(replace(papers.listener(), ciphers=wrong))
        assert message.startswith(f"{PATH}.ciphers: names no cipher of TLS 1.2 that OpenSSL has"), message


@pytest.mark.parametrize("verify_hostname", [True, False])
def test_brokers_are_verified_whatever_their_name(papers: Papers, verify_hostname: bool) -> None:
    context = BrokerTls(papers.cluster(verify_hostname=verify_hostname)).context
    assert (context.verify_mode, context.minimum_version) == (ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2)
    assert context.check_hostname == verify_hostname


def test_without_an_authority_the_systems_authorities_are_trusted() -> None:
    assert BrokerTls(ClusterTls()).context.verify_mode == ssl.CERT_REQUIRED
    assert BrokerTls(ClusterTls()).expires_at() is None


def test_key_and_certificate_may_be_in_one_file(papers: Papers) -> None:
    store = papers.sluice.store_file
    ServerTls(ListenerTls(cert_file=store, key_file=store, client_auth="none"), PATH)


def test_encrypted_key_needs_its_password(papers: Papers, tmp_path: Path) -> None:
    made = papers.servers.issue("locked", password="open sesame")
    options = ListenerTls(cert_file=made.cert_file, key_file=made.key_file, client_auth="none")
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    ServerTls(replace(options, key_password="open sesame"), PATH)
    ServerTls(replace(options, key_password_file=file), PATH)
    assert f"{PATH}.key_file: is encrypted: key_password or" in refused(options)
    wrong = refused(replace(options, key_password="hush"))
    assert "the key's password is wrong" in wrong
    assert "hush" not in wrong


def test_tls_error_names_key_and_file(papers: Papers, tmp_path: Path) -> None:
    missing, nonsense = tmp_path / "missing.pem", tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    right = papers.listener("required")
    for options, message in (
        (replace(right, cert_file=missing), f"{PATH}.cert_file: cannot be read: No such file"),
        (replace(right, key_file=missing), f"{PATH}.key_file: cannot be read: No such file"),
        (replace(right, key_password_file=missing), f"{PATH}.key_password_file: cannot be read"),
        (replace(right, client_ca_file=missing), f"{PATH}.client_ca_file: cannot be read"),
        (replace(right, cert_file=nonsense), f"{PATH}.cert_file: is not a certificate with its key"),
        (replace(right, key_file=nonsense), f"{PATH}.cert_file: is not a certificate with its key"),
        (replace(right, client_ca_file=nonsense), f"{PATH}.client_ca_file: holds no certificates"),
        (replace(right, key_file=papers.alice.key_file), f"{PATH}.cert_file: the key does not belong"),
    ):
        assert refused(options).startswith(message)


def test_further_certificate_must_have_its_key_and_a_host_name(papers: Papers, tmp_path: Path) -> None:
    options = ListenerOptions(broker_host="b{id}.kafka.test", advertised_host="kafka.test")
    nameless = papers.clients.issue("nameless", names="subjectAltName=IP:127.0.0.1")
    for file, message in (
        (papers.sluice.cert_file, "is not a certificate with its key"),
        (tmp_path / "missing.pem", "cannot be read: No such file"),
        (nameless.store_file, "names no host, so no client would get it"),
    ):
        tls = replace(papers.listener(), more_cert_files=(file,))
        with pytest.raises(ConfigError, match=re.escape(f"{PATH}.more_cert_files: {message}")):
            ServerTls(tls, PATH, names=BrokerNames(options))


def test_first_of_several_certificates_to_expire_is_known(papers: Papers) -> None:
    old = papers.servers.issue("expired", expired=True)
    found = ServerTls(replace(papers.listener(), more_cert_files=(old.store_file,)), PATH)
    assert found.expires_at() == datetime(2020, 1, 2, tzinfo=UTC).timestamp()
    assert found.host_names() == ("localhost", "localhost")
    assert old.store_file in found.files


def test_expiry_of_the_certificate_is_known(papers: Papers) -> None:
    ends = ServerTls(papers.listener(), PATH).expires_at()
    assert ends is not None
    assert ends > 0
