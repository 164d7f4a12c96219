"""`Stats` and the quotas engine's views for Prometheus, under names that begin with `sluice_`.

KIP-13's per-client byte rate and throttle time are there for every client id, with what Kafka does not tell
beside them; docs/metrics.md maps each name to Kafka's MBean, and a test compares that document with what is
collected here. A scrape is three steps, so that it does not hold up traffic: `ClientSeries` looks through the
clients in portions, a snapshot of the counters is taken, and `render` writes the text, which may run in a
thread. What clients and topics have is made in `client_families`, what the process counts in `stats_families`;
nothing else knows Prometheus. It keeps its own registry, since the default one is shared with whatever else is
imported.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy.client_families import of_clients, of_mutations, of_requests, of_topics
from proxy.lease_view import LeaseView
from proxy.replication_view import Family, ReplicationView
from proxy.series import ClientSeries, portions
from proxy.stats import Stats
from proxy.stats_families import of_captures, of_proxy
from quotas.engine import QuotaView

SMALL_SHARE: Final = 8  # one in so many of all series is for mutations, as many for requests, and for topics


class Quotas(Protocol):
    """What is asked of the quotas engine."""

    @property
    def enforcing(self) -> bool:
        """Tell whether quotas are enforced."""

    def views(self, now_ms: int) -> Iterable[QuotaView]:
        """Give every client in each direction."""

    def mutation_views(self, now_ms: int) -> Iterable[QuotaView]:
        """Give every client that has asked for partition mutations."""

    def topic_views(self, now_ms: int) -> Iterable[QuotaView]:
        """Give every topic that a quota limits, in each direction."""

    def request_views(self, now_ms: int) -> Iterable[QuotaView]:
        """Give every client whose requests are measured."""

    def cluster_tokens(self, now_ms: int) -> float | None:
        """Give the partition mutations left for all clients together; None where nothing limits them."""


class Snapshot(NamedTuple):
    """Everything one scrape shows, taken at one time; nothing in it changes any more."""

    families: tuple[Metric, ...]


class Metrics:
    """Takes snapshots and writes them.

    Args:
        stats: the data path's counters.
        quotas: the quotas engine.
        series_max: a bound on the series of all clients together.
        version: of Sluice, for `sluice_build_info`.
        replication: what brokers replicate through this process; None where they do not.
        leases: how followers' quotas are shared with other processes; None where they are not.
        others: give more metrics.
    """

    def __init__(
        self,
        stats: Stats,
        quotas: Quotas,
        series_max: int,
        version: str,
        replication: ReplicationView | None = None,
        leases: LeaseView | None = None,
        others: Sequence[Callable[[], Iterable[Family]]] = (),
    ) -> None:
        self._others = others
        self._replication = replication
        self._leases = leases
        self._now_ms = 0
        self._stats = stats
        self._quotas = quotas
        # What few do, and what is no client's bytes, must not compete with clients' bytes for a series.
        share = series_max // SMALL_SHARE
        self._series = ClientSeries(series_max - 3 * share)
        self._topics = ClientSeries(share)
        self._mutations = ClientSeries(share)
        self._requests = ClientSeries(share)
        self._cluster_tokens: float | None = None
        self._version = version
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def portions(self, now_ms: int) -> Iterator[None]:
        """Look through the clients; whoever iterates may let others run between two portions.

        One scrape at a time: the caller sees to it.
        """
        for series, views in (
            (self._series, self._quotas.views),
            (self._mutations, self._quotas.mutation_views),
            (self._topics, self._quotas.topic_views),
            (self._requests, self._quotas.request_views),
        ):
            series.begin()
            for portion in portions(views(now_ms)):
                series.weigh(portion)
                yield
            series.choose()
            for portion in portions(views(now_ms)):
                series.take(portion)
                yield
        if self._replication is not None:
            yield from self._replication.portions(now_ms)
        self._now_ms = now_ms
        self._cluster_tokens = self._quotas.cluster_tokens(now_ms)

    def snapshot(self) -> Snapshot:
        """Take the counters as they are, with the clients that `portions` looked through."""
        rows, mutations, requests = self._series.rows(), self._mutations.rows(), self._requests.rows()
        families = (
            *of_clients(rows, (*mutations, *requests)),
            *of_mutations(mutations, self._cluster_tokens),
            *of_topics(self._topics.rows()),
            *of_requests(requests),
            *of_proxy(self._stats),
            *of_captures(self._stats.captures),
            *self._of_families(),
            *self._of_program(),
        )
        return Snapshot(families)

    def render(self, snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
        """Write a snapshot in the format the scraper accepts.

        Returns: the body and its content type.
        """
        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry()
        registry.register(_Fixed(snapshot.families))
        # OpenMetrics ends with a line of its own, so both parts must be written by one registry.
        registry.register(_Fixed(tuple(self._process.collect())))
        return encode(registry), content_type

    def _of_families(self) -> Iterator[Metric]:
        families = [] if self._replication is None else self._replication.families(self._now_ms)
        if self._leases is not None:
            families += self._leases.families()
        families.extend(family for give in self._others for family in give())
        for name, kind, text, labels, rows in families:
            family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                name, text, labels=labels
            )
            for values, value in rows:
                family.add_metric(values, value)
            yield family

    def _of_program(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            "sluice_enforcing", "1 when quotas are enforced, 0 when they are only observed or off"
        )
        gauge.add_metric((), float(self._quotas.enforcing))
        yield gauge
        info = GaugeMetricFamily(
            "sluice_build_info", "Always 1; the labels are the versions", labels=("version", "python")
        )
        info.add_metric((self._version, ".".join(map(str, sys.version_info[:3]))), 1.0)
        yield info


class _Fixed(Collector):
    """A collector of metrics that were made before."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
