"""`/clients`: a table of the clients with their rates, quotas and debts.

Rows are chosen and formatted here; `site` reads them from the engine in portions. Of any number of clients, ROWS_MAX
are shown: those over a quota, the furthest first, then those with the most traffic. Peers choose names, so they are
escaped and shortened. A browser gets HTML, everything else (curl) a plain table.
Nothing here knows sockets or the clock.
"""

import heapq
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, Self

import msgspec

from commandline.amounts import printable
from proxy.admin.http import Page
from proxy.admin.pages import TEXT, html, missing_text, strong
from proxy.explain.documents import Missing
from quotas.definitions.kinds import BY_TYPE, BYTES, PARTITIONS, PERCENT, Unit
from quotas.throttles.figures import GATEWAY, QuotaView

ROWS_MAX: Final = 200
NAME_CHARACTERS_MAX: Final = 200
TOPIC: Final = "Topic "  # begins the kind of a topic's rows: its name stands as the client id
TITLES: Final = (
    "Client id",
    "User",
    "Kind",
    "Broker",
    "Rate",
    "At all brokers",
    "Quota",
    "Rate / quota",
    "Owes",
    "Throttled, s",
    "Would be throttled, s",
)

_SUMMED: Final = (
    *("byte_rate", "bytes_total", "debt_bytes", "throttle_ms_total", "throttled_total"),
    *("would_throttle_ms_total", "would_throttled_total"),
)

_Identity = tuple[str, str, str]


class ClientPart(msgspec.Struct, frozen=True, array_like=True):
    """One process's part of the table `/clients`, to be merged with those of the other processes.

    Args:
        clients: the number of its clients.
        over: the number of those that are over a quota.
        rows: the clients that it shows, with a view for each broker.
        rates: the rates of these clients at all brokers together.
    """

    clients: int
    over: int
    rows: list[QuotaView]
    rates: dict[_Identity, float]


class ClientTable:
    """The table of one `/clients` response: `count` all clients, `add_rates` for those shown, then `page` or `text`."""

    def __init__(self) -> None:
        self._count = 0
        self._over_count = 0
        self._rows: list[QuotaView] = []
        self._rates: dict[_Identity, float] = {}
        self._missing: tuple[Missing, ...] = ()

    @classmethod
    def merge(cls, parts: Iterable[ClientPart], missing: tuple[Missing, ...] = ()) -> Self:
        """Merge the parts of several processes; the figures of the same client at the same broker are added up.

        A part has only the clients that its process shows. So if there are more clients than rows, the number of all
        clients is not known exactly: the largest number of a single process is shown.

        Args:
            missing: the processes that have not sent a part.
        """
        table = cls()
        table._missing = missing
        merged: dict[tuple[_Identity, int], QuotaView] = {}
        for part in parts:
            for view in part.rows:
                place = _identity(view), view.broker
                found = merged.get(place)
                merged[place] = view if found is None else _sum(found, view)
            for identity, rate in part.rates.items():
                table._rates[identity] = table._rates.get(identity, 0.0) + rate
            table._count = max(table._count, part.clients)
            table._over_count = max(table._over_count, part.over)
        table._count = max(table._count, len(merged))
        table._over_count = max(table._over_count, sum(map(_is_over, merged.values())))
        table._rows = heapq.nlargest(ROWS_MAX, merged.values(), key=_weight)
        return table

    def part(self) -> ClientPart:
        """Return this process's table as a part, to be merged with those of other processes."""
        rates = self._rates
        if not rates:
            for view in self._rows:
                rates[_identity(view)] = view.byte_rate
        return ClientPart(self._count, self._over_count, self._rows, rates)

    @property
    def at_several_brokers(self) -> bool:
        """Whether a shown client may be at several brokers: then all clients must be passed to `add_rates` too."""
        return any(view.broker != GATEWAY for view in self._rows)

    def count(self, views: Iterable[QuotaView]) -> None:
        """Count a portion of the clients, and keep as rows those over a quota, then those with the highest rates."""
        found = list(views)
        self._count += len(found)
        self._over_count += sum(map(_is_over, found))
        self._rows = heapq.nlargest(ROWS_MAX, [*self._rows, *found], key=_weight)

    def add_rates(self, views: Iterable[QuotaView]) -> None:
        """Add up the rates of the shown clients over all brokers, from a portion of all clients."""
        if not self._rates:
            self._rates = dict.fromkeys(map(_identity, self._rows), 0.0)
        for view in views:
            identity = _identity(view)
            if identity in self._rates:
                self._rates[identity] += view.byte_rate

    def page(self, enforcing: bool, notice: str = "") -> Page:
        """Return the table as a page of HTML.

        Args:
            enforcing: whether quotas are enforced, as the page says.
            notice: a warning to show on top; "" for none.
        """
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in self._cells(view)) + "</tr>"
            for view in self._rows
        )
        head = "".join(f"<th>{title}</th>" for title in TITLES)
        table = f"<table><tr>{head}</tr>{rows}</table>"
        warnings = f"{strong(notice)}{strong(missing_text(self._missing))}"
        return html("Clients", f"{warnings}<p>{self._summary(enforcing)}</p>{table}")

    def text(self, enforcing: bool, notice: str = "") -> Page:
        """Return the page as plain text; control characters in names are escaped."""
        lines = [TITLES, *([*map(printable, self._cells(view))] for view in self._rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = "".join(f"{'  '.join(map(str.ljust, line, widths)).rstrip()}\n" for line in lines)
        head = "".join(f"{printable(line)}\n" for line in (notice, missing_text(self._missing)) if line)
        text = f"{head}{self._summary(enforcing)}\n\n{table}"
        return Page(200, TEXT, text.encode("utf-8", "backslashreplace"))

    def _summary(self, enforcing: bool) -> str:
        effect = "throttled" if enforcing else "not throttled, since nothing is enforced"
        rows = str(len(self._rows))
        if self._count > len(self._rows):
            rows += f" of {self._count}; those over a quota come first, then those that move most"
        return f"Over a quota now, and {effect}: {self._over_count}. Rates are over the quotas' windows. Rows: {rows}."

    def _cells(self, view: QuotaView) -> Sequence[str]:
        total = self._rates.get(_identity(view), view.byte_rate)
        return (
            _name(view.client_id) or "(empty)",
            _name(view.user),
            view.type,
            "all" if view.broker == GATEWAY else str(view.broker),
            _rate(view, view.byte_rate),
            _rate(view, total),
            "none" if view.quota is None else _amount(view, view.quota),
            "" if view.quota is None or not _is_measured(view) else f"{_share(view):.2f}",
            _owed(view),
            f"{view.throttle_ms_total / 1000:,.1f}",
            f"{view.would_throttle_ms_total / 1000:,.1f}",
        )


def _unit(view: QuotaView) -> Unit:
    return BY_TYPE[view.type.removeprefix(TOPIC)].unit


def _identity(view: QuotaView) -> _Identity:
    return view.type, view.user, view.client_id


def _sum(one: QuotaView, other: QuotaView) -> QuotaView:
    """Return the sum of the figures of one client at one broker in two processes."""
    tokens = [view.tokens for view in (one, other) if view.tokens is not None]
    sums = {name: getattr(one, name) + getattr(other, name) for name in _SUMMED}
    quota = other.quota if one.quota is None else one.quota
    return one._replace(**sums, quota=quota, tokens=sum(tokens) if tokens else None)


def _is_over(view: QuotaView) -> bool:
    if view.quota is None:
        return False
    if _unit(view) is PARTITIONS:
        return view.tokens is not None and view.tokens < 0  # a burst may be faster than the quota
    return view.debt_bytes > 0 or view.byte_rate > view.quota


def _weight(view: QuotaView) -> tuple[bool, float, float]:
    """Return the sort key of a row: clients over a quota by the excess, then the others by bytes/s."""
    over = _is_over(view)
    return over, _share(view) if over else 0.0, 0.0 if _unit(view) is PERCENT else view.byte_rate


def _is_measured(view: QuotaView) -> bool:
    """Whether there is a rate; for topics and partition mutations only the debt is known."""
    return _unit(view) is not PARTITIONS and not view.type.startswith(TOPIC)


def _share(view: QuotaView) -> float:
    """Return the rate divided by the quota (1: as much as permitted); without a rate, the debt divided by the quota."""
    if not view.quota:
        return 0.0
    if view.tokens is not None:  # owed tokens by what comes back in a second
        return max(0.0, -view.tokens) / view.quota
    return max(view.byte_rate, view.debt_bytes if view.type.startswith(TOPIC) else 0.0) / view.quota


def _rate(view: QuotaView, rate: float) -> str:
    """Return a rate with its unit; "" if none is measured."""
    return _amount(view, rate) if _is_measured(view) else ""


def _amount(view: QuotaView, amount: float) -> str:
    unit = _unit(view)
    if unit is PERCENT:
        return f"{amount:,.1f} %"
    return f"{amount:,.0f} B/s" if unit is BYTES else f"{amount:,g} {unit.name}"


def _owed(view: QuotaView) -> str:
    if view.tokens is not None:
        return f"{max(0.0, -view.tokens):,.1f} partitions"
    return "" if _unit(view) is PERCENT else f"{view.debt_bytes:,.0f} B"


def _name(text: str) -> str:
    return text if len(text) <= NAME_CHARACTERS_MAX else text[:NAME_CHARACTERS_MAX] + "…"
