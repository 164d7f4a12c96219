"""Sluice's own login: SaslHandshake, then the tokens of an exchange in SaslAuthenticate (KIP-43, KIP-152).

The password is read again for each login, so that a changed file needs no restart. It is never logged; the broker's
message about a refused login is.
Re-authentication (KIP-368) is not supported: a broker closes the connection when its session ends, and the next
connection logs in again.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from kafka_client.codec import decode, encode, sasl
from kafka_client.connection import Connection
from kafka_client.errors import LoginError
from kafka_client.request import KIB, Request
from kafka_client.sasl import Exchange
from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE

__all__ = ["Login"]

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 0
_HANDSHAKE_BYTES_MAX: Final = 64 * KIB
_TOKEN_BYTES_MAX: Final = 512 * KIB
_TOKENS_MAX: Final = 8  # GSSAPI has four


class Login:
    """Authenticates connections.

    Args:
        mechanism: one of `Exchange`.
        username: empty if the mechanism has no user name.
        password: the password or token, or a function that reads it in a thread and raises LoginError.
    """

    def __init__(self, mechanism: str, username: str, password: str | Callable[[], str]) -> None:
        self._mechanism = mechanism
        self._username = username
        self._password = password

    async def __call__(self, connection: Connection, host: str) -> None:
        """Authenticate a new connection.

        Args:
            host: the name of the broker.

        Raises:
            LoginError: the broker refuses it, or the password cannot be read.
            OSError, WireError: as `Connection.send`.
        """
        exchange = await asyncio.to_thread(self._exchange, host, connection.encrypted)
        body = encode(sasl.SaslHandshakeRequest(version=_HANDSHAKE_VERSION, mechanism=self._mechanism))
        read = partial(decode, sasl.SaslHandshakeResponse, _HANDSHAKE_VERSION)
        frame = await connection.send(
            Request(SASL_HANDSHAKE, _HANDSHAKE_VERSION, body, read, _HANDSHAKE_BYTES_MAX)
        )
        error_code = read(frame).error_code
        if error_code:
            raise LoginError(f"the broker does not support {self._mechanism} (error {error_code})")
        for _ in range(_TOKENS_MAX):
            token = await asyncio.to_thread(exchange.token)
            if await asyncio.to_thread(exchange.receive, await _send_token(connection, token)):
                return
        raise LoginError(f"the broker does not end {self._mechanism} within {_TOKENS_MAX} messages")

    def _exchange(self, host: str, encrypted: bool) -> Exchange:
        password = self._password if isinstance(self._password, str) else self._password()
        return Exchange(self._mechanism, self._username, password, host, encrypted=encrypted)


async def _send_token(connection: Connection, token: bytes) -> bytes:
    """Send a token and return the broker's token."""
    body = encode(sasl.SaslAuthenticateRequest(version=_AUTHENTICATE_VERSION, auth_bytes=token))
    read = partial(decode, sasl.SaslAuthenticateResponse, _AUTHENTICATE_VERSION)
    frame = await connection.send(
        Request(SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, body, read, _TOKEN_BYTES_MAX)
    )
    verdict = read(frame)
    if verdict.error_code:
        raise LoginError(
            f"the broker refuses the credentials (error {verdict.error_code}): {verdict.error_message or ''}"
        )
    return verdict.auth_bytes or b""
