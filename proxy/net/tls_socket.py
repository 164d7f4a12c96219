"""A TLS connection that looks like a plain socket to a pump.

OpenSSL decrypts a whole record (16 KiB at most) at a time; what a reader does not take of it stays inside, and no
descriptor ever becomes readable for it. So `recv_into` begins a record only where all of it fits, and nothing can
stay behind: the descriptor tells the truth.
"""

import contextlib
import socket
import ssl
from typing import Final

from proxy.net.stream import Buffer

__all__ = ["RECORD_BYTES_MAX", "RECORD_KEPT_BYTES", "TlsSocket"]

RECORD_BYTES_MAX: Final = 16 * 1024  # of one record, decrypted (RFC 8446 §5.1)
RECORD_KEPT_BYTES: Final = 17 * 1024  # what OpenSSL takes for one that is not all here, or not all written

_WANTS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket:
    """A `Stream` over a socket whose handshake is done."""

    __slots__ = ("_sock",)

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        """Give the descriptor, to wait on."""
        return self._sock.fileno()

    def recv_into(self, view: memoryview, count: int) -> int:
        """Read whole records, as many as are there and fit; 0 at the end.

        Raises:
            BlockingIOError: nothing is there.
            OSError: the connection has failed.
        """
        assert count >= RECORD_BYTES_MAX, "a record that does not fit would stay inside"
        sock = self._sock
        got = 0
        while count - got >= RECORD_BYTES_MAX:
            try:
                piece = sock.recv_into(view[got:], RECORD_BYTES_MAX)
            except _WANTS:
                break
            except OSError:
                if got:  # first what came before; the next read meets it again
                    return got
                raise
            got += piece
            if piece < RECORD_BYTES_MAX:  # the last one there, nearly always: asking once more costs more
                return got
        if not got:
            raise BlockingIOError("no whole record is there")
        return got

    def send(self, data: Buffer, flags: int = 0) -> int:  # noqa: ARG002 - a record is never joined with the next
        """Write as much as the socket takes, record by record. What it does not take has to come again.

        Raises:
            BlockingIOError: it takes nothing now.
            OSError: the connection has failed.
        """
        sock = self._sock
        count = len(data)
        sent = 0
        try:
            sent = sock.send(data)
            if sent < count:
                view = memoryview(data)
                while sent < count:
                    sent += sock.send(view[sent:])
        except _WANTS:
            if not sent:
                raise BlockingIOError("no record is taken") from None
        return sent

    def setsockopt(self, level: int, optname: int, value: int) -> None:
        """Set an option of the socket below."""
        self._sock.setsockopt(level, optname, value)

    def shutdown(self, how: int) -> None:
        """End one direction of the socket below, which is the end of the stream for the other side.

        A client is told as TLS wants it. A broker is not: OpenSSL would then take no more of its answers.
        """
        if self._sock.server_side:
            self._say_goodbye()
        # The class's own method would throw the TLS state away, and answers would be read encrypted.
        socket.socket.shutdown(self._sock, how)

    def detach(self) -> int:
        """Give the descriptor of the socket below away."""
        return self._sock.detach()

    def close(self) -> None:
        """End both, and say so where that is possible at once."""
        self._say_goodbye()
        self._sock.close()

    def _say_goodbye(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # it waits for the other's; nobody else does
            self._sock.unwrap()
