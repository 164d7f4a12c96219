"""`sluice explain`: shows why a client waits, or the clients of a user, in one sentence with its numbers.

The admin port of a Sluice reports on the clients of this process and all of its workers. Members of a fleet are asked
at once, and their responses are merged; a member that does not respond is a line on standard error. Exit codes: 0 if a
member has seen the client, 3 if none has, 1 if that is not known because a member does not respond. An unknown client
is said with those of the nearest names, and the other members of a fleet that may have seen it.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar
from urllib.parse import urlencode

from commandline.amounts import printable
from commandline.arguments import add_format, print_result
from commandline.program import FAILED, NEGATIVE, OK
from console.causes import lacks, missing_workers
from console.merging import (
    Guess,
    bound,
    guesses,
    merge_client,
    merge_clients,
    one_budget,
    user_document,
    user_lines,
    worst,
)
from console.verdict import verdict
from proxy.commands.servers import ADMIN, SECONDS_MAX, add_admin, admin_access, read_all
from proxy.explain.documents import (
    LIST_BYTES_MAX,
    MEMBERS_MAX,
    RESPONSE_BYTES_MAX,
    ClientDocument,
    ClientsDocument,
    Document,
    FleetDocument,
    Refused,
    StatusDocument,
    encode,
)
from proxy.explain.parts import SECONDS
from proxy.system.admin_access import AdminAccess
from proxy.system.errors import SluiceError, UsageError

DESCRIPTION: Final = "Show where a client's time goes and which quota it waits for, or the clients of a user."
_Document = TypeVar("_Document", bound=Document)
_Responses = tuple[dict[str, _Document], dict[str, Refused], dict[str, str]]
"""By admin port: the documents, what those say that have none, and the problems of the others."""
_SEVERAL_SECONDS_MAX: Final = 5.0  # one that hangs delays the others' verdict


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice explain`."""
    command.set_defaults(command=run)
    command.add_argument(
        "--client-id", metavar="NAME", help="the client id (default: all of the user's clients are shown)"
    )
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
    add_admin(command)
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Print why a client waits, or which of a user's clients wait; returns the exit code."""
    admins = list(dict.fromkeys(options.admin or [ADMIN]))
    if len(admins) > MEMBERS_MAX:
        raise UsageError(f"--admin: there may be at most {MEMBERS_MAX}")
    if options.client_id is None and options.user is None:
        raise UsageError("explain: --client-id or --user is missing")
    access = admin_access(options)
    if options.client_id is None:
        return _run_user(admins, access, options)
    found, refused, problems = _read_client(admins, access, options)
    if not found:
        _say_missing(problems, {})
        if not refused:
            return FAILED
        responding = [admin for admin in admins if admin not in problems]
        _print_unknown(next(iter(refused.values())), responding, list(problems), access, options)
        return FAILED if problems else NEGATIVE
    _say_missing(problems, found)
    document = merge_client(list(found.values()), list(problems))
    print_result(options.format, json.loads(encode(document)), verdict(document))
    return OK


def _read_client(
    admins: Sequence[str], access: AdminAccess, options: argparse.Namespace
) -> _Responses[ClientDocument]:
    """Read the members' documents on the client; if several users have its id, on the one that waits longest."""
    fields = {"client_id": options.client_id, "window": options.window}
    if options.address:
        fields["address"] = options.address
    seconds_max = SECONDS_MAX if len(admins) == 1 else _SEVERAL_SECONDS_MAX

    def ask(some: Sequence[str], user: str | None) -> _Responses[ClientDocument]:
        path = f"/v1/client?{urlencode(fields if user is None else {**fields, 'user': user})}"
        return _read_all(some, path, ClientDocument, access, seconds_max=seconds_max)

    found, refused, problems = ask(admins, options.user)
    if found:
        user = worst(list(found.values())).user
        others = [admin for admin, one in found.items() if one.user != user]
        if others:  # they have this client id of another user, and perhaps of this one too
            more, _, silent = ask(others, user)
            found = {admin: one for admin, one in found.items() if one.user == user} | more
            problems |= silent
    return {admin: found[admin] for admin in admins if admin in found}, refused, problems


def _read_all(
    admins: Sequence[str],
    path: str,
    kind: type[_Document],
    access: AdminAccess,
    *,
    seconds_max: float = _SEVERAL_SECONDS_MAX,
    bytes_max: int = RESPONSE_BYTES_MAX,
) -> _Responses[_Document]:
    """Read a document from all members.

    Raises:
        UsageError: an address is neither HOST:PORT nor a URL.
    """
    found, refused, problems = {}, {}, {}
    pages = read_all(admins, path, kind, access=access, seconds_max=seconds_max, bytes_max=bytes_max)
    for admin, page in pages.items():
        if isinstance(page, UsageError):
            raise page
        if isinstance(page, SluiceError):
            problems[admin] = str(page)
        elif isinstance(page, Refused):
            refused[admin] = page
        else:
            bound(page, admin)
            found[admin] = page
    return found, refused, problems


def _read_lists(
    admins: Sequence[str], access: AdminAccess, window: int, user: str | None = None
) -> tuple[dict[str, ClientsDocument], dict[str, str]]:
    """Return the members' lists of all clients or of one user's, and why the others cannot be read, by admin port."""
    fields = {"window": window} if user is None else {"window": window, "user": user}
    path = f"/v1/clients?{urlencode(fields)}"
    found, refused, problems = _read_all(
        admins, path, ClientsDocument, access, seconds_max=SECONDS_MAX, bytes_max=LIST_BYTES_MAX
    )
    return found, problems | {admin: f"{admin}: {one.error}" for admin, one in refused.items()}


def _run_user(admins: Sequence[str], access: AdminAccess, options: argparse.Namespace) -> int:
    """Print an explanation of all clients of a user; returns the exit code."""
    if options.address:
        raise UsageError("--address: needs --client-id")
    lists, problems = _read_lists(admins, access, options.window, options.user)
    _say_missing(problems, lists)
    found = merge_clients(list(lists.values()), shared=_shared(list(lists), access))
    if found.clients:
        document = user_document(options.user, found, list(lists), list(problems))
        print_result(options.format, json.loads(encode(document)), user_lines(document, found))
        return OK
    if not lists:
        return FAILED
    said = Refused(f"no client of user {options.user!r} was seen")
    _print_unknown(said, list(lists), list(problems), access, options)
    return FAILED if problems or found.missing else NEGATIVE


def _shared(admins: Sequence[str], access: AdminAccess) -> bool:
    """Whether the members belong to one fleet, and so share their budgets."""
    if len(admins) < 2:
        return True
    found, _, _ = _read_all(admins, "/v1/status", StatusDocument, access)
    return one_budget([one.member for one in found.values()])


def _print_unknown(
    said: Refused,
    admins: Sequence[str],
    missing: Sequence[str],
    access: AdminAccess,
    options: argparse.Namespace,
) -> None:
    """Print that the client or user is unknown, with the nearest names of those that were seen."""
    lists, _ = _read_lists(admins, access, SECONDS[-1])
    seen = merge_clients(list(lists.values())).clients
    near = guesses(seen, user=options.user, client_id=options.client_id)
    if options.format == "json":
        members = {"members": [], "members_missing": list(missing)}
        document = {"error": said.error, "guesses": [one._asdict() for one in near], **members}
        print_result(options.format, document, ())
        return
    words = "; did you mean " + " or ".join(map(_arguments, near)) + "?" if near else ""
    print(f"sluice: {printable(said.error)}{words}", file=sys.stderr)
    if others := _other_members(admins, access):
        asked = " ".join(f"--admin {shlex.quote(one)}" for one in (*admins, *others))
        print(f"sluice: other members of the fleet may have seen it: {printable(asked)}", file=sys.stderr)


def _other_members(admins: Sequence[str], access: AdminAccess) -> list[str]:
    """Return the admin ports of the fleet's members that were not asked, as the first one knows them."""
    if not admins:
        return []
    found, _, _ = _read_all(admins[:1], "/v1/fleet", FleetDocument, access)
    members = [member for one in found.values() if one.member for member in one.members[:MEMBERS_MAX]]
    known = {_bare(admin) for admin in admins}
    return [one.admin for one in members if one.admin and _bare(one.admin) not in known]


def _bare(admin: str) -> str:
    return admin.rpartition("://")[2].rstrip("/")


def _arguments(guess: Guess) -> str:
    """Return the command-line arguments that ask for a guessed client."""
    user = f"--user {shlex.quote(guess.user)}" if guess.user else ""
    client_id = f"--client-id {shlex.quote(guess.client_id)}" if guess.client_id else ""
    return printable(" ".join(filter(None, (client_id, user))))


def _say_missing(problems: Mapping[str, str], documents: Mapping[str, Document]) -> None:
    """Print which members did not respond, and which workers the others lack."""
    for problem in problems.values():
        print(f"sluice: {printable(problem)}", file=sys.stderr)
    for admin, document in documents.items():
        if document.missing:
            missing = missing_workers(document.missing)
            print(f"sluice: {printable(lacks(admin, missing))}", file=sys.stderr)
