"""`sluice console`: serves a read-only web page about the members of a fleet, on loopback by default.

The server is a process of its own. Its libraries are in Sluice's extra `operator`; they are imported when it runs.
"""

import argparse
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from commandline.arguments import not_installed
from commandline.program import OK
from proxy.commands.servers import ADMIN, add_admin, admin_access
from proxy.system.errors import StartError, UsageError
from proxy.system.hosts import is_host, is_loopback

DESCRIPTION: Final = "Show all clients, and why they wait, on a web page that follows live."
_BIND: Final = "127.0.0.1:9190"
_TOKEN_CHARACTERS_MIN: Final = 16
_TOKEN_BYTES_MAX: Final = 4096
_REFRESH_SECONDS: Final = (0.5, 60.0)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice console`."""
    command.set_defaults(command=run)
    add_admin(command, more=", and members that a fleet names are added")
    command.add_argument(
        "--bind", metavar="HOST:PORT", default=_BIND, help="where the page is served (default: %(default)s)"
    )
    command.add_argument(
        "--refresh",
        metavar="SECONDS",
        type=float,
        default=2.0,
        help="how often members are asked while a page is open (default: %(default)s)",
    )
    command.add_argument(
        "--token-file", metavar="FILE", type=Path, help="a file with the token that a browser must show"
    )
    command.add_argument(
        "--behind-proxy",
        metavar="NAME",
        action="append",
        default=[],
        help="the host name under which your own proxy, which knows its users, serves the page; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Serve the console, a web page, until SIGINT or SIGTERM; returns the exit code."""
    _check(options)
    admins = tuple(dict.fromkeys(map(_admin, options.admin or [ADMIN])))
    host, port = _address(options.bind)
    token = "" if options.token_file is None else _token(options.token_file)
    access = admin_access(options)
    try:
        from console.board import ConsoleOptions
        from console.site import serve
    except ModuleNotFoundError as error:
        raise StartError(not_installed(error.name or "a package", "operator")) from None
    serve(
        ConsoleOptions(
            admins=admins,
            host=host,
            port=port,
            refresh_seconds=options.refresh,
            names=tuple(options.behind_proxy),
            token=token,
            access=access,
        ),
        lambda url: print(f"sluice console: {url} (read only; Ctrl-C ends it)", file=sys.stderr, flush=True),
    )
    return OK


def _check(options: argparse.Namespace) -> None:
    """Check the arguments, without reading files.

    Raises:
        UsageError: an argument is wrong.
    """
    host, _ = _address(options.bind)
    low, high = _REFRESH_SECONDS
    if not low <= options.refresh <= high:
        raise UsageError(f"--refresh {options.refresh:g}: must be from {low:g} to {high:g} seconds")
    for name in options.behind_proxy:
        if not is_host(name):
            raise UsageError(f"--behind-proxy {name}: must be a host name")
    if not is_loopback(host) and options.token_file is None and not options.behind_proxy:
        raise UsageError(
            f"--bind {options.bind} is open to other machines, and the page shows the names of all clients: give it "
            "--token-file FILE, or --behind-proxy NAME if a proxy of yours asks users who they are"
        )


def _address(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not is_host(host) or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise UsageError(f"--bind {bind}: must be HOST:PORT")
    return host, int(port)


def _admin(given: str) -> str:
    """Return the URL of an admin port that is given as HOST:PORT or as a URL."""
    url = (given if "://" in given else f"http://{given}").rstrip("/")
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise UsageError(f"--admin {given}: must be HOST:PORT, or a URL with http:// or https://")
    return url


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(_TOKEN_BYTES_MAX).decode("ascii").strip()
    except OSError as error:
        raise StartError(f"--token-file {path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise StartError(f"--token-file {path}: must have one line of ASCII characters") from None
    if len(token) < _TOKEN_CHARACTERS_MIN or not token.isprintable():
        raise StartError(
            f"--token-file {path}: must have one line of at least {_TOKEN_CHARACTERS_MIN} characters"
        )
    return token
