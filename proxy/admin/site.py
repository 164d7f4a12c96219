"""The pages by path, and the sources of their values."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from proxy.admin import pages
from proxy.admin.documents import page
from proxy.admin.explanations import Explanations
from proxy.admin.figures import Figures
from proxy.admin.http import Page, Request
from proxy.admin.members import fleet_document
from proxy.admin.missing import missing_document, missing_text
from proxy.admin.server import Handler
from proxy.version import sluice_version

HTML_TYPE: Final = "text/html"  # what browsers accept first, and curl does not name


class Site:
    """The pages.

    Args:
        figures: what /metrics and /clients show.
        not_ready: returns why clients cannot be served; "" if they can.
        reassignments: returns the document of /reassignments; None if reassignments pass unchanged.
        fleet: returns the document of /fleet; None if this process is no member of a fleet.
        explanations: the documents of /v1.
        notice: returns what is to be said on every page for people; "" for nothing.
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
        """Return the handlers by path."""
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
        return pages.health()

    async def _ready(self, _: Request) -> Page:
        return pages.ready(self._not_ready())

    async def _reassignments_page(self, _: Request) -> Page:
        found = {"mode": "pass"} if self._reassignments is None else await self._reassignments()
        return await asyncio.to_thread(pages.document, found)

    async def _fleet_page(self, _: Request) -> Page:
        found = {"member": False} if self._fleet is None else {"member": True, **self._fleet()}
        return await asyncio.to_thread(pages.document, found)

    async def _members(self, _: Request) -> Page:
        document = fleet_document(None if self._fleet is None else self._fleet())
        return page(200, {**document, "missing": missing_document(self._figures.missing)})

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
