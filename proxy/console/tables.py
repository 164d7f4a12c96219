"""Lists of clients: filtered, sorted, and one page of them. Pure.

The list is sorted here and not in the browser: a page has ROWS_PER_PAGE rows, whatever the number of clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from proxy.v1.cause import WAITS_MIN, heaviest, trouble
from proxy.v1.documents import Broker, Client, waited

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
    """The query of a page's address; an unknown value is the default."""

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
        """Read an address's query.

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
        """Return the query of the same page with changes; what is the default is left out."""
        other, usual = replace(self, **changes), Asked()
        if "sort" in changes and "order" not in changes:
            reverse = changes["sort"] == self.sort and self.order == _first_order(self.sort)
            other = replace(other, order=_other(self.order) if reverse else _first_order(other.sort))
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
    """One page of a list.

    Args:
        matching: how many clients the filter has found.
        first: the number of the first row, from 1.
    """

    rows: tuple[Client, ...]
    matching: int
    first: int
    page: int
    pages: int


def choose(clients: Sequence[Client], asked: Asked, brokers: Sequence[Broker]) -> Chosen:
    """Return the page that is asked for; of a page beyond the last, the last."""
    found = [client for client in clients if _matches(client, asked)]
    found.sort(key=_key(asked.sort, brokers), reverse=asked.order == "desc")
    pages = max(1, -(-len(found) // ROWS_PER_PAGE))
    page = min(asked.page, pages)
    first = (page - 1) * ROWS_PER_PAGE
    return Chosen(tuple(found[first : first + ROWS_PER_PAGE]), len(found), first + 1, page, pages)


def _matches(client: Client, asked: Asked) -> bool:
    if asked.show == "waiting" and waited(client.times) < WAITS_MIN:
        return False
    if asked.show == "near" and _part_of_quota(client) < _NEAR:
        return False
    text = asked.q.casefold()
    return not text or text in client.client_id.casefold() or text in client.user.casefold()


def _part_of_quota(client: Client) -> float:
    found = heaviest(client)
    return 0.0 if found is None else found.rate / found.value


def _key(sort: str, brokers: Sequence[Broker]) -> Callable[[Client], Any]:
    keys: dict[str, Callable[[Client], Any]] = {
        "client": lambda client: (client.client_id.casefold(), client.user),
        "waits": lambda client: waited(client.times),
        "quota": _part_of_quota,
        "connections": lambda client: client.connections,
    }
    return keys.get(sort, lambda client: trouble(client, brokers))


def _first_order(sort: str) -> str:
    return "asc" if sort == "client" else "desc"


def _other(order: str) -> str:
    return "asc" if order == "desc" else "desc"
