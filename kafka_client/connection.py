"""One connection to a broker: plaintext or TLS, then a login by SASL, then one request at a time.

The TLS context and the login are given for each connection, so a renewed certificate or password applies from the next
connection on. Deadlines are set by the caller (`asyncio.timeout`); a call that is interrupted leaves the connection
unusable, and the owner must close it. The length of a response is checked before any of it is kept.

A login is SaslHandshake, then the tokens of an exchange in SaslAuthenticate (KIP-43, KIP-152). The exchange is that of
kafka-python's mechanisms. GSSAPI needs the package gssapi and AWS_MSK_IAM botocore; both find their credentials
themselves. For OAUTHBEARER the password is the token.

Non-obvious:

- The password is read again for each login, so that a changed file needs no restart. It is never logged; the broker's
  message about a refused login is.
- Re-authentication (KIP-368) is not supported: a broker closes the connection when its session ends, and the next
  connection logs in again.
- Two things are added to the library's SCRAM: a name with a comma or an equals sign is escaped (RFC 5802, section
  5.1), and a challenge with fewer iterations than Kafka's own clients accept is refused: a server that poses as a
  broker could otherwise guess the password cheaply. The library itself refuses more than a million.
"""

import asyncio
import re
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol import sasl

from kafka_client.request import KIB, ClosedError, LoginError, Request, request_of
from protocol.api import API_NAMES, flexible
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD

CLIENT_ID: Final = b"sluice"
# Constant: a connection has one request at a time, and is closed if its response is late.
_CORRELATION_ID: Final = 1

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 0
_HANDSHAKE_BYTES_MAX: Final = 64 * KIB
_TOKEN_BYTES_MAX: Final = 512 * KIB
_TOKENS_MAX: Final = 8  # GSSAPI has four

_KERBEROS_SERVICE: Final = "kafka"  # as in sasl.kerberos.service.name of nearly every broker
_ITERATIONS_MIN: Final = 4096  # as in Kafka's ScramMechanism
# The library takes the last of several iteration counts, so only one is accepted.
_CHALLENGE: Final = re.compile(rb"r=[^,]*,s=[^,]*,i=([0-9]{1,9})(?:,[^i,][^,]*)*")


class Connection:
    """An open connection to a broker or a Sluice proxy. At most one task may use it at a time.

    Attributes:
        address: host and port as given.
        encrypted: whether it has TLS.
    """

    def __init__(
        self,
        address: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client_id: bytes = CLIENT_ID,
        *,
        encrypted: bool = False,
    ) -> None:
        self.address = address
        self.encrypted = encrypted
        self._reader = reader
        self._writer = writer
        self._client_id = client_id

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str = "",
        login: "Callable[[Connection, str], Awaitable[None]] | None" = None,
        client_id: bytes = CLIENT_ID,
    ) -> Self:
        """Connect and log in.

        Args:
            tls: None for plaintext.
            server_hostname: the name that the broker's certificate must have; `host` if it is empty.
            login: called with the new connection and the broker's host name, to authenticate it; None without SASL.

        Raises:
            OSError: the broker cannot be reached, or its certificate is not trusted.
            LoginError: the broker refuses the login.
            WireError: a response to the login is malformed.
        """
        name = server_hostname or host
        try:
            streams = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=name if tls else None
            )
        except (UnicodeError, OverflowError) as error:
            raise OSError(f"is not an address: {error}") from error
        connection = cls((host, port), *streams, client_id, encrypted=tls is not None)
        try:
            if login is not None:
                await login(connection, name)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether either side has closed the connection."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def send(self, request: Request[Any], *, begin_seconds: float | None = None) -> bytes:
        """Send a request and return its response, a whole frame with its length prefix; `request.read` reads it.

        Args:
            begin_seconds: the time within which the response must begin; None for no such limit.

        Raises:
            OSError: the broker closes the connection, or the connection fails.
            TimeoutError: the response has not begun in time.
            WireError: what came back is not a response.
        """
        api_key, version, body, name = request.api_key, request.version, request.body, self._client_id
        head = REQUEST_HEAD.pack(0, api_key, version, _CORRELATION_ID, len(name))[4:] + name
        if flexible(api_key, version):
            head += b"\0"  # a header without tags
        # uvloop has an exception of its own for writing to a connection that was reset.
        if self._writer.is_closing():
            raise ClosedError
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        try:
            prefix = await self._begin(begin_seconds)
            (length,) = struct.unpack(">i", prefix)
            if not 4 <= length <= request.bytes_max:
                raise WireError(
                    f"a response of {length} bytes to {API_NAMES[api_key]}: not a Kafka broker, or one that "
                    "expects TLS"
                )
            return prefix + await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ClosedError from None

    async def _begin(self, seconds: float | None) -> bytes:
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await self._reader.readexactly(4)
        except TimeoutError:
            if deadline.expired():
                raise TimeoutError(f"no response within {seconds:g} s") from None
            raise

    def close(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()


class Exchange:
    """The client's side of a SASL exchange.

    All calls may take long (SCRAM hashes, GSSAPI and AWS_MSK_IAM contact other servers): make them in a thread. They
    raise LoginError if the library refuses, or if a package or credential is missing.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM.
        host: the name of the broker.
        encrypted: whether the connection has TLS; without it, AWS_MSK_IAM is refused.
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
        """Process the broker's token; return True if the exchange has ended, False if `token` is to be sent next.

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
    """Gives kafka-python the configured token for OAUTHBEARER."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def _check_challenge(challenge: bytes) -> None:
    """Check that a SCRAM challenge has at least as many iterations as Kafka's own clients require.

    Raises:
        ValueError: it is one, or not a valid challenge.
    """
    found = _CHALLENGE.fullmatch(challenge)
    if found is None:
        raise ValueError("not a challenge")
    if int(found[1]) < _ITERATIONS_MIN:
        raise ValueError(f"{int(found[1])} iterations, at least {_ITERATIONS_MIN} are required")


class Login:
    """Authenticates new connections with a user name and a password or token.

    Args:
        mechanism: one of `Exchange`.
        username: empty if the mechanism has no user name.
        password: the password or token, or a function that reads it in a thread and raises LoginError.
    """

    def __init__(self, mechanism: str, username: str, password: str | Callable[[], str]) -> None:
        self.mechanism = mechanism
        self.username = username
        self._password = password

    def password(self) -> str:
        """Return the password or token now in force; call it in a thread.

        Raises:
            LoginError: it cannot be read.
        """
        return self._password if isinstance(self._password, str) else self._password()

    async def __call__(self, connection: Connection, host: str) -> None:
        """Authenticate a new connection.

        Args:
            host: the name of the broker.

        Raises:
            LoginError: the broker refuses it, or the password cannot be read.
            OSError, WireError: as `Connection.send`.
        """
        exchange = await asyncio.to_thread(self._exchange, host, connection.encrypted)
        asked = sasl.SaslHandshakeRequest(version=_HANDSHAKE_VERSION, mechanism=self.mechanism)
        handshake = request_of(asked, sasl.SaslHandshakeResponse, _error_code, _HANDSHAKE_BYTES_MAX)
        error_code = handshake.read(await connection.send(handshake))
        if error_code:
            raise LoginError(f"the broker does not support {self.mechanism} (error {error_code})")
        for _ in range(_TOKENS_MAX):
            token = await asyncio.to_thread(exchange.token)
            if await asyncio.to_thread(exchange.receive, await _send_token(connection, token)):
                return
        raise LoginError(f"the broker does not end {self.mechanism} within {_TOKENS_MAX} messages")

    def _exchange(self, host: str, encrypted: bool) -> Exchange:
        return Exchange(self.mechanism, self.username, self.password(), host, encrypted=encrypted)


async def _send_token(connection: Connection, token: bytes) -> bytes:
    """Send a token and return the broker's token."""
    asked = sasl.SaslAuthenticateRequest(version=_AUTHENTICATE_VERSION, auth_bytes=token)
    request = request_of(asked, sasl.SaslAuthenticateResponse, _token, _TOKEN_BYTES_MAX)
    return request.read(await connection.send(request))


def _error_code(response: Any) -> int:
    return int(response.error_code)


def _token(response: Any) -> bytes:
    if response.error_code:
        raise LoginError(
            f"the broker refuses the credentials (error {response.error_code}): {response.error_message or ''}"
        )
    return response.auth_bytes or b""
