"""Loopback ports for brokers, proxies and their admin servers.

All lie below 32768: above begins the range from which the kernel takes ports for outgoing connections, where a port
that was free a moment ago may be anybody's.
"""

import contextlib
import os
import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
PORT_MIN: Final = 20000
PORT_MAX: Final = 32000
_TRIES_MAX: Final = 500
_taken: Final[set[int]] = set()
# Not the seeded generator of the tests: two runs at the same time must not choose the same ports.
_random: Final = random.Random(os.urandom(8))


def free_ports(count: int = 1) -> list[int]:
    """Return `count` consecutive free ports, never the same twice in one process.

    Consecutive, because a listener of the proxy needs a bootstrap port and then one for each broker id.
    """
    for _ in range(_TRIES_MAX):
        first = _random.randrange(PORT_MIN, PORT_MAX - count)
        wanted = range(first, first + count)
        if _taken.isdisjoint(wanted) and all(map(_is_free, wanted)):
            _taken.update(wanted)
            return list(wanted)
    raise RuntimeError(f"no {count} consecutive free ports between {PORT_MIN} and {PORT_MAX}")


def free_port() -> int:
    """Return one free port."""
    return free_ports(1)[0]


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
