"""A Java client's properties, as `--command-config` takes them."""

from pathlib import Path

import pytest

from proxy.commands.servers import read_command_config
from proxy.system.errors import ConfigError
from tests.support.certificates import Authority


def written(directory: Path, text: str) -> Path:
    path = directory / "client.properties"
    path.write_text(text)
    return path


def test_command_config_is_read(tmp_path: Path) -> None:
    text = (
        "# Kafka's own\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nclient.id=x\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  username="a" password="b";\n'
    )
    security = read_command_config(written(tmp_path, text))
    assert security.login is not None
    assert security.tls is None
    assert read_command_config(written(tmp_path, "client.id=x\n")) == (None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ssl.keystore.password=k\n", "ssl.keystore.password: is not supported"),
        ("security.protocol=X\n", "security.protocol"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n", "sasl.mechanism"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n", "sasl.jaas.config"),
        ("security.protocol=SSL\nssl.truststore.location=k.jks\n", "must be PEM"),
        ("security.protocol=SSL\nssl.keystore.location=k.jks\n", "must be PEM"),
        ("security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/nowhere\n", "cannot be read"),
    ],
)
def test_command_config_with_unsupported_keys_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_command_config(written(tmp_path, text))


def test_certificate_of_its_own_is_shown(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    own = authority.issue("ops")
    text = (
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={authority.cert_file}\nssl.keystore.location={own.store_file}\n"
    )
    security = read_command_config(written(tmp_path, text))
    assert security.login is None
    assert security.tls is not None
    assert len(security.tls.get_ca_certs()) == 1
