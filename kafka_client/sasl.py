"""One SASL exchange by kafka-python's mechanisms, without a connection and a clock.

GSSAPI needs the package gssapi and AWS_MSK_IAM botocore; both find their credentials themselves. For OAUTHBEARER the
password is the token.
Two things are added to the library's SCRAM: a name with a comma or an equals sign is escaped (RFC 5802, section 5.1),
and a challenge with fewer iterations than Kafka's own clients accept is refused: a server that poses as a broker could
otherwise guess the password cheaply. The library itself refuses more than a million.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_client.errors import LoginError

__all__ = ["Exchange"]

_KERBEROS_SERVICE: Final = "kafka"  # as in sasl.kerberos.service.name of nearly every broker
_ITERATIONS_MIN: Final = 4096  # as in Kafka's ScramMechanism
# The library takes the last of several iteration counts, so only one is accepted.
_CHALLENGE: Final = re.compile(rb"r=[^,]*,s=[^,]*,i=([0-9]{1,9})(?:,[^i,][^,]*)*")


class Exchange:
    """The client's side of an exchange.

    All calls may take long (SCRAM hashes, GSSAPI and AWS_MSK_IAM contact other servers): make them in a thread. They
    raise LoginError if the library refuses, or if a package or credential is missing.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM.
        host: the name of the broker.
        encrypted: whether the connection has TLS, without which AWS_MSK_IAM is refused.
    """

    def __init__(
        self, mechanism: str, username: str, password: str, host: str, *, encrypted: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._challenge_expected = mechanism.startswith("SCRAM-")
        if self._challenge_expected:
            username = username.replace("=", "=3D").replace(",", "=2C")
        with self._library_errors("cannot begin"):
            self._library: Any = get_sasl_mechanism(mechanism)(
                host=host,
                security_protocol="SASL_SSL" if encrypted else "",
                sasl_mechanism=mechanism,
                sasl_plain_username=username,
                sasl_plain_password=password,
                sasl_kerberos_service_name=_KERBEROS_SERVICE,
                sasl_oauth_token_provider=_Token(password),
            )

    def token(self) -> bytes:
        """Return the next token for the broker."""
        with self._library_errors("has no token"):
            token: bytes = self._library.auth_bytes()
        return token

    def receive(self, token: bytes) -> bool:
        """Take the broker's token; return whether the exchange has ended.

        Raises:
            LoginError: the token is invalid, or does not prove that the broker knows the password (SCRAM).
        """
        with self._library_errors("got a wrong message from the broker"):
            if self._challenge_expected:
                _check_challenge(token)
                self._challenge_expected = False
            self._library.receive(token)
        if not self._library.is_done():
            return False
        if not self._library.is_authenticated():
            raise LoginError(f"{self._mechanism} got a wrong message from the broker")
        return True

    @contextmanager
    def _library_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each mechanism has errors of its own, and of its packages
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise LoginError(f"{self._mechanism} {what}: {text}") from None


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Provides the configured token for OAUTHBEARER."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def _check_challenge(challenge: bytes) -> None:
    """Refuse a SCRAM challenge with too few iterations.

    Raises:
        ValueError: it is one, or not a valid challenge.
    """
    found = _CHALLENGE.fullmatch(challenge)
    if found is None:
        raise ValueError("not a challenge")
    if int(found[1]) < _ITERATIONS_MIN:
        raise ValueError(f"{int(found[1])} iterations, at least {_ITERATIONS_MIN} are required")
