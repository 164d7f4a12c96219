"""The admin port: asyncio streams around `proxy.admin.http`.

It shares the event loop with the traffic, so everything is bounded: connections, the bytes of a head, the time that a
TLS handshake or a request takes to arrive and a response to be read, the number of handshakes per second, the bytes of
all responses that clients have not read yet. A new connection is always accepted: above the maximum, one connection of
the address with the most of them is closed: one in its handshake first, then an idle one, then one that does not read
its response. So idle connections keep no probe out.

A page on the internet can have a browser ask this port, under a name of its own that leads here (DNS rebinding). So
only requests for an IP address, `localhost`, the host that is bound, or one of `admin.hosts` are
served. The pages' contents are `site`'s; a POST has handlers of its own (`state`).
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from heapq import merge
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Raw, Struct

from proxy.admin import pages
from proxy.admin.admission import Admission
from proxy.admin.http import HEAD_BYTES_MAX, READ_ONLY, Page, RefusedError, Request, parse, write
from proxy.admin.pages import NoWorkersError
from proxy.admin.streams import Pace, PlainStream, TlsStream
from proxy.config import Address
from proxy.explain.documents import Refused, encode
from proxy.system.errors import StartError, system_reason
from proxy.system.hosts import Context, handshake_problem, is_ip
from proxy.system.threads import in_turns

# ----------------------------------------------------------------------------------------------------
# Large JSON documents, encoded row by row: traffic goes first.


T = TypeVar("T")

JSON: Final = "application/json"
_PORTION_BYTES: Final = 65_536  # a list of 10,000 clients is 8 MB, of which each copy takes milliseconds
_SORTED_AT_ONCE: Final = 500  # well below a millisecond
_END_OF_ROWS: Final = b"]}"


def page(status: int, document: Struct) -> Page:
    """Return a page with a small document as JSON."""
    return Page(status, JSON, encode(document) + b"\n")


async def rows_page(document: Struct, rows: Iterable[Struct | Raw]) -> Page:
    """Return a page with a large document as JSON; rows are made and encoded in turns with other tasks of the loop.

    Args:
        document: the document with an empty list of rows as its last field.
        rows: the rows to put in that list.
    """
    portion = bytearray(encode(document))
    assert portion.endswith(b":[]}"), "the rows are the last field"
    del portion[-len(_END_OF_ROWS) :]
    portions: list[bytes] = []
    separator = b""
    async for row in in_turns(rows):
        portion += separator + encode(row)
        separator = b",\n"
        if len(portion) >= _PORTION_BYTES:
            portions.append(bytes(portion))
            portion.clear()
    portion += _END_OF_ROWS + b"\n"
    first, *more = (*portions, bytes(portion))
    return Page(200, JSON, first, tuple(more))


async def sorted_in_turns(items: list[T], key: Callable[[T], float]) -> Iterator[T]:
    """Sort items in turns with other tasks of the loop; return an iterator, those with the highest keys first."""
    keyed = [(-key(items[place]), place) async for place in in_turns(range(len(items)))]
    starts = range(0, len(keyed), _SORTED_AT_ONCE)
    runs = [sorted(keyed[start : start + _SORTED_AT_ONCE]) async for start in in_turns(starts)]
    return (items[place] for _, place in merge(*runs))


CONNECTIONS_MAX: Final = 64
REQUEST_SECONDS_MAX: Final = 5.0  # also how long an idle connection is kept, and a TLS handshake may take
# A handshake costs half a millisecond of the loop with a P-256 key, and two with RSA 2048.
HANDSHAKE_GAP_SECONDS: Final = 0.005
RESPONSE_SECONDS_MAX: Final = 10.0
UNSENT_BYTES_MAX: Final = 16 * 1024**2  # of all responses that clients have not read yet
LOG: Final = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Page]]


class Stage(IntEnum):
    """What a connection waits for. If there are more than CONNECTIONS_MAX, one in the lowest stage is closed."""

    OPENING = 0  # the end of its TLS handshake
    IDLE = 1  # a request
    SENDING = 2  # that the client takes its response
    WORKING = 3  # a page


class Connection:
    """One connection to the admin port, and what it does now.

    Attributes:
        host: the client's address.
        stage: what it waits for.
        since: when this stage began, on the loop's clock in seconds.
        unsent: the bytes of its response that the client has not read yet.
        task: the task that serves the connection.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        peer = writer.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self.unsent = 0
        self.task: asyncio.Task[None] | None = None
        self.set_stage(Stage.IDLE)

    def set_stage(self, stage: Stage) -> None:
        """Enter a stage; `since` is now."""
        self.stage = stage
        self.since = asyncio.get_running_loop().time()


class AdminServer:
    """The HTTP server of the admin port, with one handler for each path.

    Args:
        handlers: by path, the function that makes the page for a GET.
        actions: by path, the function that responds to a POST.
        hosts: further allowed names in the Host header, beside localhost and the bound host.
        request_seconds_max: how long a connection may take to send a request; tests shorten it.
        admission: decides who may have a page.
        tls: returns the TLS context in force; None for plaintext.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        hosts: Collection[str] = (),
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        actions: Mapping[str, Handler] = MappingProxyType({}),
        admission: Admission | None = None,
        tls: Context | None = None,
    ) -> None:
        self._admission = Admission() if admission is None else admission
        self._tls = tls
        self._handshakes = Pace(HANDSHAKE_GAP_SECONDS)
        self._actions = actions
        self._handlers = handlers
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._request_seconds_max = request_seconds_max
        self._connections: dict[asyncio.StreamWriter, Connection] = {}
        self._server: asyncio.Server | None = None

    async def start(self, bind: Address, *, reuse_port: bool = False) -> None:
        """Bind the port and serve, in the background, until `close`.

        Args:
            bind: the address.
            reuse_port: whether another process, such as the next version of Sluice, may bind the port at the same time.

        Raises:
            StartError: the port cannot be bound.
        """
        self._hosts.add(bind.host.lower())
        try:
            self._server = await asyncio.start_server(
                self.serve, bind.host, bind.port, limit=HEAD_BYTES_MAX, reuse_port=reuse_port or None
            )
        except OSError as error:
            raise StartError(f"admin.bind: {bind} cannot be bound: {system_reason(error)}") from None

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        if self._server is not None:
            await self._server.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        connection = Connection(writer)
        while len(self._connections) >= CONNECTIONS_MAX:
            self._close_one(self._connections.values())
        self._connections[writer] = connection
        connection.task = asyncio.current_task()
        writer.transport.set_write_buffer_limits(high=0)  # a response is taken when all of it is
        plain = PlainStream(reader, writer)
        stream: PlainStream | TlsStream = plain
        try:
            if self._tls is not None:
                secure = TlsStream(reader, writer, self._tls())
                await self._open(plain, secure, connection)
                stream = secure
            while await self._respond(stream, connection):
                pass
        except asyncio.CancelledError:
            if writer in self._connections:  # else it has given way
                raise
        except TimeoutError:
            writer.transport.abort()  # a close would wait, for ever, until the client has read its response
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client's fault: no state of the proxy depends on it
        except Exception:  # the edge of a connection: one bad page must not end the server
            LOG.exception("an admin connection failed")
        finally:
            self._connections.pop(writer, None)
            stream.close()

    async def _open(self, plain: PlainStream, secure: TlsStream, connection: Connection) -> None:
        """Do a connection's TLS handshake.

        Raises:
            ConnectionError: it has failed, or the client has closed the connection.
        """
        connection.set_stage(Stage.OPENING)
        seconds = self._request_seconds_max
        try:
            async with asyncio.timeout(seconds):
                await secure.handshake(self._handshakes)
            return
        except TimeoutError:
            problem = f"no TLS handshake within {seconds:g} s"
        except ssl.SSLError as error:
            problem = handshake_problem(error)
        except RefusedError as error:
            problem = error.problem
            response = write(pages.refusal(error.status, problem), head_only=False, close=True)
            await self._send(plain, connection, response, ())
        self._admission.note("tls", connection.host, problem)
        raise ConnectionAbortedError(problem)

    def _close_one(self, connections: Collection[Connection]) -> None:
        """Close one of these connections: of the address with the most, the one that waits longest for its client."""
        count_by_host = Counter(connection.host for connection in self._connections.values())
        last = min(
            connections,
            key=lambda connection: (-count_by_host[connection.host], connection.stage, connection.since),
        )
        del self._connections[last.writer]
        last.writer.transport.abort()
        if last.task is not None and last.task is not asyncio.current_task():
            last.task.cancel()  # no page is made for a visitor that is gone

    async def _respond(self, stream: PlainStream | TlsStream, connection: Connection) -> bool:
        """Read one request and send its response; returns whether another may follow on this connection."""
        head_only = False
        connection.set_stage(Stage.IDLE)
        try:
            request = await self._request(stream)
            head_only, close = request.method == "HEAD", request.close
            await self._admission.check(request, certificate=stream.certificate)
            connection.set_stage(Stage.WORKING)
            page = await self._page(request._replace(peer=connection.host, authorization=""))
        except RefusedError as error:
            page, close = pages.refusal(error.status, error.problem), True
            if error.reason:
                self._admission.note(error.reason, connection.host, error.problem)
        response = write(page, head_only=head_only, close=close)
        await self._send(stream, connection, response, () if head_only else page.more)
        # Hundreds of requests may be here at once, and since Python 3.12 nothing else of this waits for the loop.
        await asyncio.sleep(0)
        return not close

    async def _send(
        self,
        stream: PlainStream | TlsStream,
        connection: Connection,
        response: bytes,
        more: tuple[bytes, ...],
    ) -> None:
        """Write a response portion by portion, each when the client has read the one before."""
        size = len(response) + sum(map(len, more))
        while True:
            sending = [other for other in self._connections.values() if other.stage is Stage.SENDING]
            if not sending or sum(other.unsent for other in sending) + size <= UNSENT_BYTES_MAX:
                break
            self._close_one(sending)
        connection.set_stage(Stage.SENDING)
        connection.unsent = size
        async with asyncio.timeout(RESPONSE_SECONDS_MAX):
            for portion in (response, *more):
                await stream.send(portion)
        connection.unsent = 0

    async def _request(self, stream: PlainStream | TlsStream) -> Request:
        try:
            head = await asyncio.wait_for(stream.read_head(), self._request_seconds_max)
        except asyncio.LimitOverrunError:
            raise RefusedError(431, f"the request head is larger than {HEAD_BYTES_MAX} bytes") from None
        request = parse(head)
        if request.host and request.host not in self._hosts and not is_ip(request.host):
            raise RefusedError(403, "host name not allowed: admin.hosts lists the allowed names", "host")
        return request

    async def _page(self, request: Request) -> Page:
        posted = request.method == "POST"
        handlers, others = (self._actions, self._handlers) if posted else (self._handlers, self._actions)
        handler = handlers.get(request.path)
        if handler is None and request.path in others:
            raise RefusedError(405, READ_ONLY) if posted else RefusedError(400, "a POST is needed")
        if handler is None:
            return pages.refusal(404, "no such page; / lists them")
        try:
            return await handler(request)
        except RefusedError:
            raise
        except NoWorkersError as error:
            return page(503, Refused(str(error), error.missing))
        except Exception:  # a scrape that fails must say so to the scraper, and harm nothing else
            LOG.exception("internal error: cannot make the page %s", request.path)
            return pages.refusal(500, "internal error: see the log")
