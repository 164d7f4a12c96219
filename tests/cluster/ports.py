"""Loopback ports for brokers, proxies and their admin servers.

All lie below 32768: above begins the range from which the kernel takes ports for outgoing connections, where a port
that was free a moment ago may be in use by another process.
"""

import contextlib
import os
import random
import socket
from functools import cache
from typing import Final

HOST: Final = "127.0.0.1"
PORT_MIN: Final = 10_000
PORT_MAX: Final = 32_500
# Of a process. More of them than `make test` has at a time, without those around Sluice's own defaults, which tests of
# defaults find free.
WIDTH: Final = 1_500
_RANGES: Final = tuple(low for low in range(PORT_MIN, PORT_MAX, WIDTH) if low != 19_000)
# Late in a run long rows of free ports are rare, and a try costs microseconds.
_TRIES_MAX: Final = 20_000
_taken: Final[set[int]] = set()
# Not the seeded generator of the tests: two runs at the same time must not choose the same ports.
_random: Final = random.Random(os.urandom(8))


def free_ports(count: int = 1) -> list[int]:
    """Return `count` consecutive free ports, never the same twice in one process while there are others.

    Consecutive, because a listener of the proxy needs a bootstrap port and then one for each broker id.
    """
    low, high = _range()
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


@cache
def _range() -> tuple[int, int]:
    """Take ports for this process alone: what another has chosen and not bound yet would be found free here.

    They are claimed by a socket's name in the kernel, which is free again when this process has ended. A process that
    finds all claimed chooses from the ports of many.
    """
    for low in _RANGES:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0sluice-test-ports-{low}")
        except OSError:
            claim.close()
            continue
        claim.detach()  # open as long as the process
        return low, low + WIDTH
    return 20_500, PORT_MAX


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
