"""Paths: pages, the stream of each, the three files they need, and two for machines."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import uvicorn
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.board import STREAMS_MAX, Board, ConsoleOptions
from console.rendering import Renderer, clock
from console.views import VIEWS, Asked
from proxy.system.errors import StartError, sluice_version, system_reason
from proxy.system.hosts import host_of, is_ip
from proxy.system.logs import event, set_up

LOG: Final = logging.getLogger(__name__)


# ----------------------------------------------------------------------------------------------------
# What every request passes, and what every response carries: Host, origin, method, token; headers.
#
# The Host must be an address, localhost, the host that is bound, or a name that the operator gave: a page elsewhere
# whose name was pointed at this machine (DNS rebinding) is refused. Responses allow scripts and styles of the
# console's own files and nothing else.


COOKIE: Final = "sluice_console"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OPEN_PATHS: Final = ("/static/", "/healthz")  # need no token
_LOGIN: Final = "/login"
_FORM_BYTES_MAX: Final = 4096
_FORM_SECONDS_MAX: Final = 10.0
_WRONG_SECONDS: Final = 1.0  # a request with a wrong token is responded to after
_GUESSES_MAX: Final = 8  # at once


class Guard:
    """The ASGI middleware before all pages: refuses a wrong host or token, and sets headers of the response.

    Args:
        names: allowed names in the Host header, beside addresses and localhost.
        app: the application with the pages.
        token: the secret that a browser must have sent at its login; "" if no login is needed.
        login_page: the HTML of the page that asks for the token; its argument says whether the last one was wrong.
    """

    def __init__(
        self, app: ASGIApp, names: Collection[str], token: str, login_page: Callable[[bool], str]
    ) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}
        self._token = token
        self._login_page = login_page
        # A restart forgets who has logged in.
        self._session = hmac.new(secrets.token_bytes(32), token.encode(), hashlib.sha256).hexdigest()
        self._guesses = 0
        self.refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the pages, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        response = await self._refusal(scope, receive)
        if response is None:
            await self._app(scope, receive, send_guarded)
        else:
            await response(scope, receive, send_guarded)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response that refuses a request; None if the request may pass."""
        headers = Headers(scope=scope)
        hosts = [host_of(host) for host in headers.getlist("host")]
        if len(hosts) != 1 or not (hosts[0] in self._names or is_ip(hosts[0])):
            return self._refuse("host name not allowed: --behind-proxy NAME allows one", 403)
        linked = headers.get("sec-fetch-mode", "navigate") == "navigate"
        if not linked and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return self._refuse("a page of another site asks for this", 403)
        path, method = scope["path"], scope["method"]
        if self._token and path == _LOGIN:
            return await self._login(scope, receive)
        if method not in ("GET", "HEAD"):
            return self._refuse("only GET and HEAD are allowed: the console is read only", 405)
        if not self._token or path.startswith(_OPEN_PATHS) or self._is_known(headers):
            return None
        if "text/html" in headers.get("accept", ""):
            return RedirectResponse(_LOGIN, 303)
        return self._refuse("a token is wanted: Authorization: Bearer TOKEN", 401)

    def _is_known(self, headers: Headers) -> bool:
        given = headers.get("authorization", "")
        if given.startswith("Bearer ") and _same(given.removeprefix("Bearer ").strip(), self._token):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and _same(found.value, self._session)

    async def _login(self, scope: Scope, receive: Receive) -> Response:
        """Show the login form, or check the token that was sent with it."""
        if scope["method"] in ("GET", "HEAD"):
            return self._form(wrong=False)
        if scope["method"] != "POST" or self._guesses >= _GUESSES_MAX:
            return self._refuse("not now", 405 if scope["method"] != "POST" else 503)
        self._guesses += 1
        try:
            given = await asyncio.wait_for(_token_in(Request(scope, receive)), _FORM_SECONDS_MAX)
            if not _same(given, self._token):
                await asyncio.sleep(_WRONG_SECONDS)
                self.refused += 1
                peer = scope.get("client")
                event(LOG, logging.WARNING, "a wrong token", peer=str(peer[0] if peer else ""))
                return self._form(wrong=True)
        except (TimeoutError, ClientDisconnect):
            return self._refuse("no token has come", 408)
        finally:
            self._guesses -= 1
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, self._session, httponly=True, samesite="strict", path="/")
        return response

    def _form(self, *, wrong: bool) -> Response:
        return Response(self._login_page(wrong), 403 if wrong else 200, media_type="text/html; charset=utf-8")

    def _refuse(self, problem: str, status: int) -> Response:
        self.refused += 1
        return PlainTextResponse(f"{problem}\n", status)


async def _token_in(request: Request) -> str:
    """Return the token in a submitted form; "" if the body is no such form."""
    body = bytearray()
    async for portion in request.stream():
        body += portion
        if len(body) > _FORM_BYTES_MAX:
            return ""
    try:
        return parse_qs(body.decode("ascii"), max_num_fields=4).get("token", [""])[0].strip()
    except ValueError:
        return ""


def _same(given: str, right: str) -> bool:
    """Compare two texts in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "backslashreplace"), right.encode())


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
    """The console's web application: its pages, the streams that update them, and its own status.

    Args:
        board: the source of all values on the pages.
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
        """Yield the panels that have changed since the last event, for as long as the page is open."""
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


# ----------------------------------------------------------------------------------------------------
# Runs the console: uvicorn on one port, and the board beside it, until SIGINT or SIGTERM.


_CONNECTIONS_MAX: Final = 256
_IDLE_SECONDS: Final = 30
_HEAD_BYTES_MAX: Final = 128 * 1024  # an address may have a client id of 32,767 bytes, each as %XX
_END_SECONDS: Final = 3


def serve(options: ConsoleOptions, served: Callable[[str], None]) -> None:
    """Serve the console until SIGINT or SIGTERM.

    Args:
        served: called with the page's address when the port is bound.

    Raises:
        StartError: the port cannot be bound.
    """
    set_up("info", "text")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    asyncio.run(_run(options, served))


async def _run(options: ConsoleOptions, served: Callable[[str], None]) -> None:
    bound = _bind(options)
    host, port = bound.getsockname()[:2]
    board = Board(options)
    config = uvicorn.Config(
        Site(board, options).app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http="h11",
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_END_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
    )
    shown = f"[{host}]" if ":" in host else host
    served(f"http://{shown}:{port}/")
    asking = asyncio.create_task(board.run(), name="board")
    try:
        await uvicorn.Server(config).serve(sockets=[bound])
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


def _bind(options: ConsoleOptions) -> socket.socket:
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((options.host, options.port), family=family, backlog=_CONNECTIONS_MAX)
    except OSError as error:
        raise StartError(
            f"--bind {options.host}:{options.port} cannot be bound: {system_reason(error)}"
        ) from None
