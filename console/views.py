"""What each page shows: panels by name, with the values for their templates.

A page and the stream of its changes are the same panels, so what is pushed cannot differ from what a reload shows.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from console.board import SLOT_SECONDS, Board
from console.causes import WAITS_MIN, cause, heaviest, trouble
from console.merging import merge_client, worst
from proxy.explain.documents import CLASSES_MAX, SLOW_MS, BrokerTimes, ClientRow, Quota

# ----------------------------------------------------------------------------------------------------
# Lists of clients: filtered, sorted, and one page of them. Pure.
#
# The list is sorted here and not in the browser: a page has ROWS_PER_PAGE rows, whatever the number of clients.


ROWS_PER_PAGE: Final = 50
WINDOWS: Final = {10: "10 s", 60: "1 min", 900: "15 min"}
SHOWS: Final = {"all": "all", "waiting": "waiting", "near": "above 80 % of a quota"}
SORTS: Final = ("trouble", "client", "waits", "quota", "connections")
_NEAR: Final = 0.8
_FILTER_CHARACTERS_MAX: Final = 200
_NAME_CHARACTERS_MAX: Final = 40_000
_PAGES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The query parameters of a page's URL; invalid values are replaced by the defaults."""

    window: int = 60
    q: str = ""
    sort: str = "trouble"
    order: str = "desc"
    show: str = "all"
    page: int = 1
    user: str = ""
    client_id: str = ""
    kind: str = ""
    key: str = ""
    entity: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """Parse the query parameters of a URL.

        >>> Asked.of({"window": "7", "sort": "client", "page": "x", "q": "web"})
        Asked(window=60, q='web', sort='client', order='asc', show='all', page=1, user='', client_id='', ...)
        """
        window, page = query.get("window", ""), query.get("page", "")
        sort = query.get("sort", "")
        sort = sort if sort in SORTS else "trouble"
        order = query.get("order", "")
        names = {
            name: query.get(name, "")[:_NAME_CHARACTERS_MAX]
            for name in ("user", "client_id", "kind", "key", "entity")
        }
        return cls(
            window=int(window) if window in map(str, WINDOWS) else 60,
            q=query.get("q", "")[:_FILTER_CHARACTERS_MAX],
            sort=sort,
            order=order if order in ("asc", "desc") else "asc" if sort == "client" else "desc",
            show=query.get("show", "") if query.get("show", "") in SHOWS else "all",
            page=max(1, min(int(page), _PAGES_MAX)) if page.isdecimal() and len(page) < 9 else 1,
            **names,
        )

    def link(self, **changes: Any) -> str:
        """Return the query string of the same page with these parameters changed, for a link; defaults are left out.

        Sorting by the present column again reverses the order. Any change but of `page` or `window` leads to page 1.
        """
        other, usual = replace(self, **changes), Asked()
        if "sort" in changes and "order" not in changes:
            reverse = changes["sort"] == self.sort and self.order == _first_order(self.sort)
            turned = "asc" if self.order == "desc" else "desc"
            other = replace(other, order=turned if reverse else _first_order(other.sort))
        if "page" not in changes and "window" not in changes:
            other = replace(other, page=1)
        fields = {
            name: getattr(other, name)
            for name in self.__slots__
            if getattr(other, name) != getattr(usual, name) and name != "order"
        }
        if other.order != _first_order(other.sort):
            fields["order"] = other.order
        return "?" + urlencode(fields)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows on one page of a list.

    Args:
        matching: how many clients the filter has found.
        first: the number of the first row, from 1.
        page, pages: the number of this page, and of all pages.
    """

    rows: tuple[ClientRow, ...]
    matching: int
    first: int
    page: int
    pages: int


def choose(clients: Sequence[ClientRow], asked: Asked, brokers: Sequence[BrokerTimes]) -> Chosen:
    """Filter and sort the clients, and return the requested page; the last page if the number is too large."""
    found = [client for client in clients if _matches(client, asked)]
    found.sort(key=_key(asked.sort, brokers), reverse=asked.order == "desc")
    pages = max(1, -(-len(found) // ROWS_PER_PAGE))
    page = min(asked.page, pages)
    first = (page - 1) * ROWS_PER_PAGE
    return Chosen(tuple(found[first : first + ROWS_PER_PAGE]), len(found), first + 1, page, pages)


def _matches(client: ClientRow, asked: Asked) -> bool:
    if asked.show == "waiting" and client.time.waited < WAITS_MIN:
        return False
    if asked.show == "near" and _part_of_quota(client) < _NEAR:
        return False
    text = asked.q.casefold()
    return not text or text in client.client_id.casefold() or text in client.user.casefold()


def _part_of_quota(client: ClientRow) -> float:
    found = heaviest(client)
    return 0.0 if found is None else found.rate / found.value


def _key(sort: str, brokers: Sequence[BrokerTimes]) -> Callable[[ClientRow], Any]:
    keys: dict[str, Callable[[ClientRow], Any]] = {
        "client": lambda client: (client.client_id.casefold(), client.user),
        "waits": lambda client: client.time.waited,
        "quota": _part_of_quota,
        "connections": lambda client: client.connections,
    }
    return keys.get(sort, lambda client: trouble(client, brokers))


def _first_order(sort: str) -> str:
    return "asc" if sort == "client" else "desc"


_TROUBLED_MAX: Final = 6  # clients with their sentence on the first screen
_HEAVIEST_MAX: Final = 8
_CAPACITIES_SHOWN: Final = 4  # on the first screen
_CLASSES_SHOWN: Final = 5
_EVENTS_SHOWN: Final = 8
_EVENTS_PAGE: Final = 200
_ROWS_SPARK_SLOTS: Final = 60  # five minutes
_BROKER_MIN: Final = 0.2  # of its time, before a slow broker is worth a line
_TIMELINE_SLOTS_MIN: Final = 36  # three minutes


class View(NamedTuple):
    """A page before it is rendered: the names of its panels (sections, each a template), and their values.

    Args:
        name: the name of the page, which is also that of its stream of updates.
        title: the title of the document.
        panels: the panels of the main column, in order.
        side: the panels of a second column.
        values: the values for all templates.
        found: False if the page is about a client that no member knows.
    """

    name: str
    title: str
    panels: tuple[str, ...]
    values: Mapping[str, Any]
    side: tuple[str, ...] = ()
    found: bool = True

    @property
    def whole(self) -> bool:
        """Whether the page is complete: all members respond, and so do all of their worker processes."""
        return self.values["responding"] == len(self.values["members"]) and not self.values["lacking"]


class TroubledClient(NamedTuple):
    """A client that waits, with the sentence that says why, and its times in the last minutes."""

    client: ClientRow
    kind: str
    part: float
    sentence: str
    samples: Sequence[tuple[float, ...] | None]


class Use(NamedTuple):
    """A client, and the limit that it is closest to."""

    client: ClientRow
    quota: Quota


async def overview(board: Board, asked: Asked) -> View:
    """Return the first page: the clients that most need an operator, then the list of all clients."""
    found, brokers, capacities = await asyncio.gather(
        board.clients(asked.window), board.brokers(), board.capacities()
    )
    worst_first = sorted(found.clients, key=lambda client: trouble(client, brokers), reverse=True)
    troubled = await _troubled(board, asked, worst_first, brokers)
    uses = [Use(client, quota) for client in found.clients if (quota := heaviest(client)) is not None]
    uses.sort(key=lambda use: use.quota.rate / use.quota.value, reverse=True)
    chosen = choose(found.clients, asked, brokers)
    kinds = [cause(client, brokers).kind for client in found.clients]
    return View(
        "overview",
        "Sluice",
        ("banners", "troubled", "clients"),
        {
            **_common(board, asked),
            "troubled": troubled,
            "capacities": capacities[:_CAPACITIES_SHOWN],
            "capacities_total": len(capacities),
            "classes_max": _CLASSES_SHOWN,
            "counts": {
                kind: kinds.count(kind) for kind in ("quota", "observed", "broker", "client", "sluice")
            },
            "total": found.clients_total,
            "chosen": chosen,
            "rows": [_row(board, client, brokers) for client in chosen.rows],
            "has_rates": bool(uses) or any(client.quotas for client in found.clients),
            "uses": uses[:_HEAVIEST_MAX],
            "brokers": [
                (broker, board.history.broker(broker.broker, time.monotonic())) for broker in brokers
            ],
            "slow_ms": SLOW_MS,
            "events": board.events(_EVENTS_SHOWN),
        },
        side=("capacities", "uses", "brokers", "members", "events"),
    )


async def client(board: Board, asked: Asked) -> View:
    """Return the page of one client: why it waits, where its time goes, and what could be done."""
    found, brokers = await asyncio.gather(
        board.client(asked.user, asked.client_id, asked.window), board.brokers()
    )
    title = asked.client_id or "(no client id)"
    common = _common(board, asked)
    if not found:
        return View("client", title, ("banners", "unknown_client"), common, found=False)
    first = worst(found)
    at = first.broker.broker if first.broker and first.time.broker >= _BROKER_MIN else None
    now = time.monotonic()
    slots = max(_TIMELINE_SLOTS_MIN, board.history.seconds(now) // SLOT_SECONDS)
    samples = board.history.client((asked.user, asked.client_id), now, slots)
    return View(
        "client",
        title,
        ("banners", "verdict", "timeline", "rule", "wants", "neighbours", "connections"),
        {
            **common,
            "one": first,
            "others": [one for one in found if one is not first],
            # Without the newest if that is not known yet: it would look as if the client were gone.
            "samples": samples[:-1] if samples[-1] is None else samples,
            "samples_seconds": slots * SLOT_SECONDS,
            "together": merge_client(found, shared=board.shared),
            "slow": next((one for one in brokers if one.broker == at and one.p99_ms >= SLOW_MS), None),
        },
    )


async def rule(board: Board, asked: Asked) -> View:
    """Return the page of one limit, with all clients that it applies to."""
    found, brokers, rules = await asyncio.gather(board.clients(asked.window), board.brokers(), board.rules())
    under = [one for one in found.clients if _is_under(one, asked)]
    chosen = choose(under, asked, brokers)
    wanted = asked.kind, asked.key, asked.entity
    row = next((one for one in rules or () if (one.kind, one.key, one.entity) == wanted), None)
    return View(
        "rule",
        f"{asked.key or asked.kind} of {asked.entity}",
        ("banners", "rule_head", "clients"),
        {
            **_common(board, asked),
            "row": row,
            "shown_rule": next((one.rule for one in under if _names(one, asked)), None),
            "waiting": sum(one.time.waited >= WAITS_MIN for one in under),
            "total": len(under),
            "chosen": chosen,
            "rows": [_row(board, one, brokers) for one in chosen.rows],
            "has_rates": True,
        },
    )


async def rules(board: Board, asked: Asked) -> View:
    """Return the page of all limits, with how much of each is used."""
    found, capacities = await asyncio.gather(board.rules(), board.capacities())
    values = {
        **_common(board, asked),
        "rules": found,
        "capacities": capacities,
        "capacities_total": len(capacities),
        "classes_max": CLASSES_MAX,
    }
    return View("rules", "Quotas", ("banners", "capacities", "rules"), values)


async def events(board: Board, asked: Asked) -> View:
    """Return the page of the last events."""
    values = {**_common(board, asked), "events": board.events(_EVENTS_PAGE), "all_events": True}
    return View("events", "Events", ("banners", "events"), values)


VIEWS: Final[Mapping[str, Callable[[Board, Asked], Awaitable[View]]]] = {
    "overview": overview,
    "client": client,
    "rule": rule,
    "rules": rules,
    "events": events,
}


def _common(board: Board, asked: Asked) -> dict[str, Any]:
    members = board.members
    known = [member for member in members if member.status is not None and member.silent_since is None]
    return {
        "asked": asked,
        "members": members,
        "responding": sum(member.responds and member.silent_since is None for member in members),
        "silent": [member for member in members if member.silent_since is not None],
        "lacking": [m for m in members if m.silent_since is None and m.missing],
        "not_enforcing": [
            m for m in known if m.status and not m.status.enforcing and m.status.mode != "observe"
        ],
        "observing": [m for m in known if m.status and m.status.mode == "observe"],
        "apart": not board.shared,
        "not_ready": [m for m in known if m.status and m.status.ready],
        "disagreements": sorted({text for m in members if m.fleet for text in m.fleet.disagreements}),
        "has_status": bool(known),
        "has_events": board.offers("/v1/events"),
        "events_lost": board.events_lost,
        "failures": board.failures,
        "not_asked": board.not_asked,
        "all_events": False,
        "now": datetime.now(UTC),
    }


async def _troubled(
    board: Board, asked: Asked, clients: Sequence[ClientRow], brokers: Sequence[BrokerTimes]
) -> list[TroubledClient]:
    """Return the clients with the most trouble, each with its sentence."""
    chosen = [(one, cause(one, brokers)) for one in clients[:_TROUBLED_MAX]]
    chosen = [(one, found) for one, found in chosen if found.kind not in ("calm", "over")]
    details = await asyncio.gather(
        *(board.client(one.user, one.client_id, asked.window) for one, _ in chosen)
    )
    now = time.monotonic()
    troubled = []
    for (one, found), known in zip(chosen, details, strict=True):
        first = worst(known) if known else None
        if found.kind == "broker" and first and first.broker and first.broker.p99_ms < SLOW_MS:
            continue  # another broker is slow
        sentence = first.sentence if first else found.text
        samples = board.history.client((one.user, one.client_id), now, _ROWS_SPARK_SLOTS)
        troubled.append(TroubledClient(one, found.kind, found.part, sentence, samples))
    return troubled


def _row(board: Board, one: ClientRow, brokers: Sequence[BrokerTimes]) -> Mapping[str, Any]:
    key = one.user, one.client_id
    return {
        "client": one,
        "waited": one.time.waited,
        "cause": cause(one, brokers),
        "quota": heaviest(one),
        "samples": board.history.client(key, time.monotonic(), _ROWS_SPARK_SLOTS),
    }


def _names(one: ClientRow, asked: Asked) -> bool:
    """Whether this rule is the one that the client waits for."""
    found = one.rule and (one.rule.kind, one.rule.key, one.rule.holder)
    return found == (asked.kind, asked.key, asked.entity)


def _is_under(one: ClientRow, asked: Asked) -> bool:
    """Whether the rule limits the client."""
    if _names(one, asked):
        return True
    return any((quota.kind, quota.entity) == (asked.kind, asked.entity) for quota in one.quotas)
