"""The counters of the process: plain integers, incremented where the event happens.

The per-client quota figures of KIP-13 are in `quotas.engine`. `proxy.metrics.exposition` reads these counters at a
scrape.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

# Upper bounds in microseconds of the added-latency histogram: what one relayed read costs lies around 20 us.
LATENCY_BOUNDS_US: Final = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)
API_KEYS_MAX: Final = 128
# Why rows of a capture are dropped: nowhere to queue them, nowhere to write them, no time at the end, a bug of ours.
DROP_CAUSES: Final = ("queue", "disk", "stopped", "internal")


@dataclass(slots=True, eq=False)
class CaptureStats:
    """Counters of one kind of captured files. Each is changed by one thread; `dropped` has all its keys from the start.

    Attributes:
        rows: how many rows were written, in files that are finished.
        bytes_written: the size of those files.
        dropped: how many rows were lost, by cause (DROP_CAUSES).
        files, bytes: how many finished files are in the directory now, and their size.
        oldest: when the oldest of them was written, in seconds since the epoch; 0 for none.
        frames_left_out: how many rows lack the frame of their request, since the frames in memory are too large.
    """

    rows: int = 0
    bytes_written: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DROP_CAUSES, 0))
    files: int = 0
    bytes: int = 0
    oldest: float = 0.0
    frames_left_out: int = 0


@dataclass(slots=True, eq=False)
class Stats:
    """Counters and gauges of one process. All bytes are bytes on the wire, length prefixes included."""

    connections: Counter[str] = field(default_factory=Counter)  # open now, by listener name
    connections_total: Counter[str] = field(default_factory=Counter)
    # Cause: connections_max, connection_rate, descriptors, ...
    refused: Counter[str] = field(default_factory=Counter)
    connections_would_refuse: int = 0  # over their address's rate, and accepted without enforcement
    connections_waiting: int = 0  # over their address's rate, to be closed when their time is over
    connections_throttled: int = 0  # muted before their first request: their user creates too many
    connections_would_throttle: int = 0
    certificate_ends: dict[str, float] = field(default_factory=dict)  # by key path, seconds since the epoch
    certificate_reloads: Counter[str] = field(default_factory=Counter)  # "ok", "refused"
    # TLS handshakes that succeeded: "client", "broker".
    handshakes: Counter[str] = field(default_factory=Counter)
    tls_sessions_resumed: int = 0  # of clients' handshakes, those that have resumed a session
    handshake_us_total: int = 0  # time they took on the event loop
    errors: Counter[str] = field(default_factory=Counter)  # the cause of a connection's unexpected end
    # By API key; the last one counts every unknown key.
    requests: list[int] = field(default_factory=lambda: [0] * (API_KEYS_MAX + 1))
    # By mechanism and result: known, unknown (its principal can not be read in passing), failed.
    sasl: Counter[tuple[str, str]] = field(default_factory=Counter)
    frames_from_brokers: int = 0
    bytes_from_clients: int = 0
    bytes_from_brokers: int = 0
    spliced_bytes: int = 0
    muted: int = 0  # channels muted now
    held: int = 0  # channels held now, their payload unread
    held_bytes: int = 0  # bytes of held requests that were already read
    held_ms_total: int = 0
    kept_bytes: Callable[[], int] = int  # kept in memory for peers now; `proxy.net` counts them
    client_closed_muted: int = 0
    # Produce requests whose slot did not come within the longest hold: "acks", "acks0", or "late" in mid-frame.

    produce_refused: Counter[str] = field(default_factory=Counter)
    # Requests that named something of Sluice's own, by API.
    own_refusals: Counter[str] = field(default_factory=Counter)
    telemetry_pushes: Counter[str] = field(default_factory=Counter)  # PushTelemetry, by what was read of it
    telemetry_paid_ms: int = 0  # when all that was read of it is paid for, by the bound of the process
    throttle_times_untold: int = 0  # waited for, and not in the response
    fetches_answered: int = 0  # Fetches that got an empty response here, and that no broker saw
    session_translations: int = 0
    # Over the mutation quota and never forwarded, by API.
    topics_rejected: Counter[str] = field(default_factory=Counter)
    topics_would_reject: Counter[str] = field(default_factory=Counter)  # forwarded without enforcement
    topic_bytes_uncharged: int = 0  # of topics with an unknown id or an invalid name
    topic_lookups: int = 0  # Metadata requests of our own, for the sizes of topics
    replicas_left_out: int = 0  # times a throttled replica was left out of a Fetch
    replica_fetches_answered: int = 0  # of followers, with an empty response from here
    # Fetches that passed unthrottled.
    replication_unknown_versions: Counter[str] = field(default_factory=Counter)
    replicas_passed_unasked: int = 0  # new ones, before it was known whether they are throttled
    replication_unmirrored: int = 0  # Fetches that passed unthrottled: too many replicas to remember
    unnamed_brokers: int = 0  # times a broker without a port was left out of a response
    pipe_fallbacks: int = 0
    # Result: described, altered, refused, failed, malformed.
    quota_requests: Counter[str] = field(default_factory=Counter)
    reassignment_requests: Counter[str] = field(default_factory=Counter)  # taken, refused, failed, malformed
    # Submitted, refused, unanswered, cancelled, elected.
    reassignment_steps: Counter[str] = field(default_factory=Counter)
    # How moves ended: done, cancelled, refused, gone, lost.
    reassignment_ends: Counter[str] = field(default_factory=Counter)
    enforcement_off: bool = False  # switched off
    # Whether the switch is kept over a restart: written, not_written, unreadable.
    enforcement_state: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)  # by kind
    reloads: Counter[str] = field(default_factory=Counter)  # "ok", "refused"
    # Addresses of brokers that can not be: id, host, port, count.
    brokers_refused: Counter[str] = field(default_factory=Counter)
    broker_map_writes: Counter[str] = field(default_factory=Counter)  # "ok", "failed"
    # Requests and TLS handshakes that the admin port has refused, by reason.
    admin_refused: Counter[str] = field(default_factory=Counter)
    task_failures: Counter[str] = field(default_factory=Counter)  # by the name of a background task
    latency_buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_US) + 1))
    latency_count: int = 0
    latency_sum_us: int = 0
    # By kind: rows, frames; empty without capture.
    captures: dict[str, CaptureStats] = field(default_factory=dict)

    def observe_latency(self, microseconds: int) -> None:
        """Count one measurement of Sluice's own delay: from the read of some bytes to the write that sends them on."""
        self.latency_buckets[bisect_left(LATENCY_BOUNDS_US, microseconds)] += 1
        self.latency_count += 1
        self.latency_sum_us += microseconds
