"""Sluice's own SASL identity (`[cluster] sasl_mechanism`): PLAIN and SCRAM, for the connection that asks for brokers.

Clients' connections do not come here: each client authenticates with the broker itself, in passing. The password is
read anew for every exchange, so that a changed file needs no restart, and is never logged: what a broker says of a
refused exchange is.
Ignored: re-authentication (KIP-368), since every connection of Sluice's own lasts one question; OAUTHBEARER, GSSAPI.
"""

import asyncio
import secrets
from pathlib import Path
from typing import Final

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from protocol.errors import WireError
from protocol.header import response_body_start
from protocol.messages import sasl
from protocol.primitives import string, string_bytes
from proxy.cluster.asking import ask
from proxy.cluster.scram import HASHES, Scram, ScramError
from proxy.config import ClusterOptions
from proxy.files import read

__all__ = ["ASKING_FAILS", "Login", "LoginError", "login_of"]

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 0
_PASSWORD_BYTES_MAX: Final = 64 * 1024


class LoginError(Exception):
    """The broker does not take Sluice's credentials, or there are none to show."""


ASKING_FAILS: Final = (OSError, WireError, LoginError, TimeoutError, asyncio.IncompleteReadError)
"""How asking a broker ends without an answer: it can not be reached, nonsense comes back, or the time is over."""


class Login:
    """Authenticates connections.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        password: the password itself, or the file it stands in.
    """

    def __init__(self, mechanism: str, username: str, password: str | Path) -> None:
        self._mechanism = mechanism
        self._username = username
        self._password = password

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Authenticate a connection on which nothing was said yet.

        Raises:
            LoginError: it was refused, or the password can not be read.
            OSError, WireError, asyncio.IncompleteReadError: as `ask`.
        """
        password = await asyncio.to_thread(self._read)
        body = string_bytes(self._mechanism, False)
        answer = await ask(reader, writer, SASL_HANDSHAKE, _HANDSHAKE_VERSION, body)
        error_code = sasl.handshake_error(answer, 0, len(answer))
        if error_code:
            raise LoginError(f"the broker does not support {self._mechanism} (error {error_code})")
        if self._mechanism not in HASHES:
            await _token(reader, writer, f"\0{self._username}\0{password}".encode())
            return
        scram = Scram(self._mechanism, self._username, password, secrets.token_urlsafe(24))
        challenge = await _token(reader, writer, scram.first())
        try:
            final = await asyncio.to_thread(scram.final, challenge)
            scram.verify(await _token(reader, writer, final))
        except ScramError as error:
            raise LoginError(str(error)) from None

    def _read(self) -> str:
        if isinstance(self._password, str):
            return self._password
        try:
            password = read(self._password, _PASSWORD_BYTES_MAX).decode().rstrip("\r\n")
        except OSError as error:
            raise LoginError(f"{self._password}: cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise LoginError(f"{self._password}: is not UTF-8") from None
        if not password:
            raise LoginError(f"{self._password}: is empty")
        return password


def login_of(options: ClusterOptions) -> Login | None:
    """Make the login that `[cluster]` asks for; None where it asks for none."""
    if not options.sasl_mechanism:
        return None
    password = options.password or options.password_file
    assert password is not None, "the configuration was checked"
    return Login(options.sasl_mechanism, options.username, password)


async def _token(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bytes:
    """Send a token and give the broker's."""
    body = len(token).to_bytes(4, "big") + token
    answer = await ask(reader, writer, SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, body)
    verdict = sasl.verdict(answer, 0, len(answer), _AUTHENTICATE_VERSION)
    if verdict.error_code:
        start = response_body_start(answer, 0, len(answer), SASL_AUTHENTICATE, _AUTHENTICATE_VERSION)
        said, _ = string(answer, start + 2, len(answer), False)
        raise LoginError(f"the broker refuses the credentials (error {verdict.error_code}): {said or ''}")
    return answer[verdict.start : verdict.stop]
