"""Keeps the schedule: every recorded connection is one again, all of them on one core, open loop.

A request leaves when it is due, whatever has come back, and its latency counts from then: a target that stalls, or a
replay that is late, is not hidden by the requests it kept back. Nothing waits for a throttle time. What can not leave
for lack of room (`UNANSWERED_MAX`, `UNSENT_BYTES_MAX`) is dropped and counted.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from offline.replay.answers import Broker, outcome
from offline.replay.frames import Encoder, Frame
from offline.replay.schedule import Plan

__all__ = ["DROPPED", "LOST", "PENDING", "Driver", "Samples"]

UNANSWERED_MAX: Final = 10_000  # on one connection
UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024
_AHEAD_US: Final = 200_000  # a connection is opened so long before its first request
_AT_ONCE: Final = 200  # requests between two looks at what has come
_CONNECT_SECONDS: Final = 10.0
# Frames are made while nothing is due, for so many requests or bytes ahead: making one may take a millisecond.
_READY_MAX: Final = 500
_READY_BYTES_MAX: Final = 64 * 1024 * 1024
_READY_AT_ONCE: Final = 20
_SPARE_US: Final = 2000
_CLOSE_SECONDS: Final = 0.05  # what was aborted is closed in the loop's next turns

# In place of a latency.
PENDING: Final = -1  # not sent, or no answer yet
DROPPED: Final = -2
LOST: Final = -3  # the connection ended, or never was
SILENT: Final = -4  # sent, and no answer was asked for


class Samples:
    """What became of each request, by its place in the plan; times in us."""

    def __init__(self, count: int) -> None:
        self.late_us = array("q", bytes(8 * count))
        self.latency_us = array("q", [PENDING]) * count
        self.throttle_ms = array("i", bytes(4 * count))
        self.error = array("h", bytes(2 * count))
        self.request_bytes = array("i", bytes(4 * count))
        self.response_bytes = array("i", bytes(4 * count))
        self.connect_errors = 0


class _Lane(asyncio.Protocol):
    """One connection."""

    def __init__(self, driver: "Driver", address: Broker) -> None:
        self.driver = driver
        self.address = address
        self.owed: deque[tuple[int, int, int]] = deque()  # place in the plan, API key, version
        self.waiting: list[bytes] = []
        self.transport: asyncio.Transport | None = None
        self.opening = False
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.opening = False
        # uvloop's are none of asyncio's by class, and do all that they do.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(UNSENT_BYTES_MAX)
        if self.waiting:
            self.transport.write(b"".join(self.waiting))
            self.waiting.clear()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start, have = 0, len(buffer)
        while have - start >= 4:
            size = 4 + int.from_bytes(buffer[start : start + 4], "big")
            if have - start < size:
                break
            if not self.owed:
                break
            self.driver.answered(self.owed.popleft(), bytes(buffer[start : start + min(size, 65536)]), size)
            start += size
        del buffer[:start]

    def connection_lost(self, _error: Exception | None) -> None:
        self.lose()

    def lose(self) -> None:
        """The connection is gone, with all that was owed."""
        self.opening = False
        self.transport = None
        self.waiting.clear()
        self._buffer.clear()
        for place, _, _ in self.owed:
            self.driver.lost(place)
        self.owed.clear()


class Driver:
    """Runs one plan."""

    def __init__(
        self, plan: Plan, encoder: Encoder, brokers: dict[int, Broker], progress: Callable[[int], None]
    ) -> None:
        self._plan = plan
        self._encoder = encoder
        self._progress = progress
        self.samples = Samples(len(plan.sends))
        self._lanes = [_Lane(self, brokers.get(broker, brokers[-1])) for broker in plan.brokers]
        self._connects: set[asyncio.Task[None]] = set()
        self._ready: deque[Frame | None] = deque()
        self._ready_bytes = 0
        self._unanswered = 0
        self._all_sent = False
        self._over = asyncio.Event()  # everything is sent, and nothing is owed
        self._began_ns = 0

    async def run(self, linger_seconds: float) -> None:
        """Send everything when it is due, then wait for what is owed, so long at most."""
        sends = self._plan.sends
        opens = self._opens()
        self._began_ns = time.monotonic_ns() + _AHEAD_US * 1000
        opened = place = 0
        while place < len(sends):
            now_us = self._now_us()
            while opened < len(opens) and opens[opened][0] - _AHEAD_US <= now_us:
                self._open(self._lanes[opens[opened][1]])
                opened += 1
            burst = 0
            while place < len(sends) and sends[place].due_us <= now_us and burst < _AT_ONCE:
                self._send(place, now_us)
                place += 1
                burst += 1
            self._progress(burst)
            if place < len(sends):
                next_us = sends[place].due_us
                if opened < len(opens):
                    next_us = min(next_us, opens[opened][0] - _AHEAD_US)
                self._make_ready(place, next_us)
                await asyncio.sleep(max(0, next_us - self._now_us()) / 1e6 if burst < _AT_ONCE else 0)
        self._all_sent = True
        if not self._unanswered:
            self._over.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(linger_seconds):
                await self._over.wait()
        for lane in self._lanes:
            if lane.transport is not None:
                lane.transport.abort()
        connects = list(self._connects)
        for task in connects:
            task.cancel()
        await asyncio.gather(*connects, return_exceptions=True)
        await asyncio.sleep(_CLOSE_SECONDS)

    def answered(self, owed: tuple[int, int, int], head: bytes, size: int) -> None:
        """An answer is here; `head` is its beginning, which is all of a small one."""
        place, api_key, version = owed
        samples = self.samples
        samples.latency_us[place] = max(0, self._now_us() - self._plan.sends[place].due_us)
        samples.response_bytes[place] = size - 4
        samples.error[place], samples.throttle_ms[place] = outcome(head, api_key, version)
        self._settled()

    def lost(self, place: int) -> None:
        """No answer will come."""
        self.samples.latency_us[place] = LOST
        self._settled()

    def _settled(self) -> None:
        self._unanswered -= 1
        if not self._unanswered and self._all_sent:
            self._over.set()

    def _make_ready(self, place: int, until_us: int) -> None:
        """Make frames ahead, from the request at `place` on, while there is time."""
        sends = self._plan.sends
        ready = self._ready
        for _ in range(_READY_AT_ONCE):
            at = place + len(ready)
            full = len(ready) >= _READY_MAX or self._ready_bytes >= _READY_BYTES_MAX
            if full or at >= len(sends) or self._now_us() + _SPARE_US > until_us:
                return
            frame = self._encoder.encode(sends[at].request, at)
            self._ready_bytes += 0 if frame is None else len(frame.data)
            ready.append(frame)

    def _frame(self, place: int) -> Frame | None:
        if not self._ready:
            return self._encoder.encode(self._plan.sends[place].request, place)
        frame = self._ready.popleft()
        self._ready_bytes -= 0 if frame is None else len(frame.data)
        return frame

    def _opens(self) -> list[tuple[int, int]]:
        """When each connection is first needed."""
        first: dict[int, int] = {}
        for planned in self._plan.sends:
            first.setdefault(planned.connection, planned.due_us)
        return sorted((due_us, number) for number, due_us in first.items())

    def _now_us(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1000

    def _open(self, lane: _Lane) -> None:
        if lane.transport is None and not lane.opening:
            lane.opening = True
            task = asyncio.get_running_loop().create_task(self._connect(lane))
            self._connects.add(task)
            task.add_done_callback(self._connects.discard)

    async def _connect(self, lane: _Lane) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: lane, *lane.address)
        except (OSError, TimeoutError):
            self.samples.connect_errors += 1
            lane.lose()

    def _send(self, place: int, now_us: int) -> None:
        planned = self._plan.sends[place]
        lane = self._lanes[planned.connection]
        samples = self.samples
        samples.late_us[place] = now_us - planned.due_us
        frame = self._frame(place)
        full = max(len(lane.owed), len(lane.waiting)) >= UNANSWERED_MAX or (
            lane.transport is not None and lane.transport.get_write_buffer_size() >= UNSENT_BYTES_MAX
        )
        if frame is None or full:
            samples.latency_us[place] = DROPPED
            return
        samples.request_bytes[place] = len(frame.data) - 4
        self._owe(lane, place, frame)
        if lane.transport is None:
            lane.waiting.append(frame.data)
            self._open(lane)
        else:
            lane.transport.write(frame.data)

    def _owe(self, lane: _Lane, place: int, frame: Frame) -> None:
        if frame.answered:
            lane.owed.append((place, frame.api_key, frame.version))
            self._unanswered += 1
        else:
            self.samples.latency_us[place] = SILENT
