"""Detects that a client has closed while its channel is muted and its socket is not read (KIP-219, step 3).

Reading would mean handling the client's requests; without a watch, dead channels would be kept until their mute ends.
So the sockets of waiting channels are in an epoll set of their own with EPOLLRDHUP only: it stays quiet while data is
unread, and fires on a close. The event loop has one reader, for the set's own descriptor.

Non-obvious:

- A hang-up is detected by EPOLLRDHUP in a separate set while a channel waits, because reading would mean handling the
  client's requests. Requests with acks=0 of a client that has closed are still delivered at the end of the wait.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final

_EVENTS_MAX: Final = 256


class Hangups:
    """Watches descriptors for the peer's close only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[bool], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, fd: int, gone: Callable[[bool], None]) -> None:
        """Call gone(reset) once when the peer of `fd` closes; `reset`: whether it reads no more responses either."""
        self._callbacks[fd] = gone
        self._epoll.register(fd, select.EPOLLRDHUP)

    def unwatch(self, fd: int) -> None:
        """Stop watching; no effect if `fd` is not watched."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop watching all descriptors."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._callbacks.clear()

    def _on_events(self) -> None:
        for fd, events in self._epoll.poll(0, _EVENTS_MAX):
            gone = self._callbacks.get(fd)
            if gone is not None:
                self.unwatch(fd)
                gone(bool(events & (select.EPOLLHUP | select.EPOLLERR)))
