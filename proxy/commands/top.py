"""`sluice top`: shows all clients live in the terminal; if the output is piped, as plain text.

The live view uses Textual, which is in Sluice's extra `operator`, and is imported when it runs.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from commandline.arguments import add_format, not_installed
from commandline.program import OK
from console.top import COLUMNS, SECONDS_MAX, WINDOWS, Members, choose, document, lines, rows
from proxy.commands.servers import ADMIN, add_admin, admin_access, read_all, read_present
from proxy.explain.documents import RESPONSE_BYTES_MAX
from proxy.system.errors import ServerError, UsageError

DESCRIPTION: Final = "Show all clients live: who waits, why, and for which limit."
_SECONDS: Final = (0.5, 3600.0)
_MEMBERS_MAX: Final = 64
_SILENCE_SECONDS_MAX: Final = 5.0  # a member waits 4 s for its workers


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice top`."""
    command.set_defaults(command=run)
    add_admin(command)
    command.add_argument(
        "--window",
        metavar="SECONDS",
        type=int,
        choices=tuple(WINDOWS),
        default=60,
        help="the last 10, 60 or 900 seconds (default: %(default)s)",
    )
    command.add_argument(
        "--sort",
        metavar="COLUMN",
        choices=COLUMNS,
        default="waits",
        help=f"{', '.join(COLUMNS)} (default: %(default)s)",
    )
    command.add_argument("--filter", metavar="TEXT", default="", help="a part of a client id or user")
    command.add_argument(
        "-b", "--once", action="store_true", help="plain output, once unless -n says more; so is piped output"
    )
    command.add_argument(
        "-n",
        "--iterations",
        metavar="NUMBER",
        type=int,
        help="end after so many pages; 0: do not end (default: 1 of plain output, else 0)",
    )
    command.add_argument(
        "-d",
        "--delay",
        metavar="SECONDS",
        type=float,
        default=2.0,
        help="time between pages (default: %(default)s)",
    )
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Show clients live, or print pages of them; returns the exit code."""
    admins = options.admin or [ADMIN]
    low, high = _SECONDS
    if not low <= options.delay <= high:
        raise UsageError(f"-d {options.delay:g}: must be from {low:g} to {high:g} seconds")
    if options.iterations is not None and options.iterations < 0:
        raise UsageError(f"-n {options.iterations}: must be 0 or more")
    if len(admins) > _MEMBERS_MAX:
        raise UsageError(f"--admin: there may be at most {_MEMBERS_MAX}")
    access = admin_access(options)
    members = Members(
        admins,
        partial(read_present, access=access, seconds_max=_SILENCE_SECONDS_MAX),
        partial(read_all, access=access, seconds_max=SECONDS_MAX, bytes_max=RESPONSE_BYTES_MAX),
    )
    if not options.once and options.format == "table" and sys.stdout.isatty() and sys.stdin.isatty():
        try:
            from console.screen import Live
        except ModuleNotFoundError as error:
            hint = not_installed(error.name or "textual", "operator")
            print(f"sluice: the live view is not available: {hint}", file=sys.stderr)
        else:
            live = Live(
                members.page,
                members.verdict,
                window=options.window,
                sort=options.sort,
                text=options.filter,
                seconds=options.delay,
                iterations=options.iterations or 0,
                several=len(admins) > 1,
            )
            code = live.run()
            return live.return_code or OK if code is None else code
    return _print(options, members, time.sleep)


def _print(options: argparse.Namespace, members: Members, sleep: Callable[[float], None]) -> int:
    """Print pages: as text with a blank line between them, or as JSON with one document a line.

    Raises:
        ServerError: no member responds, at the last page.
    """
    iterations = 1 if options.iterations is None else options.iterations
    number = 0
    while True:
        page = members.page(options.window)
        if all(one.problem for one in page.members) and iterations == 1:
            raise ServerError("; ".join(f"{one.admin}: {one.problem}" for one in page.members))
        chosen = choose(rows(page), options.sort, options.filter)
        if options.format == "json":
            print(json.dumps(document(page, chosen)), flush=True)
        else:
            print(("\n" if number else "") + "\n".join(lines(page, chosen)), flush=True)
        number += 1
        if number == iterations:
            return OK
        sleep(options.delay)
