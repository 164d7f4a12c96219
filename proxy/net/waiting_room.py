"""Sockets over their address's connection rate: left unread until their delay is over, then closed (KIP-612).

The socket whose delay ends first is closed first. (A broker waits for the socket whose delay ends last, and so closes
none while new ones arrive; kafka-quotas.md §5.) If there is no room, the first one is closed early. As with a broker,
the client only sees the close, and reconnects after its reconnect backoff.
"""

import asyncio
import heapq
import socket
from contextlib import suppress
from typing import Final

from proxy.stats import Stats

WAITING_MAX: Final = 1000  # each takes a descriptor and no memory of the process


class WaitingRoom:
    """All such sockets of the process, with one timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stats: Stats) -> None:
        self._loop = loop
        self._stats = stats
        self._waiting: list[tuple[int, int, socket.socket]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, sock: socket.socket, wait_ms: int, now_ms: int) -> None:
        """Take a socket, to close it `wait_ms` from now."""
        if len(self._waiting) >= WAITING_MAX:
            self._close_first()
        self._count += 1
        heapq.heappush(self._waiting, (now_ms + wait_ms, self._count, sock))
        self._stats.connections_waiting = len(self._waiting)
        self._set_timer(now_ms)

    def close(self) -> None:
        """Close all sockets."""
        while self._waiting:
            self._close_first()
        self._set_timer(0)

    def _close_due(self, due_ms: int) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][0] <= due_ms:
            self._close_first()
        self._set_timer(due_ms)

    def _close_first(self) -> None:
        sock = heapq.heappop(self._waiting)[2]
        with suppress(OSError):  # the descriptor is released whatever the system reports
            sock.close()
        self._stats.connections_waiting = len(self._waiting)

    def _set_timer(self, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            due_ms = self._waiting[0][0]
            self._timer = self._loop.call_later(max(0, due_ms - now_ms) / 1000, self._close_due, due_ms)
