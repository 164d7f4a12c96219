"""Reads JSON documents from a Sluice's admin port, and sends it actions."""

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from commandline.amounts import printable
from console.documents import DocumentError, Fields, missing_workers
from proxy.system.errors import ServerError, SluiceError, UsageError, reason

ADMIN: Final = "127.0.0.1:19080"
SECONDS_MAX: Final = 10.0
_PAGE_BYTES_MAX: Final = 64 * 1024**2
_REFUSAL_BYTES_MAX: Final = 1000
_FAILURES: Final = (OSError, ValueError, RecursionError, http.client.HTTPException)  # URLError is an OSError

Document = Mapping[str, Any]


class _Readable(Protocol):
    """A response."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""


def read_document(
    admin: str,
    path: str,
    *,
    absent: bool = False,
    seconds_max: float | None = None,
    bytes_max: int = _PAGE_BYTES_MAX,
) -> Document:
    """Read a page of the admin port; HOST:PORT is read over HTTP.

    Args:
        absent: whether the document of a response with status 404 is returned, instead of an error.
        seconds_max: how long the port may be silent; ``SECONDS_MAX`` by default.
        bytes_max: the largest page.

    Raises:
        UsageError: the address is neither HOST:PORT nor a URL.
        ServerError: the page cannot be read.
    """
    seconds_max = SECONDS_MAX if seconds_max is None else seconds_max
    page = _url(admin, path)
    try:
        with urllib.request.urlopen(page, timeout=seconds_max) as response:
            document: Document = _read(response, bytes_max)
    except urllib.error.HTTPError as error:
        if absent and error.code == HTTPStatus.NOT_FOUND:
            return _missing(page, error, seconds_max, bytes_max)
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
            raise ServerError(f"{page}: {_unavailable(error, seconds_max)}") from None
        raise ServerError(f"{page}: {reason(error, seconds_max)}") from None
    except _FAILURES as error:
        raise _failed(admin, page, error, seconds_max) from None
    return document


def _read(response: _Readable, bytes_max: int) -> Document:
    """Return the response's JSON object.

    Raises:
        ValueError: it is larger than `bytes_max`, no JSON, or no object.
    """
    body = response.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise ValueError(f"it is larger than {bytes_max} bytes")
    document = json.loads(body)
    if not isinstance(document, Mapping):
        raise ValueError("it is not a JSON object")
    return document


def _missing(page: str, error: urllib.error.HTTPError, seconds_max: float, bytes_max: int) -> Document:
    """Return the document of a response with status 404.

    Raises:
        ServerError: there is none, since the port has no such page.
    """
    try:
        with error:
            return _read(error, bytes_max)
    except _FAILURES:
        raise ServerError(f"{page}: {reason(error, seconds_max)}") from None


def _unavailable(error: urllib.error.HTTPError, seconds_max: float) -> str:
    """Return what a response with status 503 says of the workers that it lacks; else its status."""
    try:
        with error:
            document = _read(error, _REFUSAL_BYTES_MAX * 100)
        missing = ", ".join(missing_workers(document))
        said = Fields(document, "document").text("error")
    except (*_FAILURES, DocumentError):
        return reason(error, seconds_max)
    return printable(f"{said}: {missing}" if missing else said) or reason(error, seconds_max)


def send_action(admin: str, path: str, action: str) -> Document:
    """Send an action to the admin port, as a POST without a body.

    Args:
        action: the value of the header Sluice-Action.

    Raises:
        UsageError: the address is neither HOST:PORT nor a URL.
        ServerError: the action was not carried out; the message is the port's, or why there is no response.
    """
    page = _url(admin, path)
    request = urllib.request.Request(page, method="POST", headers={"Sluice-Action": action})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as response:
            document: Document = json.loads(response.read(_PAGE_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_REFUSAL_BYTES_MAX).decode("utf-8", "replace").strip()
        raise ServerError(f"{_url(admin, '')}: {printable(said)}") from None
    except _FAILURES as error:
        raise _failed(admin, page, error, SECONDS_MAX) from None
    return document


def _failed(admin: str, page: str, error: Exception, seconds_max: float) -> ServerError:
    """Return the error of a page that cannot be read; of a port where nothing listens, with what may be wrong."""
    wrapped = _unwrapped(error)
    if isinstance(wrapped, ConnectionRefusedError):
        return ServerError(
            f"nothing listens at {_url(admin, '')}: is sluice serve running there, and is admin.bind another address?"
        )
    return ServerError(f"{page}: {reason(wrapped, seconds_max)}")


def _url(admin: str, path: str) -> str:
    page = f"{admin if '://' in admin else f'http://{admin}'}".rstrip("/") + path
    if not page.startswith(("http://", "https://")):
        raise UsageError(f"--admin {admin}: must be HOST:PORT, or a URL with http:// or https://")
    return page


def _unwrapped(error: Exception) -> BaseException:
    """Return the OSError inside a urllib error; its message is clearer than urllib's."""
    wrapped = getattr(error, "reason", None)
    return wrapped if isinstance(wrapped, OSError) else error


# ----------------------------------------------------------------------------------------------------
# Reads one page from several members at once; a member that does not respond delays no other.


_GRACE_SECONDS: Final = 0.5  # of the whole, for a member's own error, which says more


def read_documents(
    admins: Sequence[str], path: str, *, seconds_max: float, bytes_max: int
) -> Mapping[str, Document | SluiceError]:
    """Return each member's page, or the error why it cannot be read, by its admin port as given.

    The document of a response with status 404 is returned as a page. The threads are daemons, so that the command does
    not wait for a member that sends a byte now and then.

    Args:
        seconds_max: the time for all members together.
        bytes_max: the largest page.
    """
    found: dict[str, Document | SluiceError] = {}

    def ask(admin: str) -> None:
        try:
            page = read_document(admin, path, absent=True, seconds_max=seconds_max, bytes_max=bytes_max)
            found[admin] = page
        except SluiceError as error:
            found[admin] = error

    threads = [threading.Thread(target=ask, args=(admin,), daemon=True) for admin in admins]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds_max + _GRACE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = f"no response within {seconds_max:g} s"
    return {admin: found.get(admin, ServerError(f"{admin}: {silent}")) for admin in admins}
