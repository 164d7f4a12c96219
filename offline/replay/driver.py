"""Runs the plan: one connection for each recorded connection, all on one core, open loop.

A request is sent when it is due, independently of responses, and its latency counts from then: so a stalling target, or
a late replay, is visible in the latencies. Throttle times are not obeyed. A request without room
(`connection.IN_FLIGHT_MAX`, `connection.UNSENT_BYTES_MAX`) is dropped and counted.

A request's lateness is measured when its frame is made and given to its connection. The event loop sends it in its next
turn, so a turn is at most `_TURN_US` and one frame long.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from offline.replay.connection import Connection, SendBudget
from offline.replay.encode_ahead import EncodeAhead
from offline.replay.frames import Encoder, Frame
from offline.replay.responses import Broker, outcome
from offline.replay.samples import DROPPED, IN_FLIGHT, LEFT_OUT, LOST, NEVER_SENT, SILENT, Samples
from offline.replay.schedule import Plan

__all__ = ["Driver"]

AHEAD_US: Final = 200_000  # the time between a connection's opening and its first request
_TURN_US: Final = 1000
_CONNECT_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 0.01  # between two checks for unsent bytes
_CLOSE_SECONDS: Final = 0.05  # for the loop to close aborted connections


class Driver:
    """Runs one plan."""

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
        """Send all requests when they are due, then wait a bounded time for responses; may be cancelled."""
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
        """A request was written to its connection."""
        self.samples.request_bytes[place] = len(frame.data) - 4
        self.samples.latency_us[place] = IN_FLIGHT if frame.expects_response else SILENT
        if not frame.expects_response:
            self._request_finished()

    def responded(self, place: int, api_key: int, version: int, head: bytes, size: int) -> None:
        """The response has arrived; `head` is its beginning, which is all of a small one."""
        samples = self.samples
        samples.latency_us[place] = max(0, self._now_us() - self._sends[place].due_us)
        samples.response_bytes[place] = size - 4
        samples.error[place], samples.throttle_ms[place] = outcome(head, api_key, version)
        self._request_finished()

    def lost(self, place: int) -> None:
        """No response will come; at the end, because this process waits no longer."""
        if not self._ending:
            self.samples.latency_us[place] = LOST
            self._request_finished()

    def never_sent(self, place: int) -> None:
        """The request's connection could not be opened."""
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
        """Send a request on its connection; returns the time afterwards."""
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
        """Return the time of each connection's first request, in order."""
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
