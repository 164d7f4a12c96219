"""The figures of several processes: what a worker sends at a scrape, and how control makes one page of it.

`/metrics` takes two questions to each worker: which clients are the heaviest, then the rows of those that were chosen,
so that all processes show the same clients.

Where traffic occupies a worker, it takes seconds to look through 100,000 clients in the pauses. It has
RESPONSE_SECONDS_MAX, as long as it sends anything; one that is silent is not waited for. What lacks a worker says so;
of all pages that are made of workers' figures, only `/metrics` is served where all are missing: with the figures of
control, of which one is `sluice_worker_up`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxy.admin import NoWorkersError, count_clients
from proxy.admin.clients import ClientTable
from proxy.explain.documents import Missing
from proxy.explain.report import NOTHING, Query, Seen, SeenSum
from proxy.metrics.exposition import Metrics
from proxy.metrics.families import of_captures, of_proxy
from proxy.metrics.merging import Merging, Part, flat, of_process
from proxy.metrics.series import Quotas, QuotaSeries, no_waits
from proxy.process.messages import Counted, Figures, Look, Looked, Message, Scrape, Taken, TakeRows, Weighed
from proxy.system.clock import now_ms
from proxy.system.stats import Stats
from proxy.system.threads import in_turns
from quotas.throttles.figures import QuotaView

RESPONSE_SECONDS_MAX: Final = 4.0  # /metrics takes two, and Prometheus waits for 10 s
_OWN: Final = 0  # the source of control's own figures


class WorkerFigures:
    """The worker's side: collects the worker's figures, and sends them to the control process.

    Args:
        series_max: how many clients have series of their own in the metrics.
        send: sends a message to the control process.
        seen: yields the response to a query about where clients' time goes, in portions.
        waits: returns a view for each client and kind of quota that it has waited for.
    """

    def __init__(
        self,
        stats: Stats,
        quotas: Quotas,
        series_max: int,
        send: Callable[[Message], Awaitable[bool]],
        seen: Callable[[Query], AsyncIterator[Seen]],
        waits: Callable[[], Iterable[QuotaView]] = no_waits,
    ) -> None:
        self._seen = seen
        self._stats = stats
        self._quotas = quotas
        self._series = QuotaSeries(quotas, series_max, waits)
        self._send = send
        self._one_scrape = asyncio.Lock()
        self._one_list = asyncio.Lock()
        self._newest_scrape = self._newest_list = 0

    async def send(self, request: Scrape | TakeRows | Look) -> None:
        """Collect the figures that a request asks for, and send them in portions.

        Requests for figures of all clients are handled one at a time; one about a single client does not wait for them.
        Control sends a newer one only after it has given up the older one, which is then left without a response.
        """
        number = request.number
        if isinstance(request, Scrape | TakeRows):
            self._newest_scrape = number
            async with self._one_scrape:
                if number == self._newest_scrape:
                    await self._send_scrape(request)
        elif request.query.of_all:
            self._newest_list = number
            async with self._one_list:
                await self._send_seen(request, lambda: number != self._newest_list)
        else:
            await self._send_seen(request, lambda: False)

    async def _send_seen(self, request: Look, given_up: Callable[[], bool]) -> None:
        last = NOTHING
        async for portion in self._seen(request.query):
            if given_up():
                return
            if last is not NOTHING:
                await self._send(Looked(request.number, last, more=True))
            last = portion
        await self._send(Looked(request.number, last))

    async def _send_scrape(self, request: Scrape | TakeRows) -> None:
        now = now_ms()
        if isinstance(request, TakeRows):
            async for _ in in_turns(self._series.take(request.chosen, now)):
                pass
            await self._send(Taken(request.number, self._part(now)))
        elif request.page == "clients":
            table = await count_clients(self._quotas, now_ms)
            await self._send(Counted(request.number, table.part()))
        else:
            async for _ in in_turns(self._series.weigh(now)):
                pass
            await self._send(Weighed(request.number, self._series.weights()))

    def _part(self, now: int) -> Part:
        families = (*flat(of_proxy(self._stats)), *flat(of_captures(self._stats.captures)), *of_process())
        return Part(self._series.rows(), self._quotas.cluster_tokens(now), families)


class Responses(NamedTuple):
    """The workers' responses to one request.

    Args:
        by_run: the portions of each response, by the worker's run (the random number that identifies its process).
        missing: the workers without a response, with the reason.
    """

    by_run: Mapping[int, Sequence[Figures]]
    missing: tuple[Missing, ...]


class MergedFigures:
    """Control's side: the figures of all processes, added up for the pages.

    Args:
        scrape: sends a request to all workers, and returns their responses. Its argument is a function that makes the
            request with the number that it is given.
        missing: returns the workers that cannot be asked now.
        metrics: the metrics of the control process.
        quotas: the control process's engine, which has no clients.
        series_max: how many clients have series of their own.
        seen: returns the response to a query about control's own connections, which are those of follower brokers.
        waits: returns a view for each of these followers and kind of quota that it has waited for.

    Attributes:
        missing_in_metrics: the workers whose figures the last `/metrics` lacks.
    """

    def __init__(
        self,
        scrape: Callable[[Callable[[int], Message]], Awaitable[Responses]],
        missing: Callable[[], tuple[Missing, ...]],
        metrics: Metrics,
        quotas: Quotas,
        series_max: int,
        seen: Callable[[Query], Awaitable[Seen]],
        waits: Callable[[], Iterable[QuotaView]] = no_waits,
    ) -> None:
        self._seen = seen
        self._scrape = scrape
        self._missing = missing
        self._metrics = metrics
        self._quotas = quotas
        self._series = QuotaSeries(quotas, series_max, waits)
        self._merging = Merging(series_max)
        self.missing_in_metrics: tuple[Missing, ...] = ()

    @property
    def enforcing(self) -> bool:
        """Whether quotas are enforced, for the pages; False: nothing waits, and quotas are only measured."""
        return self._quotas.enforcing

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The workers that cannot be asked now."""
        return self._missing()

    async def clients(self) -> ClientTable:
        """Return the table of `/clients` for all workers together.

        Raises:
            NoWorkersError: none has responded.
        """
        found, missing = await self._ask_all(lambda number: Scrape(number, "clients"))
        return ClientTable.merge((one.figures for one in found if isinstance(one, Counted)), missing)

    async def seen(self, query: Query) -> Seen:
        """Return where the time of the query's clients has gone, from all processes that have responded.

        Raises:
            NoWorkersError: none has responded.
        """
        found, missing = await self._ask_all(lambda number: Look(number, query))
        whole = SeenSum()
        whole.add(await self._seen(query))
        async for portion in in_turns(found):
            if isinstance(portion, Looked):
                whole.add(portion.figures)
        seen = whole.sum([client async for client in in_turns(whole.clients())])
        return replace(seen, missing=missing)

    async def _ask_all(self, request: Callable[[int], Message]) -> tuple[list[Figures], tuple[Missing, ...]]:
        """Ask all workers; returns their figures and the workers without a response."""
        by_run, missing = await self._scrape(request)
        if not by_run:
            raise NoWorkersError(missing)
        return [portion for portions in by_run.values() for portion in portions], missing

    async def metrics(self) -> Callable[[str], tuple[bytes, str]]:
        """Collect the metrics of all processes, and return a function that renders them.

        The function gets the Accept header of the scrape; it returns the page and its content type.
        """
        now = now_ms()
        async for _ in in_turns(chain(self._metrics.portions(now), self._series.weigh(now))):
            pass
        asked = await self._scrape(lambda number: Scrape(number, "weights"))
        weights = [one.figures for (one,) in asked.by_run.values() if isinstance(one, Weighed)]
        chosen = self._merging.choose([*weights, self._series.weights()])
        async for _ in in_turns(self._series.take(chosen, now)):
            pass
        found, self.missing_in_metrics = await self._scrape(lambda number: TakeRows(number, chosen))
        parts = {run: one.figures for run, (one,) in found.items() if isinstance(one, Taken)}
        own = (*flat(self._metrics.families()), *of_process())
        parts[_OWN] = Part(self._series.rows(), None, own)
        families = self._merging.merge(parts)
        return lambda accept: self._metrics.render(families, accept, process=False)

    def ended(self, run: int) -> None:
        """Register that a worker's process has ended: its counters stay in the sums."""
        self._merging.end(run)
