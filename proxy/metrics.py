"""`Stats` and the quotas engine's views for Prometheus, under names that begin with `sluice_`.

KIP-13's per-client byte rate and throttle time are there for every client id, with what Kafka does not tell
beside them; docs/metrics.md maps each name to Kafka's MBean, and a test compares that document with what is
collected here. A scrape is three steps, so that it does not hold up traffic: `ClientSeries` looks through the
clients in portions, a snapshot of the counters is taken, and `render` writes the text, which may run in a
thread. What clients and topics have is made in `client_families`; nothing else knows Prometheus. It keeps its
own registry, since the default one is shared with whatever else is imported.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from protocol.api import API_NAMES
from proxy.client_families import of_clients, of_mutations, of_requests, of_topics
from proxy.lease_view import LeaseView
from proxy.replication_view import Family, ReplicationView
from proxy.series import ClientSeries, portions
from proxy.stats import LATENCY_BOUNDS_US, CaptureStats, Stats
from quotas.engine import QuotaView

UNKNOWN_API: Final = "unknown"
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
            *_of_proxy(self._stats),
            *_of_captures(self._stats.captures),
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


def _of_proxy(stats: Stats) -> Iterator[Metric]:
    yield _gauge("sluice_connections", "Client connections open now", stats.connections, "listener")
    yield _counter(
        "sluice_connections_opened", "Client connections accepted", stats.connections_total, "listener"
    )
    yield _counter("sluice_connections_refused", "Client connections refused", stats.refused, "cause")
    yield _counter(
        "sluice_connection_errors", "Connections closed by an error or a limit", stats.errors, "cause"
    )
    yield _counter("sluice_tls_handshakes", "TLS handshakes that succeeded", stats.handshakes, "side")
    yield _counter(
        "sluice_certificate_reloads",
        "Certificate reloads",
        stats.certificate_reloads,
        "result",
    )
    yield _gauge(
        "sluice_certificate_expiry_timestamp_seconds",
        "Expiry time of a certificate",
        stats.certificate_ends,
        "tls",
    )
    yield _counter("sluice_requests", "Frames from clients, by API", _requests(stats), "api")
    yield _counter(
        "sluice_topics_rejected",
        "Topics rejected by the partition mutation quota",
        stats.topics_rejected,
        "api",
    )
    yield _counter(
        "sluice_produce_refused",
        "Produce requests refused because their slot was later than the longest hold",
        stats.produce_refused,
        "kind",
    )
    yield _counter(
        "sluice_topics_would_reject",
        "Topics that would have been rejected if quotas were enforced",
        stats.topics_would_reject,
        "api",
    )
    yield _authentications(stats)
    yield _counter(
        "sluice_quota_requests",
        "Requests of the quota API that Sluice answered",
        stats.quota_requests,
        "result",
    )
    yield _counter("sluice_reloads", "Configuration reloads", stats.reloads, "result")
    yield _counter(
        "sluice_brokers_refused",
        "Broker addresses that were rejected as invalid",
        stats.brokers_refused,
        "wrong",
    )
    yield _counter(
        "sluice_broker_map_writes",
        "Writes of the broker map to disk",
        stats.broker_map_writes,
        "result",
    )
    yield _counter(
        "sluice_task_failures", "Exceptions that ended a background task", stats.task_failures, "task"
    )
    for name, text, value in (
        ("sluice_responses", "Frames from brokers", stats.frames_from_brokers),
        ("sluice_bytes_from_clients", "Bytes read from clients", stats.bytes_from_clients),
        ("sluice_bytes_from_brokers", "Bytes read from brokers", stats.bytes_from_brokers),
        ("sluice_spliced_bytes", "Bytes passed on inside the kernel by splice", stats.spliced_bytes),
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
            "Connections above their address's rate, accepted because quotas are not enforced",
            stats.connections_would_refuse,
        ),
        ("sluice_clients_closed_muted", "Clients that closed while muted", stats.client_closed_muted),
        (
            "sluice_fetches_answered",
            "Fetches above the quota that Sluice answered itself",
            stats.fetches_answered,
        ),
        (
            "sluice_topic_lookups",
            "Metadata requests sent for the sizes of topics that are deleted or grown",
            stats.topic_lookups,
        ),
        (
            "sluice_topic_bytes_uncharged",
            "Bytes that were not charged because their topic id was unknown",
            stats.topic_bytes_uncharged,
        ),
        (
            "sluice_connections_throttled",
            "Connections throttled to their user's rate",
            stats.connections_throttled,
        ),
        (
            "sluice_connections_would_throttle",
            "Connections that would have been throttled if quotas were enforced",
            stats.connections_would_throttle,
        ),
        (
            "sluice_session_translations",
            "Fetches whose session epoch was translated",
            stats.session_translations,
        ),
        (
            "sluice_unnamed_brokers",
            "Brokers left out of a response because they have no port",
            stats.unnamed_brokers,
        ),
        (
            "sluice_pipe_fallbacks",
            "Kernel pipes that were refused and replaced by buffers",
            stats.pipe_fallbacks,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)
    for name, text, value in (
        (
            "sluice_connections_waiting",
            "Connections above their address's rate that wait unread until they are closed",
            stats.connections_waiting,
        ),
        ("sluice_channels_muted", "Channels muted now", stats.muted),
        ("sluice_channels_held", "Channels held now, with their payload unread", stats.held),
        (
            "sluice_kept_bytes",
            "Bytes kept in memory for peers, as limits.kept_bytes_max counts them",
            stats.kept_bytes(),
        ),
        ("sluice_held_bytes", "Bytes of held requests in memory", stats.held_bytes),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    yield _latency(stats)


def _of_captures(captures: Mapping[str, CaptureStats]) -> Iterator[Metric]:
    if not captures:
        return
    kind = ("kind",)
    written = CounterMetricFamily("sluice_capture_rows", "Rows in finished files", labels=kind)
    size = CounterMetricFamily("sluice_capture_written_bytes", "Size of finished files", labels=kind)
    dropped = CounterMetricFamily(
        "sluice_capture_dropped", "Rows that were dropped", labels=("kind", "cause")
    )
    files = GaugeMetricFamily("sluice_capture_files", "Files in the directory", labels=kind)
    held = GaugeMetricFamily("sluice_capture_bytes", "Size of all files in the directory", labels=kind)
    oldest = GaugeMetricFamily(
        "sluice_capture_oldest_timestamp_seconds", "When the oldest file was written; 0: none", labels=kind
    )
    left_out = CounterMetricFamily(
        "sluice_capture_frames_left_out", "Requests whose bytes were not kept for lack of room", labels=kind
    )
    for name, stats in sorted(captures.items()):
        written.add_metric((name,), stats.rows)
        size.add_metric((name,), stats.bytes_written)
        for cause, value in stats.dropped.items():
            dropped.add_metric((name, cause), value)
        files.add_metric((name,), stats.files)
        held.add_metric((name,), stats.bytes)
        oldest.add_metric((name,), stats.oldest)
        left_out.add_metric((name,), stats.frames_left_out)
    yield from (written, size, dropped, files, held, oldest, left_out)


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
        "sluice_authentications", "SASL exchanges between clients and brokers", labels=("mechanism", "result")
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
    family = HistogramMetricFamily("sluice_added_latency_seconds", "Time from reading bytes to writing them")
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, value in zip((*LATENCY_BOUNDS_US, None), stats.latency_buckets, strict=True):
        below += value
        buckets.append(("+Inf" if bound is None else str(bound / 1_000_000), below))
    family.add_metric((), buckets, sum_value=stats.latency_sum_us / 1_000_000)
    return family
