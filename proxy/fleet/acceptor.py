"""The sockets of the holder's port: accepts connections, and carries out their TLS handshakes.

The cost of a peer that is not authenticated yet is bounded: the rate of accepted connections, the number of handshakes
under way, the time of each, and the bytes read ahead. A handshake uses the TLS context in force when it begins.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from proxy.config import Address
from proxy.errors import StartError, system_reason
from proxy.logs import event
from proxy.tls import Context, handshake_problem

HANDSHAKES_MAX: Final = 64
HANDSHAKE_SECONDS_MAX: Final = 5.0
# A TLS handshake costs about a millisecond of the loop; 512 members that come at once are accepted within 3 s.
ACCEPT_GAP_SECONDS: Final = 0.005
READ_BYTES: Final = 16 * 1024
_BACKLOG: Final = 128
PAUSE_SECONDS: Final = 1.0
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.002, 0.05
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

logger = logging.getLogger(__name__)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
Peer = tuple[str, int] | None
Refused = Callable[[str, Peer, str], None]
"""Called with the cause, the peer and the problem, when a connection has ended before it is served."""


class Acceptor:
    """Listens on one address.

    Args:
        serve: serves a connection until it ends.
        refused: called for each handshake that fails, or gives way to a newer one.
        tls: returns the context in force; None for plaintext.
    """

    def __init__(self, serve: Serve, refused: Refused, tls: Context | None) -> None:
        self._serve = serve
        self._refused = refused
        self._tls = tls
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._handshakes: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._exhausted = False

    async def start(self, bind: Address) -> Address:
        """Bind the port and accept until `stop`; return what was bound.

        Raises:
            StartError: the port cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            kind = socket.SOCK_STREAM
            found = await loop.getaddrinfo(bind.host, bind.port, type=kind, flags=socket.AI_PASSIVE)
            for family, *_, address in dict.fromkeys(found):
                sock = _listen(family, address)
                if sock is not None:
                    self._listening.append(sock)
            if not self._listening:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        except OSError as error:
            self._stop_listening()
            raise StartError(f"fleet.bind: {bind}: {system_reason(error)}") from None
        self._accepting = [loop.create_task(self._accept(one)) for one in self._listening]
        return Address(*self._listening[0].getsockname()[:2])

    async def stop(self) -> None:
        """Stop listening, and close connections that are not served yet."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)
        self._stop_listening()

    async def ended(self) -> None:
        """Wait until no connection is served."""
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _stop_listening(self) -> None:
        for one in self._listening:
            one.close()
        self._listening.clear()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock = await accepted_from(listening)
            except OSError as error:  # the peer is gone already, or this process has no descriptor left
                await self._pause(error)
                continue
            self._exhausted = False
            task = loop.create_task(self._open(sock))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            await asyncio.sleep(ACCEPT_GAP_SECONDS)

    async def _pause(self, error: OSError) -> None:
        if error.errno not in _EXHAUSTED:
            await asyncio.sleep(ACCEPT_GAP_SECONDS)
            return
        if not self._exhausted:
            self._exhausted = True
            event(
                logger, logging.ERROR, "the fleet's port accepts no connection", detail=system_reason(error)
            )
        await asyncio.sleep(PAUSE_SECONDS)

    async def _open(self, sock: socket.socket) -> None:
        """Carry out the handshake of a connection, and serve it."""
        task = asyncio.current_task()
        assert task is not None, "called as a task"
        peer = _peer_of(sock)
        if len(self._handshakes) >= HANDSHAKES_MAX:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
            self._refused("connections_max", peer, "too many handshakes at a time: the oldest one has ended")
        self._handshakes[task] = None
        try:
            if self._tls is not None and not await _begins(sock):
                return  # a holder looks in this way whether this process runs (`proxy.fleet.ends`)
            reader, writer = await self._stream(sock)
        except TimeoutError:
            self._refused("tls", peer, f"no TLS handshake within {HANDSHAKE_SECONDS_MAX:g} s")
            return
        except OSError as error:
            self._refused("tls", peer, handshake_problem(error))
            return
        finally:
            self._handshakes.pop(task, None)
        await self._serve(reader, writer)

    async def _stream(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
            context = None if self._tls is None else self._tls()
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=context)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _begins(sock: socket.socket) -> bool:
    """Whether the peer sends anything; if it does not, the socket is closed.

    Looks again and again, since a socket that was given to the loop cannot be given to another transport.

    Raises:
        TimeoutError: it neither sends anything nor closes the connection.
    """
    pause, begins = _LOOK_SECONDS_MIN, False
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
            while True:
                try:
                    begins = bool(sock.recv(1, socket.MSG_PEEK))
                except BlockingIOError:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LOOK_SECONDS_MAX)
                except ConnectionError:
                    return False
                else:
                    return begins
    finally:
        if not begins:
            sock.close()


async def accepted_from(listening: socket.socket) -> socket.socket:
    """Return the next accepted socket."""
    sock, _ = await asyncio.get_running_loop().sock_accept(listening)
    return sock


def _listen(family: int, address: Any) -> socket.socket | None:
    """Listen on one address; None if this machine has no addresses of that family."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _peer_of(sock: socket.socket) -> Peer:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:  # it has gone again
        return None
    return host, port
