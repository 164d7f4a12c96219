"""Sockets over their address's connection rate: left unread for their time, then closed (KIP-612).

The one whose time ends first is closed first; a broker closes the one whose time ends last first, and so none at
all while others come (kafka-quotas.md §5). Where more wait than there is room for, the first is closed early. A
client learns of it by the close alone, as from a broker, and comes back after its reconnect backoff.
"""

import asyncio
import heapq
import socket
from contextlib import suppress
from typing import Final

from proxy.stats import Stats

__all__ = ["WAITING_MAX", "WaitingRoom"]

WAITING_MAX: Final = 1000  # each costs a descriptor and no memory of ours


class WaitingRoom:
    """All such sockets of one process, under one timer."""

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
        """Close them all."""
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
        with suppress(OSError):  # its descriptor is free whatever the system says
            sock.close()
        self._stats.connections_waiting = len(self._waiting)

    def _set_timer(self, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            due_ms = self._waiting[0][0]
            self._timer = self._loop.call_later(max(0, due_ms - now_ms) / 1000, self._close_due, due_ms)
