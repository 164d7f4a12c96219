"""`sluice enforcement`: switches all enforcement off or on again, and shows whether it is on.

The processes that `--admin` names are switched one after the other; if one fails, the others are switched nevertheless.
Exit codes: 1 if one of them could not be asked or switched; else 3 if `status` finds one that enforces nothing.
"""

import argparse
import getpass
import sys
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import to_builtins

from commandline.amounts import printable
from commandline.arguments import add_format, print_result
from commandline.program import FAILED, NEGATIVE, OK
from proxy.commands.servers import ADMIN, add_admin, admin_access, read_present, send_action
from proxy.explain.documents import EnforcementDocument, StatusDocument
from proxy.system.admin_access import AdminAccess
from proxy.system.errors import ServerError, UsageError

DESCRIPTION: Final = "Switch all enforcement of quotas off or on, or say whether it is off."
_ACTION: Final = "enforcement"
_REASON_CHARACTERS_MAX: Final = 200
_STATES: Final = ("on", "off", "status")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice enforcement`."""
    command.set_defaults(command=run)
    command.add_argument("state", choices=_STATES, help="on, off, or status: say which it is")
    add_admin(command)
    command.add_argument("--reason", metavar="TEXT", default="", help="why; kept, logged and shown")
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Switch enforcement, or show whether it is on; returns the exit code."""
    if len(options.reason) > _REASON_CHARACTERS_MAX:
        raise UsageError(f"--reason may have {_REASON_CHARACTERS_MAX} characters")
    if options.reason and options.state == "status":
        raise UsageError("--reason is for on and off")
    access = admin_access(options)
    found: dict[str, StatusDocument] = {}
    rows: list[dict[str, Any]] = []
    for admin in dict.fromkeys(options.admin or [ADMIN]):
        try:
            found[admin] = _ask(admin, access, options)
            rows.append({"admin": admin, **to_builtins(found[admin])})
        except ServerError as error:
            rows.append({"admin": admin, "error": str(error)})
            print(f"sluice: {error}", file=sys.stderr)
    lines = (text for admin, one in found.items() for text in _lines(admin, one))
    print_result(options.format, {"members": rows}, lines)
    if len(found) < len(rows):
        return FAILED
    negative = options.state == "status" and not all(one.enforcing for one in found.values())
    return NEGATIVE if negative else OK


def line(admin: str, document: StatusDocument) -> str:
    """Return a line on one process's enforcement, for people.

    >>> line("gw-1:19080", StatusDocument(enforcing=True, mode="enforce"))
    'gw-1:19080: quotas are enforced'
    """
    name = f"{admin} ({printable(document.member)})" if document.member else admin
    if document.enforcing:
        return f"{name}: quotas are enforced"
    switched = document.switched
    if switched is None or switched.enforcing:
        return f"{name}: quotas are not enforced: mode {printable(document.mode)}"
    return f"{name}: enforcement is switched off, since {printable(switched.text)}"


def _lines(admin: str, document: StatusDocument) -> Iterator[str]:
    yield line(admin, document)
    if isinstance(document, EnforcementDocument) and not document.kept:
        yield f"  not kept over a restart: {printable(document.problem)}"


def _ask(admin: str, access: AdminAccess, options: argparse.Namespace) -> StatusDocument:
    if options.state == "status":
        found = read_present(admin, "/v1/status", StatusDocument, access=access)
        if not found.mode:  # every field has a default, and another server's page must not read as "enforced"
            raise ServerError(f"{admin}: its /v1/status is not that of a Sluice")
        return found
    fields = {"enforcing": str(options.state == "on").lower(), "reason": options.reason, "by": _user()}
    path = f"/v1/enforcement?{urlencode(fields)}"
    return send_action(admin, path, _ACTION, EnforcementDocument, access)


def _user() -> str:
    """Return the name of the user that runs the command; "" if the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # KeyError up to Python 3.12
        return ""
