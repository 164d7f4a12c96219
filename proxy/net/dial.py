"""A connection's way to its broker: connect, and the TLS handshake where brokers speak it, without holding the loop.

`limits.connect_seconds` holds for both together; whoever began it asks whether it is overdue. Every failure has one
cause (docs/metrics.md, `sluice_errors_total`), and is told once.
"""

import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial

from proxy.net.handshakes import Handshake, handshake_problem
from proxy.net.shared import Shared, now_ms
from proxy.net.stream import Stream
from proxy.net.tls_socket import TlsSocket

__all__ = ["Dial", "Upstream"]

Upstream = tuple[str, int]


class Dial:
    """One attempt.

    Args:
        upstream: the broker's address, or None where none is known yet.
        host: the name that the broker's certificate must bear, where there is TLS towards brokers.
        joined: called with the connected stream.
        failed: called with the cause and the detail. Neither is called after `cancel`.
    """

    __slots__ = ("_failed", "_handshake", "_host", "_joined", "_shared", "_since_ms", "_socket", "_upstream")

    def __init__(
        self,
        upstream: Upstream | None,
        host: str,
        shared: Shared,
        joined: Callable[[Stream], None],
        failed: Callable[[str, str], None],
    ) -> None:
        self._upstream = upstream
        self._host = host
        self._shared = shared
        self._joined = joined
        self._failed = failed
        self._socket: socket.socket | None = None
        self._handshake: Handshake | None = None
        self._since_ms = now_ms()

    def begin(self) -> None:
        """Connect."""
        if self._upstream is None:
            self._failed("broker_unknown", "no broker is known for this port")
            return
        family = socket.AF_INET6 if ":" in self._upstream[0] else socket.AF_INET
        try:
            broker = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            self._failed("descriptors", str(error))
            return
        self._socket = broker
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = broker.connect_ex(self._upstream)
        if code not in (0, errno.EINPROGRESS):
            self._unreachable(code)
            return
        self._shared.loop.add_writer(broker.fileno(), self._connected, broker)

    def overdue(self, now: int) -> bool:
        """Whether its time is over."""
        return now - self._since_ms > self._shared.limits.connect_seconds * 1000

    def cancel(self) -> None:
        """Give up, if it is not over: the socket is closed."""
        if self._handshake is not None:
            self._handshake.cancel()
        elif self._socket is not None:
            self._shared.loop.remove_writer(self._socket.fileno())
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self, broker: socket.socket) -> None:
        self._shared.loop.remove_writer(broker.fileno())
        code = broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._unreachable(code)
        elif self._shared.broker_tls is not None:
            self._secure(broker, self._shared.broker_tls.context)
        else:
            self._socket = None
            self._joined(broker)

    def _secure(self, broker: socket.socket, context: ssl.SSLContext) -> None:
        """Begin the handshake."""
        try:
            self._host.encode("idna")  # refused by ssl too, but only when the socket is no longer ours
            secured = context.wrap_socket(
                broker, do_handshake_on_connect=False, server_hostname=self._host or None
            )
        except (OSError, ValueError) as error:  # a name that no certificate can bear
            self._socket = None
            broker.close()
            self._failed("broker_tls", f"{self._host}: {error}")
            return
        self._socket = secured
        secure = partial(self._secured, secured)
        self._handshake = self._shared.handshakes.begin(secured, "broker", secure, self._insecure)

    def _secured(self, broker: ssl.SSLSocket) -> None:
        stream = TlsSocket(broker)
        self._handshake = self._socket = None
        self._joined(stream)

    def _insecure(self, error: Exception) -> None:
        self._handshake = None
        if not isinstance(error, OSError):
            self._failed("internal", type(error).__name__)
            return
        assert self._upstream is not None, "somebody was connected to"
        where = f"{self._host or self._upstream[0]}:{self._upstream[1]}"
        self._failed("broker_tls", f"{where}: {handshake_problem(error)}")

    def _unreachable(self, code: int) -> None:
        assert self._upstream is not None, "somebody was to be connected to"
        where = f"{self._upstream[0]}:{self._upstream[1]}"
        self._failed("broker_unreachable", f"{where}: {errno.errorcode.get(code, code)}")
