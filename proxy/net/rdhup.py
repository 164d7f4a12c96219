"""Noticing that a client has gone while its channel is muted and nothing is read from it (KIP-219, step 3).

Reading would be handling what the client sent; not watching would keep dead channels until their mute ends.
So the sockets of waiting channels stand in one epoll set of their own that asks for EPOLLRDHUP alone: it is
quiet while data lies unread and fires on a close. The set's own descriptor is one reader of the event loop.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final

__all__ = ["Hangups"]

_EVENTS_MAX: Final = 256


class Hangups:
    """Watches descriptors for the peer's close, and for nothing else."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[bool], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, fd: int, gone: Callable[[bool], None]) -> None:
        """Call gone(reset) once when the peer of `fd` closes; reset says that it will not read answers either."""
        self._callbacks[fd] = gone
        self._epoll.register(fd, select.EPOLLRDHUP)

    def unwatch(self, fd: int) -> None:
        """Stop watching; harmless where nothing is watched."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """End the watch over everything."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._callbacks.clear()

    def _on_events(self) -> None:
        for fd, events in self._epoll.poll(0, _EVENTS_MAX):
            gone = self._callbacks.get(fd)
            if gone is not None:
                self.unwatch(fd)
                gone(bool(events & (select.EPOLLHUP | select.EPOLLERR)))
