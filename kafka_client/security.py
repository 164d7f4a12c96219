"""A Java client's properties -> how a connection is secured, as `--command-config` of Kafka's own tools takes them.

Supported are the keys of SASL PLAIN and SCRAM and of PEM stores; other security keys are refused, and all other keys
are ignored. The caller reads the file with the properties.
"""

import re
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafka_client.connection import Login

_JAAS: Final = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SUPPORTED_KEYS: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.key.password",
)


class PropertiesError(ValueError):
    """A property is not supported, wrong, or missing.

    Args:
        key: the property; "" for several together.
        problem: what is wrong with it.
        value: the wrong value, if there is one.
    """

    def __init__(self, key: str, problem: str, value: str | None = None) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem
        self.value = value


class Security(NamedTuple):
    """How connections to brokers are secured: the login and the TLS context; None where there is none."""

    login: Login | None = None
    tls: ssl.SSLContext | None = None


def security_of(text: str, check_store: Callable[[str], object] = str) -> Security:
    """Parse a Java client's properties.

    Args:
        check_store: called with the path of each PEM store before OpenSSL opens it.

    Raises:
        PropertiesError: a security key is not supported, or a required one is missing; or a store cannot be read, as
            `check_store` may say by an OSError.
    """
    values: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith(("#", "!")):
            values[key.strip()] = value.strip()
    for key in values:
        if key.startswith(("sasl.", "ssl.", "security.")) and key not in _SUPPORTED_KEYS:
            raise PropertiesError(key, f"is not supported; supported: {', '.join(_SUPPORTED_KEYS)}")
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise PropertiesError("security.protocol", "is not a security protocol of Kafka", protocol)
    login = _login(values) if protocol.startswith("SASL") else None
    return Security(login, _tls(values, check_store) if protocol.endswith("SSL") else None)


def _login(values: Mapping[str, str]) -> Login:
    mechanism = values.get("sasl.mechanism", "")
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise PropertiesError("sasl.mechanism", "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", mechanism)
    jaas = dict(_JAAS.findall(values.get("sasl.jaas.config", "")))
    if set(jaas) != {"username", "password"}:
        raise PropertiesError("sasl.jaas.config", 'must hold username="…" and password="…"')
    return Login(mechanism, jaas["username"], jaas["password"])


def _tls(values: Mapping[str, str], check_store: Callable[[str], object]) -> ssl.SSLContext:
    trusted, own = (_pem(values, store, check_store) for store in ("ssl.truststore", "ssl.keystore"))
    try:
        context = ssl.create_default_context(cafile=trusted)
        if own is not None:
            context.load_cert_chain(own, password=values.get("ssl.key.password", ""))
    except OSError as error:  # ssl.SSLError is one
        raise PropertiesError("", f"its TLS files cannot be read: {error}") from None
    return context


def _pem(values: Mapping[str, str], store: str, check_store: Callable[[str], object]) -> str | None:
    location = values.get(f"{store}.location")
    if location and values.get(f"{store}.type", "").upper() != "PEM":
        raise PropertiesError(f"{store}.type", "must be PEM: Java's own formats are not supported")
    if not location:
        return None
    try:
        check_store(location)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise PropertiesError(f"{store}.location", problem, location) from None
    return location
