"""Paths: pages, the stream of each, the three files they need, and two for machines."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from proxy.console.board import Board
from proxy.console.guard import Guard
from proxy.console.options import STREAMS_MAX, ConsoleOptions
from proxy.console.rendering import Renderer, clock
from proxy.console.tables import Asked
from proxy.console.views import VIEWS
from proxy.system.errors import sluice_version

LOG: Final = logging.getLogger(__name__)
_PING_SECONDS: Final = 15
_SEND_SECONDS_MAX: Final = 10.0  # a page that does not read is let go
_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_PATHS: Final = {
    "/": "overview",
    "/client": "client",
    "/rule": "rule",
    "/rules": "rules",
    "/events": "events",
}


class Site:
    """The console's application.

    Args:
        board: what is shown.
    """

    def __init__(self, board: Board, options: ConsoleOptions) -> None:
        self._board = board
        self._options = options
        self._renderer = Renderer()
        self._files = {name: (_STATIC / name).read_bytes() for name in _TYPES}
        self._streams = 0
        self._streams_refused = 0
        routes = [
            *(Route(path, self._page, methods=["GET"], name=view) for path, view in _PATHS.items()),
            Route("/stream/{view}", self._stream, methods=["GET"]),
            Route("/static/{name}", self._file, methods=["GET"]),
            Route("/healthz", self._health, methods=["GET"]),
            Route("/status", self._status, methods=["GET"]),
        ]
        self.app = Guard(
            Starlette(routes=routes),
            {options.host, *options.names},
            options.token,
            lambda wrong: self._renderer.text("login.html", wrong=wrong),
        )

    async def _page(self, request: Request) -> Response:
        self._board.look()
        make = VIEWS[_PATHS[request.url.path]]
        try:
            view = await make(self._board, Asked.of(request.query_params))
            status = 200 if view.found else 404 if view.whole else 503
            return HTMLResponse(self._renderer.page(view), status)
        except Exception:  # the edge of a request: Starlette's own handler has it logged once more
            LOG.exception("internal error: page %s", request.url.path)
            return PlainTextResponse("internal error: see the console's log\n", 500)

    async def _stream(self, request: Request) -> Response:
        name = request.path_params["view"]
        if name not in VIEWS:
            return PlainTextResponse("no such page\n", 404)
        if self._streams >= STREAMS_MAX:
            self._streams_refused += 1
            return PlainTextResponse(f"{STREAMS_MAX} pages are open already\n", 503)
        return EventSourceResponse(
            self._changes(name, Asked.of(request.query_params)),
            ping=_PING_SECONDS,
            send_timeout=_SEND_SECONDS_MAX,
        )

    async def _changes(self, name: str, asked: Asked) -> AsyncIterator[ServerSentEvent]:
        """Yield the panels that differ from what this page has, for as long as it is open."""
        had: dict[str, str] = {}
        if self._streams >= STREAMS_MAX:
            return
        self._streams += 1
        try:
            while True:
                self._board.look()
                view = await VIEWS[name](self._board, asked)
                panels = self._renderer.panels(view)
                changed = {panel: text for panel, text in panels.items() if had.get(panel) != text}
                had = panels
                message = {"panels": changed, "order": list(panels), "at": clock(view.values["now"])}
                yield ServerSentEvent(json.dumps(message), event="panels")
                await asyncio.sleep(self._options.refresh_seconds)
        except Exception:  # the edge of a stream: the page opens another
            LOG.exception("internal error: the stream of page %s", name)
        finally:
            self._streams -= 1

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            return PlainTextResponse("no such file\n", 404)
        return Response(self._files[name], media_type=_TYPES[name])

    async def _health(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _status(self, _: Request) -> Response:
        members = [
            {
                "name": member.name,
                "admin": member.admin,
                "silent_since": None if member.silent_since is None else member.silent_since.isoformat(),
                "problem": member.problem,
                "missing": member.missing,
                "failures": member.failures,
            }
            for member in self._board.members
        ]
        return JSONResponse(
            {
                "version": sluice_version(),
                "streams": self._streams,
                "streams_refused": self._streams_refused,
                "requests_refused": self.app.refused,
                "failures": self._board.failures,
                "members": members,
            }
        )
