"""A socket that is closed softly: its sending side is shut down, and further input is read and dropped.

Closing a socket with unread bytes resets the connection, and the reset may overtake earlier output: a response, or
TLS's alert. So the sending side is shut down first, and the peer has a moment to read and to close by itself. If it
does not, or keeps sending, the socket is closed anyway.
"""

import socket
from typing import Final

from proxy.net.shared import READ_BYTES_MAX, Shared
from proxy.net.stream import Stream

LINGER_SECONDS: Final = 1.0
# For a client that reads nothing (acks=0): further requests are lost, and it only notices the close.
BRIEF_SECONDS: Final = 0.1


def close_softly(client: Stream, shared: Shared, host: str, seconds: float = LINGER_SECONDS) -> None:
    """Shut down the sending side, and close when the peer has closed, or after a while.

    Args:
        host: the peer's host; the socket counts as its connection until it is closed.
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
        """Close: the peer has closed, or the time is over."""
        if self not in self._shared.arrivals:
            return
        self._shared.arrivals.discard(self)
        self._timer.cancel()
        self._shared.loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def displace(self) -> None:
        """Close in favor of another address: the sending side is shut down already."""
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
