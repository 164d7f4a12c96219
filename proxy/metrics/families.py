"""The metric families: one type for all, and those of the process, its captures and its workers, as tables.

A family is plain values until `metric` converts it to Prometheus' own. `exposition` adds the families of clients.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from protocol.api import API_NAMES
from proxy.metrics.series import OTHER, WAITS, Row, Rows
from proxy.system.stats import LATENCY_BOUNDS_US, CaptureStats, Stats
from quotas.definitions.kinds import MUTATION, PRODUCE, REQUEST, TOPIC

UNKNOWN_API: Final = "unknown"

Labels = tuple[str, ...]


class Family(NamedTuple):
    """One metric family as plain values; `kind` is "counter" or "gauge", and a row is label values and a value."""

    name: str
    kind: str
    text: str
    labels: Labels
    rows: Sequence[tuple[Labels, float]]


def metric(family: Family) -> Metric:
    """Convert a family to Prometheus' own class."""
    name, kind, text, labels, rows = family
    found = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
    for values, value in rows:
        found.add_metric(values, value)
    return found


def by_label(name: str, kind: str, text: str, label: str, counts: Mapping[str, float]) -> Family:
    """Return a metric family with one label: a row for each key of `counts`, which is the label's value."""
    return Family(
        name, kind, text, (label,), [((value,), float(count)) for value, count in sorted(counts.items())]
    )


def single(name: str, kind: str, text: str, value: float) -> Family:
    """Return a metric family with one value and no label."""
    return Family(name, kind, text, (), [((), float(value))])


# What `Stats` counts: name and text, with the label where it is counted by one. The attribute of `Stats` has the same
# name without "sluice_"; where it has another, it is in _VALUES.
_COUNTERS: Final = (
    ("sluice_responses", "Frames from brokers"),
    ("sluice_bytes_from_clients", "Bytes read from clients"),
    ("sluice_bytes_from_brokers", "Bytes read from brokers"),
    ("sluice_spliced_bytes", "Bytes passed on inside the kernel by splice"),
    ("sluice_held_seconds", "Time requests were held before their payload was read"),
    ("sluice_tls_handshake_seconds", "Time that TLS handshakes took on the event loop"),
    ("sluice_tls_sessions_resumed", "TLS handshakes of clients that have resumed a session"),
    (
        "sluice_connections_would_refuse",
        "Connections above their address's rate, accepted because quotas are not enforced",
    ),
    ("sluice_clients_closed_muted", "Clients that closed while muted"),
    (
        "sluice_throttle_times_untold",
        "Throttle times that were waited for, and not told in the response (policy schedule)",
    ),
    ("sluice_fetches_answered", "Fetches above the quota with a local response of Sluice"),
    ("sluice_topic_lookups", "Metadata requests sent for the sizes of topics that are deleted or grown"),
    ("sluice_topic_bytes_uncharged", "Bytes that were not charged because their topic id was unknown"),
    ("sluice_connections_throttled", "Connections throttled to their user's rate"),
    (
        "sluice_connections_would_throttle",
        "Connections that would have been throttled if quotas were enforced",
    ),
    ("sluice_session_translations", "Fetches whose session epoch was translated"),
    ("sluice_unnamed_brokers", "Brokers left out of a response because they have no port"),
    ("sluice_pipe_fallbacks", "Kernel pipes that were refused and replaced by buffers"),
)
_COUNTERS_BY: Final = (
    ("listener", "sluice_connections_opened", "Client connections accepted"),
    ("cause", "sluice_connections_refused", "Client connections refused"),
    ("cause", "sluice_connection_errors", "Connections closed by an error or a limit"),
    ("side", "sluice_tls_handshakes", "TLS handshakes that succeeded"),
    ("result", "sluice_certificate_reloads", "Certificate reloads"),
    ("api", "sluice_requests", "Frames from clients, by API"),
    ("api", "sluice_topics_rejected", "Topics rejected by the partition mutation quota"),
    (
        "kind",
        "sluice_produce_refused",
        "Produce requests refused because their slot was later than the longest hold",
    ),
    (
        "api",
        "sluice_own_refusals",
        "Requests in which a client named a topic, group or transactional id of Sluice's own, by API",
    ),
    ("result", "sluice_telemetry_pushes", "PushTelemetry requests of clients, by what was read of them"),
    ("api", "sluice_topics_would_reject", "Topics that would have been rejected if quotas were enforced"),
    ("result", "sluice_quota_requests", "Requests of the quota API that Sluice responded to"),
    (
        "kind",
        "sluice_events",
        "Events, with those that are left out of /v1/events because too many of their kind came",
    ),
    ("result", "sluice_enforcement_state", "Whether the switch of all enforcement was kept over a restart"),
    ("result", "sluice_reloads", "Configuration reloads"),
    ("wrong", "sluice_brokers_refused", "Broker addresses that were rejected as invalid"),
    ("result", "sluice_broker_map_writes", "Writes of the broker map to disk"),
    ("reason", "sluice_admin_refused", "Requests and TLS handshakes that the admin port has refused"),
    ("task", "sluice_task_failures", "Exceptions that ended a background task"),
)
_GAUGES: Final = (
    (
        "sluice_connections_waiting",
        "Connections above their address's rate that wait unread until they are closed",
    ),
    ("sluice_channels_muted", "Channels muted now"),
    ("sluice_channels_held", "Channels held now, with their payload unread"),
    ("sluice_kept_bytes", "Bytes kept in memory for peers, as limits.kept_bytes_max counts them"),
    ("sluice_held_bytes", "Bytes of held requests in memory"),
)
_GAUGES_BY: Final = (
    ("listener", "sluice_connections", "Client connections open now"),
    ("tls", "sluice_certificate_expiry_timestamp_seconds", "Expiry time of a certificate"),
)


def _requests(stats: Stats) -> dict[str, int]:
    last = len(stats.requests) - 1
    counts: dict[str, int] = {}
    for api_key, value in enumerate(stats.requests):
        if value:
            name = UNKNOWN_API if api_key == last else API_NAMES.get(api_key, UNKNOWN_API)
            counts[name] = counts.get(name, 0) + value
    return counts


_VALUES: Final[Mapping[str, Callable[[Stats], Any]]] = {
    "sluice_certificate_expiry_timestamp_seconds": attrgetter("certificate_ends"),
    "sluice_channels_held": attrgetter("held"),
    "sluice_channels_muted": attrgetter("muted"),
    "sluice_clients_closed_muted": attrgetter("client_closed_muted"),
    "sluice_connection_errors": attrgetter("errors"),
    "sluice_connections_opened": attrgetter("connections_total"),
    "sluice_connections_refused": attrgetter("refused"),
    "sluice_held_seconds": lambda stats: stats.held_ms_total / 1000,
    "sluice_kept_bytes": lambda stats: stats.kept_bytes(),
    "sluice_requests": _requests,
    "sluice_responses": attrgetter("frames_from_brokers"),
    "sluice_tls_handshake_seconds": lambda stats: stats.handshake_us_total / 1_000_000,
    "sluice_tls_handshakes": attrgetter("handshakes"),
}


def of_proxy(stats: Stats) -> Iterator[Metric]:
    """Yield the metric families of the data path, from the counters of the process."""

    def value(name: str) -> Any:
        return _VALUES.get(name, attrgetter(name.removeprefix("sluice_")))(stats)

    for kind, with_label in (("counter", _COUNTERS_BY), ("gauge", _GAUGES_BY)):
        for label, name, text in with_label:
            yield metric(by_label(name, kind, text, label, value(name)))
    for kind, table in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for name, text in table:
            yield metric(single(name, kind, text, value(name)))
    text = "SASL exchanges between clients and brokers"
    sasl = sorted(stats.sasl.items())
    yield metric(Family("sluice_authentications", "counter", text, ("mechanism", "result"), sasl))
    yield _latency(stats)


def _latency(stats: Stats) -> Metric:
    family = HistogramMetricFamily("sluice_added_latency_seconds", "Time from reading bytes to writing them")
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, value in zip((*LATENCY_BOUNDS_US, None), stats.latency_buckets, strict=True):
        below += value
        buckets.append(("+Inf" if bound is None else str(bound / 1_000_000), below))
    family.add_metric((), buckets, sum_value=stats.latency_sum_us / 1_000_000)
    return family


# Of a capture: name, kind, text, and the attribute of `CaptureStats`.
_OF_CAPTURE: Final = (
    ("sluice_capture_rows", "counter", "Rows in finished files", "rows"),
    ("sluice_capture_written_bytes", "counter", "Size of finished files", "bytes_written"),
    ("sluice_capture_files", "gauge", "Files in the directory", "files"),
    ("sluice_capture_bytes", "gauge", "Size of all files in the directory", "bytes"),
    (
        "sluice_capture_oldest_timestamp_seconds",
        "gauge",
        "When the oldest file was written; 0: none",
        "oldest",
    ),
    (
        "sluice_capture_frames_left_out",
        "counter",
        "Requests whose bytes were not kept for lack of room",
        "frames_left_out",
    ),
)


def of_captures(captures: Mapping[str, CaptureStats]) -> Iterator[Metric]:
    """Yield the metric families of captures, labelled with the kind of capture (the keys of `captures`)."""
    if not captures:
        return
    for name, kind, text, attribute in _OF_CAPTURE:
        values = {capture: getattr(stats, attribute) for capture, stats in captures.items()}
        yield metric(by_label(name, kind, text, "kind", values))
    dropped = [
        ((name, cause), value)
        for name, stats in sorted(captures.items())
        for cause, value in stats.dropped.items()
    ]
    yield metric(
        Family("sluice_capture_dropped", "counter", "Rows that were dropped", ("kind", "cause"), dropped)
    )


def of_workers(
    up: Mapping[int, bool],
    connections: Mapping[int, int],
    missed: Mapping[int, int],
    exits: Mapping[str, int],
) -> Iterator[Family]:
    """Yield the families of worker processes (`[process] workers`).

    Args:
        up: whether a worker has responded to this scrape, by its number.
        connections: the number of open connections of each running worker, by its number.
        missed: how many scrapes lacked a worker's figures, by its number.
        exits: how often a worker process has ended unexpectedly, by cause.
    """
    for name, kind, text, values in (
        (
            "sluice_worker_up",
            "gauge",
            "1 if the worker is ready and has responded to this scrape, otherwise 0",
            up,
        ),
        (
            "sluice_worker_connections",
            "gauge",
            "Client connections of a worker, up to a second ago",
            connections,
        ),
        (
            "sluice_worker_missed",
            "counter",
            "Questions for a page that a worker has not responded to in time, or could not be asked",
            missed,
        ),
    ):
        rows = [((str(number),), value) for number, value in sorted(values.items())]
        yield Family(name, kind, text, ("worker",), rows)
    text = "Worker processes that ended although they should not have, by cause"
    yield by_label("sluice_worker_exits", "counter", text, "cause", exits)


# ----------------------------------------------------------------------------------------------------
# Clients and topics, from the rows that `series` has chosen (KIP-13).

CLIENT_LABELS: Final = ("type", "user", "client_id")
_USER_LABELS: Final = ("user", "client_id")
_TOPIC_LABELS: Final = ("type", "topic")

# Name, kind, text, and the value of a row: its attribute, or a function that returns None for no series.
_Columns = Sequence[tuple[str, str, str, str | Callable[[Row], float | None]]]


def _per(parts: int, total: str) -> Callable[[Row], float]:
    """Return a function that reads a total of a row and divides it by `parts`, to have it in the metric's unit."""
    return lambda row: getattr(row.totals, total) / parts


_OF_CLIENTS: Final[_Columns] = (
    (
        "sluice_client_bytes",
        "counter",
        "Bytes of requests (Produce) or responses (Fetch) that the quota counts",
        "totals.bytes",
    ),
    ("sluice_client_byte_rate", "gauge", "Bytes/s over the quota's windows", "byte_rate"),
    ("sluice_client_quota_byte_rate", "gauge", "The quota in bytes/s; absent: none", "quota"),
    ("sluice_client_debt_bytes", "gauge", "Bytes above the quota that are not paid for yet", "debt_bytes"),
)
_OF_THROTTLES: Final[_Columns] = (
    ("sluice_client_throttled_requests", "counter", "Requests that were throttled", "totals.throttled"),
    (
        "sluice_client_would_throttled_requests",
        "counter",
        "Requests that would have been throttled if quotas were enforced",
        "totals.would_throttled",
    ),
    (
        "sluice_client_throttle_seconds",
        "counter",
        "Time the client was throttled for",
        _per(1000, "throttle_ms"),
    ),
    (
        "sluice_client_would_throttle_seconds",
        "counter",
        "Time the client would have been throttled for if quotas were enforced",
        _per(1000, "would_throttle_ms"),
    ),
)
_OF_MUTATIONS: Final[_Columns] = (
    ("sluice_client_mutations", "counter", "Partitions created, added and deleted", "totals.bytes"),
    (
        "sluice_client_mutation_tokens",
        "gauge",
        "Partition mutations left in the client's bucket; below 0: throttled",
        lambda row: None if row.quota is None else row.tokens,
    ),
    (
        "sluice_client_quota_mutation_rate",
        "gauge",
        "The quota in partition mutations/s; absent: none",
        lambda row: None if row.tokens is None else row.quota,
    ),
)
_OF_REQUESTS: Final[_Columns] = (
    (
        "sluice_client_request_seconds",
        "counter",
        "Time that requests kept brokers busy",
        _per(1_000_000, "bytes"),
    ),
    (
        "sluice_client_request_percentage",
        "gauge",
        "Time that requests kept brokers busy, in percent of a second",
        "byte_rate",
    ),
    (
        "sluice_client_quota_request_percentage",
        "gauge",
        "The quota in percent of a second; absent: none",
        "quota",
    ),
)
_OF_TOPICS: Final[_Columns] = (
    (
        "sluice_topic_bytes",
        "counter",
        "Bytes of topics that have a quota, in requests (Produce) and responses (Fetch)",
        "totals.bytes",
    ),
    (
        "sluice_topic_throttled_requests",
        "counter",
        "Frames whose channel was muted for the topic",
        "totals.throttled",
    ),
    (
        "sluice_topic_would_throttled_requests",
        "counter",
        "Frames whose channel would have been muted if quotas were enforced",
        "totals.would_throttled",
    ),
    (
        "sluice_topic_throttle_seconds",
        "counter",
        "Time channels were muted for the topic",
        _per(1000, "throttle_ms"),
    ),
    (
        "sluice_topic_would_throttle_seconds",
        "counter",
        "Time channels would have been muted if quotas were enforced",
        _per(1000, "would_throttle_ms"),
    ),
    ("sluice_topic_quota_byte_rate", "gauge", "The quota in bytes/s", "quota"),
    ("sluice_topic_debt_bytes", "gauge", "Bytes not yet paid for", "debt_bytes"),
)
_OF_WAITS: Final[_Columns] = (
    (
        "sluice_client_waited_seconds",
        "counter",
        "Time the client's connections were held or muted, of all of them together",
        _per(1000, "bytes"),
    ),
    (
        "sluice_client_longest_wait_seconds",
        "counter",
        "Time the client's connection that waited longest in each minute was held or muted",
        # The rest of the clients has no connection that waits longest: their sum may grow by more than 1 s per second.
        lambda row: None if row.client_id == OTHER else row.totals.longest_wait_ms / 1000,
    ),
)


def of_rows(rows: Rows, cluster_tokens: float | None) -> Iterator[Metric]:
    """Yield the metric families of clients and topics, from the rows that were chosen for this scrape.

    Args:
        cluster_tokens: the partition mutations left for all clients together; None if they are unlimited.
    """
    clients, mutations, requests = rows[PRODUCE.series], rows[MUTATION.series], rows[REQUEST.series]
    of_client, of_user = attrgetter(*CLIENT_LABELS), attrgetter(*_USER_LABELS)
    throttled = (*clients, *mutations, *requests)
    tables: tuple[tuple[_Columns, Sequence[Row], Labels, Callable[[Row], Labels]], ...] = (
        (_OF_CLIENTS, clients, CLIENT_LABELS, of_client),
        (_OF_THROTTLES, throttled, CLIENT_LABELS, of_client),
        (_OF_MUTATIONS, mutations, _USER_LABELS, of_user),
        (_OF_TOPICS, rows[TOPIC.series], _TOPIC_LABELS, attrgetter("type", "client_id")),
        (_OF_REQUESTS, requests, _USER_LABELS, of_user),
        (_OF_WAITS, rows[WAITS], CLIENT_LABELS, of_client),
    )
    for columns, some, names, labels in tables:
        for name, kind, text, attribute in columns:
            value = attrgetter(attribute) if isinstance(attribute, str) else attribute
            values = ((labels(row), value(row)) for row in some)
            yield metric(
                Family(name, kind, text, names, [(key, one) for key, one in values if one is not None])
            )
    text = "Partition mutations left for all clients together; absent: unlimited"
    left: list[tuple[Labels, float]] = [] if cluster_tokens is None else [((), cluster_tokens)]
    yield metric(Family("sluice_mutation_tokens", "gauge", text, (), left))
