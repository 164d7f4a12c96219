"""The counters of the process: plain integers, incremented where the event happens.

The per-client quota figures of KIP-13 are in `quotas.engine`. `proxy.metrics.exposition` reads these counters at a
scrape.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

# Upper bounds in microseconds of the added-latency histogram: what one relayed read costs lies around 20 us.
LATENCY_BOUNDS_US: Final = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)
API_KEYS_MAX: Final = 128
# Why rows of a capture are dropped: nowhere to queue them, nowhere to write them, no time at the end, a bug of ours.
DROP_CAUSES: Final = ("queue", "disk", "stopped", "internal")


class CaptureStats:
    """Counters of one kind of captured files. Each is changed by one thread; `dropped` has all its keys from the start.

    Attributes:
        rows: in files that are whole.
        bytes_written: the size of those files.
        files, bytes: finished files in the directory now, and their size.
        oldest: when the oldest of them was written, in seconds since the epoch; 0 for none.
        frames_left_out: requests that are not kept beside their rows, because too many are.
    """

    __slots__ = ("bytes", "bytes_written", "dropped", "files", "frames_left_out", "oldest", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes_written = 0
        self.dropped: dict[str, int] = dict.fromkeys(DROP_CAUSES, 0)
        self.files = 0
        self.bytes = 0
        self.oldest = 0.0
        self.frames_left_out = 0


class Stats:
    """Counters and gauges of one process. All bytes are bytes on the wire, length prefixes included."""

    __slots__ = (
        "broker_map_writes",
        "brokers_refused",
        "bytes_from_brokers",
        "bytes_from_clients",
        "captures",
        "certificate_ends",
        "certificate_reloads",
        "client_closed_muted",
        "connections",
        "connections_throttled",
        "connections_total",
        "connections_waiting",
        "connections_would_refuse",
        "connections_would_throttle",
        "enforcement_off",
        "enforcement_state",
        "errors",
        "events",
        "fetches_answered",
        "frames_from_brokers",
        "handshake_us_total",
        "handshakes",
        "held",
        "held_bytes",
        "held_ms_total",
        "kept_bytes",
        "latency_buckets",
        "latency_count",
        "latency_sum_us",
        "muted",
        "own_refusals",
        "pipe_fallbacks",
        "produce_refused",
        "quota_requests",
        "reassignment_ends",
        "reassignment_requests",
        "reassignment_steps",
        "refused",
        "reloads",
        "replica_fetches_answered",
        "replicas_left_out",
        "replicas_passed_unasked",
        "replication_unknown_versions",
        "replication_unmirrored",
        "requests",
        "sasl",
        "session_translations",
        "spliced_bytes",
        "task_failures",
        "throttle_times_untold",
        "topic_bytes_uncharged",
        "topic_lookups",
        "topics_rejected",
        "topics_would_reject",
        "unnamed_brokers",
    )

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()  # open now, by listener name
        self.connections_total: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # cause: connections_max, connection_rate, descriptors, ...
        self.connections_would_refuse = 0  # over their address's rate, and accepted without enforcement
        self.connections_waiting = 0  # over their address's rate, to be closed when their time is over
        self.connections_throttled = 0  # muted before their first request: their user creates too many
        self.connections_would_throttle = 0
        self.certificate_ends: dict[str, float] = {}  # by key path, seconds since the epoch
        self.certificate_reloads: Counter[str] = Counter()  # "ok", "refused"
        self.handshakes: Counter[str] = Counter()  # TLS handshakes that succeeded: "client", "broker"
        self.handshake_us_total = 0  # time they took on the event loop
        self.errors: Counter[str] = Counter()  # the cause of a connection's unexpected end
        # By API key; the last one counts every unknown key.
        self.requests: list[int] = [0] * (API_KEYS_MAX + 1)
        # By mechanism and result: known, unknown (its principal can not be read in passing), failed.
        self.sasl: Counter[tuple[str, str]] = Counter()
        self.frames_from_brokers = 0
        self.bytes_from_clients = 0
        self.bytes_from_brokers = 0
        self.spliced_bytes = 0
        self.muted = 0  # channels muted now
        self.held = 0  # channels held now, their payload unread
        self.held_bytes = 0  # bytes of held requests that were already read
        self.held_ms_total = 0
        self.kept_bytes: Callable[[], int] = int  # kept in memory for peers now; `proxy.net` counts them
        self.client_closed_muted = 0
        # Produce requests whose slot did not come within the longest hold: "acks", "acks0", or "late" in mid-frame.
        self.produce_refused: Counter[str] = Counter()
        self.own_refusals: Counter[str] = Counter()  # requests that named something of Sluice's own, by API
        self.throttle_times_untold = 0  # waited for, and not in the response
        self.fetches_answered = 0  # Fetches that got an empty response here, and that no broker saw
        self.session_translations = 0
        self.topics_rejected: Counter[str] = Counter()  # over the mutation quota and never forwarded, by API
        self.topics_would_reject: Counter[str] = Counter()  # forwarded without enforcement
        self.topic_bytes_uncharged = 0  # of topics with an unknown id or an invalid name
        self.topic_lookups = 0  # Metadata requests of our own, for the sizes of topics
        self.replicas_left_out = 0  # times a throttled replica was left out of a Fetch
        self.replica_fetches_answered = 0  # of followers, with an empty response from here
        self.replication_unknown_versions: Counter[str] = Counter()  # Fetches that passed unthrottled
        self.replicas_passed_unasked = 0  # new ones, before it was known whether they are throttled
        self.replication_unmirrored = 0  # Fetches that passed unthrottled: too many replicas to remember
        self.unnamed_brokers = 0  # times a broker without a port was left out of a response
        self.pipe_fallbacks = 0
        # Result: described, altered, refused, failed, malformed.
        self.quota_requests: Counter[str] = Counter()
        self.reassignment_requests: Counter[str] = Counter()  # taken, refused, failed, malformed
        self.reassignment_steps: Counter[str] = (
            Counter()
        )  # submitted, refused, unanswered, cancelled, elected
        self.reassignment_ends: Counter[str] = (
            Counter()
        )  # how moves ended: done, cancelled, refused, gone, lost
        self.enforcement_off = False  # switched off
        # Whether the switch is kept over a restart: written, not_written, unreadable.
        self.enforcement_state: Counter[str] = Counter()
        self.events: Counter[str] = Counter()  # by kind
        self.reloads: Counter[str] = Counter()  # "ok", "refused"
        self.brokers_refused: Counter[str] = (
            Counter()
        )  # addresses of brokers that can not be: id, host, port, count
        self.broker_map_writes: Counter[str] = Counter()  # "ok", "failed"
        self.task_failures: Counter[str] = Counter()  # by the name of a background task
        self.latency_buckets: list[int] = [0] * (len(LATENCY_BOUNDS_US) + 1)
        self.latency_count = 0
        self.latency_sum_us = 0
        self.captures: dict[str, CaptureStats] = {}  # by kind: rows, frames; empty without capture

    def observe_latency(self, microseconds: int) -> None:
        """Count one sampled relay: from the read that brought the bytes to the write that sent them on."""
        index = 0
        for bound in LATENCY_BOUNDS_US:
            if microseconds <= bound:
                break
            index += 1
        self.latency_buckets[index] += 1
        self.latency_count += 1
        self.latency_sum_us += microseconds
