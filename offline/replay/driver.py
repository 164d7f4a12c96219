"""Runs the plan: one connection for each recorded connection, all on one core, open loop.

A request is sent when it is due, independently of responses, and its latency counts from then: so a stalling target, or
a late replay, is visible in the latencies. Throttle times are not obeyed. A request without room (`IN_FLIGHT_MAX`,
`UNSENT_BYTES_MAX`) is dropped and counted. The state of each request is kept by its index in the plan:

    NOT_REACHED --- due, no room ---------------------------> DROPPED
                --- due, no partition at the target --------> LEFT_OUT
                --- due, connection could not be opened ----> NEVER_SENT
                --- given to a connection, no response due -> SILENT
                --- given to a connection ------------------> IN_FLIGHT
    IN_FLIGHT   --- its response has arrived ---------------> its latency in us, 0 or more
                --- the connection ended -------------------> LOST

A request's lateness is measured when its frame is made and given to its connection. The event loop sends it in its next
turn, so a turn is at most `_TURN_US` and one frame long. Frames are encoded ahead while no request is due: encoding may
take milliseconds, which would make the request late.

A connection is opened before its first request, reopened after a loss, and closed at the response to its last request.
So the replay of many short connections has as few of them at a time as the recording.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, cast

from offline.replay.frames import Encoder, Frame
from offline.replay.messages import Broker, outcome
from offline.replay.schedule import Plan, Planned

FRAMES_MAX: Final = 500
BYTES_MAX: Final = 64 * 1024 * 1024
# the longest time between two checks for responses
_SPARE_US: Final = 2000  # about the time for one frame
# In place of a latency.
NOT_REACHED: Final = -1  # the replay ended before
IN_FLIGHT: Final = -2  # the replay ended while its connection was open
DROPPED: Final = -3
LOST: Final = -4
SILENT: Final = -5
NEVER_SENT: Final = -6
LEFT_OUT: Final = -7
# With those that have a latency: what a connection was given.
SENT: Final = frozenset((IN_FLIGHT, LOST, SILENT))
# Percentiles count these as infinitely late.
NO_RESPONSE: Final = frozenset((IN_FLIGHT, LOST, DROPPED, NEVER_SENT))
IN_FLIGHT_MAX: Final = 10_000  # on one connection
UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024  # of all connections together
_HEAD_BYTES: Final = 65_536  # what is looked at of a response
_RECOUNT_US: Final = 10_000
AHEAD_US: Final = 200_000  # the time between a connection's opening and its first request
_TURN_US: Final = 1000
_CONNECT_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 0.01  # between two checks for unsent bytes
_CLOSE_SECONDS: Final = 0.05  # for the loop to close aborted connections


class Samples:
    """The measurements of all requests, as arrays by the request's index in the plan (`place`); times in us.

    Attributes:
        late_us: how much later than planned it was sent.
        latency_us: from the planned time to the response; a negative constant, such as LOST, if there is none.
        sent_as: the API key of the sent request, which may differ from the recorded one.
        expects_response: 1, or 0 for a request without a response.
    """

    def __init__(self, count: int) -> None:
        self.late_us = array("q", bytes(8 * count))
        self.latency_us = array("q", [NOT_REACHED]) * count
        self.throttle_ms = array("i", bytes(4 * count))
        self.error = array("h", bytes(2 * count))
        self.sent_as = array("h", [-1]) * count
        self.expects_response = bytearray(b"\1") * count
        self.request_bytes = array("i", bytes(4 * count))
        self.response_bytes = array("i", bytes(4 * count))
        self.connect_errors = 0

    def no_response(self, place: int) -> bool:
        """Whether the request at `place` expects a response but has none."""
        return bool(self.expects_response[place]) and self.latency_us[place] in NO_RESPONSE


class Connection(asyncio.Protocol):
    """A connection to a broker of the target cluster, with its requests in flight; it reports to its `Driver`."""

    def __init__(self, owner: "Driver", address: Broker) -> None:
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
        """Whether IN_FLIGHT_MAX requests are in flight or waiting for the connection."""
        return max(len(self._in_flight), len(self._waiting)) >= IN_FLIGHT_MAX

    @property
    def unsent_bytes(self) -> int:
        """The bytes of requests that this process has not sent yet."""
        return self._waiting_bytes + (0 if self.transport is None else self.transport.get_write_buffer_size())

    def send(self, place: int, frame: Frame) -> None:
        """Send the request at `place` in the plan, at once or as soon as the connection is open."""
        if self.transport is None:
            self._waiting.append((place, frame))
            self._waiting_bytes += len(frame.data)
        else:
            self._write(self.transport, place, frame)

    def finish(self) -> None:
        """Close the connection once all requests in flight have responses; the caller sends no more requests."""
        self._finished = True
        if self.transport is not None and not self._in_flight:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the requests that have waited for the connection."""
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
        """Report the complete responses to the driver; they arrive in the order of their requests."""
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
        """End all requests of this connection, which was closed by either side."""
        self.fail()

    def fail(self) -> None:
        """End all requests: those in flight are lost, those that waited were never sent."""
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
    """Bounds the unsent bytes of all connections together (UNSENT_BYTES_MAX).

    Transports do not report sent bytes, so reserved bytes are only added up. When the sum exceeds the bound, the unsent
    bytes of all connections are counted; if these exceed it as well, they are not counted again for a while.
    """

    def __init__(self, connections: Iterable[Connection]) -> None:
        self._connections = connections
        self._most = 0  # an upper bound of the unsent bytes
        self._full_until_us = 0

    def take(self, size: int, now_us: int) -> bool:
        """Reserve `size` bytes; returns False if there is no room for them."""
        if now_us < self._full_until_us:
            return False
        if self._most + size > UNSENT_BYTES_MAX:
            self._most = sum(connection.unsent_bytes for connection in self._connections)
            if self._most + size > UNSENT_BYTES_MAX:
                self._full_until_us = now_us + _RECOUNT_US
                return False
        self._most += size
        return True


class EncodeAhead:
    """Encodes the next requests of a plan in advance, so that each is ready when it is due; they are taken in order."""

    def __init__(self, sends: Sequence[Planned], encoder: Encoder, now_us: Callable[[], int]) -> None:
        self._sends = sends
        self._encoder = encoder
        self._now_us = now_us
        self._ready: deque[Frame | None] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ready)

    def take(self, place: int) -> Frame | None:
        """Return the frame of the next request, at `place`; None if none of its partitions exists at the target."""
        if not self._ready:
            return self._encoder.encode(self._sends[place].request, place)
        frame = self._ready.popleft()
        self._bytes -= 0 if frame is None else len(frame.data)
        return frame

    def make(self, place: int, until_us: int) -> bool:
        """Encode the frames of the requests from `place` on, for at most a millisecond.

        Return True if only that time has ended this call, so that it should be made again at once.

        Args:
            until_us: when the next request is due; encoding ends before it.
        """
        turn_us = self._now_us() + _TURN_US
        while True:
            at = place + len(self._ready)
            now_us = self._now_us()
            full = len(self._ready) >= FRAMES_MAX or self._bytes >= BYTES_MAX
            if full or at >= len(self._sends) or now_us + _SPARE_US > until_us:
                return False
            if now_us >= turn_us:
                return True
            frame = self._encoder.encode(self._sends[at].request, at)
            self._bytes += 0 if frame is None else len(frame.data)
            self._ready.append(frame)


class Driver:
    """Runs one plan: sends each request when it is due, and measures the responses in `samples`."""

    def __init__(
        self, plan: Plan, encoder: Encoder, brokers: dict[int, Broker], progress: Callable[[int], None]
    ) -> None:
        self._sends = plan.sends
        self._progress = progress
        self.samples = Samples(len(plan.sends))
        self._connections = [Connection(self, brokers.get(broker, brokers[-1])) for broker in plan.brokers]
        self._last = {planned.connection: place for place, planned in enumerate(plan.sends)}
        self._budget = SendBudget(self._connections)
        self._ahead = EncodeAhead(plan.sends, encoder, self._now_us)
        self._connects: set[asyncio.Task[None]] = set()
        self._outstanding = 0  # requests that wait for their connection or their response
        self._all_sent = False
        self._complete = asyncio.Event()  # everything is sent, and nothing is in flight
        self._ending = False
        self._began_ns = 0

    async def run(self, linger_seconds: float) -> None:
        """Send all requests when they are due, then wait at most `linger_seconds` for responses; may be cancelled."""
        self._began_ns = time.monotonic_ns() + AHEAD_US * 1000
        try:
            await self._keep_schedule()
            self._all_sent = True
            if not self._outstanding:
                self._complete.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(linger_seconds):
                    await self._complete.wait()
                    while any(connection.unsent_bytes for connection in self._connections):  # noqa: ASYNC110 - there is no event
                        await asyncio.sleep(_FLUSH_SECONDS)
        finally:
            await self._end()

    def sent(self, place: int, frame: Frame) -> None:
        """Register that a request was written to its connection: it is in flight, or needs no response."""
        self.samples.request_bytes[place] = len(frame.data) - 4
        self.samples.latency_us[place] = IN_FLIGHT if frame.expects_response else SILENT
        if not frame.expects_response:
            self._request_finished()

    def responded(self, place: int, api_key: int, version: int, head: bytes, size: int) -> None:
        """Record a response's latency, size, error and throttle time.

        Args:
            head: the first bytes of the response frame; all of it if it is small.
            size: the length of the whole frame.
        """
        samples = self.samples
        samples.latency_us[place] = max(0, self._now_us() - self._sends[place].due_us)
        samples.response_bytes[place] = size - 4
        samples.error[place], samples.throttle_ms[place] = outcome(head, api_key, version)
        self._request_finished()

    def lost(self, place: int) -> None:
        """Record that a connection closed before a request's response; no effect when the replay itself closes it."""
        if not self._ending:
            self.samples.latency_us[place] = LOST
            self._request_finished()

    def never_sent(self, place: int) -> None:
        """Record that a request was not sent, since its connection could not be opened."""
        self.samples.latency_us[place] = NEVER_SENT
        self._request_finished()

    def _request_finished(self) -> None:
        self._outstanding -= 1
        if not self._outstanding and self._all_sent:
            self._complete.set()

    async def _keep_schedule(self) -> None:
        sends = self._sends
        opens = self._opening_times()
        opened = place = 0
        while place < len(sends):
            now_us = self._now_us()
            while opened < len(opens) and opens[opened][0] - AHEAD_US <= now_us:
                self._open(self._connections[opens[opened][1]])
                opened += 1
            first, turn_us = place, now_us + _TURN_US
            while place < len(sends) and sends[place].due_us <= now_us < turn_us:
                now_us = self._send(place)
                place += 1
            self._progress(place - first)
            if place < len(sends):
                next_us = sends[place].due_us
                if opened < len(opens):
                    next_us = min(next_us, opens[opened][0] - AHEAD_US)
                # Frames are encoded in the remaining time, a few between two checks for responses.
                more = self._ahead.make(place, next_us)
                await asyncio.sleep(0 if more else max(0, next_us - self._now_us()) / 1e6)

    def _send(self, place: int) -> int:
        """Send a request on its connection, or drop it if there is no room; returns the time of that, in us."""
        planned = self._sends[place]
        connection = self._connections[planned.connection]
        frame = self._ahead.take(place)
        now_us = self._now_us()
        self.samples.late_us[place] = now_us - planned.due_us
        if frame is None:
            self.samples.latency_us[place] = LEFT_OUT
        else:
            self.samples.sent_as[place] = frame.api_key
            self.samples.expects_response[place] = frame.expects_response
            if connection.full or not self._budget.take(len(frame.data), now_us):
                self.samples.latency_us[place] = DROPPED
            else:
                self._outstanding += 1
                connection.send(place, frame)
                self._open(connection)
        if self._last[planned.connection] == place:
            connection.finish()
        return now_us

    def _opening_times(self) -> list[tuple[int, int]]:
        """Return each connection's first request: when it is due (us), and its connection's number, in order of
        time.
        """
        first: dict[int, int] = {}
        for planned in self._sends:
            first.setdefault(planned.connection, planned.due_us)
        return sorted((due_us, number) for number, due_us in first.items())

    def _now_us(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1000

    def _open(self, connection: Connection) -> None:
        if connection.transport is None and not connection.opening:
            connection.opening = True
            task = asyncio.get_running_loop().create_task(self._connect(connection))
            self._connects.add(task)
            task.add_done_callback(self._connects.discard)

    async def _connect(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: connection, *connection.address)
        except (OSError, TimeoutError, UnicodeError, OverflowError):  # the latter: no host name, no port
            self.samples.connect_errors += 1
            connection.fail()

    async def _end(self) -> None:
        """Close all connections; requests under way stay without a response."""
        self._ending = True
        connects = list(self._connects)
        for task in connects:
            task.cancel()
        await asyncio.gather(*connects, return_exceptions=True)
        for connection in self._connections:
            if connection.transport is not None:
                connection.transport.abort()
            else:
                connection.fail()
        await asyncio.sleep(_CLOSE_SECONDS)
