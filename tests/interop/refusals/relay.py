"""A relay between clients and brokers that refuses Produce requests by a script.

It stands at the addresses that the brokers advertise, so that it rewrites nothing. It stores and forwards whole frames:
what is measured is the client, not the relay. Requests are decoded with kafka-python, and only those that are refused.
"""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.cluster import Address
from tests.interop.refusals.script import PRODUCE, Counts, Script, Way, refuses
from tests.support.background_relay import BackgroundRelay, read_frame
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed
from tests.unit.protocol.kafka_frames import struct as message_struct

# A client that does not close after a FIN is closed.
_DROP_SECONDS_MAX: Final = 1.0
_RESET: Final = struct.pack("ii", 1, 0)
_TOPIC_IDS_SINCE: Final = 13


@dataclass(slots=True)
class _Connection:
    """One client's connection: responses in the order of requests, None where the broker is to give it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    upstream_reader: asyncio.StreamReader
    upstream_writer: asyncio.StreamWriter
    apis: set[int]
    owed: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    refusing_until: float = 0.0


class Relay(BackgroundRelay):
    """Listens on each port of `routes` and relays to its broker; the script is changed with `begin`."""

    def __init__(self, routes: Mapping[int, Address]) -> None:
        super().__init__(routes, "refusing relay")
        self._routes = dict(routes)
        self._script: Script | None = None
        self.counts = Counts()

    def begin(self, script: Script | None) -> Counts:
        """Follow a script from now on (None: pass everything); return what it will count into."""
        self.counts = Counts()
        self._script = script
        return self.counts

    async def relay(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay a connection, and refuse what the script says."""
        upstream: asyncio.StreamWriter | None = None
        counts = self.counts
        counts.connections += 1
        apis: set[int] = set()
        counts.apis.append(apis)
        try:
            responses, upstream = await asyncio.open_connection(*self._routes[port])
            connection = _Connection(reader, writer, responses, upstream, apis)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(connection))
                group.create_task(_responses(connection))
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.close()

    async def _requests(self, connection: _Connection) -> None:
        while True:
            frame = await read_frame(connection.reader)
            key, version = struct.unpack_from(">hh", frame, 4)
            connection.apis.add(key)
            script = self._script
            if script is not None and key == script.api_key:
                if key == PRODUCE and time.monotonic() < connection.refusing_until:
                    self.counts.behind += 1
                    await _refuse_by_error(connection, script, frame, version)
                    continue
                if refuses(script, self.counts):
                    await self._refuse(connection, script, frame, version)
                    continue
                await asyncio.sleep(script.pace_seconds)
            await _pass(connection, frame, key, version)

    async def _refuse(self, connection: _Connection, script: Script, frame: bytes, version: int) -> None:
        await asyncio.sleep(script.hold_seconds)
        self.counts.refused += 1
        if script.way is Way.ERROR:
            await _refuse_by_error(connection, script, frame, version)
            connection.refusing_until = time.monotonic() + script.behind_seconds
            return
        await connection.owed.join()
        if script.way is Way.RESET:
            connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.writer.transport.abort()
            raise ConnectionResetError("reset on purpose")
        await connection.writer.drain()
        connection.writer.write_eof()
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_DROP_SECONDS_MAX):
                while True:
                    key = struct.unpack_from(">h", await read_frame(connection.reader), 4)[0]
                    self.counts.behind += key == script.api_key
        raise ConnectionResetError("closed on purpose")


async def _pass(connection: _Connection, frame: bytes, key: int, version: int) -> None:
    connection.upstream_writer.write(frame)
    if key != PRODUCE or _acks(frame, version) != 0:
        connection.owed.put_nowait(None)
    await connection.upstream_writer.drain()


async def _responses(connection: _Connection) -> None:
    """Write what is owed, in order; the end of the broker's connection ends the client's."""
    while True:
        ready = await connection.owed.get()
        connection.writer.write(await read_frame(connection.upstream_reader) if ready is None else ready)
        await connection.writer.drain()
        connection.owed.task_done()


async def _refuse_by_error(connection: _Connection, script: Script, frame: bytes, version: int) -> None:
    refused = refusal(frame, version, script.error_code, script.throttle_time_ms)
    if refused is None:
        raise ConnectionResetError("acks=0 has no response: closed")
    connection.owed.put_nowait(refused)


def _acks(frame: bytes, version: int) -> int:
    """Read acks: behind the header and the transactional id."""
    length = struct.unpack_from(">h", frame, 12)[0]
    position = 14 + max(0, length)
    if version >= 9:  # flexible: an empty tag section, a compact string below 127 bytes
        position += 1
        position += 1 + max(0, frame[position] - 1)
    elif version >= 3:
        position += 2 + max(0, struct.unpack_from(">h", frame, position)[0])
    acks: int = struct.unpack_from(">h", frame, position)[0]
    return acks


def refusal(frame: bytes, version: int, error_code: int, throttle_time_ms: int) -> bytes | None:
    """Return the response that refuses each partition of a Produce request; None when it wants no response."""
    if _acks(frame, version) == 0:
        return None
    asked = decoded(REQUESTS[PRODUCE], version, frame)
    cls = RESPONSES[PRODUCE]
    topics = []
    for topic in asked.topic_data:
        partitions = [
            message_struct(
                cls,
                version,
                "PartitionProduceResponse",
                index=entry.index,
                error_code=error_code,
                base_offset=-1,
            )
            for entry in topic.partition_data
        ]
        # Topics have names until version 12, ids from then on (KIP-516).
        names = {"topic_id": topic.topic_id} if version >= _TOPIC_IDS_SINCE else {"name": topic.name}
        topics.append(
            message_struct(cls, version, "TopicProduceResponse", **names, partition_responses=partitions)
        )
    fields: dict[str, object] = {"responses": topics}
    if version >= 1:
        fields["throttle_time_ms"] = throttle_time_ms
    (correlation,) = struct.unpack_from(">i", frame, 8)
    return framed(cls[version](**fields), correlation)
