"""The sockets that pumps and connections use: plain ones, and those of TLS with the same methods."""

import contextlib
import socket
import ssl
from typing import Final, TypeAlias

from proxy.net.shared import READ_BYTES_MAX, Shared

Buffer = memoryview | bytes | bytearray


# A TLS connection with the interface of a plain socket.
#
# OpenSSL decrypts a whole record (16 KiB at most) at a time; if the reader takes only a part, the rest stays in
# OpenSSL, and the descriptor does not become readable for it. So `recv_into` reads a record only if all of it fits: no
# bytes stay in OpenSSL, and the descriptor's readability is correct.
#
# Non-obvious:
#
# - A TLS record is read only if all of it fits. A descriptor is not readable for bytes that OpenSSL has decrypted and
#   that were not read; so `TlsSocket.recv_into` leaves no bytes in OpenSSL.

RECORD_BYTES_MAX: Final = 16 * 1024  # of one record, decrypted (RFC 8446 §5.1)
RECORD_KEPT_BYTES: Final = 17 * 1024  # OpenSSL's memory for a record that is partly read or partly written

_WANTS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket:
    """A socket whose handshake is complete; its methods are those of a plain, non-blocking socket."""

    __slots__ = ("_sock",)

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        """Return the descriptor, for waiting."""
        return self._sock.fileno()

    def recv_into(self, view: memoryview, count: int) -> int:
        """Read whole TLS records, as many as are there and fit; return the number of bytes, 0 at the end of the stream.

        Raises:
            BlockingIOError: no data is available.
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
                if got:  # return the earlier data first; the next read gets the same error
                    return got
                raise
            got += piece
            if piece < RECORD_BYTES_MAX:  # nearly always the last record: another read would cost more
                return got
        if not got:
            raise BlockingIOError("no whole record is there")
        return got

    def send(self, data: Buffer, flags: int = 0) -> int:  # noqa: ARG002 - a record is never joined with the next
        """Write as much as the socket accepts, record by record. The caller must repeat the rest unchanged.

        Raises:
            BlockingIOError: the socket accepts nothing now.
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
        """Set an option of the underlying socket."""
        self._sock.setsockopt(level, optname, value)

    def shutdown(self, how: int) -> None:
        """Shut down one direction of the underlying socket, which ends the stream for the peer.

        A client also gets TLS's close_notify. A broker does not: OpenSSL would then discard its further responses.
        """
        if self._sock.server_side:
            self._send_close_notify()
        # The base class's method would drop the TLS state, and responses would be read encrypted.
        socket.socket.shutdown(self._sock, how)

    def detach(self) -> int:
        """Return the underlying descriptor and give up ownership."""
        return self._sock.detach()

    def close(self) -> None:
        """Close both directions, with close_notify if that does not block."""
        self._send_close_notify()
        self._sock.close()

    def _send_close_notify(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # it does not wait for the peer's close_notify
            self._sock.unwrap()


Stream: TypeAlias = socket.socket | TlsSocket
"""A connected, non-blocking socket."""

# A socket that is closed softly: its sending side is shut down, and further input is read and dropped.
#
# Closing a socket with unread bytes resets the connection, and the reset may overtake earlier output: a response, or
# TLS's alert. So the sending side is shut down first, and the peer has a moment to read and to close by itself. If it
# does not, or keeps sending, the socket is closed anyway.

LINGER_SECONDS: Final = 1.0
# For a client that reads nothing (acks=0): further requests are lost, and it only notices the close.
BRIEF_SECONDS: Final = 0.1


def close_softly(client: Stream, shared: Shared, host: str, seconds: float = LINGER_SECONDS) -> None:
    """Shut down the sending side, and close the socket when the peer has closed, but after `seconds` at the latest.

    Args:
        host: the peer's host; until it is closed the socket counts as an arriving one of this host.
    """
    try:
        client.shutdown(socket.SHUT_WR)
    except OSError:
        client.close()
        return
    _Linger(socket.socket(fileno=client.detach()), shared, host, seconds)


class _Linger:
    """Drops input until the peer has closed, for a limited time.

    Args:
        sock: a plain socket whose sending side is shut down; TLS input is not decrypted.
    """

    __slots__ = ("_shared", "_sock", "_timer")

    def __init__(self, sock: socket.socket, shared: Shared, host: str, seconds: float) -> None:
        self._sock = sock
        self._shared = shared
        self._timer = shared.loop.call_later(seconds, self.close)
        shared.arrivals.add(self, host)
        shared.loop.add_reader(sock.fileno(), self._drop)

    def close(self) -> None:
        """Close the socket: the peer has closed, or the time is over."""
        if self not in self._shared.arrivals:
            return
        self._shared.arrivals.discard(self)
        self._timer.cancel()
        self._shared.loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def displace(self) -> None:
        """Close the socket now, to make room for one of another address."""
        self.close()

    def _drop(self) -> None:
        try:
            # MSG_TRUNC: the kernel drops the bytes without a copy.
            if self._sock.recv_into(self._shared.view, READ_BYTES_MAX, socket.MSG_TRUNC):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ...
        self.close()
