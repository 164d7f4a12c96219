"""A client's TLS hello at a port where the name in it chooses the broker: OpenSSL reads it, and calls Sluice."""

import socket
import ssl
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from proxy.channel import ANY_BROKER
from proxy.config import ListenerOptions, ListenerTls
from proxy.net.server_name import BrokerNames, NamedSocket
from proxy.net.tls import ServerTls
from tests.fuzz.stopwatch import timed
from tests.support.certificates import Authority
from tests.support.hellos import hello

_NAME_BYTES_MAX: Final = 300
_OPTIONS: Final = ListenerOptions(broker_host="b{id}.kafka.test", advertised_host="kafka.test")


@cache
def _server() -> ServerTls:
    authority = Authority.make(Path(tempfile.mkdtemp(prefix="sluice-fuzz-")))
    made = authority.issue("own")
    tls = ListenerTls(cert_file=made.cert_file, key_file=made.key_file, client_auth="none")
    return ServerTls(tls, "tls", names=BrokerNames(_OPTIONS))


def _not_ascii(found: "sys.UnraisableHookArgs") -> None:
    # Python's own, which nothing can catch; any other is a finding.
    assert found.exc_type is UnicodeDecodeError, found


def client_hello(data: bytes) -> None:
    """A name in a whole hello, or, after a byte from 128 on, what a client sends first."""
    sent = data[1:] if data[:1] >= b"\x80" else hello(data[:_NAME_BYTES_MAX])
    ours, theirs = socket.socketpair()
    before, sys.unraisablehook = sys.unraisablehook, _not_ascii
    try:
        ours.setblocking(False)
        theirs.setblocking(False)
        theirs.send(sent)
        server = _server().context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        with server:
            with suppress(ssl.SSLError):
                timed("hello", server.do_handshake)
            _check(server, data)
    finally:
        sys.unraisablehook = before
        ours.close()
        theirs.close()


def _check(server: ssl.SSLSocket, data: bytes) -> None:
    """A broker is chosen by its own name alone."""
    assert isinstance(server, NamedSocket), "the class of the context's sockets"
    if server.broker is None or data[:1] >= b"\x80":
        return
    name = data[:_NAME_BYTES_MAX].decode("ascii").lower().removesuffix(".")
    if server.broker == ANY_BROKER:
        assert name == _OPTIONS.advertised_host
    else:
        address = _OPTIONS.advertised_broker(server.broker)
        assert address is not None, "every id has an address"
        assert name == address.host
