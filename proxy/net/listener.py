"""Listening sockets: one port a broker and one that reaches any, all bound at start.

Accepts are bounded a turn, so that a connection storm does not hold up those who are served. Out of
descriptors: the port is not read for a while instead of spinning on `accept`; over `limits.connections_max`:
the connection is closed at once, as a broker does (max.connections). Both are counted.
"""

import errno
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol

from proxy.channel import ChannelSettings
from proxy.channel.settings import ANY_BROKER
from proxy.config import ListenerOptions
from proxy.errors import StartError
from proxy.logs import event
from proxy.net.connection import Connection, Upstream
from proxy.net.shared import Shared

__all__ = ["Listener", "Routes"]

_ACCEPTS_A_TURN: Final = 64
_BACKLOG: Final = 1024
_NO_DESCRIPTOR_PAUSE_SECONDS: Final = 0.5
_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

logger = logging.getLogger(__name__)


class Routes(Protocol):
    """Where a port's connections go: what `proxy.cluster` knows."""

    def upstream(self, broker: int) -> tuple[int, Upstream | None]:
        """Give the broker's id and address, both of some broker for ANY_BROKER; None where it is not known."""


class Listener:
    """All ports of one `[[listeners]]` entry."""

    def __init__(
        self,
        options: ListenerOptions,
        settings: Callable[[int], ChannelSettings],
        routes: Routes,
        shared: Shared,
        connections: set[Connection],
    ) -> None:
        self._options = options
        self._settings = settings
        self._routes = routes
        self._shared = shared
        self._connections = connections
        self._sockets: dict[int, socket.socket] = {}

    def open(self) -> None:
        """Bind every port.

        Raises:
            StartError: a port can not be bound.
        """
        options = self._options
        ports = {ANY_BROKER: options.bootstrap_port}
        ports.update({broker: options.broker_port(broker) for broker in options.broker_ids})
        for broker, port in ports.items():
            self._sockets[broker] = self._bind(port)
        for broker, sock in self._sockets.items():
            self._shared.loop.add_reader(sock.fileno(), self._accept, broker)

    def close(self) -> None:
        """Take what already waits to be accepted, then stop listening."""
        for broker, sock in self._sockets.items():
            self._accept(broker)
            self._shared.loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()

    def _bind(self, port: int) -> socket.socket:
        host = self._options.bind
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._options.reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind((host, port))
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            raise StartError(
                f"listener {self._options.name!r}: {host}:{port} can not be bound: {error.strerror}"
            ) from error
        sock.setblocking(False)
        return sock

    def _accept(self, broker: int) -> None:
        sock = self._sockets[broker]
        for _ in range(_ACCEPTS_A_TURN):
            try:
                client, address = sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._out_of_descriptors(broker, sock, error)
                return
            self._welcome(client, address, broker)

    def _welcome(self, client: socket.socket, address: tuple[str, int], broker: int) -> None:
        shared = self._shared
        stats = shared.stats
        if len(self._connections) >= shared.limits.connections_max:
            stats.refused["connections_max"] += 1
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker_id, upstream = self._routes.upstream(broker)
        name = self._options.name
        stats.connections[name] += 1
        stats.connections_total[name] += 1
        peer = f"{address[0]}:{address[1]}"
        self._connections.add(
            Connection(client, peer, upstream, self._settings(broker_id), shared, self._ended)
        )

    def _ended(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._shared.stats.connections[self._options.name] -= 1

    def _out_of_descriptors(self, broker: int, sock: socket.socket, error: OSError) -> None:
        """Leave the port alone for a moment: what waits in its queue stays there."""
        cause = "descriptors" if error.errno in _NO_DESCRIPTOR else "accept"
        self._shared.stats.refused[cause] += 1
        event(
            logger, logging.WARNING, "accept failed, pausing", cause=cause, detail=error.strerror, port=broker
        )
        loop = self._shared.loop
        loop.remove_reader(sock.fileno())
        loop.call_later(_NO_DESCRIPTOR_PAUSE_SECONDS, self._listen_again, broker, sock)

    def _listen_again(self, broker: int, sock: socket.socket) -> None:
        if self._sockets.get(broker) is sock:
            self._shared.loop.add_reader(sock.fileno(), self._accept, broker)
