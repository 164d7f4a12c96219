"""The neutral place: a relay right in front of the broker, in its own process, that notes what KIP-13 counts.

All three policies are counted here: with Kafka's own quotas clients connect to it, with Sluice the proxy does. It holds
nothing back and buffers no more than a chunk. Each line it writes: connection, began, ended, client id, API key, bytes.

With `--admitted` a Produce counts when it has come, answered or not: what a proxy lets through counts, though the proxy
is killed before the answer.
"""

import argparse
import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TextIO

from tests.bench.accuracy.frames import FETCH, Counted, Ledger
from tests.cluster import HOST

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
        number = next(self._numbers)
        ledger = Ledger()
        with contextlib.suppress(OSError):
            broker_reader, broker_writer = await asyncio.open_connection(
                HOST, self._broker_port, limit=_CHUNK
            )
            pumps = [
                asyncio.create_task(
                    self._pump(reader, broker_writer, self._requests(number, ledger)), name="to broker"
                ),
                asyncio.create_task(
                    self._pump(broker_reader, writer, self._responses(number, ledger)), name="to client"
                ),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            broker_writer.close()
        writer.close()

    def _requests(self, number: int, ledger: Ledger) -> Callable[[bytes, float], None]:
        """What notes the requests of one connection."""

        def note(data: bytes, now: float) -> None:
            for counted in ledger.to_broker(data, now):
                if self._admitted:
                    self._write(number, counted)

        return note

    def _responses(self, number: int, ledger: Ledger) -> Callable[[bytes, float], None]:
        """What notes the responses of one connection."""

        def note(data: bytes, now: float) -> None:
            for counted in ledger.to_client(data, now):
                if not self._admitted or counted.api_key == FETCH:
                    self._write(number, counted)

        return note

    def _write(self, number: int, counted: Counted) -> None:
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


async def serve(port: int, broker_port: int, sink: TextIO, *, admitted: bool = False) -> None:
    """Serve until cancelled."""
    relay = Relay(broker_port, sink, admitted=admitted)
    server = await asyncio.start_server(relay.carry, HOST, port, limit=_CHUNK)
    async with server:
        await server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> int:
    """Relay until ended by a signal."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy.relay")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--broker-port", type=int, required=True)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--admitted", action="store_true", help="count a Produce when it has come")
    options = parser.parse_args(arguments)
    with options.events.open("w", buffering=1) as sink:  # line-buffered: readers see whole lines
        asyncio.run(serve(options.port, options.broker_port, sink, admitted=options.admitted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
