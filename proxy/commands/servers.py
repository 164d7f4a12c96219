"""The servers that commands ask: admin ports of Sluices, read and sent actions over HTTP, and brokers.

`--command-config` is a properties file of Kafka's Java clients (`kafka_client.security`).
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from commandline.amounts import printable
from kafka_client import ASKING_FAILS, CLIENT_ID, Connection, PropertiesError, Security, security_of
from proxy.config import Address, read_text
from proxy.config.schema import Addresses, read_value
from proxy.explain.documents import RESPONSE_BYTES_MAX, DocumentError, Refused, decode
from proxy.system.admin_access import (
    CA_FILE,
    CERT_FILE,
    KEY_FILE,
    TOKEN_FILE,
    AdminAccess,
    AdminFiles,
    tls_problem,
)
from proxy.system.errors import ConfigError, ServerError, SluiceError, UsageError, reason
from proxy.system.files import read as read_bytes

if TYPE_CHECKING:
    from _typeshed import SupportsRead

ADMIN: Final = "127.0.0.1:19080"
SECONDS_MAX: Final = 10.0
_PAGE_BYTES_MAX: Final = 64 * 1024**2
_REFUSAL_BYTES_MAX: Final = 1000
_FAILURES: Final = (OSError, ValueError, RecursionError, http.client.HTTPException)  # URLError is an OSError

_OPTIONS: Final = {
    CA_FILE: "the authorities whose certificates of admin ports are trusted, PEM",
    CERT_FILE: "the certificate to show to admin ports, PEM",
    KEY_FILE: "its private key, PEM",
    TOKEN_FILE: "a file with the token for admin ports in its first line",
}
ANYONE: Final = AdminAccess()  # with no token and no certificate

Document = Mapping[str, Any]
_Document = TypeVar("_Document")


def add_admin(command: "argparse._ActionsContainer", *, more: str = "") -> None:
    """Add `--admin`, which may be repeated.

    Args:
        more: text to add to the option's help.
    """
    command.add_argument(
        "--admin",
        metavar="HOST:PORT",
        action="append",
        help=f"the admin port of a member, or its URL; may be repeated{more} (default: {ADMIN})",
    )
    add_admin_files(command)


def add_admin_files(command: "argparse._ActionsContainer") -> None:
    """Add the options that name the files with which admin ports are reached."""
    for option, text in _OPTIONS.items():
        variable = _variable(option)
        command.add_argument(option, metavar="FILE", type=Path, help=f"{text} (default: ${variable})")


def admin_files(options: argparse.Namespace) -> AdminFiles:
    """Return the files that the options or the environment name.

    Raises:
        UsageError: there is a key without its certificate.
    """

    def named(option: str) -> Path | None:
        given: Path | None = getattr(options, option.removeprefix("--").replace("-", "_"))
        written = os.environ.get(_variable(option), "")
        return given or (Path(written) if written else None)

    files = AdminFiles(named(CA_FILE), named(CERT_FILE), named(KEY_FILE), named(TOKEN_FILE))
    if files.key_file is not None and files.cert_file is None:
        raise UsageError(f"{KEY_FILE}: needs {CERT_FILE}")
    return files


def admin_access(options: argparse.Namespace) -> AdminAccess:
    """Return how admin ports are reached, by the options or the environment.

    Raises:
        SluiceError: a file cannot be used.
    """
    return AdminAccess(admin_files(options))


def _variable(option: str) -> str:
    """Return the environment variable of an option.

    >>> _variable("--admin-ca-file")
    'SLUICE_ADMIN_CA_FILE'
    """
    return f"SLUICE_{option.removeprefix('--').replace('-', '_').upper()}"


def read_document(admin: str, path: str, access: AdminAccess = ANYONE) -> Document:
    """Read a page of the admin port that is a JSON object; HOST:PORT is read over HTTP.

    Raises:
        UsageError: the address is neither HOST:PORT nor a URL.
        ServerError: the page cannot be read.
    """
    page = _url(admin, path)
    body, missing = _body(admin, page, access, SECONDS_MAX, _PAGE_BYTES_MAX)
    if missing is not None:
        raise ServerError(f"{page}: {reason(missing, SECONDS_MAX)}")
    try:
        document = json.loads(body)
        if not isinstance(document, Mapping):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise _failed(admin, page, error, SECONDS_MAX) from None
    return document


def read(
    admin: str,
    path: str,
    kind: type[_Document],
    *,
    access: AdminAccess = ANYONE,
    seconds_max: float = SECONDS_MAX,
    bytes_max: int = RESPONSE_BYTES_MAX,
) -> _Document | Refused:
    """Read a document of `/v1` from an admin port; return a `Refused` if its response has status 404.

    Args:
        access: what is trusted and sent.
        seconds_max: how long the port may be silent.
        bytes_max: the largest document.

    Raises:
        UsageError: the address is neither HOST:PORT nor a URL.
        ServerError: the document cannot be read.
    """
    page = _url(admin, path)
    body, missing = _body(admin, page, access, seconds_max, bytes_max)
    try:
        return decode(body, kind) if missing is None else decode(body, Refused)
    except DocumentError as error:
        if missing is not None:  # the port has no such page
            raise ServerError(f"{page}: {reason(missing, seconds_max)}") from None
        raise ServerError(f"{page}: {error}") from None


def read_present(
    admin: str,
    path: str,
    kind: type[_Document],
    *,
    access: AdminAccess = ANYONE,
    seconds_max: float = SECONDS_MAX,
    bytes_max: int = RESPONSE_BYTES_MAX,
) -> _Document:
    """Read a document of `/v1` as `read` does, but raise ServerError also for a response with status 404."""
    found = read(admin, path, kind, access=access, seconds_max=seconds_max, bytes_max=bytes_max)
    if isinstance(found, Refused):
        raise ServerError(f"{_url(admin, path)}: {printable(found.error)}")
    return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for the port that was named."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Return None: the redirect is an error status like others."""


def _opened(
    page: str, access: AdminAccess, seconds_max: float, action: str = ""
) -> "contextlib.AbstractContextManager[SupportsRead[bytes]]":
    """Send a request, again with another token if the file has another one by now; return the response.

    Args:
        action: the value of the header Sluice-Action, for a POST; "" for a GET.
    """
    # No proxy of the environment: it would read the token.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirects()]
    if page.startswith("https://"):
        handlers.append(urllib.request.HTTPSHandler(context=access.tls))
    opener = urllib.request.build_opener(*handlers)
    more = {"Sluice-Action": action} if action else {}

    def send(token: Mapping[str, str]) -> "contextlib.AbstractContextManager[SupportsRead[bytes]]":
        request = urllib.request.Request(page, method="POST" if action else "GET", headers={**token, **more})
        response: contextlib.AbstractContextManager[SupportsRead[bytes]]
        response = opener.open(request, timeout=seconds_max)
        return response

    sent = access.headers(page)
    try:
        return send(sent)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED:
            raise
        access.renew()
        if (token := access.headers(page)) == sent:
            raise
        error.close()
        return send(token)


def _body(
    admin: str, page: str, access: AdminAccess, seconds_max: float, bytes_max: int
) -> tuple[bytes, urllib.error.HTTPError | None]:
    """Return the body of a response with status 200 and None, or with status 404 and that error.

    Raises:
        ServerError: it cannot be read.
    """
    try:
        with _opened(page, access, seconds_max) as response:
            return _read(response, bytes_max), None
    except urllib.error.HTTPError as error:
        try:
            with error:
                body = _read(error, bytes_max)
        except _FAILURES:
            body = b""
        if error.code == HTTPStatus.NOT_FOUND:
            return body, error
        raise ServerError(f"{page}: {_refusal(error, body, access, seconds_max)}") from None
    except _FAILURES as error:
        raise _failed(admin, page, error, seconds_max) from None


def _read(response: "SupportsRead[bytes]", bytes_max: int) -> bytes:
    """Return the response's body.

    Raises:
        ValueError: it is larger than `bytes_max`.
    """
    body = response.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise ValueError(f"it is larger than {bytes_max} bytes")
    return body


def _refusal(error: urllib.error.HTTPError, body: bytes, access: AdminAccess, seconds_max: float) -> str:
    """Return the message of an error status: for 503, which workers are missing; otherwise what the port has said."""
    if error.code == HTTPStatus.UNAUTHORIZED:
        return access.refusal()
    if error.code in (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN):
        text = body[:_REFUSAL_BYTES_MAX].decode("utf-8", "replace").strip()
        return printable(text) or reason(error, seconds_max)
    if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
        try:
            said = decode(body, Refused)
        except DocumentError:
            return reason(error, seconds_max)
        missing = ", ".join(f"worker {one.worker} ({one.problem})" for one in said.missing)
        return printable(f"{said.error}: {missing}" if missing else said.error)
    return reason(error, seconds_max)


def send_action(
    admin: str, path: str, action: str, kind: type[_Document], access: AdminAccess = ANYONE
) -> _Document:
    """Send an action to the admin port, as a POST without a body.

    Args:
        action: the value of the header Sluice-Action.
        kind: the document of the response.

    Raises:
        UsageError: the address is neither HOST:PORT nor a URL.
        ServerError: the action was not carried out, or the response is no such document. The message is the text of the
            port's error response; without a response, it says why there is none.
    """
    page = _url(admin, path)
    try:
        with _opened(page, access, SECONDS_MAX, action) as response:
            return decode(_read(response, RESPONSE_BYTES_MAX), kind)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_REFUSAL_BYTES_MAX).decode("utf-8", "replace").strip()
        said = access.refusal() if error.code == HTTPStatus.UNAUTHORIZED else printable(said)
        raise ServerError(f"{_url(admin, '')}: {said}") from None
    except DocumentError as error:
        raise ServerError(f"{page}: {error}") from None
    except _FAILURES as error:
        raise _failed(admin, page, error, SECONDS_MAX) from None


def _failed(admin: str, page: str, error: Exception, seconds_max: float) -> ServerError:
    """Return the error that says why a page could not be read and, if nothing listens there, what may be wrong."""
    wrapped = _unwrapped(error)
    if problem := tls_problem(error, urllib.parse.urlsplit(page).netloc):
        return ServerError(f"{page}: {problem}")
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


_GRACE_SECONDS: Final = 0.5  # of the whole, for a member's own error, which says more


def read_all(
    admins: Sequence[str],
    path: str,
    kind: type[_Document],
    *,
    access: AdminAccess = ANYONE,
    seconds_max: float,
    bytes_max: int,
) -> Mapping[str, _Document | Refused | SluiceError]:
    """Read a document from several members at once; return by admin port the document, or why there is none.

    The threads are daemons, so that the command does not wait for a member that sends very slowly.

    Args:
        access: what is trusted and sent.
        seconds_max: the time for all members together.
        bytes_max: the largest document.
    """
    found: dict[str, _Document | Refused | SluiceError] = {}

    def ask(admin: str) -> None:
        try:
            found[admin] = read(
                admin, path, kind, access=access, seconds_max=seconds_max, bytes_max=bytes_max
            )
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


# ----------------------------------------------------------------------------------------------------
# Brokers


_PEM_BYTES_MAX: Final = 4 * 1024 * 1024


def add_brokers(command: argparse.ArgumentParser, who: str = "the brokers") -> None:
    """Add the options that name brokers, and how to log in to them."""
    command.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help=who)
    command.add_argument("--command-config", type=Path, metavar="FILE", help="a Java client's properties")


def brokers_of(options: argparse.Namespace) -> tuple[tuple[Address, ...], Security]:
    """Return the brokers that the options name, and how connections to them are secured.

    Raises:
        ConfigError: an address or the properties are wrong.
    """
    security = read_command_config(options.command_config) if options.command_config else Security()
    return read_value("--bootstrap-server", Addresses, options.bootstrap_server), security


async def connect_any(
    servers: Sequence[Address], security: Security, seconds: float, client_id: bytes = CLIENT_ID
) -> Connection:
    """Connect to the first reachable server.

    Args:
        seconds: the deadline for each server.

    Raises:
        ServerError: no server can be reached; the message says why.
    """
    problems = []
    for server in servers:
        try:
            async with asyncio.timeout(seconds):
                return await Connection.open(
                    *server, tls=security.tls, login=security.login, client_id=client_id
                )
        except ASKING_FAILS as error:
            problems.append(f"{server}: {reason(error, seconds)}")
    raise ServerError("; ".join(problems))


def read_command_config(path: Path) -> Security:
    """Read a Java client's properties.

    Raises:
        ConfigError: a security key is not supported, or a required one is missing.
    """
    try:
        # OpenSSL would wait forever for a FIFO
        return security_of(read_text(path), lambda store: read_bytes(Path(store), _PEM_BYTES_MAX))
    except PropertiesError as error:
        where = f"{path}: {error.key}" if error.key else str(path)
        raise ConfigError(where, error.problem, error.value) from None
