"""The name in a client's TLS hello (SNI, RFC 6066 §3), which chooses the broker where all brokers have one port.

    hello ─► OpenSSL ─► the name, ASCII, 255 bytes at most ─► `BrokerNames.choose` ─► broker, or an alert
                                                                      │
    handshake done ─► `Listener`: the route to that broker ◄──────────┘ stored at the socket

OpenSSL parses the hello and calls back before it signs anything, so a refused name costs no signature. The name is only
compared: no table and no metric has it as a key or a label. The name of a broker is accepted whether that broker is
known or not. The connection to an unknown one is closed after the handshake, as one to a broker that is down: clients
retry after a close, and report an alert as a permanent error.

Non-obvious:

- With TLS 1.2 a resumed session leads to the broker whose name it was made with, whatever the hello names: OpenSSL
  returns the session's name. With TLS 1.3 the hello's counts. Clients keep sessions by name, so both are the same.
- A name that is not ASCII never arrives here: Python refuses it, with an exception that nothing can catch
  (`proxy.system.logs` writes it as one line).
"""

import ssl
from collections.abc import Mapping
from functools import partial
from typing import Final

from proxy.channel import ANY_BROKER
from proxy.config import ListenerOptions
from proxy.config.principals import certified_as
from proxy.system.errors import shorten

# RFC 8446 §6.2: the alert that §9.2 wants where there is no name. In TLS 1.2 OpenSSL sends handshake_failure for it.
_MISSING_EXTENSION: Final = 109
_NOT_ASCII: Final = ("unknown_name", "the name in the hello is not ASCII")


class NamedSocket(ssl.SSLSocket):
    """A client's TLS socket at a port where the name in the hello chooses the broker.

    Attributes:
        broker: the id of the broker that the hello has named, ANY_BROKER for the bootstrap; None before the hello, and
            if its name is refused.
        refusal: the cause under which a refused name is counted, and a sentence for the log.
        called_by: the context whose callback has read the hello. OpenSSL calls it again for a repeated hello
            (HelloRetryRequest), without a reference of its own: if a reload freed it, the process would crash.
    """

    broker: int | None = None
    called_by: ssl.SSLContext | None = None
    refusal: tuple[str, str] = _NOT_ASCII


class BrokerNames:
    """The names by which clients reach the brokers and the bootstrap of one listener (`broker_host`)."""

    def __init__(self, options: ListenerOptions) -> None:
        self._options = options
        self._bootstrap = _plain(options.advertised_host)

    def apply_to(self, context: ssl.SSLContext, others: Mapping[str, ssl.SSLContext]) -> None:
        """Set the callback that chooses the broker by name; the sockets of the context are then NamedSockets.

        Args:
            others: contexts with further certificates, by the host names in these. For every other name the context's
                own certificate is sent.
        """
        context.sslsocket_class = NamedSocket
        context.sni_callback = partial(self.choose, others)

    def choose(
        self,
        others: Mapping[str, ssl.SSLContext],
        sock: ssl.SSLObject | ssl.SSLSocket,
        name: str | None,
        context: ssl.SSLContext,
    ) -> int | None:
        """Store the broker that a hello names at the socket. OpenSSL calls this, and again for a second hello.

        Args:
            others: as in `apply_to`.
            name: the name in the hello; None if it has none.
            context: the one that the callback was set on.

        Returns: the number of the alert that ends the handshake; None to continue.
        """
        assert isinstance(sock, NamedSocket), "the class of the context's sockets"
        sock.broker = self.broker(name)
        if sock.broker is not None:
            if others and name is not None:
                sock.called_by = context
                sock.context = next((others[one] for one in certified_as(name) if one in others), context)
            return None
        if name is None:
            sock.refusal = ("no_name", "the hello names no host")
            return _MISSING_EXTENSION
        detail = f"the hello names {shorten(name)}, which is neither the bootstrap nor a broker"
        sock.refusal = ("unknown_name", detail)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    def broker(self, name: str | None) -> int | None:
        """Return the id of the broker that a name leads to, ANY_BROKER for the bootstrap; None if it is refused."""
        if name is not None:
            broker = self._options.broker_named(name)
            if broker is not None:
                return broker
            if _plain(name) == self._bootstrap:
                return ANY_BROKER
        return ANY_BROKER if self._options.unknown_names == "bootstrap" else None


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")
