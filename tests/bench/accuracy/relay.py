"""The neutral place: a relay right in front of the broker, in its own process, that notes what KIP-13 counts.

All three policies are counted here: with Kafka's own quotas clients connect to it, with Sluice the proxy does. It holds
nothing back and buffers no more than a chunk. Each line it writes: connection, began, ended, client id, API key, bytes.
It reads frame lengths and the first bytes of each frame, and nothing else. Sizes are those KIP-13 counts: a request or
response without its 4-byte length.

With `--admitted` a Produce counts when it has come, answered or not: what a proxy lets through counts, though the proxy
is killed before the response.
"""

import argparse
import asyncio
import contextlib
import itertools
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from tests.bench.lanes import listening
from tests.cluster import HOST

PRODUCE: Final = 0
FETCH: Final = 1
_HEAD_BYTES: Final = 300
"""The request header with the longest client id in use here; what follows is not kept."""
_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")


class Frame(NamedTuple):
    """One whole frame: its first bytes, its length, when its first byte came."""

    head: bytes
    length: int
    began: float


class Counted(NamedTuple):
    """Bytes that KIP-13 counts: when they began and ended, whose they are, how many."""

    began: float
    ended: float
    client_id: str
    api_key: int
    size: int


class Walk:
    """Cuts a byte stream into frames, however it is cut itself."""

    __slots__ = ("_began", "_head", "_length", "_seen")

    def __init__(self) -> None:
        self._head = bytearray()
        self._length = -1
        self._seen = 0
        self._began = 0.0

    def feed(self, data: bytes, now: float) -> list[Frame]:
        """Return the frames that end within `data`."""
        frames: list[Frame] = []
        position = 0
        while position < len(data):
            if self._length < 0:
                if not self._head:
                    self._began = now
                taken = data[position : position + 4 - len(self._head)]
                self._head += taken
                position += len(taken)
                if len(self._head) == 4:
                    self._length = int.from_bytes(self._head, "big")
                    self._head.clear()
                    self._seen = 0
                continue
            count = min(len(data) - position, self._length - self._seen)
            if len(self._head) < _HEAD_BYTES:
                self._head += data[position : position + min(count, _HEAD_BYTES - len(self._head))]
            self._seen += count
            position += count
            if self._seen == self._length:
                frames.append(Frame(bytes(self._head), self._length, self._began))
                self._head.clear()
                self._length = -1
        return frames


class Ledger:
    """Joins one connection's requests and responses, and says what counts: Produce requests and Fetch responses.

    Both are counted when the response has passed. For a Produce that is when Kafka counts it too: a request that lies
    unread in the socket of a muted channel has passed here, but no broker knows of it yet.
    """

    __slots__ = ("_owed", "_requests", "_responses")

    def __init__(self) -> None:
        self._requests = Walk()
        self._responses = Walk()
        # By correlation id: client id, API key, when the request's first byte came, its size.
        self._owed: dict[int, tuple[str, int, float, int]] = {}

    def to_broker(self, data: bytes, now: float) -> list[Counted]:
        """Note the Produce and Fetch requests that end within `data`; return the Produces among them."""
        arrived: list[Counted] = []
        for frame in self._requests.feed(data, now):
            api_key, _version, correlation_id, name = _REQUEST.unpack_from(frame.head)
            if api_key in (PRODUCE, FETCH):
                client_id = frame.head[_REQUEST.size : _REQUEST.size + max(name, 0)].decode()
                self._owed[correlation_id] = (client_id, api_key, frame.began, frame.length)
                if api_key == PRODUCE:
                    arrived.append(Counted(frame.began, now, client_id, api_key, frame.length))
        return arrived

    def to_client(self, data: bytes, now: float) -> list[Counted]:
        """Return what counts of the requests whose responses end within `data`."""
        counted: list[Counted] = []
        for frame in self._responses.feed(data, now):
            owed = self._owed.pop(_CORRELATION.unpack_from(frame.head)[0], None)
            if owed is None:
                continue
            client_id, api_key, began, size = owed
            if api_key == FETCH:
                began, size = frame.began, frame.length
            counted.append(Counted(began, now, client_id, api_key, size))
        return counted


_CHUNK: Final = 1 << 18


class Relay:
    """Carries connections to the broker and writes down what passes."""

    def __init__(self, broker_port: int, sink: TextIO, *, admitted: bool = False) -> None:
        self._broker_port = broker_port
        self._sink = sink
        self._admitted = admitted
        self._numbers = itertools.count()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one client connection until either side ends it."""
        number, ledger = next(self._numbers), Ledger()

        def request(data: bytes, now: float) -> None:
            arrived = ledger.to_broker(data, now)
            self._write(number, arrived if self._admitted else ())

        def response(data: bytes, now: float) -> None:
            passed = ledger.to_client(data, now)
            self._write(number, [each for each in passed if not self._admitted or each.api_key == FETCH])

        with contextlib.suppress(OSError):
            broker, to_broker = await asyncio.open_connection(HOST, self._broker_port, limit=_CHUNK)
            pumps = [
                asyncio.create_task(self._pump(reader, to_broker, request), name="to broker"),
                asyncio.create_task(self._pump(broker, writer, response), name="to client"),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_broker.close()
        writer.close()

    def _write(self, number: int, noted: Iterable[Counted]) -> None:
        for counted in noted:
            self._sink.write(f"{number} {' '.join(str(field) for field in counted)}\n")

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes, float], None]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                note(data, time.monotonic())
                writer.write(data)
                await writer.drain()


def read_events(path: Path, client_id: str) -> list[tuple[int, Counted]]:
    """Return connection and bytes of everything noted for a client id."""
    events: list[tuple[int, Counted]] = []
    for line in path.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):  # the relay is still writing it
            break
        number, began, ended, name, api_key, size = line.split()
        if name == client_id:
            events.append((int(number), Counted(float(began), float(ended), name, int(api_key), int(size))))
    return events


@contextlib.contextmanager
def relayed(port: int, broker_port: int, events: Path, *words: str) -> Iterator[None]:
    """Relay from a process of its own for the time of a `with` block."""
    command = [sys.executable, "-m", "tests.bench.accuracy.relay", "--port", str(port), *words]
    command += ["--broker-port", str(broker_port), "--events", str(events)]
    with listening(command, port, events.with_suffix(".log")):
        yield


async def serve(port: int, broker_port: int, sink: TextIO, *, admitted: bool = False) -> None:
    """Serve until cancelled."""
    relay = Relay(broker_port, sink, admitted=admitted)
    async with await asyncio.start_server(relay.carry, HOST, port, limit=_CHUNK) as server:
        await server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    """Relay until ended by a signal."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy.relay")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--broker-port", type=int, required=True)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--admitted", action="store_true", help="count a Produce when it has come")
    options = parser.parse_args(arguments)
    with options.events.open("w", buffering=1) as sink:  # line-buffered: readers see whole lines
        asyncio.run(serve(options.port, options.broker_port, sink, admitted=options.admitted))


if __name__ == "__main__":
    main()
