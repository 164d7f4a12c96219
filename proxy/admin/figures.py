"""Where the pages of figures come from: this process's engine and counters, or those of several processes.

`/metrics` and `/clients` look through all clients, in portions: traffic goes first.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from proxy.admin.clients import TOPIC, ClientTable
from proxy.explain.seen import Missing, Query, Seen
from proxy.metrics.exposition import Metrics
from proxy.metrics.quota_series import Quotas
from proxy.metrics.series import portions
from proxy.turns import in_turns
from quotas.throttles.figures import QuotaView


class Figures(Protocol):
    """The source of figures. The caller ensures that there is one request at a time.

    What lacks some worker processes says which; where all are missing, methods raise NoWorkersError, but for
    `metrics`: the control process has figures of its own.
    """

    @property
    def enforcing(self) -> bool:
        """Whether quotas are enforced."""

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The worker processes that cannot be asked now."""

    async def clients(self) -> ClientTable:
        """Return the table of `/clients`."""

    async def seen(self, query: Query) -> Seen:
        """Return what is known of clients' time."""

    async def metrics(self) -> Callable[[str], tuple[bytes, str]]:
        """Take a snapshot; returns a function that renders it, possibly in a thread, in a format that is accepted."""


class OwnFigures:
    """The figures of one process that does all.

    Args:
        now_ms: the clock of the quotas engine.
        seen: answers a query about clients' time.
    """

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
        """Whether quotas are enforced."""
        return self._quotas.enforcing

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The worker processes that cannot be asked now: it has none."""
        return ()

    async def clients(self) -> ClientTable:
        """Return the table of `/clients`."""
        return await count_clients(self._quotas, self._now_ms)

    async def seen(self, query: Query) -> Seen:
        """Return what is known of clients' time."""
        return await self._seen(query)

    async def metrics(self) -> Callable[[str], tuple[bytes, str]]:
        """Take a snapshot."""
        async for _ in in_turns(self._metrics.portions(self._now_ms())):
            pass
        snapshot = self._metrics.snapshot()
        return lambda accept: self._metrics.render(snapshot, accept)


async def count_clients(quotas: Quotas, now_ms: Callable[[], int]) -> ClientTable:
    """Look through all clients of an engine."""
    table = ClientTable()
    async for portion in in_turns(portions(_views(quotas, now_ms()))):
        table.count(portion)
    if table.at_several_brokers:
        async for portion in in_turns(portions(_views(quotas, now_ms()))):
            table.add_rates(portion)
    return table


def _views(quotas: Quotas, now_ms: int) -> Iterator[QuotaView]:
    """Every client by every kind of quota, and every topic that has one."""
    yield from quotas.views(now_ms)
    yield from quotas.mutation_views(now_ms)
    yield from quotas.request_views(now_ms)
    for view in quotas.topic_views(now_ms):
        yield view._replace(type=TOPIC + view.type)
