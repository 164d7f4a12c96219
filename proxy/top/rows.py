"""Rows of clients: why each waits, sorted and filtered. Pure; names are as clients chose them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from proxy.top.page import Page
from proxy.v1.cause import amount_of, cause, heaviest, is_over, trouble
from proxy.v1.documents import Client, Quota, waited


class Row(NamedTuple):
    """One client.

    Args:
        waits: the part of its time that its worst connection waits for quotas.
        limit: the limit that it is closest to, with its rate; None if none matches, or the member tells none.
        trouble: sort key: those that wait for quotas, those with another cause, then the busiest.
    """

    client: Client
    waits: float
    why: str
    kind: str
    limit: Quota | None
    trouble: float

    @property
    def key(self) -> tuple[str, str]:
        """The values that identify the client."""
        return self.client.user, self.client.client_id

    @property
    def used(self) -> float:
        """The part of the limit that is used; less than nothing without one."""
        return -1.0 if self.limit is None else self.limit.rate / self.limit.value


class Chosen(NamedTuple):
    """The first rows of the sorted; `matching`: of how many that the filter finds."""

    rows: tuple[Row, ...]
    matching: int


_KEYS: Final[Mapping[str, Callable[[Row], Any]]] = MappingProxyType(
    {
        "client": lambda row: (row.client.client_id.casefold(), row.client.user),
        "user": lambda row: (row.client.user.casefold(), row.client.client_id),
        "waits": lambda row: (-row.waits, -row.trouble),
        "why": lambda row: (row.why, -row.trouble),
        "limit": lambda row: (-row.used, -row.trouble),
        "connections": lambda row: (-row.client.connections, -row.trouble),
        "members": lambda row: (-len(row.client.members), -row.trouble),
    }
)
COLUMNS: Final = tuple(_KEYS)  # in the order of the table's


def rows(page: Page) -> list[Row]:
    """Return a row for each client."""
    found = []
    for client in page.clients.clients:
        why = cause(client, page.brokers)
        limit = heaviest(client)
        rank = trouble(client, page.brokers)
        found.append(Row(client, waited(client.times), why.text, why.kind, limit, rank))
    return found


def choose(
    found: Sequence[Row], sort: str, text: str = "", *, reverse: bool = False, at_most: int | None = None
) -> Chosen:
    """Return the rows whose client id or user has a text, sorted.

    Args:
        sort: one of COLUMNS; numbers have the largest first.
        at_most: how many rows; None: all.
    """
    text = text.casefold()
    matching = [
        row
        for row in found
        if not text or text in row.client.client_id.casefold() or text in row.client.user.casefold()
    ]
    matching.sort(key=_KEYS[sort], reverse=reverse)
    return Chosen(tuple(matching[:at_most]), len(matching))


def limit_text(row: Row) -> str:
    """Return the client's rate of its limit."""
    if row.limit is None:
        return "-"
    over = ", over" if is_over(row.limit) else ""
    return (
        f"{amount_of(row.limit.kind, row.limit.rate)} of {amount_of(row.limit.kind, row.limit.value)}{over}"
    )
