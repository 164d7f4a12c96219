"""The pages by path, and the sources of their values."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from proxy.admin import pages
from proxy.admin.clients import TOPIC, ClientTable
from proxy.admin.http import Page, Request
from proxy.admin.server import Handler
from proxy.metrics.exposition import Metrics, Quotas
from proxy.metrics.series import portions
from proxy.version import sluice_version
from quotas.engine import QuotaView

HTML_TYPE: Final = "text/html"  # what browsers accept first, and curl does not name


class Site:
    """The pages of one process.

    Args:
        metrics: what /metrics shows.
        quotas: what /clients shows.
        not_ready: returns why clients cannot be served; "" if they can.
        now_ms: the clock of the quota engine.
        reassignments: returns the document of /reassignments; None if reassignments pass unchanged.
        fleet: returns the document of /fleet; None if this process is no member of a fleet.
    """

    def __init__(
        self,
        metrics: Metrics,
        quotas: Quotas,
        not_ready: Callable[[], str],
        now_ms: Callable[[], int],
        reassignments: Callable[[], Awaitable[Mapping[str, object]]] | None = None,
        fleet: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self._fleet = fleet
        self._reassignments = reassignments
        self._metrics = metrics
        self._quotas = quotas
        self._not_ready = not_ready
        self._now_ms = now_ms
        self._scrape = asyncio.Lock()

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by path."""
        return {
            "/": self._index,
            "/clients": self._clients,
            "/healthz": self._health,
            "/metrics": self._metrics_page,
            "/readyz": self._ready,
            "/reassignments": self._reassignments_page,
            "/fleet": self._fleet_page,
        }

    async def _index(self, _: Request) -> Page:
        return pages.index(sluice_version(), self._quotas.enforcing)

    async def _health(self, _: Request) -> Page:
        return pages.health()

    async def _ready(self, _: Request) -> Page:
        return pages.ready(self._not_ready())

    async def _reassignments_page(self, _: Request) -> Page:
        found = {"mode": "pass"} if self._reassignments is None else await self._reassignments()
        return await asyncio.to_thread(pages.document, found)

    async def _fleet_page(self, _: Request) -> Page:
        found = {"member": False} if self._fleet is None else {"member": True, **self._fleet()}
        return await asyncio.to_thread(pages.document, found)

    async def _clients(self, request: Request) -> Page:
        async with self._scrape:
            table = ClientTable()
            for portion in portions(self._views(self._now_ms())):
                table.count(portion)
                await asyncio.sleep(0)  # traffic goes first
            if table.at_several_brokers:
                for portion in portions(self._views(self._now_ms())):
                    table.add_rates(portion)
                    await asyncio.sleep(0)
            write = table.page if HTML_TYPE in request.accept else table.text
            return write(self._quotas.enforcing)

    def _views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield the views of all clients, by kind of quota, and of all topics with a quota."""
        quotas = self._quotas
        yield from quotas.views(now_ms)
        yield from quotas.mutation_views(now_ms)
        yield from quotas.request_views(now_ms)
        for view in quotas.topic_views(now_ms):
            yield view._replace(type=TOPIC + view.type)

    async def _metrics_page(self, request: Request) -> Page:
        async with self._scrape:
            for _ in self._metrics.portions(self._now_ms()):
                await asyncio.sleep(0)  # traffic goes first
            snapshot = self._metrics.snapshot()
        body, content_type = await asyncio.to_thread(self._metrics.render, snapshot, request.accept)
        return Page(200, content_type, body)
