"""Sluice's own login: SaslHandshake, then the tokens of an exchange in SaslAuthenticate (KIP-43, KIP-152).

The password is read anew for each login, so that a changed file needs no restart, and is never logged: what a broker
says of a refused login is.
Ignored: re-authentication (KIP-368); a broker that ends a session closes the connection, and the next one logs in.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kafka_client.connection import Connection
from kafka_client.errors import LoginError
from kafka_client.sasl import Exchange
from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from protocol.header import response_body_start
from protocol.messages import sasl
from protocol.primitives import string, string_bytes

__all__ = ["Login"]

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 0
_TOKENS_MAX: Final = 8  # GSSAPI has four


class Login:
    """Authenticates connections.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        password: the password, or what reads it, in a thread; it raises LoginError.
    """

    def __init__(self, mechanism: str, username: str, password: str | Callable[[], str]) -> None:
        self._mechanism = mechanism
        self._username = username
        self._password = password

    async def __call__(self, connection: Connection, host: str) -> None:
        """Authenticate a connection that has sent nothing yet.

        Args:
            host: the name of the broker.

        Raises:
            LoginError: the broker refuses it, or the password cannot be read.
            OSError, WireError: as `Connection.request`.
        """
        exchange = await asyncio.to_thread(self._exchange, host)
        body = string_bytes(self._mechanism, False)
        frame = await connection.request(SASL_HANDSHAKE, _HANDSHAKE_VERSION, body)
        error_code = sasl.handshake_error(frame, 0, len(frame))
        if error_code:
            raise LoginError(f"the broker does not support {self._mechanism} (error {error_code})")
        for _ in range(_TOKENS_MAX):
            token = await asyncio.to_thread(exchange.token)
            if await asyncio.to_thread(exchange.receive, await _send_token(connection, token)):
                return
        raise LoginError(f"the broker does not end {self._mechanism} within {_TOKENS_MAX} messages")

    def _exchange(self, host: str) -> Exchange:
        password = self._password if isinstance(self._password, str) else self._password()
        return Exchange(self._mechanism, self._username, password, host)


async def _send_token(connection: Connection, token: bytes) -> bytes:
    """Send a token and return the broker's."""
    body = len(token).to_bytes(4, "big") + token
    frame = await connection.request(SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, body)
    verdict = sasl.verdict(frame, 0, len(frame), _AUTHENTICATE_VERSION)
    if verdict.error_code:
        start = response_body_start(frame, 0, len(frame), SASL_AUTHENTICATE, _AUTHENTICATE_VERSION)
        said, _ = string(frame, start + 2, len(frame), False)
        raise LoginError(f"the broker refuses the credentials (error {verdict.error_code}): {said or ''}")
    return frame[verdict.start : verdict.stop]
