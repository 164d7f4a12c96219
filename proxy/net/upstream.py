"""The connection to a broker: connect and, if brokers use TLS, handshake, without blocking the loop.

If any broker will do, an unreachable one is skipped: a broker that has just died is still in the map, and clients of
the bootstrap port should not be affected. `limits.connect_seconds` applies to both steps together; the caller checks
`overdue`. Every failure has one cause (docs/metrics.md, `sluice_errors_total`) and is reported once. It is never
reported from within `begin`, since the caller is still forwarding bytes then and must not be closed; so all steps begin
in the loop's next turn. By then a descriptor that a failed connection has released is available to the next one.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from proxy.net.handshakes import Handshake
from proxy.net.shared import Shared
from proxy.net.sockets import Stream, TlsSocket
from proxy.system.clock import now_ms
from proxy.system.hosts import handshake_problem

_OTHERS_MAX: Final = 4  # the most brokers tried in place of the first one

Upstream = tuple[str, int]


class Route(NamedTuple):
    """The destination of a broker connection.

    Attributes:
        broker: the broker's id; -1 if unknown.
        upstream: the broker's address; None if unknown.
        host: the name that the broker's certificate must have, if brokers use TLS.
    """

    broker: int
    upstream: Upstream | None
    host: str = ""


NextRoute = Callable[[Collection[Upstream]], Route]


@dataclass(slots=True, eq=False)
class Dial:
    """One attempt to connect to a broker.

    Args:
        route: the broker to connect to.
        next_route: returns the route to another broker; its argument is the addresses that have failed. None if only
            `route` will do.
        opened: called with the connected stream and the broker's id.
        failed: called with the cause, a label, and a sentence. Neither is called after `cancel`.
    """

    route: Route
    next_route: NextRoute | None
    shared: Shared
    opened: Callable[[Stream, int], None]
    failed: Callable[[str, str], None]
    _tried: list[Upstream] = field(init=False, default_factory=list)
    _socket: socket.socket | None = field(init=False, default=None)
    _handshake: Handshake | None = field(init=False, default=None)
    _scheduled: asyncio.Handle | None = field(init=False, default=None)
    _since_ms: int = field(init=False, default_factory=now_ms)

    def begin(self) -> None:
        """Start to connect in the next turn of the loop."""
        self._scheduled = self.shared.loop.call_soon(self._connect)

    def _connect(self) -> None:
        upstream = self.route.upstream
        if upstream is None:
            self.failed("broker_unknown", "no broker is known for this port")
            return
        family = socket.AF_INET6 if ":" in upstream[0] else socket.AF_INET
        try:
            broker = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            self.failed("descriptors", str(error))
            return
        self._socket = broker
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            code = broker.connect_ex(upstream)
        except OSError:  # the zone of an IPv6 address that is no interface of this machine
            code = errno.EADDRNOTAVAIL
        if code not in (0, errno.EINPROGRESS):
            self._unreachable(upstream, code)
            return
        self.shared.loop.add_writer(broker.fileno(), self._connected, broker, upstream)

    def overdue(self, now: int) -> bool:
        """Whether the attempt takes longer than `limits.connect_seconds`; the caller then cancels it."""
        limit_seconds = self.shared.limits.connect_seconds
        if now - self._since_ms <= limit_seconds * 1000:
            return False
        if self._handshake is None:  # otherwise the broker is there
            self.shared.dials.failed(self.route.broker, f"no connection within {limit_seconds} s", now)
        return True

    def cancel(self) -> None:
        """Cancel the attempt if it is not complete: the socket is closed, and no callback is called."""
        if self._scheduled is not None:
            self._scheduled.cancel()
        if self._handshake is not None:
            self._handshake.cancel()
        elif self._socket is not None:
            self.shared.loop.remove_writer(self._socket.fileno())
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self, broker: socket.socket, upstream: Upstream) -> None:
        self.shared.loop.remove_writer(broker.fileno())
        code = broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._unreachable(upstream, code)
            return
        self.shared.dials.opened(self.route.broker)
        if self.shared.broker_tls is not None:
            self._secure(broker, self.shared.broker_tls.context)
        else:
            self._socket = None
            self.opened(broker, self.route.broker)

    def _secure(self, broker: socket.socket, context: ssl.SSLContext) -> None:
        """Begin the TLS handshake."""
        host = self.route.host
        try:
            host.encode("idna")  # ssl refuses it too, but only after it has taken over the socket
            secured = context.wrap_socket(broker, do_handshake_on_connect=False, server_hostname=host or None)
        except (OSError, ValueError) as error:  # a name that no certificate can have
            self._socket = None
            broker.close()
            self.failed("broker_tls", f"{host}: {error}")
            return
        self._socket = secured
        secure = partial(self._secured, secured)
        self._handshake = self.shared.handshakes.begin(secured, "broker", secure, self._insecure)

    def _secured(self, broker: ssl.SSLSocket) -> None:
        stream = TlsSocket(broker)
        self._handshake = self._socket = None
        self.opened(stream, self.route.broker)

    def _insecure(self, error: Exception) -> None:
        self._handshake = None
        if not isinstance(error, OSError):
            self.failed("internal", type(error).__name__)
            return
        _, upstream, host = self.route
        assert upstream is not None, "the socket was connected to an address"
        where = f"{host or upstream[0]}:{upstream[1]}"
        self.failed("broker_tls", f"{where}: {handshake_problem(error)}")

    def _unreachable(self, upstream: Upstream, code: int) -> None:
        """Try another broker if any broker will do; else report the failure."""
        problem = f"{upstream[0]}:{upstream[1]}: {errno.errorcode.get(code, code)}"
        self.shared.dials.failed(self.route.broker, problem, now_ms())
        self._tried.append(upstream)
        if self.next_route is not None and len(self._tried) <= _OTHERS_MAX:
            route = self.next_route(self._tried)
            if route.upstream is not None:
                self.cancel()
                self.route = route
                self._connect()
                return
        self.failed("broker_unreachable", problem)
