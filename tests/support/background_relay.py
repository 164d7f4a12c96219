"""A relay of whole frames that runs in a thread of its own, between clients and what they believe to be a broker."""

import asyncio
import contextlib
import functools
import struct
import threading
from collections.abc import Iterable
from typing import Final, Self

from tests.cluster import HOST

_FRAME_BYTES_MAX: Final = 200 * 1024 * 1024
_SECONDS_MAX: Final = 10


class BackgroundRelay:
    """Listens from `__enter__` to `__exit__`; a subclass says what `relay` does with a connection.

    Args:
        name: the thread's.
    """

    def __init__(self, ports: Iterable[int], name: str) -> None:
        self._ports = tuple(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(_SECONDS_MAX), f"{self._thread.name} did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_SECONDS_MAX)

    async def relay(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection to this port, until either side closes; cancelled at the end."""
        raise NotImplementedError

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        servers = [
            await asyncio.start_server(functools.partial(self._connected, port), HOST, port)
            for port in self._ports
        ]
        self._started.set()
        await self._stopping.wait()
        for server in servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is handled in a task"
        self._tasks.add(task)
        try:
            await self.relay(port, reader, writer)
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass  # either side went away, or was closed on purpose
        finally:
            self._tasks.discard(task)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read a frame with its length.

    Raises:
        OSError: the stream ends, or the length is impossible.
    """
    try:
        head = await reader.readexactly(4)
        (length,) = struct.unpack(">i", head)
        if not 0 <= length <= _FRAME_BYTES_MAX:
            raise OSError(f"a frame of {length} bytes")
        return head + await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("end of stream") from error
