"""The figures of one client and one kind of quota, for metrics and admin pages."""

from typing import Final, NamedTuple

from quotas.limiters.lending import ALL_BROKERS

GATEWAY: Final = ALL_BROKERS  # with scope `cluster`


class QuotaView(NamedTuple):
    """One client and kind of quota at one broker; counters since the start of the process.

    Args:
        type: Kafka's name: Produce, Fetch, ControllerMutation, Request; in waits also Topic, Connection, Replication.
        byte_rate: over the quota's windows; percent for Request.
        quota: the limit; None for unlimited.
        tokens: the tokens for partition mutations; None for unlimited.
        broker: the broker at which it is counted; GATEWAY for all brokers together.
        backlog_bytes: the bytes that all clients of the budget would have left to send with enforcement, if they kept
            their rate; 0 while quotas are enforced.
        longest_wait_ms_total: in waits, the time in ms of the connection that has waited longest.
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


class ThrottleCounters:
    """The counters that every throttle has, since the start of the process.

    Attributes:
        throttled_total: throttled requests.
        throttle_ms_total: the sum of their throttle times in ms; for Produce also the times of holds.
        would_throttled_total, would_throttle_ms_total: the same without enforcement.

    >>> counters = ThrottleCounters()
    >>> counters.count(500, enforced=True)
    >>> counters.count(300, enforced=False)
    >>> counters.totals()
    (500, 1, 300, 1)
    """

    __slots__ = ("throttle_ms_total", "throttled_total", "would_throttle_ms_total", "would_throttled_total")

    def __init__(self) -> None:
        self.throttle_ms_total = 0
        self.throttled_total = 0
        self.would_throttle_ms_total = 0
        self.would_throttled_total = 0

    def count(self, throttle_ms: int, *, enforced: bool) -> None:
        """Count one throttled request."""
        if enforced:
            self.throttled_total += 1
            self.throttle_ms_total += throttle_ms
        else:
            self.would_throttled_total += 1
            self.would_throttle_ms_total += throttle_ms

    def totals(self) -> tuple[int, int, int, int]:
        """All four counters, in the order of `QuotaView`."""
        return (
            self.throttle_ms_total,
            self.throttled_total,
            self.would_throttle_ms_total,
            self.would_throttled_total,
        )


# ----------------------------------------------------------------------------------------------------
# The rate of a counter over about the quota's windows, for metrics and admin pages.
#
# Two earlier counts are stored, half of the windows' length apart; a newer one replaces the older one. So the
# rate covers
# at least the last half of the windows and at most all of them. Requests cost nothing here. Decisions do not
# use this
# rate (`limiters.rate`, `limiters.schedule`).


_UNKNOWN_MS = -1
_ELAPSED_MS_MIN = 1000  # a counter younger than a second is divided by a second


class WindowedCounters(ThrottleCounters):
    """A throttle's counters, and the rate of one more counter, which the owner keeps.

    >>> seen = WindowedCounters()
    >>> seen.begin(0)
    >>> for second in range(1, 19):  # 5 a second at first, then 2
    ...     seen.mark(5 * second if second < 8 else 40 + 2 * (second - 8), second * 1000, windows_ms=11_000)
    >>> seen.per_second(40 + 2 * 10, 18_000)  # since the mark at 12 s
    2.0
    """

    __slots__ = ("_first_mark", "_first_mark_ms", "_second_mark", "_second_mark_ms")

    def __init__(self) -> None:
        super().__init__()
        self._first_mark = self._second_mark = 0
        self._first_mark_ms = self._second_mark_ms = _UNKNOWN_MS

    def begin(self, now_ms: int) -> None:
        """Start with a count of 0 at this time; later calls have no effect."""
        if self._first_mark_ms == _UNKNOWN_MS:
            self._first_mark_ms = self._second_mark_ms = now_ms

    def mark(self, count: int, now_ms: int, windows_ms: int) -> None:
        """Store the count, if it is time to. Call it about once a second.

        Args:
            count: the current count.
            now_ms: monotonic.
            windows_ms: the length of all windows of the quota together.
        """
        if 2 * (now_ms - self._second_mark_ms) >= windows_ms and self._second_mark_ms != _UNKNOWN_MS:
            self._first_mark_ms, self._first_mark = self._second_mark_ms, self._second_mark
            self._second_mark_ms, self._second_mark = now_ms, count

    def per_second(self, count: int, now_ms: int) -> float:
        """Return the growth per second from the older stored count to `count`; never below 0."""
        if self._first_mark_ms == _UNKNOWN_MS:
            return 0.0
        return max(count - self._first_mark, 0) * 1000.0 / max(now_ms - self._first_mark_ms, _ELAPSED_MS_MIN)


# ----------------------------------------------------------------------------------------------------
# The memory of the state of one client, topic, user and address, in bytes.
#
# Measured with all objects that belong to it (Python 3.11, 64 bits) and rounded up; tests compare. It counts
# against the
# budget for kept bytes, together with the lengths of unbounded names.


CLIENT_BYTES: Final = 1024  # without user and client id
LIMITER_BYTES: Final = 1792  # for one direction
PREDICTION_BYTES: Final = 1024  # of a limiter that only observes
REQUEST_LIMITER_BYTES: Final = 2048
MUTATION_LIMITER_BYTES: Final = 1024
TOPIC_BYTES: Final = 2560  # with its limiter and its name
USER_CONNECTIONS_BYTES: Final = 640
ADDRESS_BYTES: Final = 1536  # with its windows


def limiter_bytes(enforces: bool) -> int:
    """Return the memory of a limiter for one direction."""
    return LIMITER_BYTES if enforces else LIMITER_BYTES + PREDICTION_BYTES
