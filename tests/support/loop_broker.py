"""A broker in the loop of the test: it responds to each request, whichever it is, as a function says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from proxy.config import Address
from tests.cluster import HOST


@dataclass
class LoopBroker:
    """What a broker responds, and what it is asked.

    Attributes:
        respond: returns the response to a whole frame; None closes the connection.
        asked: the frames that have come.
        writers: those of its connections.
    """

    respond: Callable[[bytes], bytes | None]
    address: Address
    asked: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    _tasks: set["asyncio.Task[object] | None"] = field(default_factory=set)

    def keys(self) -> list[int]:
        """The API keys of the requests that have come."""
        return [int.from_bytes(frame[4:6]) for frame in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        self.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(4)
                self.asked.append(head + await reader.readexactly(int.from_bytes(head)))
                response = self.respond(self.asked[-1])
                if response is None:
                    break
                writer.write(response)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def end(self) -> None:
        """Close every connection; none is left to a later test's loop."""
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*(task for task in self._tasks if task is not None))


@asynccontextmanager
async def listening(respond: Callable[[bytes], bytes | None]) -> AsyncIterator[LoopBroker]:
    """A broker that listens on loopback."""
    found = LoopBroker(respond, Address(HOST, 0))
    async with await asyncio.start_server(found.serve, HOST, 0) as server:
        found.address = Address(*server.sockets[0].getsockname())
        try:
            yield found
        finally:
            await found.end()


@asynccontextmanager
async def broker(response: bytes) -> AsyncIterator[Address]:
    """The address of a broker that responds to every request with these bytes."""
    async with listening(lambda _: response) as found:
        yield found.address
