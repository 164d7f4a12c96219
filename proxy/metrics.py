"""The only Prometheus code: `Stats` and the quotas engine's views, under names that begin with `sluice_`.

KIP-13's per-client byte rate and throttle time are there for every client id, with what Kafka does not tell
beside them; docs/metrics.md maps each name to Kafka's MBean, and a test compares that document with what is
collected here. A scrape is three steps, so that it does not hold up traffic: `ClientSeries` looks through the
clients in portions, a snapshot of the counters is taken, and `render` writes the text, which may run in a
thread. It keeps its own registry, since the default one is shared with whatever else is imported.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from protocol.api import API_NAMES
from proxy.series import ClientSeries, Row, portions
from proxy.stats import LATENCY_BOUNDS_US, Stats
from quotas.engine import QuotaView

CLIENT_LABELS: Final = ("type", "user", "client_id")
TOPIC_LABELS: Final = ("type", "topic")
UNKNOWN_API: Final = "unknown"
MUTATION_SHARE: Final = 8  # one in so many of all series is for partition mutations
TOPIC_SHARE: Final = 8  # and as many for topics with quotas


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
    """

    def __init__(self, stats: Stats, quotas: Quotas, series_max: int, version: str) -> None:
        self._stats = stats
        self._quotas = quotas
        # Few clients create topics, and their numbers are small: they must not compete with bytes for a series.
        share = series_max // MUTATION_SHARE
        topics_share = series_max // TOPIC_SHARE
        self._series = ClientSeries(series_max - share - topics_share)
        self._topics = ClientSeries(topics_share)
        self._mutations = ClientSeries(share)
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
        ):
            series.begin()
            for portion in portions(views(now_ms)):
                series.weigh(portion)
                yield
            series.choose()
            for portion in portions(views(now_ms)):
                series.take(portion)
                yield
        self._cluster_tokens = self._quotas.cluster_tokens(now_ms)

    def snapshot(self) -> Snapshot:
        """Take the counters as they are, with the clients that `portions` looked through."""
        rows, mutations = self._series.rows(), self._mutations.rows()
        families = (
            *_of_clients(rows, mutations),
            *_of_mutations(mutations, self._cluster_tokens),
            *_of_topics(self._topics.rows()),
            *_of_proxy(self._stats),
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

    def _of_program(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            "sluice_enforcing", "1 when quotas are enforced, 0 when they are only observed or off"
        )
        gauge.add_metric((), float(self._quotas.enforcing))
        yield gauge
        info = GaugeMetricFamily(
            "sluice_build_info", "Always 1; the labels tell the version", labels=("version", "python")
        )
        info.add_metric((self._version, ".".join(map(str, sys.version_info[:3]))), 1.0)
        yield info


class _Fixed(Collector):
    """A collector of metrics that were made before."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _of_clients(rows: Sequence[Row], mutations: Sequence[Row]) -> Iterator[Metric]:
    text = "Bytes of requests (Produce) or answers (Fetch) that the quota counts"
    yield _of_rows("sluice_client_bytes", text, "bytes", rows)
    every = (*rows, *mutations)
    for name, text, field in (
        ("throttled_requests", "Requests that were throttled", "throttled"),
        (
            "would_throttled_requests",
            "Requests that were not throttled only because nothing is enforced",
            "would_throttled",
        ),
    ):
        yield _of_rows(f"sluice_client_{name}", text, field, every)
    for name, text, field in (
        ("throttle_seconds", "Time the client was throttled for", "throttle_ms"),
        (
            "would_throttle_seconds",
            "Time it was not throttled for only because nothing is enforced",
            "would_throttle_ms",
        ),
    ):
        yield _of_rows(f"sluice_client_{name}", text, field, every, per=1000)
    rate = GaugeMetricFamily(
        "sluice_client_byte_rate", "Bytes/s over the quota's windows", labels=CLIENT_LABELS
    )
    quota = GaugeMetricFamily(
        "sluice_client_quota_byte_rate", "The quota in bytes/s; absent: none", labels=CLIENT_LABELS
    )
    debt = GaugeMetricFamily(
        "sluice_client_debt_bytes", "Bytes over the quota not yet paid for", labels=CLIENT_LABELS
    )
    for row in rows:
        labels = (row.type, row.user, row.client_id)
        rate.add_metric(labels, row.byte_rate)
        debt.add_metric(labels, row.debt_bytes)
        if row.quota is not None:
            quota.add_metric(labels, row.quota)
    yield from (rate, quota, debt)


def _of_mutations(rows: Sequence[Row], cluster_tokens: float | None) -> Iterator[Metric]:
    made = CounterMetricFamily(
        "sluice_client_mutations", "Partitions created, added and deleted", labels=CLIENT_LABELS[1:]
    )
    tokens = GaugeMetricFamily(
        "sluice_client_mutation_tokens",
        "Partition mutations left in the client's bucket; below 0: throttled",
        labels=CLIENT_LABELS[1:],
    )
    quota = GaugeMetricFamily(
        "sluice_client_quota_mutation_rate",
        "The quota in partition mutations/s; absent: none",
        labels=CLIENT_LABELS[1:],
    )
    for row in rows:
        labels = (row.user, row.client_id)
        made.add_metric(labels, row.totals.bytes)
        if row.tokens is not None and row.quota is not None:
            tokens.add_metric(labels, row.tokens)
            quota.add_metric(labels, row.quota)
    yield from (made, tokens, quota)
    whole = GaugeMetricFamily(
        "sluice_mutation_tokens", "Partition mutations left for all clients together; absent: unlimited"
    )
    if cluster_tokens is not None:
        whole.add_metric((), cluster_tokens)
    yield whole


def _of_topics(rows: Sequence[Row]) -> Iterator[Metric]:
    for name, text, field, per in (
        ("bytes", "Bytes of topics that have a quota, in requests (Produce) and answers (Fetch)", "bytes", 1),
        ("throttled_requests", "Frames whose channel was muted for the topic", "throttled", 1),
        ("would_throttled_requests", "The same, had anything been enforced", "would_throttled", 1),
        ("throttle_seconds", "Time channels were muted for the topic", "throttle_ms", 1000),
        ("would_throttle_seconds", "The same, had anything been enforced", "would_throttle_ms", 1000),
    ):
        yield _of_rows(f"sluice_topic_{name}", text, field, rows, per, topics=True)
    quota = GaugeMetricFamily("sluice_topic_quota_byte_rate", "The quota in bytes/s", labels=TOPIC_LABELS)
    debt = GaugeMetricFamily("sluice_topic_debt_bytes", "Bytes not yet paid for", labels=TOPIC_LABELS)
    for row in rows:
        debt.add_metric((row.type, row.client_id), row.debt_bytes)
        if row.quota is not None:
            quota.add_metric((row.type, row.client_id), row.quota)
    yield from (quota, debt)


def _of_rows(
    name: str, text: str, field: str, rows: Sequence[Row], per: int = 1, *, topics: bool = False
) -> Metric:
    counter = CounterMetricFamily(name, text, labels=TOPIC_LABELS if topics else CLIENT_LABELS)
    for row in rows:
        labels = (row.type, row.client_id) if topics else (row.type, row.user, row.client_id)
        counter.add_metric(labels, getattr(row.totals, field) / per)
    return counter


def _of_proxy(stats: Stats) -> Iterator[Metric]:
    yield _gauge("sluice_connections", "Client connections open now", stats.connections, "listener")
    yield _counter(
        "sluice_connections_opened", "Client connections accepted", stats.connections_total, "listener"
    )
    yield _counter("sluice_connections_refused", "Client connections closed at once", stats.refused, "cause")
    yield _counter(
        "sluice_connection_errors", "Connections that ended as nobody wished", stats.errors, "cause"
    )
    yield _counter("sluice_tls_handshakes", "TLS handshakes that succeeded", stats.handshakes, "side")
    yield _counter(
        "sluice_certificate_reloads",
        "Times certificates were read again",
        stats.certificate_reloads,
        "result",
    )
    yield _gauge(
        "sluice_certificate_expiry_timestamp_seconds",
        "When a certificate ends",
        stats.certificate_ends,
        "tls",
    )
    yield _counter("sluice_requests", "Frames from clients, by API", _requests(stats), "api")
    yield _counter(
        "sluice_topics_rejected", "Topics over the partition mutation quota", stats.topics_rejected, "api"
    )
    yield _counter(
        "sluice_topics_would_reject",
        "Topics that were not rejected only because nothing is enforced",
        stats.topics_would_reject,
        "api",
    )
    yield _authentications(stats)
    yield _counter(
        "sluice_quota_requests",
        "Requests of the quota API that were answered here",
        stats.quota_requests,
        "result",
    )
    yield _counter("sluice_reloads", "Times the configuration was read again", stats.reloads, "result")
    for name, text, value in (
        ("sluice_responses", "Frames from brokers", stats.frames_from_brokers),
        ("sluice_bytes_from_clients", "Bytes read from clients", stats.bytes_from_clients),
        ("sluice_bytes_from_brokers", "Bytes read from brokers", stats.bytes_from_brokers),
        ("sluice_spliced_bytes", "Bytes that never left the kernel", stats.spliced_bytes),
        (
            "sluice_held_seconds",
            "Time requests were held before their payload was read",
            stats.held_ms_total / 1000,
        ),
        (
            "sluice_tls_handshake_seconds",
            "Time that TLS handshakes took on the event loop",
            stats.handshake_us_total / 1_000_000,
        ),
        (
            "sluice_connections_would_refuse",
            "Connections over their address's rate, let in because nothing is enforced",
            stats.connections_would_refuse,
        ),
        ("sluice_clients_closed_muted", "Clients that closed while muted", stats.client_closed_muted),
        (
            "sluice_fetches_answered",
            "Fetches over quota, answered here and seen by no broker",
            stats.fetches_answered,
        ),
        (
            "sluice_topic_lookups",
            "Metadata requests of our own, for the sizes of topics that are deleted or grown",
            stats.topic_lookups,
        ),
        ("sluice_topic_bytes_uncharged", "Bytes of unknown topic ids", stats.topic_bytes_uncharged),
        ("sluice_connections_throttled", "Connections over their user's rate", stats.connections_throttled),
        ("sluice_connections_would_throttle", "Not enforced", stats.connections_would_throttle),
        ("sluice_session_translations", "Fetches whose session was translated", stats.session_translations),
        (
            "sluice_unnamed_brokers",
            "Brokers without a port that were left out of an answer",
            stats.unnamed_brokers,
        ),
        (
            "sluice_pipe_fallbacks",
            "Times a kernel pipe was refused and buffers were used",
            stats.pipe_fallbacks,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)
    for name, text, value in (
        (
            "sluice_connections_waiting",
            "Connections over their address's rate, unread until they are closed",
            stats.connections_waiting,
        ),
        ("sluice_channels_muted", "Channels muted now", stats.muted),
        ("sluice_channels_held", "Channels held now, their payload unread", stats.held),
        ("sluice_held_bytes", "Bytes in memory of requests that are held", stats.held_bytes),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    yield _latency(stats)


def _gauge(name: str, text: str, values: Mapping[str, float], label: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family


def _counter(name: str, text: str, values: dict[str, int], label: str) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family


def _authentications(stats: Stats) -> Metric:
    family = CounterMetricFamily(
        "sluice_authentications", "SASL exchanges seen in passing", labels=("mechanism", "result")
    )
    for labels, value in sorted(stats.sasl.items()):
        family.add_metric(labels, value)
    return family


def _requests(stats: Stats) -> dict[str, int]:
    last = len(stats.requests) - 1
    counts: dict[str, int] = {}
    for api_key, value in enumerate(stats.requests):
        if value:
            name = UNKNOWN_API if api_key == last else API_NAMES.get(api_key, UNKNOWN_API)
            counts[name] = counts.get(name, 0) + value
    return counts


def _latency(stats: Stats) -> Metric:
    family = HistogramMetricFamily(
        "sluice_added_latency_seconds", "From the read of bytes to the write that sends them on"
    )
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, value in zip((*LATENCY_BOUNDS_US, None), stats.latency_buckets, strict=True):
        below += value
        buckets.append(("+Inf" if bound is None else str(bound / 1_000_000), below))
    family.add_metric((), buckets, sum_value=stats.latency_sum_us / 1_000_000)
    return family
