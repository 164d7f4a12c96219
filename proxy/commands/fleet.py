"""`sluice fleet`: shows the members of a fleet, the holder, the shares, and the differences between members; makes the
secret with which members sign.

One member is asked, at its admin port; it returns the last view that the holder has sent. Exit code 3 if members
differ, or if this member has no lease.
"""

import argparse
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from commandline.amounts import aligned
from commandline.arguments import add_format, print_result
from commandline.program import NEGATIVE, OK
from proxy.commands.servers import ADMIN, Document, add_admin_files, admin_access, read_document
from proxy.system.errors import ServerError, SluiceError, system_reason
from proxy.system.files import SECRET_BYTES_MIN, write_secret

DESCRIPTION: Final = "Show the members of a fleet, who leases shares to all, and the shares of each."
_SECRET: Final = (
    "Make a secret for fleet.secret_file, the same in all members: 64 hexadecimal digits of 32 random bytes."
)
_KEYS_SHOWN: Final = 20


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice fleet`."""
    command.set_defaults(command=run)
    actions = command.add_subparsers(metavar="ACTION")
    secret = actions.add_parser("secret", help="make a secret for fleet.secret_file", description=_SECRET)
    secret.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="the file, which must not exist yet (default: print it)",
    )
    secret.set_defaults(command=make_secret)
    command.add_argument(
        "--admin", metavar="HOST:PORT", default=ADMIN, help="the admin port of a member, or its URL"
    )
    add_admin_files(command)
    add_format(command)


def make_secret(options: argparse.Namespace) -> int:
    """Make a secret, and print it or write it to a new file; return the exit code.

    Raises:
        SluiceError: the file exists, or cannot be written.
    """
    secret = secrets.token_hex(SECRET_BYTES_MIN)
    if options.file is None:
        print(secret)
        return OK
    try:
        write_secret(options.file, secret)
    except OSError as error:
        raise SluiceError(f"{options.file}: {system_reason(error)}") from None
    print(
        f"{options.file}: 32 random bytes, readable for their owner alone; copy it to all members",
        file=sys.stderr,
    )
    return OK


def run(options: argparse.Namespace) -> int:
    """Read the fleet's state from a member, and print it; returns the exit code."""
    document = read_document(options.admin, "/fleet", admin_access(options))
    if options.format == "json" or document.get("member"):
        print_result(options.format, document, table(document))
    if not document.get("member"):
        raise ServerError(f"{options.admin}: is no member of a fleet: it has no [fleet]")
    return OK if document["leased"] and not document["disagreements"] else NEGATIVE


def table(document: Document) -> Iterator[str]:
    """Yield the lines on the fleet for people: the holder, the members and their shares."""
    yield _own(document)
    if document["problem"]:
        yield f"  {document['problem']}"
    members: Sequence[Document] = document["members"]
    holder = document["holder"] or "not known"
    learning = "; it has just begun, and raises no share yet" if document["learning"] else ""
    yield f"holder: {holder}{learning}"
    yield ""
    rows = [("member", "version", "present", "last report", "quotas")]
    rows += [
        (
            member["name"],
            member.get("version", "–"),
            f"{member['present_seconds']} s",
            f"{member['silent_seconds']:.1f} s ago",
            member.get("quotas", "–"),
        )
        for member in members
    ]
    yield from aligned(rows)
    shares = list(document["member_shares"].items())
    if shares:
        yield ""
        heads = [("quota", *(member["name"] for member in members))]
        yield from aligned(
            [*heads, *((_shown(key), *map(_percent, parts)) for key, parts in shares[:_KEYS_SHOWN])]
        )
        if len(shares) > _KEYS_SHOWN:
            yield f"and {len(shares) - _KEYS_SHOWN} more; --format json has them"
    if document["disagreements"]:
        yield ""
        yield from (f"differs: {sentence}" for sentence in document["disagreements"])


def _own(document: Document) -> str:
    name = document["name"]
    if document["leased"]:
        role = ", and leases shares to all members" if document["holds"] else ""
        return f"{name}: has a lease for {document['lease_left_seconds']:.1f} s{role}"
    if document["cut_off"]:
        return f"{name}: is cut off, and uses {_percent(document['default_share'])} of each quota"
    return f"{name}: has just begun, and uses {_percent(document['default_share'])} of each quota"


def _percent(share: float) -> str:
    return f"{share:.2%}"


def _shown(key: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in key)
