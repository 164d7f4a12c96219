"""Loopback ports for brokers, proxies and their admin servers.

All lie below 32768: above begins the range from which the kernel takes ports for outgoing connections, where a port
that was free a moment ago may be in use by another process.
"""

import contextlib
import os
import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
PORT_MIN: Final = 20000
PORT_MAX: Final = 32000
_WORKERS_MAX: Final = 3  # as many as `make test` starts
# Late in a run long rows of free ports are rare, and a try costs microseconds.
_TRIES_MAX: Final = 20_000
_taken: Final[set[int]] = set()
# Not the seeded generator of the tests: two runs at the same time must not choose the same ports.
_random: Final = random.Random(os.urandom(8))


def free_ports(count: int = 1) -> list[int]:
    """Return `count` consecutive free ports, never the same twice in one process while there are others.

    Consecutive, because a listener of the proxy needs a bootstrap port and then one for each broker id.
    """
    low, high = _range(os.environ.get("PYTEST_XDIST_WORKER", ""))
    for tries in range(2 * _TRIES_MAX):
        if tries == _TRIES_MAX:
            _taken.clear()  # all were given once; most of them to processes that have ended
        first = _random.randrange(low, high - count)
        wanted = range(first, first + count)
        if _taken.isdisjoint(wanted) and all(map(_is_free, wanted)):
            _taken.update(wanted)
            return list(wanted)
    raise RuntimeError(f"no {count} consecutive free ports between {low} and {high}")


def free_port() -> int:
    """Return one free port."""
    return free_ports(1)[0]


def _range(worker: str) -> tuple[int, int]:
    """The ports of one of pytest's processes: what one has chosen and not bound yet, another would find free."""
    if not worker:
        return PORT_MIN, PORT_MAX
    width = (PORT_MAX - PORT_MIN) // _WORKERS_MAX
    low = PORT_MIN + int(worker.removeprefix("gw")) % _WORKERS_MAX * width
    return low, low + width


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
