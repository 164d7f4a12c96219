"""One connection of a replay, and the bound of the unsent bytes of all connections.

A connection is opened before its first request, reopened after a loss, and closed at the response to its last request.
So the replay of many short connections has as few of them at a time as the recording.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol, cast

from offline.replay.frames import Frame
from offline.replay.responses import Broker

__all__ = ["IN_FLIGHT_MAX", "UNSENT_BYTES_MAX", "Connection", "SendBudget"]

IN_FLIGHT_MAX: Final = 10_000  # on one connection
UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024  # of all connections together
_HEAD_BYTES: Final = 65_536  # what is looked at of a response
_RECOUNT_US: Final = 10_000


class Owner(Protocol):
    """Receives the results of a connection's requests, by their index in the plan."""

    def sent(self, place: int, frame: Frame) -> None:
        """The request was written to the connection."""

    def responded(self, place: int, api_key: int, version: int, head: bytes, size: int) -> None:
        """The response has arrived; `head` is its beginning, which is all of a small one."""

    def lost(self, place: int) -> None:
        """The request was written, and no response will come."""

    def never_sent(self, place: int) -> None:
        """The request was not written: its connection could not be opened."""


class Connection(asyncio.Protocol):
    """A connection to a broker of the target."""

    def __init__(self, owner: Owner, address: Broker) -> None:
        self.address = address
        self.transport: asyncio.Transport | None = None
        self.opening = False
        self._owner = owner
        self._in_flight: deque[tuple[int, int, int]] = deque()  # place in the plan, API key, version
        self._waiting: deque[tuple[int, Frame]] = deque()  # for the connection
        self._waiting_bytes = 0
        self._finished = False
        self._buffer = bytearray()

    @property
    def full(self) -> bool:
        """Whether the largest number of requests is in flight or waiting."""
        return max(len(self._in_flight), len(self._waiting)) >= IN_FLIGHT_MAX

    @property
    def unsent_bytes(self) -> int:
        """The bytes of requests that have not left this process."""
        return self._waiting_bytes + (0 if self.transport is None else self.transport.get_write_buffer_size())

    def send(self, place: int, frame: Frame) -> None:
        """Write a request, now or when the connection is open."""
        if self.transport is None:
            self._waiting.append((place, frame))
            self._waiting_bytes += len(frame.data)
        else:
            self._write(self.transport, place, frame)

    def finish(self) -> None:
        """Close the connection when the last response has arrived: no more requests follow."""
        self._finished = True
        if self.transport is not None and not self._in_flight:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write the waiting requests: the connection is open."""
        self.opening = False
        # uvloop's are none of asyncio's by class, and do all that they do.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(UNSENT_BYTES_MAX)
        while self._waiting:
            self._write(self.transport, *self._waiting.popleft())
        self._waiting_bytes = 0
        if self._finished:
            self.finish()

    def data_received(self, data: bytes) -> None:
        """Handle the complete responses, which arrive in the order of their requests."""
        buffer = self._buffer
        buffer += data
        start, have = 0, len(buffer)
        while self._in_flight and have - start >= 4:
            size = 4 + int.from_bytes(buffer[start : start + 4], "big")
            if have - start < size:
                break
            self._owner.responded(
                *self._in_flight.popleft(), bytes(buffer[start : start + min(size, _HEAD_BYTES)]), size
            )
            start += size
        del buffer[:start]
        if buffer and not self._in_flight and self.transport is not None:
            self.transport.abort()  # a response without a request
        if self._finished:
            self.finish()

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail all requests: the connection was closed by either side."""
        self.fail()

    def fail(self) -> None:
        """Fail all requests of a connection that was closed or could not be opened."""
        self.opening = False
        self.transport = None
        self._buffer.clear()
        owed, waiting = self._in_flight, self._waiting
        self._in_flight, self._waiting, self._waiting_bytes = deque(), deque(), 0
        for place, _, _ in owed:
            self._owner.lost(place)
        for place, _ in waiting:
            self._owner.never_sent(place)

    def _write(self, transport: asyncio.Transport, place: int, frame: Frame) -> None:
        transport.write(frame.data)
        if frame.expects_response:
            self._in_flight.append((place, frame.api_key, frame.version))
        self._owner.sent(place, frame)


class SendBudget:
    """The bound of the unsent bytes of all connections.

    Transports do not report sent bytes, so reserved bytes are only added up. When the sum exceeds the bound, the unsent
    bytes of all connections are counted; if these exceed it as well, they are not counted again for a while.
    """

    def __init__(self, connections: Iterable[Connection]) -> None:
        self._connections = connections
        self._most = 0  # an upper bound of the unsent bytes
        self._full_until_us = 0

    def take(self, size: int, now_us: int) -> bool:
        """Reserve bytes, if there is room; returns whether there is."""
        if now_us < self._full_until_us:
            return False
        if self._most + size > UNSENT_BYTES_MAX:
            self._most = sum(connection.unsent_bytes for connection in self._connections)
            if self._most + size > UNSENT_BYTES_MAX:
                self._full_until_us = now_us + _RECOUNT_US
                return False
        self._most += size
        return True
