"""A socket that is closed softly: our end is told, and what the peer still sends is read and dropped.

To close over unread bytes is to reset, and a reset may overtake what was sent before: an answer, or TLS's alert. So
the peer is told the end first, and has a moment to read it and to close by itself. Where it does not, or goes on
sending, the socket is closed all the same.
"""

import socket
from typing import Final

from proxy.net.shared import READ_BYTES_MAX, Shared
from proxy.net.stream import Stream

__all__ = ["BRIEF_SECONDS", "LINGER_SECONDS", "close_softly"]

LINGER_SECONDS: Final = 1.0
# Of a client that reads nothing (acks=0): what it sends meanwhile is lost, and it notices the close alone.
BRIEF_SECONDS: Final = 0.1


def close_softly(client: Stream, shared: Shared, host: str, seconds: float = LINGER_SECONDS) -> None:
    """Tell the peer the end, and close when it has closed, or after a while.

    Args:
        host: the peer's, for which the socket counts as a connection until it is closed.
    """
    try:
        client.shutdown(socket.SHUT_WR)
    except OSError:
        client.close()
        return
    _Linger(socket.socket(fileno=client.detach()), shared, host, seconds)


class _Linger:
    """Drops what comes until the peer has closed, for so many seconds at most.

    Args:
        sock: a plain socket whose own direction has been shut down; below TLS what comes is not decrypted.
    """

    __slots__ = ("_shared", "_sock", "_timer")

    def __init__(self, sock: socket.socket, shared: Shared, host: str, seconds: float) -> None:
        self._sock = sock
        self._shared = shared
        self._timer = shared.loop.call_later(seconds, self.close)
        shared.arrivals.add(self, host)
        shared.loop.add_reader(sock.fileno(), self._drop)

    def close(self) -> None:
        """The peer has closed, or its time is over."""
        if self not in self._shared.arrivals:
            return
        self._shared.arrivals.discard(self)
        self._timer.cancel()
        self._shared.loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def give_way(self) -> None:
        """Another address has no place: this one has had its end told."""
        self.close()

    def _drop(self) -> None:
        try:
            # MSG_TRUNC: the kernel throws so many bytes away, and copies none of them.
            if self._sock.recv_into(self._shared.view, READ_BYTES_MAX, socket.MSG_TRUNC):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ...
        self.close()
