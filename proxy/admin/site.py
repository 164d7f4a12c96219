"""The pages by path, and the sources of their values."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Protocol

from proxy.admin import pages
from proxy.admin.clients import TOPIC, ClientTable
from proxy.admin.explanations import Explanations
from proxy.admin.http import Page, Request
from proxy.admin.pages import fleet_document, missing_text
from proxy.admin.server import Handler, page
from proxy.explain.documents import Missing
from proxy.explain.report import Query, Seen
from proxy.metrics.exposition import Metrics
from proxy.metrics.series import Quotas, portions
from proxy.system.errors import sluice_version
from proxy.system.threads import in_turns
from quotas.definitions.kinds import CLIENT_KINDS
from quotas.definitions.kinds import TOPIC as TOPIC_QUOTA
from quotas.throttles.figures import QuotaView

# ----------------------------------------------------------------------------------------------------
# Where the pages of figures come from: this process's engine and counters, or those of several processes.
#
# `/metrics` and `/clients` look through all clients, in portions: traffic goes first.


class Figures(Protocol):
    """The source of the figures on the pages: this process, or all worker processes together.

    The caller ensures that there is one call at a time. If some workers do not respond, the result names them. If
    none responds, methods raise NoWorkersError, except `metrics`, to which the control process adds its own figures.
    """

    @property
    def enforcing(self) -> bool:
        """Whether quotas are enforced; if False, they are only measured, and no client waits for them."""

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The worker processes that cannot respond now, for example since they are being started."""

    async def clients(self) -> ClientTable:
        """Return the table for a `/clients` page, from all clients."""

    async def seen(self, query: Query) -> Seen:
        """Return the response to a query about clients' time and brokers' response times."""

    async def metrics(self) -> Callable[[str], tuple[bytes, str]]:
        """Take a snapshot of all metrics; return a function that renders it, given the Accept header, in any thread."""


class OwnFigures:
    """The figures of a `sluice serve` without worker processes, from its own engine and counters.

    Args:
        now_ms: the clock of the quotas engine.
        seen: returns the response to a query about clients' time.
    """

    missing: tuple[Missing, ...] = ()  # this process has no workers

    def __init__(
        self,
        metrics: Metrics,
        quotas: Quotas,
        now_ms: Callable[[], int],
        seen: Callable[[Query], Awaitable[Seen]],
    ) -> None:
        self._seen = seen
        self._metrics = metrics
        self._quotas = quotas
        self._now_ms = now_ms

    @property
    def enforcing(self) -> bool:
        """Whether quotas are enforced; if False, they are only measured, and no client waits for them."""
        return self._quotas.enforcing

    async def clients(self) -> ClientTable:
        """Return the table for a `/clients` page, from all clients."""
        return await count_clients(self._quotas, self._now_ms)

    async def seen(self, query: Query) -> Seen:
        """Return the response to a query about clients' time and brokers' response times."""
        return await self._seen(query)

    async def metrics(self) -> Callable[[str], tuple[bytes, str]]:
        """Take a snapshot of all metrics; return a function that renders it, given the Accept header."""
        async for _ in in_turns(self._metrics.portions(self._now_ms())):
            pass
        snapshot = self._metrics.snapshot()
        return lambda accept: self._metrics.render(snapshot, accept)


async def count_clients(quotas: Quotas, now_ms: Callable[[], int]) -> ClientTable:
    """Return the table of `/clients` with all clients of one process's engine, which are visited in portions."""
    table = ClientTable()
    async for portion in in_turns(portions(_views(quotas, now_ms()))):
        table.count(portion)
    if table.at_several_brokers:
        async for portion in in_turns(portions(_views(quotas, now_ms()))):
            table.add_rates(portion)
    return table


def _views(quotas: Quotas, now_ms: int) -> Iterator[QuotaView]:
    """Yield a view of every client for every kind of quota, and of every topic that has a quota."""
    for series in dict.fromkeys(kind.series for kind in CLIENT_KINDS):
        yield from quotas.views(now_ms, series)
    for view in quotas.views(now_ms, TOPIC_QUOTA.series):
        yield view._replace(type=TOPIC + view.type)


HTML_TYPE: Final = "text/html"  # what browsers accept first, and curl does not name


class Site:
    """The pages of the admin port, by path.

    Args:
        figures: what /metrics and /clients show.
        not_ready: returns why clients cannot be served; "" if they can.
        reassignments: returns the document of /reassignments; None if reassignments pass unchanged.
        fleet: returns the document of /fleet; None if this process is no member of a fleet.
        explanations: the pages of /v1 about clients, rules and brokers; None without them.
        notice: returns a warning to show on every page for people; "" for none.
    """

    def __init__(
        self,
        figures: Figures,
        not_ready: Callable[[], str],
        reassignments: Callable[[], Awaitable[Mapping[str, object]]] | None = None,
        fleet: Callable[[], Mapping[str, object]] | None = None,
        explanations: Explanations | None = None,
        notice: Callable[[], str] = str,
    ) -> None:
        self._notice = notice
        self._explanations = explanations
        self._fleet = fleet
        self._figures = figures
        self._not_ready = not_ready
        self._reassignments = reassignments
        self._scrape = asyncio.Lock()

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler of each page, by path."""
        return {
            "/": self._index,
            "/clients": self._clients,
            "/healthz": self._health,
            "/metrics": self._metrics_page,
            "/readyz": self._ready,
            "/reassignments": self._reassignments_page,
            "/fleet": self._fleet_page,
            "/v1/fleet": self._members,
            **({} if self._explanations is None else self._explanations.handlers()),
        }

    async def _index(self, _: Request) -> Page:
        missing = missing_text(self._figures.missing)
        return pages.index(sluice_version(), self._figures.enforcing, self._notice(), missing)

    async def _health(self, _: Request) -> Page:
        return Page(200, pages.TEXT, b"ok\n")

    async def _ready(self, _: Request) -> Page:
        return pages.ready(self._not_ready())

    async def _reassignments_page(self, _: Request) -> Page:
        found = {"mode": "pass"} if self._reassignments is None else await self._reassignments()
        return await asyncio.to_thread(pages.document, found)

    async def _fleet_page(self, _: Request) -> Page:
        found = {"member": False} if self._fleet is None else {"member": True, **self._fleet()}
        return await asyncio.to_thread(pages.document, found)

    async def _members(self, _: Request) -> Page:
        state = None if self._fleet is None else self._fleet()
        return page(200, fleet_document(state, self._figures.missing))

    async def _clients(self, request: Request) -> Page:
        async with self._scrape:
            table = await self._figures.clients()
            write = table.page if HTML_TYPE in request.accept else table.text
            return write(self._figures.enforcing, self._notice())

    async def _metrics_page(self, request: Request) -> Page:
        async with self._scrape:
            render = await self._figures.metrics()
        body, content_type = await asyncio.to_thread(render, request.accept)
        return Page(200, content_type, body)
