"""Validation of hosts: an IP address, or a name that can be resolved and that a certificate can have.

A name is ASCII: labels of 1 to 63 letters, digits, hyphens and underscores, 253 characters in all. Kafka's brokers
advertise no other names, and Python's own look-up refuses the rest with an exception of its own kind.
"""

import re
import ssl
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

_NAME_CHARACTERS_MAX: Final = 253
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.ASCII)
_ZONE: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)  # an interface's name
_IP_CHARACTERS_MAX: Final = 64
_KNOWN_MAX: Final = 4096


@lru_cache(_KNOWN_MAX)
def is_ip(host: str) -> bool:
    """Whether a host is an IP address, possibly with a zone.

    >>> is_ip("192.0.2.7"), is_ip("fe80::1%eth0"), is_ip("a.example")
    (True, True, False)
    """
    if len(host) > _IP_CHARACTERS_MAX:
        return False
    address, percent, zone = host.partition("%")
    try:
        ip_address(address)
    except ValueError:
        return False
    return not percent or _ZONE.fullmatch(zone) is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host: it is a loopback address or localhost.

    >>> is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    return host == "localhost" or (is_ip(host) and ip_address(host).is_loopback)


def host_of(authority: str) -> str:
    """Return the host in an HTTP Host header, in lower case, without port, brackets and final dot.

    >>> host_of("LOCALHOST:9190"), host_of("[::1]:9190"), host_of("a.example.")
    ('localhost', '::1', 'a.example')
    """
    name, colon, port = authority.rpartition(":")
    if not colon or not port.isdecimal():
        name = authority
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return name.lower().removesuffix(".")


def is_host(host: str) -> bool:
    """Whether a text is an IP address or a valid host name.

    >>> is_host("kafka-0.kafka"), is_host("a..b"), is_host("")
    (True, False, False)
    """
    return is_ip(host) or (len(host) <= _NAME_CHARACTERS_MAX + 1 and _NAME.fullmatch(host) is not None)


Context = Callable[[], ssl.SSLContext]
"""Returns the context in force."""


class FleetContexts(NamedTuple):
    """The TLS contexts between members of a fleet (`[fleet.tls]`).

    Args:
        port: returns the context of this member's port; None for plaintext.
        client: returns the context of its connection to the holder; None for plaintext.
    """

    port: Context | None = None
    client: Context | None = None


PLAINTEXT: Final = FleetContexts()


def handshake_problem(error: OSError) -> str:
    """Return a phrase that says why a TLS handshake failed with this error.

    >>> handshake_problem(ConnectionResetError(104, "Connection reset by peer"))
    'the peer closed the connection during the handshake'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the peer closed the connection during the handshake"
    reason = str(getattr(error, "reason", None) or error)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "a client certificate is required, and none was sent"
    if "ALERT" in reason:
        return f"the peer refused: {reason.rpartition('ALERT_')[2].replace('_', ' ').lower()}"
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "the peer does not speak TLS"
    return reason.replace("_", " ").lower()
