"""The checks of `sluice check` on this machine: host names that do not resolve, and ports that cannot be bound.

Warnings, not errors: clients may resolve names that this machine does not, and while Sluice runs here its own ports are
taken. Each port is bound for a moment and never listens.
"""

import errno
import os
import socket
from collections.abc import Iterator
from itertools import islice
from typing import Final

from proxy.config import Config
from proxy.config.checks import PortRange, bound_ports
from proxy.system.hosts import is_ip

_PORTS_TRIED_MAX: Final = 5000  # of one key
_PORTS_SHOWN_MAX: Final = 5


def machine_warnings(config: Config) -> Iterator[str]:
    """Yield warnings about host names that do not resolve here, and ports that `serve` cannot bind."""
    yield from _unresolved(config)
    reuse = any(listener.reuse_port for listener in config.listeners)
    for ports in bound_ports(config):
        yield from _unbindable(ports, reuse)


def _unresolved(config: Config) -> Iterator[str]:
    for index, listener in enumerate(config.listeners):
        host = listener.advertised_host
        if is_ip(host):
            continue
        try:
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # a name that cannot even be asked for is a UnicodeError
            why = error.strerror if isinstance(error, OSError) else str(error)
            yield (
                f"listeners[{index}].advertised_host: {host!r} does not resolve on this machine ({why}): clients "
                "are told this name, and have to resolve it"
            )


def _unbindable(ports: PortRange, reuse: bool) -> Iterator[str]:
    refused: dict[int, list[int]] = {}
    for port in islice(range(ports.first, ports.last + 1), _PORTS_TRIED_MAX):
        number = _bind_error(ports.host, port, reuse)
        if number:
            refused.setdefault(number, []).append(port)
    for number, found in refused.items():
        shown = ", ".join(map(str, found[:_PORTS_SHOWN_MAX]))
        more = f" and {len(found) - _PORTS_SHOWN_MAX} more" if len(found) > _PORTS_SHOWN_MAX else ""
        expected = ", as it is while Sluice runs here" if number == errno.EADDRINUSE else ""
        noun = "port" if len(found) == 1 else "ports"
        yield (
            f"{ports.path}: {noun} {shown}{more} of {ports.host} cannot be bound: {os.strerror(number)}{expected}"
        )


def _bind_error(host: str, port: int, reuse: bool) -> int:
    """Bind the port as the listener does, and close it; return the error's number, 0 for none."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind((host, port))
        except socket.gaierror:
            return errno.EADDRNOTAVAIL
        except OSError as error:
            return error.errno or errno.EIO
    return 0
