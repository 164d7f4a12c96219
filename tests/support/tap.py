"""A tap between clients and Sluice: relays every frame and notes what KIP-219 is about.

It stands at the addresses that Sluice advertises (`advertised_*_port`), so no client can go round it, and for
each client id and API it counts throttled responses, fetch session errors, and requests that were sent before the
throttle time was over. It reads frames by their first bytes and with no code of the proxy's.

It is no proxy to imitate: it stores and forwards whole frames, and hides a muted channel's back pressure from the
client, because what the client *sends* is what is to be seen.
"""

import asyncio
import struct
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.cluster import HOST
from tests.support.background_relay import BackgroundRelay, read_frame

PRODUCE: Final = 0
FETCH: Final = 1
# The first version from which a client itself is to stay silent (KIP-219), and the first flexible one.
_SILENT_SINCE: Final = {PRODUCE: 6, FETCH: 8}
_FLEXIBLE_SINCE: Final = {PRODUCE: 9, FETCH: 12}
_SESSION_ERRORS: Final = {70: "FETCH_SESSION_ID_NOT_FOUND", 71: "INVALID_FETCH_SESSION_EPOCH"}
# A request that was on its way while the response came is not early. Producers have several unanswered; no consumer has
# more than one Fetch.
_CROSSING_SECONDS: Final = {PRODUCE: 0.05, FETCH: 0.0}
# Clients' timers have milliseconds.
_TIMER_SECONDS: Final = 0.005


@dataclass(slots=True)
class Seen:
    """What one client id did with one API."""

    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    throttled: int = 0
    throttle_ms_max: int = 0
    emptied: int = 0
    early: int = 0
    early_ms_max: int = 0
    session_errors: Counter[str] = field(default_factory=Counter)
    versions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Channel:
    """One connection: what is unanswered, and until when the client has been asked to be silent."""

    waiting: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    silent_from: float = 0.0
    silent_until: float = 0.0


class Tap(BackgroundRelay):
    """Listens on each port of `routes` and relays to the port it maps to; `seen` by (client id, API key)."""

    def __init__(self, routes: Mapping[int, int]) -> None:
        super().__init__(routes, "tap")
        self.routes = dict(routes)
        self.seen: dict[tuple[str, int], Seen] = {}

    def of(self, client_id: str, api_key: int) -> Seen:
        """Return what this client id did with this API."""
        return self.seen.get((client_id, api_key), Seen())

    async def relay(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay a connection, and note its requests and responses."""
        upstream: asyncio.StreamWriter | None = None
        try:
            responses, upstream = await asyncio.open_connection(HOST, self.routes[port])
            channel = _Channel()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(channel, reader, upstream))
                group.create_task(self._responses(channel, responses, writer))
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    async def _requests(
        self, channel: _Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await read_frame(reader)
            self._note_request(channel, frame, time.monotonic())
            writer.write(frame)
            await writer.drain()

    async def _responses(
        self, channel: _Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await read_frame(reader)
            self._note_response(channel, frame, time.monotonic())
            writer.write(frame)
            await writer.drain()

    def _note_request(self, channel: _Channel, frame: bytes, now: float) -> None:
        key, version, correlation, length = struct.unpack_from(">hhih", frame, 4)
        if key not in _SILENT_SINCE:
            return
        client_id = frame[14 : 14 + max(0, length)].decode()
        channel.waiting[correlation] = (key, version, client_id)
        seen = self.seen.setdefault((client_id, key), Seen())
        seen.requests += 1
        seen.request_bytes += len(frame)
        seen.versions.add(version)
        if channel.silent_from + _CROSSING_SECONDS[key] < now < channel.silent_until - _TIMER_SECONDS:
            seen.early += 1
            seen.early_ms_max = max(seen.early_ms_max, int((channel.silent_until - now) * 1000))

    def _note_response(self, channel: _Channel, frame: bytes, now: float) -> None:
        known = channel.waiting.pop(struct.unpack_from(">i", frame, 4)[0], None)
        if known is None:
            return
        key, version, client_id = known
        seen = self.seen[client_id, key]
        seen.response_bytes += len(frame)
        flexible = version >= _FLEXIBLE_SINCE[key]
        if key == FETCH:
            throttle_ms = _note_fetch(seen, frame, version, 9 if flexible else 8)
        else:
            # The last field; an empty tag section follows it in flexible versions.
            throttle_ms = struct.unpack_from(">i", frame, len(frame) - (5 if flexible else 4))[0]
        if throttle_ms <= 0:
            return
        seen.throttled += 1
        seen.throttle_ms_max = max(seen.throttle_ms_max, throttle_ms)
        if version >= _SILENT_SINCE[key]:
            channel.silent_from = now
            channel.silent_until = max(channel.silent_until, now + throttle_ms / 1000)


def _note_fetch(seen: Seen, frame: bytes, version: int, at: int) -> int:
    throttle_ms: int
    if version < 7:
        (throttle_ms,) = struct.unpack_from(">i", frame, at)
        return throttle_ms
    throttle_ms, error, _session = struct.unpack_from(">ihi", frame, at)
    if error in _SESSION_ERRORS:
        seen.session_errors[_SESSION_ERRORS[error]] += 1
    # An empty compact array is 1, an empty array 0.
    empty = frame[at + 10] == 1 if version >= 12 else frame[at + 10 : at + 14] == b"\0\0\0\0"
    if throttle_ms > 0 and empty and error == 0:
        seen.emptied += 1
    return throttle_ms
