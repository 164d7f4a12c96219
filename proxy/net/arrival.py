"""The way from an accepted socket to a connection: PROXY header, connection rate of the address, TLS handshake.

    accepted ─► PROXY header ─► rate of its address ─► first byte ─► handshake, name ─► principal ─► admitted
                    │                  │                   │               │                │
                    └── refused, with one cause each, counted and logged once ────────┘

A port without PROXY header and TLS admits a client at once (`Listener`). The header is peeked at, and exactly its bytes
are consumed, since the following ones belong to TLS or Kafka. Both steps together have `limits.handshake_seconds`, and
`limits.handshakes_max` connections may be under way. After a failed handshake TLS's own alert tells the client why, so
the socket is closed softly: closing it with unread bytes resets the connection, and the alert may be lost.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from proxy.config.principals import CertificateError, NoMatchingRuleError
from proxy.net.handshakes import Handshake
from proxy.net.proxy_header import V2_BYTES_MAX, ProxyHeaderError, parse
from proxy.net.server_name import NamedSocket
from proxy.net.shared import Shared
from proxy.net.sockets import Stream, TlsSocket, close_softly
from proxy.net.tls import ServerTls
from proxy.system.hosts import handshake_problem
from proxy.system.logs import event

_TLS_HANDSHAKE: Final = 0x16

logger = logging.getLogger(__name__)

Peer = tuple[str, int]
Passes = Callable[[socket.socket, Peer], bool]
"""Counts a client's address; False if the socket was taken over, because its address has too many connections."""
Admitted = Callable[[Stream, Peer, str | None, int | None], None]
"""Takes the stream, the client's address, the principal's name (None if no principal was requested), and the broker
that the client's hello has named (None where the port decides)."""


class PortRequirements(NamedTuple):
    """What one port requires of a client before its first request.

    Args:
        proxy_protocol: whether the connection must begin with a PROXY header.
        tls: the TLS of the port; None for plaintext.
    """

    proxy_protocol: bool
    tls: ServerTls | None


def _refusal(sock: socket.socket, error: OSError) -> tuple[str, str]:
    """Return the cause under which a failed handshake is counted, and a sentence for the log."""
    reason = getattr(error, "reason", None)
    if isinstance(sock, NamedSocket) and reason == "CALLBACK_FAILED":
        return sock.refusal
    refused = reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE" or isinstance(error, ssl.SSLCertVerificationError)
    return "client_certificate" if refused else "tls_handshake", handshake_problem(error)


@dataclass(slots=True, eq=False)
class Arrival:
    """One accepted socket, until it is admitted as a connection or refused.

    Args:
        peer: the client's address; the one in the PROXY header replaces it.
        requirements: what the port requires before the first request.
        passes: counts the client's address against its connection rate; False if the address exceeds it: the socket
            was then taken over, to be closed later.
        admitted: called with the stream when the socket is admitted.
    """

    sock: socket.socket
    peer: Peer
    requirements: PortRequirements
    shared: Shared
    passes: Passes
    admitted: Admitted
    _head: bytes = field(init=False, default=b"")
    _reading: bool = field(init=False, default=False)
    _handshake: Handshake | None = field(init=False, default=None)
    _timer: asyncio.TimerHandle = field(init=False)

    def __post_init__(self) -> None:
        self.shared.arrivals.add(self, self.peer[0])
        self._timer = self.shared.loop.call_later(self.shared.limits.handshake_seconds, self._timed_out)
        if self.requirements.proxy_protocol:
            self._read(self._on_header)
        else:
            self._address_known()

    def close(self) -> None:
        """Close the socket, unless it was admitted already: the client has gone, or the process ends."""
        if self._detach():
            self.sock.close()

    def displace(self) -> None:
        """Refuse this socket, to make room for one of another address; called if its own address has the most."""
        self._fail(
            "address_share",
            "limits.handshakes_max or connections_max is reached, and its address has the most connections",
        )

    # The PROXY header.

    def _on_header(self) -> None:
        try:
            data = self.sock.recv(V2_BYTES_MAX, socket.MSG_PEEK)
            if not data:
                self.close()  # a health check, or a client that has changed its mind
                return
            header = parse(self._head + data)
            if header is None:  # all of it belongs to the header
                self._head += self.sock.recv(len(data))
                return
            self.sock.recv(header.length - len(self._head))
        except (BlockingIOError, InterruptedError):
            return
        except ProxyHeaderError as error:
            self._fail("proxy_header", str(error))
            return
        except OSError as error:
            self._fail("client_socket", str(error))
            return
        self._read(None)
        if header.source is not None:
            self.peer = header.source
            self.shared.arrivals.add(self, header.source[0])
        self._address_known()

    def _address_known(self) -> None:
        """Continue with the client's address, after the PROXY header if there is one."""
        if not self.passes(self.sock, self.peer):
            self._detach()
        elif self.requirements.tls is None:
            if self._detach():
                self.admitted(self.sock, self.peer, None, None)
        else:
            self._read(self._on_hello)

    # TLS.

    def _on_hello(self) -> None:
        tls = self.requirements.tls
        assert tls is not None, "asked for only where there is TLS"
        try:
            first = self.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail("client_socket", str(error))
            return
        if not first:
            self.close()
            return
        if first[0] != _TLS_HANDSHAKE:
            self._fail("plain_on_tls", "no TLS handshake on a TLS port")
            return
        self._read(None)
        try:
            secured = tls.context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            self._fail("tls_handshake", handshake_problem(error))
            return
        self.sock = secured
        self._handshake = self.shared.handshakes.begin(secured, "client", self._secured, self._insecure)

    def _secured(self) -> None:
        self._handshake = None
        tls, sock = self.requirements.tls, self.sock
        assert tls is not None, "its handshake is done"
        assert isinstance(sock, ssl.SSLSocket), "and this is what it made"
        self.shared.stats.tls_sessions_resumed += bool(sock.session_reused)
        try:
            user = tls.user(sock)
        except (NoMatchingRuleError, CertificateError) as error:
            self._fail("principal_unmapped", str(error))
            return
        if self._detach():
            broker = sock.broker if isinstance(sock, NamedSocket) else None
            self.admitted(TlsSocket(sock), self.peer, user, broker)

    def _insecure(self, error: Exception) -> None:
        self._handshake = None
        if not isinstance(error, OSError) or self not in self.shared.arrivals:
            self._fail("internal", type(error).__name__)
            return
        self._count(*_refusal(self.sock, error))
        self._detach()
        # Open until the client has received the TLS alert; the plain socket again: TLS has no more to send.
        close_softly(socket.socket(fileno=self.sock.detach()), self.shared, self.peer[0])

    # The end.

    def _timed_out(self) -> None:
        in_header = self.requirements.proxy_protocol and self._handshake is None
        what = "PROXY header" if in_header else "TLS handshake"
        self._fail("handshake_timeout", f"no {what} within {self.shared.limits.handshake_seconds:g} s")

    def _fail(self, cause: str, detail: str) -> None:
        self._count(cause, detail)
        self.close()

    def _count(self, cause: str, detail: str) -> None:
        self.shared.stats.errors[cause] += 1
        peer = f"{self.peer[0]}:{self.peer[1]}"
        event(logger, logging.INFO, "connection ended", peer=peer, cause=cause, detail=detail)

    def _read(self, on_readable: Callable[[], None] | None) -> None:
        """Register the callback for incoming bytes; None to unregister it."""
        loop = self.shared.loop
        if on_readable is not None:
            loop.add_reader(self.sock.fileno(), on_readable)
        elif self._reading:
            loop.remove_reader(self.sock.fileno())
        self._reading = on_readable is not None

    def _detach(self) -> bool:
        """Stop watching the socket; False if that was done before."""
        if self not in self.shared.arrivals:
            return False
        self.shared.arrivals.discard(self)
        self._timer.cancel()
        self._read(None)
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        return True
