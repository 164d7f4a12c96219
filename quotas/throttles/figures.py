"""The figures of one client and one kind of quota, for metrics and admin pages."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quotas.definitions.kinds import Kind
from quotas.limiters.limiter import ALL_BROKERS

GATEWAY: Final = ALL_BROKERS  # with scope `cluster`


class QuotaView(NamedTuple):
    """The figures of one client and one kind of quota at one broker, for metrics and admin pages.

    Counters begin with the process.

    Args:
        type: Kafka's name of the kind: Produce, Fetch, ControllerMutation, Request; in the metric series of clients'
            waits also Topic, Connection, Replication.
        byte_rate: the rate over the quota's windows, in the unit of its kind: bytes/s, partitions/s, percent for
            Request.
        quota: the limit; None for unlimited.
        tokens: the tokens left for partition mutations; None for other kinds, or if unlimited.
        broker: the broker at which it is counted; GATEWAY for all brokers together.
        backlog_bytes: the bytes that the clients with this quota would have left to send if it were enforced and they
            kept their rate; 0 while quotas are enforced.
        longest_wait_ms_total: in the metric series of clients' waits, how long in ms the connection has waited that
            has waited longest; otherwise 0.
    """

    user: str
    client_id: str
    type: str
    byte_rate: float
    quota: float | None
    bytes_total: int
    throttle_ms_total: int
    throttled_total: int
    would_throttle_ms_total: int
    would_throttled_total: int
    debt_bytes: float
    tokens: float | None = None
    broker: int = GATEWAY
    backlog_bytes: float = 0.0
    longest_wait_ms_total: int = 0


# ----------------------------------------------------------------------------------------------------
# Counters of one throttle: how often, and for how long together, it has throttled a client or topic.


@dataclass(slots=True, eq=False)
class ThrottleCounters:
    """The counters that every throttle has, since the start of the process.

    Attributes:
        throttled_total: throttled requests.
        throttle_ms_total: the sum of their throttle times in ms; for Produce also the times of holds.
        would_throttled_total, would_throttle_ms_total: the same for throttles that would apply if quotas were enforced.

    >>> counters = ThrottleCounters()
    >>> counters.count(500)
    >>> counters.totals()
    (500, 1, 0, 0)
    """

    throttle_ms_total: int = field(default=0, init=False)
    throttled_total: int = field(default=0, init=False)
    would_throttle_ms_total: int = field(default=0, init=False)
    would_throttled_total: int = field(default=0, init=False)

    def count(self, throttle_ms: int) -> None:
        """Count one throttled request, with its throttle time."""
        self.throttled_total += 1
        self.throttle_ms_total += throttle_ms

    def totals(self) -> tuple[int, int, int, int]:
        """All four counters, in the order of `QuotaView`."""
        return (
            self.throttle_ms_total,
            self.throttled_total,
            self.would_throttle_ms_total,
            self.would_throttled_total,
        )


_UNKNOWN_MS = -1
_ELAPSED_MS_MIN = 1000  # a counter younger than a second is divided by a second


@dataclass(slots=True, eq=False)
class ClientThrottle(ThrottleCounters):
    """The base class of all throttles of a client: what was counted, at which rate, and the figures for metrics.

    For the rate over about the quota's windows, two earlier counts are stored, half of the windows' length apart; a
    newer one replaces the older one. So it covers at least the last half of the windows and at most all of them.
    Requests cost nothing here. Decisions do not use this rate (`limiters.rate`, `limiters.schedule`).

    Attributes:
        kind: the kind of quota.
        limit: the limit in the unit of its kind, as of the last refresh; None for unlimited.
        total: what was counted: bytes, microseconds of broker time, or partitions.

    >>> from quotas.definitions.kinds import PRODUCE
    >>> seen = ClientThrottle(PRODUCE, "", "a")
    >>> seen.begin(0)
    >>> for second in range(1, 19):  # 5 a second at first, then 2
    ...     seen.total = 5 * second if second < 8 else 40 + 2 * (second - 8)
    ...     seen.mark(second * 1000, windows_ms=11_000)
    >>> seen.rate(18_000)  # since the mark at 12 s
    2.0
    """

    kind: Kind
    user: str
    client_id: str
    limit: float | None = field(default=None, init=False)
    total: int = field(default=0, init=False)
    _first_mark: int = field(default=0, init=False)
    _first_mark_ms: int = field(default=_UNKNOWN_MS, init=False)
    _second_mark: int = field(default=0, init=False)
    _second_mark_ms: int = field(default=_UNKNOWN_MS, init=False)

    @property
    def key(self) -> str:
        """The key of the quota's limits, such as "producer_byte_rate"."""
        return self.kind.key

    def begin(self, now_ms: int) -> None:
        """Start with a count of 0 at this time; later calls have no effect."""
        if self._first_mark_ms == _UNKNOWN_MS:
            self._first_mark_ms = self._second_mark_ms = now_ms

    def mark(self, now_ms: int, windows_ms: int) -> None:
        """Store the count if half of the windows' length has passed. Call it about once a second.

        Args:
            now_ms: monotonic.
            windows_ms: the length of all windows of the quota together.
        """
        if 2 * (now_ms - self._second_mark_ms) >= windows_ms and self._second_mark_ms != _UNKNOWN_MS:
            self._first_mark_ms, self._first_mark = self._second_mark_ms, self._second_mark
            self._second_mark_ms, self._second_mark = now_ms, self.total

    def rate(self, now_ms: int) -> float:
        """Return the rate over about the length of the quota's windows, in the unit of its kind; at least 0."""
        if self._first_mark_ms == _UNKNOWN_MS:
            return 0.0
        elapsed_ms = max(now_ms - self._first_mark_ms, _ELAPSED_MS_MIN)
        return max(self.total - self._first_mark, 0) * 1000.0 / elapsed_ms / self.kind.unit.counted

    def in_use(self, now_ms: int) -> bool:  # noqa: ARG002 - not every kind has something to keep
        """Whether the throttle must not be removed now even if its client has no traffic."""
        return False

    def debt_bytes(self, now_ms: int) -> float:  # noqa: ARG002 - only of bytes
        """Return by how many bytes the clients that share this quota have exceeded it; 0 if it is unlimited."""
        return 0.0

    def backlog_bytes(self, now_ms: int) -> float:  # noqa: ARG002 - only of bytes
        """Return the bytes that the clients with this quota would have left to send if it were enforced.

        They are taken to send at the same rate. 0 while quotas are enforced.
        """
        return 0.0

    def tokens(self, now_ms: int) -> float | None:  # noqa: ARG002 - only of buckets
        """Return the tokens in the bucket of the clients that share this quota; None without a bucket."""
        return None

    def view(self, limit: float | None, broker: int, now_ms: int) -> QuotaView:
        """Return the throttle's figures for metrics, with this limit and broker."""
        return QuotaView(
            self.user,
            self.client_id,
            self.kind.type,
            self.rate(now_ms),
            limit,
            self.total,
            *self.totals(),
            self.debt_bytes(now_ms),
            self.tokens(now_ms),
            broker,
            self.backlog_bytes(now_ms),
        )


# ----------------------------------------------------------------------------------------------------
# The memory of the state of one client, topic, user and address, in bytes.
#
# Measured with all objects that belong to it (Python 3.11, 64 bits) and rounded up; tests compare. It counts against
# the budget for kept bytes, together with the lengths of unbounded names.

CLIENT_BYTES: Final = 1024  # without user and client id
LIMITER_BYTES: Final = 2304  # for one direction
PREDICTION_BYTES: Final = 3072  # of a limiter that only observes
REQUEST_LIMITER_BYTES: Final = 2560
MUTATION_LIMITER_BYTES: Final = 1024
TOPIC_BYTES: Final = 3584  # with its limiter and its name
USER_CONNECTIONS_BYTES: Final = 640
ADDRESS_BYTES: Final = 1536  # with its windows
