"""One connection to a broker: plaintext or TLS, then a login, then one request at a time.

The TLS context and the login are given for each connection, so a renewed certificate or password applies from the next
connection on. Deadlines are set by the caller (`asyncio.timeout`); a call that is interrupted leaves the connection
unusable, and the owner must close it. The length of a response is checked before any of it is kept.
"""

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

from kafka_client.errors import ClosedError
from kafka_client.request import Request
from protocol.api import API_NAMES, flexible
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD

__all__ = ["CLIENT_ID", "Connection"]

CLIENT_ID: Final = b"sluice"
# Constant: a connection has one request at a time, and is closed if its response is late.
_CORRELATION_ID: Final = 1


class Connection:
    """An open connection. At most one task may use it at a time.

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
            login: authenticates the connection with a broker of this name; None without SASL.

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
