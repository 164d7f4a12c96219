"""`sluice explain`: why a client waits, in one sentence and its numbers.

The admin port of any process of Sluice is asked; it knows the clients that pass through it, with all of its workers.
Exit code 3 if the client was not seen.
"""

import argparse
import json
import sys
from typing import Final
from urllib.parse import urlencode

from commandline.arguments import add_format
from commandline.exit_codes import NEGATIVE, OK
from proxy.commands.admin_page import ADMIN, read_document
from proxy.explain.windows import SECONDS
from proxy.v1.verdict import verdict

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION: Final = "Show where a client's time goes, and which quota it waits for."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.set_defaults(command=run)
    command.add_argument("--client-id", metavar="NAME", required=True, help="the client id")
    command.add_argument(
        "--user", metavar="NAME", help="the user (default: the one of this client id that waits longest)"
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
        default=ADMIN,
        help="the admin port, or its URL (default: %(default)s)",
    )
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    fields = {"client_id": options.client_id, "window": options.window}
    if options.user is not None:
        fields["user"] = options.user
    document = read_document(options.admin, f"/v1/client?{urlencode(fields)}", absent=True)
    if options.format == "json":
        json.dump(document, sys.stdout, indent=2)
        print()
    elif "error" in document:
        print(f"sluice: {document['error']}", file=sys.stderr)
    else:
        print("\n".join(verdict(document)))
    return NEGATIVE if "error" in document else OK
