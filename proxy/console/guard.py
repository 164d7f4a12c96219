"""What every request passes, and what every response carries: Host, origin, method, token; headers.

The Host must be an address, localhost, the host that is bound, or a name that the operator gave: a page elsewhere whose
name was pointed at this machine (DNS rebinding) is refused. Responses allow scripts and styles of the console's own
files and nothing else.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Collection
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.system.hosts import is_ip
from proxy.system.logs import event

LOG: Final = logging.getLogger(__name__)
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
    """Wraps the pages.

    Args:
        names: allowed names in the Host header, beside addresses and localhost.
        token: what a browser must have shown; "" for none.
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
        """Handle one request."""
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
        """Return the response to what does not pass; None for what does."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_allowed(_host(hosts[0])):
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

    def _is_allowed(self, host: str) -> bool:
        return host in self._names or is_ip(host)

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
        """Show the form, or take the token from it."""
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
    """Return the token of a form; "" of another body."""
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
    """Compare in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "backslashreplace"), right.encode())


def _host(authority: str) -> str:
    """Return the host of `host:port`, in lower case.

    >>> _host("LOCALHOST:9190"), _host("[::1]:9190"), _host("a.example.")
    ('localhost', '::1', 'a.example')
    """
    name, colon, port = authority.rpartition(":")
    if not colon or not port.isdecimal():
        name = authority
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return name.lower().removesuffix(".")
