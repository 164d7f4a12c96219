"""`sluice fleet`: shows the members of a fleet, the holder, the shares, and the differences between members.

One member is asked, at its admin port; it returns the last view that the holder has sent. Exit code 3 if members
differ, or if this member has no lease.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from commandline.arguments import add_format
from commandline.exit_codes import NEGATIVE, OK
from proxy.commands.admin_page import ADMIN, Document, read_document
from proxy.errors import ServerError

__all__ = ["DESCRIPTION", "add_arguments", "run", "table"]

DESCRIPTION: Final = "Show the members of a fleet, who leases shares to all, and the shares of each."
_KEYS_SHOWN: Final = 20


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.set_defaults(command=run)
    command.add_argument(
        "--admin", metavar="HOST:PORT", default=ADMIN, help="the admin port of a member, or its URL"
    )
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    document = read_document(options.admin, "/fleet")
    if options.format == "json":
        json.dump(document, sys.stdout, indent=2)
        print()
    elif document.get("member"):
        print("\n".join(table(document)))
    if not document.get("member"):
        raise ServerError(f"{options.admin}: is no member of a fleet: it has no [fleet]")
    return OK if document["leased"] and not document["disagreements"] else NEGATIVE


def table(document: Document) -> Iterator[str]:
    """Yield the lines for people."""
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
    yield from _aligned(rows)
    shares = list(document["member_shares"].items())
    if shares:
        yield ""
        heads = [("quota", *(member["name"] for member in members))]
        yield from _aligned(
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


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
