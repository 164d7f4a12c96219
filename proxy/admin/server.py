"""The read-only HTTP port: asyncio streams around `proxy.admin.http`.

It shares the event loop with the traffic, so everything is bounded: connections, the bytes of a head, the
time a request may take to arrive and an answer to be taken. What the pages say is not known here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from proxy.admin import pages
from proxy.admin.http import HEAD_BYTES_MAX, Page, RefusedError, Request, parse, write
from proxy.config import Address
from proxy.errors import StartError

CONNECTIONS_MAX: Final = 64
REQUEST_SECONDS_MAX: Final = 10.0  # also how long an idle connection is kept
ANSWER_SECONDS_MAX: Final = 30.0
LOG: Final = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Page]]


class AdminServer:
    """Serves one page for each path.

    Args:
        handlers: path -> what makes its page.
        request_seconds_max: for tests.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], request_seconds_max: float = REQUEST_SECONDS_MAX
    ) -> None:
        self._handlers = handlers
        self._request_seconds_max = request_seconds_max
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, bind: Address, *, reuse_port: bool = False) -> None:
        """Bind the port and serve, in the background, until `close`.

        Args:
            bind: where.
            reuse_port: True lets the next version of Sluice bind it before this one is gone.

        Raises:
            StartError: the port cannot be bound.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve, bind.host, bind.port, limit=HEAD_BYTES_MAX, reuse_port=reuse_port or None
            )
        except OSError as error:
            raise StartError(f"admin.bind: {bind} cannot be bound: {error.strerror or error}") from None

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the other side's business: nothing of ours depends on it
        except Exception:  # the edge of a connection: one bad page must not end the server
            LOG.exception("an admin connection failed")
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; tell whether another may follow on this connection."""
        head_only = False
        try:
            request = await self._request(reader)
            head_only, close = request.method == "HEAD", request.close
            page = await self._page(request)
        except RefusedError as error:
            page, close = pages.refusal(error.status, error.problem), True
        writer.write(write(page, head_only=head_only, close=close))
        await asyncio.wait_for(writer.drain(), ANSWER_SECONDS_MAX)
        return not close

    async def _request(self, reader: asyncio.StreamReader) -> Request:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._request_seconds_max)
        except asyncio.LimitOverrunError:
            raise RefusedError(431, f"the head is over {HEAD_BYTES_MAX} bytes") from None
        return parse(head)

    async def _page(self, request: Request) -> Page:
        handler = self._handlers.get(request.path)
        if handler is None:
            return pages.missing()
        try:
            return await handler(request)
        except Exception:  # a scrape that fails must say so to the scraper, and harm nothing else
            LOG.exception("the page %s could not be made", request.path)
            return pages.refusal(500, "this page could not be made; the log says why")
