"""The metric families of the process and of captures, from its counters; `exposition` adds those of the clients."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from protocol.api import API_NAMES
from proxy.metrics.replication import Family
from proxy.system.stats import LATENCY_BOUNDS_US, CaptureStats, Stats

UNKNOWN_API: Final = "unknown"


def of_proxy(stats: Stats) -> Iterator[Metric]:
    """The families of the process."""
    yield from _of_connections(stats)
    yield from _of_requests(stats)
    yield from _of_the_control_plane(stats)
    yield from _counters_without_labels(stats)
    yield from _gauges_without_labels(stats)
    yield _latency(stats)


def _of_connections(stats: Stats) -> Iterator[Metric]:
    """Connections and TLS."""
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


def _of_requests(stats: Stats) -> Iterator[Metric]:
    """Decisions on clients' requests."""
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
        "sluice_own_refusals",
        "Requests in which a client named a topic, group or transactional id of Sluice's own, by API",
        stats.own_refusals,
        "api",
    )
    yield _counter(
        "sluice_topics_would_reject",
        "Topics that would have been rejected if quotas were enforced",
        stats.topics_would_reject,
        "api",
    )
    yield _authentications(stats)


def _of_the_control_plane(stats: Stats) -> Iterator[Metric]:
    """Quota API, events, reloads, broker map, background tasks."""
    yield _counter(
        "sluice_quota_requests",
        "Requests of the quota API that Sluice responded to",
        stats.quota_requests,
        "result",
    )
    yield _counter(
        "sluice_events",
        "Events, with those that are left out of /v1/events because too many of their kind came",
        stats.events,
        "kind",
    )
    yield _counter(
        "sluice_enforcement_state",
        "Whether the switch of all enforcement was kept over a restart",
        stats.enforcement_state,
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


def _counters_without_labels(stats: Stats) -> Iterator[Metric]:
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
            "sluice_throttle_times_untold",
            "Throttle times that were waited for, and not told in the response (policy schedule)",
            stats.throttle_times_untold,
        ),
        (
            "sluice_fetches_answered",
            "Fetches above the quota with a local response of Sluice",
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


def _gauges_without_labels(stats: Stats) -> Iterator[Metric]:
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


def of_captures(captures: Mapping[str, CaptureStats]) -> Iterator[Metric]:
    """The families of captures, by kind of file."""
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


# ----------------------------------------------------------------------------------------------------
# The families of worker processes (`[process] workers`).


def of_workers(
    up: Mapping[int, bool],
    connections: Mapping[int, int],
    missed: Mapping[int, int],
    exits: Mapping[str, int],
) -> Iterator[Family]:
    """Yield the families.

    Args:
        up: whether a worker has responded to this scrape, by its number.
        connections: of each worker that runs.
        missed: how often each worker's figures were missing.
        exits: how many lives of workers ended although they should not have, by cause.
    """
    yield Family(
        "sluice_worker_up",
        "gauge",
        "1 if the worker is ready and has responded to this scrape, otherwise 0",
        ("worker",),
        [((str(number),), one) for number, one in sorted(up.items())],
    )
    yield Family(
        "sluice_worker_connections",
        "gauge",
        "Client connections of a worker, up to a second ago",
        ("worker",),
        [((str(number),), count) for number, count in sorted(connections.items())],
    )
    yield Family(
        "sluice_worker_missed",
        "counter",
        "Questions for a page that a worker has not responded to in time, or could not be asked",
        ("worker",),
        [((str(number),), count) for number, count in sorted(missed.items())],
    )
    yield Family(
        "sluice_worker_exits",
        "counter",
        "Worker processes that ended although they should not have, by cause",
        ("cause",),
        [((cause,), count) for cause, count in sorted(exits.items())],
    )
