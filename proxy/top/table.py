"""A page as plain text and as JSON. Pure; what clients chose is escaped."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from commandline.amounts import printable
from proxy.explain.parts import NAMES
from proxy.top.page import Page, heading, warnings
from proxy.top.rows import Chosen, Row, limit_text

HEADS: Final = ("CLIENT", "USER", "WAITS", "WHY", "RATE OF LIMIT", "CONNECTIONS", "MEMBERS")
_NAME_CHARACTERS_MAX: Final = 48
_RIGHT: Final = frozenset(("WAITS", "CONNECTIONS"))
_WHY_CHARACTERS_MAX: Final = 100
_MEMBERS_SHOWN: Final = 4


def lines(page: Page, chosen: Chosen) -> Iterator[str]:
    """Yield the page for people and for `grep`."""
    yield heading(page)
    yield from (f"WARNING: {text}" for text in warnings(page))
    if chosen.matching < page.clients.total:
        yield f"{chosen.matching} of them are listed"
    yield ""
    several = len(page.members) > 1
    yield from _aligned([HEADS if several else HEADS[:-1], *(cells(row, several) for row in chosen.rows)])


def cells(row: Row, several: bool) -> tuple[str, ...]:
    """Return a row's cells; `several`: with its members."""
    client = row.client
    own = (
        _short(client.client_id) or "(no client id)",
        _short(client.user),
        f"{row.waits:.0%}",
        _short(row.why, _WHY_CHARACTERS_MAX),
        limit_text(row),
        str(client.connections),
    )
    if not several:
        return own
    more = len(client.members) - _MEMBERS_SHOWN
    names = " ".join(map(_short, client.members[:_MEMBERS_SHOWN])) + (f" +{more}" if more > 0 else "")
    return (*own, names)


def document(page: Page, chosen: Chosen) -> dict[str, Any]:
    """Return the page as JSON."""
    return {
        "at": page.at.isoformat(timespec="seconds"),
        "window_seconds": page.window,
        "members": [
            {
                "admin": one.admin,
                "name": one.name,
                "problem": one.problem,
                "missing": list(one.missing),
                "mode": one.status.mode if one.status else None,
                "enforcing": one.status.enforcing if one.status else None,
            }
            for one in page.members
        ],
        "clients_total": page.clients.total,
        "clients": [_client(row) for row in chosen.rows],
    }


def _client(row: Row) -> dict[str, Any]:
    client = row.client
    return {
        "user": client.user,
        "client_id": client.client_id,
        "waits": row.waits,
        "why": row.why,
        "time": dict(zip(NAMES, client.times, strict=True)),
        "limit": None if row.limit is None else row.limit._asdict(),
        "connections": client.connections,
        "members": list(client.members),
    }


def _short(name: str, at_most: int = _NAME_CHARACTERS_MAX) -> str:
    shown = printable(name[: at_most + 1])
    return shown if len(shown) <= at_most else shown[: at_most - 1] + "…"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for cell, width, head in zip(row, widths, HEADS, strict=False)
        ).rstrip()
