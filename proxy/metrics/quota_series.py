"""The rows of all kinds: clients, mutations, topics, requests, and clients' waits; each has its own bound of series.

A process visits its clients with `portions`, and chooses the heaviest itself. Of several processes, all must show the
same clients: each visits them with `weigh`, one chooses (`merging`), and each takes what was chosen.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client.core import Metric

from proxy.metrics.client_families import of_clients, of_mutations, of_requests, of_topics, of_waits
from proxy.metrics.series import ClientSeries, Identity, Row, portions, rows_of
from quotas.throttles.figures import QuotaView

KINDS: Final = ("clients", "mutations", "topics", "requests", "waits")
SMALL_SHARE: Final = (
    8  # one in so many of all series is for mutations, as many for each other kind but clients
)
_WAIT_SERIES: Final = 2  # of one client and kind of quota
_WAIT_KINDS: Final = 7  # of quotas that a client waits for

Weights = Mapping[str, list[tuple[int, Identity]]]
Chosen = Mapping[str, frozenset[Identity]]
Rows = Mapping[str, list[Row]]


class Quotas(Protocol):
    """The quota engine, as far as metrics need it."""

    @property
    def enforcing(self) -> bool:
        """Whether quotas are enforced."""

    def views(self, now_ms: int) -> Iterable[QuotaView]:
        """Yield a view for each client and direction."""

    def mutation_views(self, now_ms: int) -> Iterable[QuotaView]:
        """Yield a view for each client with partition mutations."""

    def topic_views(self, now_ms: int) -> Iterable[QuotaView]:
        """Yield a view for each topic with a quota, by direction."""

    def request_views(self, now_ms: int) -> Iterable[QuotaView]:
        """Yield a view for each client whose request time is measured."""

    def cluster_tokens(self, now_ms: int) -> float | None:
        """Return the partition mutations left for all clients together; None if they are unlimited."""


def no_waits() -> Iterable[QuotaView]:
    """Return the waits of a process that does not watch its connections."""
    return ()


class QuotaSeries:
    """The rows of one process.

    Args:
        series_max: the bound of the series of all clients together.
        waits: yields a view for each client and kind of quota that it has waited for.
    """

    def __init__(
        self, quotas: Quotas, series_max: int, waits: Callable[[], Iterable[QuotaView]] = no_waits
    ) -> None:
        self._quotas = quotas
        self._waits = waits
        self._series = {kind: ClientSeries(rows) for kind, rows in rows_max(series_max).items()}

    def portions(self, now_ms: int) -> Iterator[None]:
        """Visit all clients; the caller may let other tasks run between two portions."""
        for kind in KINDS:
            yield from self._weigh(kind, now_ms)
            self._series[kind].choose()
            yield from self._take(kind, now_ms)

    def weigh(self, now_ms: int) -> Iterator[None]:
        """Visit all clients to find the heaviest."""
        for kind in KINDS:
            yield from self._weigh(kind, now_ms)

    def weights(self) -> Weights:
        """Return the heaviest clients, after `weigh`."""
        return {kind: self._series[kind].weights() for kind in KINDS}

    def take(self, chosen: Chosen, now_ms: int) -> Iterator[None]:
        """Visit all clients, those chosen by another process have rows."""
        for kind in KINDS:
            self._series[kind].choose(chosen.get(kind, frozenset()))
            yield from self._take(kind, now_ms)

    def rows(self) -> Rows:
        """End the scrape: the rows by kind."""
        return {kind: self._series[kind].rows() for kind in KINDS}

    def _views(self, kind: str) -> Callable[[int], Iterable[QuotaView]]:
        quotas = self._quotas
        return {
            "clients": quotas.views,
            "mutations": quotas.mutation_views,
            "topics": quotas.topic_views,
            "requests": quotas.request_views,
            "waits": lambda _now_ms: self._waits(),
        }[kind]

    def _weigh(self, kind: str, now_ms: int) -> Iterator[None]:
        series = self._series[kind]
        series.begin()
        for portion in portions(self._views(kind)(now_ms)):
            series.weigh(portion)
            yield

    def _take(self, kind: str, now_ms: int) -> Iterator[None]:
        series = self._series[kind]
        for portion in portions(self._views(kind)(now_ms)):
            series.take(portion)
            yield


def rows_max(series_max: int) -> dict[str, int]:
    """Divide all series, and return how many rows each kind may have: the others must not compete with clients' bytes.

    >>> rows_max(2000)
    {'clients': 123, 'mutations': 29, 'topics': 29, 'requests': 29, 'waits': 118}
    """
    share = series_max // SMALL_SHARE
    others = len(KINDS) - 1
    return {
        **{kind: rows_of(share if kind != "clients" else series_max - others * share) for kind in KINDS},
        "waits": rows_of(share, _WAIT_SERIES, _WAIT_KINDS),
    }


def families_of(rows: Rows, cluster_tokens: float | None) -> Iterator[Metric]:
    """The families of clients and topics."""
    mutations, requests = rows["mutations"], rows["requests"]
    yield from of_clients(rows["clients"], (*mutations, *requests))
    yield from of_mutations(mutations, cluster_tokens)
    yield from of_topics(rows["topics"])
    yield from of_requests(requests)
    yield from of_waits(rows["waits"])
