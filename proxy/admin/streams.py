"""The bytes of one connection to the admin port, plain or within TLS: the head of a request in, a response out.

TLS is an SSLObject between the socket's stream and the server, and not a transport of asyncio's own. So a handshake
that is under way is a connection like any other, which the server may close in favour of another one; a response counts
as sent when the client has taken all of it; a closed connection does not wait for the client's close_notify; and the
context in force is asked for at each handshake.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from proxy.admin.http import HEAD_BYTES_MAX, RefusedError

_END: Final = b"\r\n\r\n"
_READ_BYTES: Final = 16 * 1024  # one TLS record
_SEND_BYTES: Final = 64 * 1024  # encrypted at once, in well below a millisecond
_TLS_HANDSHAKE: Final = 0x16  # the first byte of a TLS connection (RFC 8446 §5.1), and of no HTTP request


class Pace:
    """Lets its callers go on one after the other, `gap_seconds` apart; one that is cancelled takes no turn."""

    def __init__(self, gap_seconds: float) -> None:
        self._gap_seconds = gap_seconds
        self._lock = asyncio.Lock()
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the caller's turn."""
        async with self._lock:
            now = asyncio.get_running_loop().time
            await asyncio.sleep(max(0.0, self._next - now()))
            self._next = now() + self._gap_seconds


class PlainStream:
    """A connection without TLS."""

    certificate = False

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read_head(self) -> bytes:
        """Read up to the end of a request's head.

        Raises:
            IncompleteReadError: the client has closed the connection.
            LimitOverrunError: the head is larger than HEAD_BYTES_MAX.
            RefusedError: the client speaks TLS.
        """
        first = await self._reader.readexactly(1)
        if first[0] == _TLS_HANDSHAKE:
            raise RefusedError(400, "this port does not speak TLS: use http://", "tls")
        return first + await self._reader.readuntil(_END)

    async def send(self, data: bytes) -> None:
        """Send bytes; return when the client has taken all of them."""
        await _send(self._writer, data)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class TlsStream:
    """A connection with TLS.

    Args:
        context: the TLS context in force.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._data = bytearray()  # decrypted, and not read yet

    @property
    def certificate(self) -> bool:
        """Whether the client has shown a certificate, which is trusted."""
        return bool(self._tls.getpeercert(binary_form=True))

    async def handshake(self, pace: Pace) -> None:
        """Do the handshake.

        Args:
            pace: bounds the number of handshakes per second; it is asked when the client has sent its first bytes.

        Raises:
            ConnectionError: the client has closed the connection.
            RefusedError: the client does not speak TLS; it is to be told so in plain text.
            ssl.SSLError: the handshake has failed, and the client is told why by an alert.
        """
        if await self._receive() != _TLS_HANDSHAKE:
            raise RefusedError(400, "this port speaks TLS: use https://", "tls")
        await pace.turn()
        try:
            while not self._step():
                await self._flush()
                await self._receive()
        finally:  # also the alert of a handshake that has failed
            self._write_rest()
        await self._writer.drain()

    async def read_head(self) -> bytes:
        """Read up to the end of a request's head.

        Raises:
            ConnectionError: the client has closed the connection.
            LimitOverrunError: the head is larger than HEAD_BYTES_MAX.
            ssl.SSLError: the client breaks the rules of TLS.
        """
        while (end := self._data.find(_END)) < 0 and len(self._data) <= HEAD_BYTES_MAX:
            try:
                data = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()  # an answer to a change of keys
                await self._receive()
                continue
            if not data:
                raise ConnectionResetError("the client has ended TLS")
            self._data += data
        if not 0 <= end <= HEAD_BYTES_MAX:
            raise asyncio.LimitOverrunError("no end of the head", len(self._data))
        head = bytes(self._data[: end + len(_END)])
        del self._data[: len(head)]
        return head

    async def send(self, data: bytes) -> None:
        """Send bytes; return when the client has taken all of them."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:_SEND_BYTES]) :]
            await self._flush()

    def close(self) -> None:
        """Close the connection with close_notify, which waits for nothing."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._write_rest()
        self._writer.close()

    def _step(self) -> bool:
        """Continue the handshake as far as the received bytes go; returns whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def _receive(self) -> int:
        """Take the next bytes from the client; returns the first of them."""
        data = await self._reader.read(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the client has closed the connection")
        self._incoming.write(data)
        return data[0]

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await _send(self._writer, data)

    def _write_rest(self) -> None:
        """Write what OpenSSL has for the client, unless the connection is closed already."""
        if not self._writer.is_closing():
            self._writer.write(self._outgoing.read())


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    if writer.is_closing():  # uvloop raises a RuntimeError for a write then
        raise ConnectionResetError("the connection is closed")
    writer.write(data)
    await writer.drain()
