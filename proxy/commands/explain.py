"""`sluice explain`: shows why a client waits, in one sentence with its numbers.

The admin port of a Sluice reports on the clients of this process and all of its workers. Members of a fleet are asked
at once, and their responses are merged; a member that does not respond is a line on standard error. Exit codes: 0 if a
member has seen the client, 3 if none has, 1 if that is not known because a member does not respond.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from commandline.arguments import add_format
from commandline.exit_codes import FAILED, NEGATIVE, OK
from commandline.printable import printable
from proxy.commands.admin_page import ADMIN, SECONDS_MAX, Document
from proxy.commands.member_pages import read_documents
from proxy.errors import SluiceError, UsageError
from proxy.explain.windows import SECONDS
from proxy.v1.bounds import MEMBERS_MAX, RESPONSE_BYTES_MAX
from proxy.v1.fields import DocumentError
from proxy.v1.members import MemberVerdict, merge_verdicts, read_verdict
from proxy.v1.merging import worst
from proxy.v1.verdict import verdict

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION: Final = "Show where a client's time goes, and which quota it waits for."
_SEVERAL_SECONDS_MAX: Final = 5.0  # one that hangs delays the others' verdict


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.set_defaults(command=run)
    command.add_argument("--client-id", metavar="NAME", required=True, help="the client id")
    command.add_argument(
        "--user", metavar="NAME", help="the user (default: the one of this client id that waits longest)"
    )
    command.add_argument(
        "--address", metavar="IP", help="only its connections from this address (default: all)"
    )
    command.add_argument(
        "--window",
        metavar="SECONDS",
        type=int,
        choices=SECONDS,
        default=60,
        help=f"the last {', '.join(map(str, SECONDS[:-1]))} or {SECONDS[-1]} seconds (default: %(default)s)",
    )
    command.add_argument(
        "--admin",
        metavar="HOST:PORT",
        action="append",
        help=f"the admin port of a member, or its URL; may be repeated (default: {ADMIN})",
    )
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    admins = list(dict.fromkeys(options.admin or [ADMIN]))
    if len(admins) > MEMBERS_MAX:
        raise UsageError(f"--admin: there may be at most {MEMBERS_MAX}")
    asked = _Asked(admins, options)
    if not asked.found:
        return _unknown(asked, options)
    _say_missing(asked)
    document = merge_verdicts(asked.found, list(asked.problems))
    if options.format == "json":
        _print_json(document)
    else:
        print("\n".join(verdict(document)))
    return OK


class _Asked:
    """The members' documents on the client; if several users have the client id, on the one that waits longest.

    Args:
        admins: the members' admin ports.

    Raises:
        UsageError: an address is neither HOST:PORT nor a URL.
    """

    def __init__(self, admins: Sequence[str], options: argparse.Namespace) -> None:
        self.found: list[MemberVerdict] = []
        self.unknown: Document = {}  # what a member says that does not know the client
        self.problems: dict[str, str] = {}  # by admin port
        self._fields = {"client_id": options.client_id, "window": options.window}
        if options.address:
            self._fields["address"] = options.address
        self._seconds_max = SECONDS_MAX if len(admins) == 1 else _SEVERAL_SECONDS_MAX
        self._ask(admins, options.user)
        if not self.found:
            return
        user = worst([one.seen for one in self.found]).user
        others = [one.admin for one in self.found if one.seen.user != user]
        if others:  # they have this client id of another user, and perhaps of this one too
            self.found = [one for one in self.found if one.seen.user == user]
            self._ask(others, user)
        self.found.sort(key=lambda one: admins.index(one.admin))

    def _ask(self, admins: Sequence[str], user: str | None) -> None:
        fields = self._fields if user is None else {**self._fields, "user": user}
        pages = read_documents(
            admins,
            f"/v1/client?{urlencode(fields)}",
            seconds_max=self._seconds_max,
            bytes_max=RESPONSE_BYTES_MAX,
        )
        for admin, page in pages.items():
            self._add(admin, page)

    def _add(self, admin: str, page: Document | SluiceError) -> None:
        if isinstance(page, UsageError):
            raise page
        if isinstance(page, SluiceError):
            self.problems[admin] = str(page)
        elif "error" in page:
            self.unknown = page
        else:
            try:
                self.found.append(read_verdict(admin, page))
            except DocumentError as error:
                self.problems[admin] = f"{admin}: {error}"


def _unknown(asked: _Asked, options: argparse.Namespace) -> int:
    """Print that no member has seen the client, or that a member which may have does not respond; return the code."""
    _say_missing(asked)
    if not asked.unknown:
        return FAILED
    if options.format == "json":
        _print_json({**asked.unknown, "members": [], "members_missing": list(asked.problems)})
    else:
        print(f"sluice: {printable(str(asked.unknown['error']))}", file=sys.stderr)
    return FAILED if asked.problems else NEGATIVE


def _say_missing(asked: _Asked) -> None:
    for problem in asked.problems.values():
        print(f"sluice: {printable(problem)}", file=sys.stderr)


def _print_json(document: Mapping[str, Any]) -> None:
    json.dump(document, sys.stdout, indent=2)
    print()
