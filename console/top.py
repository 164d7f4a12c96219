"""Asks members, each in a thread of its own: what is silent stalls no other.

The threads are daemons, so that the end of the command waits for no member. A member that was silent is asked again,
and not waited for; one whose question is still open is not asked a second time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec.structs import asdict

from commandline.amounts import count, printable, rate
from console.causes import cause, heaviest, lacks, missing_workers, trouble
from console.merging import (
    Divided,
    bound,
    capacity_text,
    class_text,
    merge_brokers,
    merge_capacities,
    merge_client,
    merge_clients,
    one_budget,
)
from console.verdict import verdict
from proxy.explain.documents import (
    LIST_BYTES_MAX,
    BrokersDocument,
    BrokerTimes,
    CapacitiesDocument,
    CapacityRow,
    ClientDocument,
    ClientRow,
    ClientsDocument,
    Document,
    Quota,
    Refused,
    StatusDocument,
)
from proxy.explain.parts import NAMES, amount
from proxy.system.errors import SluiceError

# ----------------------------------------------------------------------------------------------------
# What all members say at one moment. Pure.


WINDOWS: Final = {10: "10 s", 60: "minute", 900: "15 min"}
_PROBLEM_CHARACTERS_MAX: Final = 200
_CAPACITIES_SHOWN: Final = 4
_CLASSES_SHOWN: Final = 4
_BAR: Final = 20


class MemberState(NamedTuple):
    """The last documents of one member.

    Args:
        admin: its admin port, as given.
        problem: why it does not respond; "" if it does.
        missing: its worker processes whose clients are missing in its documents, each with the reason.
        capacities: the capacities as it, or its fleet, divides them; None where its version does not say.
    """

    admin: str
    status: StatusDocument | None
    clients: ClientsDocument | None
    brokers: tuple[BrokerTimes, ...]
    problem: str
    missing: tuple[str, ...] = ()
    capacities: CapacitiesDocument | None = None

    @property
    def name(self) -> str:
        """The member's name in the fleet, or its admin port."""
        return (self.status.member if self.status else "") or self.admin


class Page(NamedTuple):
    """What `sluice top` shows at once: all members' clients over the `window` seconds that end at the time `at`."""

    at: datetime
    window: int
    members: tuple[MemberState, ...]
    clients: ClientsDocument
    brokers: tuple[BrokerTimes, ...]
    capacities: tuple[Divided, ...] = ()


def merge(members: Sequence[MemberState], at: datetime, window: int) -> Page:
    """Merge the members' last documents into one page; it lacks the clients of a member that does not respond."""
    lists = [one.clients for one in members if one.clients is not None]
    clients = merge_clients(lists, shared=_shared(members))
    brokers = merge_brokers(one.brokers for one in members)
    divided = merge_capacities((one.name, one.capacities) for one in members if one.capacities is not None)
    return Page(at, window, tuple(members), clients, brokers, divided)


def capacity_lines(page: Page) -> Iterator[str]:
    """Yield a line for each capacity: how it is divided, and which classes have most of it and borrow."""
    for member, row in page.capacities[:_CAPACITIES_SHOWN]:
        own = min(_BAR, round(_BAR * row.promised / row.value))
        lent = min(_BAR - own, round(_BAR * row.lent / row.value))
        bar = f"[{'#' * own}{'+' * lent}{'.' * (_BAR - own - lent)}]"
        who = f"{printable(member)}: " if member else ""
        yield f"{bar} {who}{capacity_text(row)}{_having(row)}"
    if len(page.capacities) > _CAPACITIES_SHOWN:
        yield f"and {len(page.capacities) - _CAPACITIES_SHOWN} more capacities"


def _having(row: CapacityRow) -> str:
    """Return which classes have most of a capacity, as the end of a line."""
    texts = []
    for one in row.classes[:_CLASSES_SHOWN]:
        borrowed = f" (borrows {rate(one.lent)})" if one.lent else ""
        waits = ", waits" if one.waits else ""
        texts.append(f"{_short(class_text(one, row))} {rate(one.has + one.lent)}{borrowed}{waits}")
    return f": {'; '.join(texts)}" if texts else ""


def heading(page: Page) -> str:
    """Return the first line of a page: time, window, mode of enforcement, number of clients and members."""
    known = [one.status for one in page.members if one.status is not None]
    modes = " and ".join(sorted({_mode(status) for status in known})) or "no member responds"
    members = f", {count(len(page.members), 'member')}" if len(page.members) > 1 else ""
    return (
        f"sluice top  {page.at:%H:%M:%S}  last {WINDOWS[page.window]}  "
        f"{modes}  {count(page.clients.clients_total, 'client')}{members}"
    )


def warnings(page: Page) -> Iterator[str]:
    """Yield warnings for an operator: quotas that are not enforced, members and workers without a response."""
    for one in page.members:
        name = printable(one.name)
        if one.problem:
            yield f"{name} does not respond: {printable(one.problem)[:_PROBLEM_CHARACTERS_MAX]}"
            continue
        if one.missing:
            yield printable(lacks(one.name, one.missing))
        if one.status is None:
            continue
        if not one.status.enforcing and one.status.switched:
            yield f"{name}: enforcement is OFF since {printable(one.status.switched.text)}"
        elif not one.status.enforcing:
            yield f"{name}: quotas are NOT enforced"
        elif one.status.mode == "observe":
            yield f"{name}: quotas are only observed"
    if not _shared(page.members):
        yield "these members are no fleet, each has its own budgets: rates are of the member where they are highest"


def _shared(members: Sequence[MemberState]) -> bool:
    """Whether the members share their budgets."""
    return one_budget([one.status.member for one in members if one.status is not None])


def _mode(status: StatusDocument) -> str:
    if not status.enforcing:
        return "NOT ENFORCING" if status.mode != "observe" else "observing"
    return "observing" if status.mode == "observe" else "enforcing"


SECONDS_MAX: Final = 6.0  # for all members together
_Document = TypeVar("_Document", bound=Document)


class Read(Protocol):
    """Reads a document from an admin port; raises a SluiceError if it cannot."""

    def __call__(self, admin: str, path: str, kind: type[_Document], /, *, bytes_max: int = ...) -> _Document:
        """Return the document of a path."""


class ReadAll(Protocol):
    """Reads a document from several admin ports in a limited time, however slowly they send."""

    def __call__(
        self, admins: Sequence[str], path: str, kind: type[_Document], /
    ) -> Mapping[str, _Document | Refused | SluiceError]:
        """Return each document, or why there is none, by admin port."""


class _Asked:
    """One member, its last state, and whether a request to it is open."""

    def __init__(self, admin: str) -> None:
        self.admin = admin
        self.state = MemberState(admin, None, None, (), "")
        self.window = 0  # that `state` is of
        self.done = threading.Event()
        self.done.set()


class Members:
    """The members whose admin ports the command line names; requests their documents in threads.

    Args:
        read: reads a document from one admin port.
        read_all: reads a document from several admin ports.
        seconds_max: the time for the responses of all members together.
    """

    def __init__(
        self, admins: Sequence[str], read: Read, read_all: ReadAll, seconds_max: float = SECONDS_MAX
    ) -> None:
        self._members = tuple(_Asked(admin) for admin in dict.fromkeys(admins))
        self._read = read
        self._read_all = read_all
        self._seconds_max = seconds_max

    def page(self, window: int) -> Page:
        """Ask all members for their clients over the last `window` seconds; return the merged page."""
        deadline = time.monotonic() + self._seconds_max
        for one in self._members:
            if one.done.is_set():
                one.done.clear()
                threading.Thread(
                    target=self._ask, args=(one, window), name=f"member {one.admin}", daemon=True
                ).start()
        for one in self._members:
            silent = bool(one.state.problem) and any(not other.state.problem for other in self._members)
            one.done.wait(0 if silent else max(0.0, deadline - time.monotonic()))
        return merge([self._latest(one, window) for one in self._members], datetime.now(UTC), window)

    def verdict(self, user: str, client_id: str, window: int) -> list[str]:
        """Return lines on why a client waits, from all members that respond; `window` in seconds."""
        path = f"/v1/client?{urlencode({'client_id': client_id, 'user': user, 'window': window})}"
        found: list[ClientDocument] = []
        problems = [f"{one.admin} does not respond" for one in self._members if one.state.problem]
        names = {one.admin: one.state.name for one in self._members if not one.state.problem}
        for admin, document in self._read_all(tuple(names), path, ClientDocument).items():
            if isinstance(document, SluiceError):
                problems.append(f"{admin}: {document}")
            elif isinstance(document, ClientDocument):
                bound(document, names[admin])
                found.append(document)
                if document.missing:
                    problems.append(lacks(names[admin], missing_workers(document.missing)))
        said = [printable(problem) for problem in problems]
        if not found:
            return said or ["not seen in this window"]
        return [*verdict(merge_client(found)), *(["", *said] if said else [])]

    def _latest(self, one: _Asked, window: int) -> MemberState:
        if not one.done.is_set():
            problem = one.state.problem or f"no response within {self._seconds_max:g} s"
            one.state = MemberState(one.admin, one.state.status, None, (), problem)
        elif one.window != window:  # asked before the window was changed
            one.state = one.state._replace(clients=None)
        return one.state

    def _ask(self, one: _Asked, window: int) -> None:
        latest = MemberState(one.admin, None, None, (), "internal error")  # unless it is replaced below
        try:
            shown = self._read(one.admin, "/v1/status", StatusDocument)
            path = f"/v1/clients?window={window}"
            found = self._read(one.admin, path, ClientsDocument, bytes_max=LIST_BYTES_MAX)
            bound(found, shown.member or one.admin)
            brokers = self._read(one.admin, "/v1/brokers", BrokersDocument)
            missing = tuple(
                dict.fromkeys((*missing_workers(found.missing), *missing_workers(brokers.missing)))
            )
            latest = MemberState(
                one.admin, shown, found, brokers.brokers, "", missing, self._capacities(one.admin)
            )
        except SluiceError as error:
            latest = MemberState(one.admin, None, None, (), str(error))
        finally:
            one.state, one.window = latest, window
            one.done.set()

    def _capacities(self, admin: str) -> CapacitiesDocument | None:
        """Return the capacities as a member divides them; None where its version has no such document."""
        try:
            found = self._read(admin, "/v1/capacities", CapacitiesDocument)
        except SluiceError:
            return None
        bound(found, admin)
        return found


# ----------------------------------------------------------------------------------------------------
# Rows of clients: why each waits, sorted and filtered. Pure; names are as clients chose them.


class Row(NamedTuple):
    """One client's row in the table.

    Args:
        waits: the share of the time (0 to 1) that its most waiting connection waits for quotas.
        why: why it waits, or what takes most of its time, in words; `kind` is its `Cause.kind`.
        limit: the limit that it is closest to, with its rate; None if no limit matches it, or the member sends none.
        trouble: the sort key of `causes.trouble`: the higher, the more it needs an operator.
    """

    client: ClientRow
    waits: float
    why: str
    kind: str
    limit: Quota | None
    trouble: float

    @property
    def key(self) -> tuple[str, str]:
        """The user and client id, which identify a row."""
        return self.client.user, self.client.client_id

    @property
    def used(self) -> float:
        """The client's rate divided by its limit (above 1: over it); -1 without a limit."""
        return -1.0 if self.limit is None else self.limit.rate / self.limit.value


class Chosen(NamedTuple):
    """The sorted rows to show, and how many rows the filter has found in all (`matching`)."""

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
        "members": lambda row: (-len(row.client.members or ()), -row.trouble),
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
        found.append(Row(client, client.time.waited, why.text, why.kind, limit, rank))
    return found


def choose(
    found: Sequence[Row], sort: str, text: str = "", *, reverse: bool = False, at_most: int | None = None
) -> Chosen:
    """Return the rows whose client id or user contains `text`, sorted.

    Args:
        sort: one of COLUMNS; a column of numbers begins with the largest.
        reverse: whether to reverse this order.
        at_most: the largest number of rows; None for all.
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
    """Return a client's rate and its limit as text; "-" without a limit."""
    if row.limit is None:
        return "-"
    over = ", over" if row.limit.is_over else ""
    return f"{amount(row.limit.kind, row.limit.rate)} of {amount(row.limit.kind, row.limit.value)}{over}"


# ----------------------------------------------------------------------------------------------------
# A page as plain text and as JSON. Pure; what clients chose is escaped.


HEADS: Final = ("CLIENT", "USER", "WAITS", "WHY", "RATE OF LIMIT", "CONNECTIONS", "MEMBERS")
_NAME_CHARACTERS_MAX: Final = 48
_RIGHT: Final = frozenset(("WAITS", "CONNECTIONS"))
_WHY_CHARACTERS_MAX: Final = 100
_MEMBERS_SHOWN: Final = 4


def lines(page: Page, chosen: Chosen) -> Iterator[str]:
    """Yield the page as plain text, for a terminal or for `grep`."""
    yield heading(page)
    yield from (f"WARNING: {text}" for text in warnings(page))
    yield from capacity_lines(page)
    if chosen.matching < page.clients.clients_total:
        yield f"{chosen.matching} of them are listed"
    yield ""
    several = len(page.members) > 1
    yield from _aligned([HEADS if several else HEADS[:-1], *(cells(row, several) for row in chosen.rows)])


def cells(row: Row, several: bool) -> tuple[str, ...]:
    """Return a row's cells as text; with the members' names if there are several members."""
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
    members = client.members or ()
    more = len(members) - _MEMBERS_SHOWN
    names = " ".join(map(_short, members[:_MEMBERS_SHOWN])) + (f" +{more}" if more > 0 else "")
    return (*own, names)


def document(page: Page, chosen: Chosen) -> dict[str, Any]:
    """Return the page as a JSON value."""
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
        "capacities": [
            {"member": one.member, **msgspec.to_builtins(one.capacity)} for one in page.capacities
        ],
        "clients_total": page.clients.clients_total,
        "clients": [_client(row) for row in chosen.rows],
    }


def _client(row: Row) -> dict[str, Any]:
    client = row.client
    return {
        "user": client.user,
        "client_id": client.client_id,
        "waits": row.waits,
        "why": row.why,
        "time": dict(zip(NAMES, client.time.parts, strict=True)),
        "limit": None if row.limit is None else asdict(row.limit),
        "connections": client.connections,
        "members": list(client.members or ()),
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
