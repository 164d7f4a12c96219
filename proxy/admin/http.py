"""The part of HTTP/1.1 that the admin port needs: the head of a request, and a response.

No body is ever read: a request that announces one is refused and its connection closed. Unknown headers are
ignored.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from proxy.system.hosts import host_of

READ_ONLY: Final = "only GET and HEAD are allowed: this page is read-only"
HEAD_BYTES_MAX: Final = 8192  # nginx and Apache httpd take 8 KiB by default too
_TARGET: Final = re.compile(r"/[!-~]*", re.ASCII)
# Headers that belong to a status, whatever the page.
_OF_STATUS: Final = {401: 'WWW-Authenticate: Bearer realm="sluice"\r\n', 405: "Allow: GET, HEAD\r\n"}
_METHODS: Final = ("GET", "HEAD", "POST")
# The headers that a command such as curl sends by itself, and our own. A browser (Origin, Sec-Fetch-Site) and a proxy
# (Via, Forwarded, X-Real-IP, and those of each vendor) send others.
_OF_COMMANDS: Final = frozenset(
    {
        *("accept", "accept-encoding", "authorization", "connection", "content-length", "content-type"),
        *("host", "sluice-action", "user-agent"),
    }
)
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Page(NamedTuple):
    """A response: status, content type and body.

    Attributes:
        more: the rest of the body, in portions that are sent one after the other.
    """

    status: int
    content_type: str
    body: bytes
    more: tuple[bytes, ...] = ()


class Request(NamedTuple):
    """The parts of a request that pages use.

    Attributes:
        host: the Host header in lower case, without the port; "" without one.
        query: what follows the question mark.
        action: the Sluice-Action header, which every POST must have.
        relayed: the sign that a browser or a proxy has sent the request: the first header that Sluice's own commands
            do not send, or "HTTP/1.0"; "" if there is no sign.
        peer: the client's IP address.
        authorization: the Authorization header, which holds a token: no page sees it.
    """

    method: str
    path: str
    accept: str
    close: bool
    host: str = ""
    query: str = ""
    action: str = ""
    relayed: str = ""
    peer: str = ""
    authorization: str = ""


class RefusedError(Exception):
    """A request is refused: it gets this error status and text as its response, and its connection is closed.

    Args:
        reason: one word, under which the refusal is counted (`sluice_admin_refused_total`); "" for none.
    """

    def __init__(self, status: int, problem: str, reason: str = "") -> None:
        self.status = status
        self.problem = problem
        self.reason = reason
        super().__init__(f"{status} {problem}")


def parse(head: bytes) -> Request:
    """Parse a request's head, including the empty line.

    Raises:
        RefusedError: with the status of the response.
    """
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise RefusedError(400, "not an HTTP request")
    method, target, version = words
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise RefusedError(505, "only HTTP/1.0 and HTTP/1.1 are supported")
    if method not in _METHODS:
        raise RefusedError(405, READ_ONLY)
    if not _TARGET.fullmatch(target):
        raise RefusedError(400, "invalid path")
    headers = _headers(lines[1:])
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise RefusedError(413, "a request body is not allowed")
    wish = headers.get("connection", "").lower()
    close = wish == "close" or (version == "HTTP/1.0" and wish != "keep-alive")
    host = host_of(headers.get("host", ""))
    path, _, query = target.partition("?")
    action = headers.get("sluice-action", "")
    relayed = ""
    if method == "POST":
        # nginx speaks HTTP/1.0 to what is behind it, unless told otherwise.
        old = "HTTP/1.0" if version == "HTTP/1.0" else ""
        relayed = old or next((name for name in headers if name not in _OF_COMMANDS), "")
    return Request(
        method,
        path,
        headers.get("accept", ""),
        close,
        host,
        query,
        action,
        relayed,
        authorization=headers.get("authorization", ""),
    )


def write(page: Page, *, head_only: bool, close: bool) -> bytes:
    """Encode the head and the body of a response, except `Page.more`, which the caller sends after it.

    Args:
        head_only: whether to leave out the body, for a HEAD request.
        close: whether the response announces that the connection is closed after it.
    """
    head = (
        f"HTTP/1.1 {page.status} {REASONS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body) + sum(map(len, page.more))}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
        f"{_OF_STATUS.get(page.status, '')}"
        f"Connection: {'close' if close else 'keep-alive'}\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if head_only else page.body)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RefusedError(400, "malformed header line")
        if name.lower() == "host" and "host" in headers:
            raise RefusedError(400, "more than one Host header")
        headers[name.lower()] = value.strip()
    return headers


# ----------------------------------------------------------------------------------------------------
# The fields of a request's query.


def fields_of(query: str, known: tuple[str, ...]) -> Mapping[str, str]:
    """Return the fields of a URL's query string; `known` are the permitted names.

    Raises:
        RefusedError: a field is unknown or repeated.
    """
    try:
        found = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8)
    except ValueError:
        raise RefusedError(400, "invalid query") from None
    for name, values in found.items():
        if name not in known:
            raise RefusedError(400, f"unknown field {name!r}; known fields: {', '.join(known) or 'none'}")
        if len(values) > 1:
            raise RefusedError(400, f"more than one {name}")
    return {name: values[0] for name, values in found.items()}


def number(fields: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    """Return a field of the query as a whole number; None if the field is missing.

    Raises:
        RefusedError: it is not a number from `low` to `high`.
    """
    text = fields.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= len(str(high)) and low <= int(text) <= high:
        return int(text)
    raise RefusedError(400, f"{name} must be a number between {low} and {high}")
