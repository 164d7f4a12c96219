"""`--command-config`: a properties file of Kafka's Java clients, as for Kafka's own tools.

Supported are the keys of SASL PLAIN and SCRAM and of PEM stores; other security keys are refused, and all other keys
are ignored.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafka_client import ASKING_FAILS, CLIENT_ID, Connection, Login
from proxy.config import Address, read_text
from proxy.system.errors import ConfigError, ServerError, reason
from proxy.system.files import read

_PEM_BYTES_MAX: Final = 4 * 1024 * 1024
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


class Security(NamedTuple):
    """The login and the TLS context of connections; None for none."""

    login: Login | None = None
    tls: ssl.SSLContext | None = None


async def connect_any(
    servers: Sequence[Address], security: Security, seconds: float, client_id: bytes = CLIENT_ID
) -> Connection:
    """Connect to the first reachable server.

    Args:
        seconds: the deadline for each server.

    Raises:
        ServerError: no server can be reached; the message says why.
    """
    problems = []
    for server in servers:
        try:
            async with asyncio.timeout(seconds):
                return await Connection.open(
                    *server, tls=security.tls, login=security.login, client_id=client_id
                )
        except ASKING_FAILS as error:
            problems.append(f"{server}: {reason(error, seconds)}")
    raise ServerError("; ".join(problems))


def read_command_config(path: Path) -> Security:
    """Read a Java client's properties.

    Raises:
        ConfigError: a security key is not supported, or a required one is missing.
    """
    values: dict[str, str] = {}
    for line in read_text(path).replace("\\\n", "").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith(("#", "!")):
            values[key.strip()] = value.strip()
    for key in values:
        if key.startswith(("sasl.", "ssl.", "security.")) and key not in _SUPPORTED_KEYS:
            raise ConfigError(f"{path}: {key}", f"is not supported; supported: {', '.join(_SUPPORTED_KEYS)}")
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ConfigError(f"{path}: security.protocol", "is not a security protocol of Kafka", protocol)
    login = None
    if protocol.startswith("SASL"):
        mechanism = values.get("sasl.mechanism", "")
        if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            raise ConfigError(
                f"{path}: sasl.mechanism", "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", mechanism
            )
        jaas = dict(_JAAS.findall(values.get("sasl.jaas.config", "")))
        if set(jaas) != {"username", "password"}:
            raise ConfigError(f"{path}: sasl.jaas.config", 'must hold username="…" and password="…"')
        login = Login(mechanism, jaas["username"], jaas["password"])
    return Security(login, _tls(path, values) if protocol.endswith("SSL") else None)


def _tls(path: Path, values: Mapping[str, str]) -> ssl.SSLContext:
    trusted, own = _pem(path, values, "ssl.truststore"), _pem(path, values, "ssl.keystore")
    try:
        context = ssl.create_default_context(cafile=trusted)
        if own is not None:
            context.load_cert_chain(own, password=values.get("ssl.key.password", ""))
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(str(path), f"its TLS files cannot be read: {error}") from None
    return context


def _pem(path: Path, values: Mapping[str, str], store: str) -> str | None:
    location = values.get(f"{store}.location")
    if location and values.get(f"{store}.type", "").upper() != "PEM":
        raise ConfigError(f"{path}: {store}.type", "must be PEM: Java's own formats are not supported")
    if not location:
        return None
    try:
        read(Path(location), _PEM_BYTES_MAX)  # OpenSSL would wait forever for a FIFO
    except OSError as error:
        raise ConfigError(
            f"{path}: {store}.location", f"cannot be read: {error.strerror or error}", location
        ) from None
    return location
