"""Listening sockets: one port per broker and a bootstrap port that leads to any broker, all bound at the start. With
`broker_host` there is the bootstrap port alone, and the name in the client's hello leads to the broker.

The number of accepts per turn is bounded, so that a connection storm does not delay connected clients. If no descriptor
is free, the port is not read for a while, since `accept` would fail in a busy loop. Over `limits.connections_max` the
new connection is closed at once, as in a broker (max.connections), unless another address has more connections: then
one of that address is closed. All cases are counted.
"""

import errno
import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from typing import Final, Protocol, TypeVar

from proxy.channel import ANY_BROKER, ChannelSettings
from proxy.config import ListenerOptions
from proxy.net.arrival import Arrival, Peer, PortRequirements
from proxy.net.by_address import address_of
from proxy.net.connection import Connection
from proxy.net.connections import Connections, make_room
from proxy.net.shared import Shared
from proxy.net.sockets import Stream, close_softly
from proxy.net.tls import ServerTls
from proxy.net.upstream import NextRoute, Route, Upstream
from proxy.system.clock import now_ms
from proxy.system.errors import StartError, system_reason
from proxy.system.logs import event
from quotas.definitions.entities import ip_name

_ACCEPTS_A_TURN: Final = 64
_BACKLOG: Final = 1024
_NO_DESCRIPTOR_PAUSE_SECONDS: Final = 0.5
_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Routes(Protocol):
    """The broker addresses behind a port; implemented by `proxy.control.cluster`."""

    def upstream(self, broker: int, tried: Collection[Upstream] = ()) -> tuple[int, Upstream | None]:
        """Return a broker's id and its address; None if the address is not known.

        Args:
            broker: its id; ANY_BROKER for any broker that is not at an address in `tried`.
            tried: addresses to which connecting has failed.
        """

    def host(self, broker: int, target: Upstream) -> str:
        """Return the name that the certificate of the broker at this address must have."""


@dataclass(eq=False)
class Listener:
    """The ports of one `[[listeners]]` entry, and the connections that they accept."""

    _options: ListenerOptions
    _settings: Callable[[int], ChannelSettings]
    _routes: Routes
    _shared: Shared
    _connections: Connections
    tls: InitVar[ServerTls | None] = None
    _sockets: dict[int, socket.socket] = field(init=False, default_factory=dict)
    _last_settings: ChannelSettings | None = field(init=False, default=None)
    _last_route: Route | None = field(init=False, default=None)
    # By the broker behind the port: why it accepts nothing now.
    _failures: dict[int, str] = field(init=False, default_factory=dict)
    _logged: str = field(init=False, default="")  # the cause of these that was logged

    def __post_init__(self, tls: ServerTls | None) -> None:
        self._on_closed = self._ended  # one object in memory, not one for each connection
        self._next_route: NextRoute = partial(self._route, ANY_BROKER)
        proxied = self._options.proxy_protocol
        self._requirements = PortRequirements(proxied, tls) if proxied or tls else None

    def open(self) -> None:
        """Bind every port.

        Raises:
            StartError: a port cannot be bound.
        """
        for broker, port in _ports(self._options).items():
            self._sockets[broker] = _bind(self._options, port)
        for broker, sock in self._sockets.items():
            self._shared.loop.add_reader(sock.fileno(), self._accept, broker)

    def not_accepting(self) -> str:
        """Return why one of its ports accepts no connection now; "" if all do."""
        if not self._failures:
            return ""
        return f"listener {self._options.name!r} accepts no connection: {next(iter(self._failures.values()))}"

    def close(self) -> None:
        """Accept the connections that are in the backlog, then close the ports."""
        for broker, sock in self._sockets.items():
            self._accept(broker)
            self._shared.loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        self._failures.clear()

    def _accept(self, broker: int) -> None:
        sock = self._sockets[broker]
        for _ in range(_ACCEPTS_A_TURN):
            try:
                client, address = sock.accept()
            except (BlockingIOError, InterruptedError):
                self._accepts(broker)
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._out_of_descriptors(broker, sock, error)
                return
            self._accepts(broker)
            try:
                self._handle_accepted(client, address, broker)
            except Exception as error:
                # The edge of an accept: later connections are accepted anyway.
                logger.error("cannot admit a connection", exc_info=error)
                self._shared.stats.refused["internal"] += 1
                client.close()

    def _handle_accepted(self, client: socket.socket, address: tuple[str, int], broker: int) -> None:
        shared = self._shared
        full = self._full(address[0])
        if full:
            shared.stats.refused[full] += 1
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = (address[0], address[1])
        # By name, no broker is known before the handshake, where the rate of an address must hold: it is one for all.
        route = Route(ANY_BROKER, None) if self._options.by_name else self._route(broker)
        admitted = partial(self._admit, route, self._next_route if broker == ANY_BROKER else None)
        if self._requirements is None:
            if self._passes(route.broker, client, peer):
                admitted(client, peer, None, None)
        elif self._requirements.proxy_protocol and not self._is_source(peer[0]):
            shared.stats.refused["proxy_source"] += 1
            client.close()
        else:
            Arrival(client, peer, self._requirements, shared, partial(self._passes, route.broker), admitted)

    def _full(self, host: str) -> str:
        """Return the limit by which a connection of this host is refused; "" if there is room, or room was made."""
        connections, arrivals, limits = self._connections, self._shared.arrivals, self._shared.limits
        full = ""
        if len(connections) + len(arrivals) >= limits.connections_max:
            full = "connections_max"
        elif self._requirements is not None and len(arrivals) >= limits.handshakes_max:
            full = "handshakes_max"
        if full and make_room(connections, arrivals, host, to_arrive=full == "handshakes_max"):
            return ""
        return full

    def _route(self, broker: int, tried: Collection[Upstream] = ()) -> Route:
        broker_id, upstream = self._routes.upstream(broker, tried)
        host = self._routes.host(broker_id, upstream) if self._shared.broker_tls and upstream else ""
        return Route(broker_id, upstream, host)

    def _is_source(self, host: str) -> bool:
        """Whether PROXY headers of this host are trusted."""
        address = ip_address(ip_name(host) or host)
        return any(address in network for network in self._options.proxy_protocol_sources)

    def _passes(self, broker_id: int, client: socket.socket, peer: Peer) -> bool:
        """Count the connection against its address's number and rate; False if the socket was taken over.

        Over the rate the socket waits unread and is then closed.
        """
        shared = self._shared
        now = now_ms()
        host = peer[0]
        address_max = shared.limits.connections_per_address_max
        if address_max is not None:
            # One with a PROXY header or TLS is counted among the arrivals already.
            count = self._connections.count_of(host) + shared.arrivals.count_of(host)
            if count - (self._requirements is not None) >= address_max:
                shared.stats.refused["connections_per_address_max"] += 1
                client.close()
                return False
        if ":" in host:  # an IPv4-mapped address is the same address
            host = ip_name(host) or host
        decision = shared.connection_rates.connect(host, broker_id, now)
        if decision.would_wait_ms:
            shared.stats.connections_would_refuse += 1
        if not decision.wait_ms:
            return True
        shared.stats.refused["connection_rate"] += 1
        shared.waiting_room.add(client, decision.wait_ms, now)
        return False

    def _admit(
        self,
        route: Route,
        next_route: NextRoute | None,
        client: Stream,
        peer: Peer,
        user: str | None,
        named: int | None,
    ) -> None:
        """Create the connection of an arrived socket.

        Args:
            named: the broker that the client's hello has named, ANY_BROKER for the bootstrap; None: the port decides.
        """
        shared = self._shared
        name = self._options.name
        if named is not None:
            route, next_route = self._route(named), next_route if named == ANY_BROKER else None
            if named != ANY_BROKER and route.upstream is None:
                self._refuse_unknown(named, client, peer)
                return
        settings = self._settings(route.broker)
        user = settings.user if user is None else user
        settings = replace(settings, address=address_of(peer[0]), user=user)
        self._last_settings = settings = _equal(self._last_settings, settings)
        where = f"{peer[0]}:{peer[1]}"
        tap = None if shared.recorder is None else shared.recorder.tap(peer[0], name)
        self._last_route = route = _equal(self._last_route, route)
        connection = Connection(client, where, route, settings, shared, self._on_closed, next_route, tap)
        self._connections.add(connection, peer[0])
        shared.stats.connections[name] += 1
        shared.stats.connections_total[name] += 1

    def _refuse_unknown(self, broker: int, client: Stream, peer: Peer) -> None:
        """Close a connection to a broker that is not known, before any state is kept under its id.

        A client could name any number of them. The close is that of a broker that has gone.
        """
        self._shared.stats.errors["broker_unknown"] += 1
        fields = {
            "peer": f"{peer[0]}:{peer[1]}",
            "cause": "broker_unknown",
            "detail": f"no broker {broker} is known",
        }
        event(logger, logging.INFO, "connection ended", **fields)
        close_softly(client, self._shared, peer[0])

    def _ended(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._shared.stats.connections[self._options.name] -= 1

    def _out_of_descriptors(self, broker: int, sock: socket.socket, error: OSError) -> None:
        """Pause the port for a moment: connections stay in its queue."""
        cause = "descriptors" if error.errno in _NO_DESCRIPTOR else "accept"
        self._shared.stats.refused[cause] += 1
        self._failures[broker] = system_reason(error)
        if cause != self._logged:  # logged once, whatever the number of ports and pauses
            self._logged = cause
            fields = {"cause": cause, "detail": error.strerror, "listener": self._options.name}
            event(logger, logging.WARNING, "accept failed, pausing", **fields)
        loop = self._shared.loop
        loop.remove_reader(sock.fileno())
        loop.call_later(_NO_DESCRIPTOR_PAUSE_SECONDS, self._listen_again, broker, sock)

    def _listen_again(self, broker: int, sock: socket.socket) -> None:
        if self._sockets.get(broker) is sock:
            self._shared.loop.add_reader(sock.fileno(), self._accept, broker)
            self._accept(broker)  # without a connection in its queue, too: only this tells whether it could

    def _accepts(self, broker: int) -> None:
        """Clear the reason why this port accepts nothing."""
        if self._failures.pop(broker, "") and not self._failures:
            self._logged = ""
            event(logger, logging.INFO, "accepting again", listener=self._options.name)


def _equal(last: T | None, new: T) -> T:
    """Return the last object if it is equal to `new`, so that connections of one client share it; else `new`."""
    return new if last is None or last != new else last


def refuse_taken_ports(options: ListenerOptions) -> None:
    """Check that no other program uses the ports: bind each exclusively for a moment.

    Workers share their ports, so binding these would succeed even if another Sluice used them.

    Raises:
        StartError: a port cannot be bound.
    """
    for port in _ports(options).values():
        _bind(options, port).close()


def _ports(options: ListenerOptions) -> dict[int, int]:
    """Return the ports of a listener, by the broker behind each."""
    ports = {} if options.replicates else {ANY_BROKER: options.bootstrap_port}
    ports.update({broker: options.broker_port(broker) for broker in options.broker_ids})
    return ports


def _bind(options: ListenerOptions, port: int) -> socket.socket:
    host = options.bind
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        where = f"listener {options.name!r}: {host}:{port}"
        raise StartError(f"{where} cannot be bound: {error.strerror}") from error
    sock.setblocking(False)
    return sock
