"""The figures of several processes: what a worker sends at a scrape, and how control makes one page of it.

`/metrics` takes two questions to each worker: which clients are the heaviest, then the rows of those that were chosen,
so that all processes show the same clients. A worker that does not respond within RESPONSE_SECONDS_MAX is left out, and
`sluice_worker_up` says so.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

from proxy.admin import count_clients
from proxy.admin.clients import ClientPart, ClientTable
from proxy.explain.seen import NOTHING, Query, Seen, SeenSum
from proxy.metrics.exposition import Metrics, Snapshot
from proxy.metrics.merging import Merging, Part, flat, of_process
from proxy.metrics.process_families import of_captures, of_proxy
from proxy.metrics.quota_series import Quotas, QuotaSeries, no_waits
from proxy.process.messages import Figures, Look, Scrape, TakeRows
from proxy.stats import Stats
from proxy.turns import in_turns
from quotas.engine import QuotaView

__all__ = ["RESPONSE_SECONDS_MAX", "MergedFigures", "WorkerFigures"]

RESPONSE_SECONDS_MAX: Final = 2.0
_OWN: Final = 0  # the source of control's own figures


class WorkerFigures:
    """A worker's side.

    Args:
        send: sends the figures.
        now_ms: the clock of the quota engine.
        seen: answers a query about clients' time, in portions.
        waits: yields clients' waits, as for `QuotaSeries`.
    """

    def __init__(
        self,
        stats: Stats,
        quotas: Quotas,
        series_max: int,
        send: Callable[[object], Awaitable[bool]],
        now_ms: Callable[[], int],
        seen: Callable[[Query], AsyncIterator[Seen]],
        waits: Callable[[], Iterable[QuotaView]] = no_waits,
    ) -> None:
        self._seen = seen
        self._stats = stats
        self._quotas = quotas
        self._series = QuotaSeries(quotas, series_max, waits)
        self._send = send
        self._now_ms = now_ms
        self._one_at_a_time = asyncio.Lock()

    async def send(self, request: Scrape | TakeRows | Look) -> None:
        """Look through all clients, in portions, and send what was asked for."""
        async with self._one_at_a_time:
            now_ms = self._now_ms()
            if isinstance(request, Look):
                last = NOTHING
                async for portion in self._seen(request.query):
                    if last is not NOTHING:
                        await self._send(Figures(request.number, last, more=True))
                    last = portion
                await self._send(Figures(request.number, last))
            elif isinstance(request, TakeRows):
                for _ in self._series.take(request.chosen, now_ms):
                    await asyncio.sleep(0)
                await self._send(Figures(request.number, self._part(now_ms)))
            elif request.page == "clients":
                table = await count_clients(self._quotas, self._now_ms)
                await self._send(Figures(request.number, table.part()))
            else:
                for _ in self._series.weigh(now_ms):
                    await asyncio.sleep(0)
                await self._send(Figures(request.number, self._series.weights()))

    def _part(self, now_ms: int) -> Part:
        families = (*flat(of_proxy(self._stats)), *flat(of_captures(self._stats.captures)), *of_process())
        return Part(self._series.rows(), self._quotas.cluster_tokens(now_ms), families)


class Scraped(Protocol):
    """The workers, as far as their figures are concerned."""

    async def scrape(self, request: Callable[[int], object]) -> Mapping[int, object]:
        """Send a request, made with its number, to each worker; returns the figures by worker's life."""


class MergedFigures:
    """Control's side: the pages of all processes together.

    Args:
        metrics: of the control process.
        quotas: the control process's engine, which has no clients.
        seen: answers a query about the time of its own connections: followers.
        waits: yields the waits of followers, whose connections are control's own.
    """

    def __init__(
        self,
        workers: Scraped,
        metrics: Metrics,
        quotas: Quotas,
        series_max: int,
        now_ms: Callable[[], int],
        seen: Callable[[Query], Awaitable[Seen]],
        waits: Callable[[], Iterable[QuotaView]] = no_waits,
    ) -> None:
        self._seen = seen
        self._workers = workers
        self._metrics = metrics
        self._quotas = quotas
        self._series = QuotaSeries(quotas, series_max, waits)
        self._merging = Merging(series_max)
        self._now_ms = now_ms

    @property
    def enforcing(self) -> bool:
        """Whether quotas are enforced."""
        return self._quotas.enforcing

    async def clients(self) -> ClientTable:
        """Return the table of `/clients`."""
        found = await self._workers.scrape(lambda number: Scrape(number, "clients"))
        return ClientTable.merge(part for part in found.values() if isinstance(part, ClientPart))

    async def seen(self, query: Query) -> Seen:
        """Return what all processes know of clients' time."""
        found = await self._workers.scrape(lambda number: Look(number, query))
        whole = SeenSum()
        whole.add(await self._seen(query))
        for response in found.values():
            portions = response if isinstance(response, list) else [response]
            async for portion in in_turns(portions):
                if isinstance(portion, Seen):
                    whole.add(portion)
        return whole.sum([client async for client in in_turns(whole.clients())])

    async def metrics(self) -> Callable[[str], tuple[bytes, str]]:
        """Take a snapshot of all processes."""
        now_ms = self._now_ms()
        for _ in (*self._metrics.portions(now_ms), *self._series.weigh(now_ms)):
            await asyncio.sleep(0)
        asked = await self._workers.scrape(lambda number: Scrape(number, "weights"))
        weights = [one for one in asked.values() if isinstance(one, Mapping)]
        chosen = self._merging.choose([*weights, self._series.weights()])
        for _ in self._series.take(chosen, now_ms):
            await asyncio.sleep(0)
        found = await self._workers.scrape(lambda number: TakeRows(number, chosen))
        parts = {run: part for run, part in found.items() if isinstance(part, Part)}
        own = (*flat(self._metrics.families()), *of_process())
        parts[_OWN] = Part(self._series.rows(), None, own)
        families = self._merging.merge(parts)
        return lambda accept: self._metrics.render(Snapshot(families), accept, process=False)

    def ended(self, run: int) -> None:
        """Note that a life of a worker has ended."""
        self._merging.end(run)
