"""The request quota: how much of one second a client may keep brokers busy (`request_percentage`; kafka-quotas.md §2).

P percent are P * 10,000 microseconds a second, counted in Kafka's sampled windows like everything of KIP-13, whatever
the policy for bytes: a request's time is known when it is over, so there is nothing that could be held. The throttle
time is at most one window's length for each request, as Kafka's `boundedThrottleTime` has it. Kafka counts the time of
its threads, which nobody outside sees; what is counted instead is measured in `proxy.channel.request_time`.

A broker handles one request of a connection at a time, so there each request of several is throttled after the one
before. Here they have been sent together: each of their answers makes the mute longer by at most one window, and never
longer than the whole debt.

Nothing here measures, mutes or tells. Where the limiters are kept is `request_quotas`.
"""

from typing import Final, Protocol

from quotas.definitions import REQUEST_PERCENTAGE
from quotas.options import EngineOptions
from quotas.rate import SampledRate
from quotas.turn import Place
from quotas.windowed import Windowed

__all__ = ["MICROSECONDS_PER_PERCENT", "Limiters", "RequestLimiter", "RequestThrottle"]

MICROSECONDS_PER_PERCENT: Final = 10_000  # of one second
# A millionth of a microsecond a second: less would only overflow the arithmetic.
_LIMIT_MIN: Final = 1e-6


class RequestLimiter:
    """The time of everybody who shares one quota.

    >>> limiter = RequestLimiter(1, EngineOptions(), now_ms=0)
    >>> for second in range(10):
    ...     limiter.record(4_000, second * 1000)
    >>> limiter.record(67_100, 10_500)
    >>> limiter.over_ms(10_500)  # 107.1 ms in 10.5 s, where 105 ms are allowed: 2.1 ms at 10 ms/s
    210
    """

    __slots__ = ("_limit", "_rate", "_safe", "_samples", "place", "users", "version", "window_ms")

    def __init__(self, percent: float, options: EngineOptions, now_ms: int) -> None:
        self.users = 0  # throttles that count against it
        self.version: object = None  # of the engine, when it was last configured
        self.place: Place | None = None
        self._samples = options.window_samples
        self.window_ms = int(options.window_seconds * 1000)
        self._rate = SampledRate(self._samples, self.window_ms)
        self.configure(percent, options, now_ms)

    def configure(self, percent: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit; what was recorded stays, unless the windows themselves have changed."""
        self._limit = max(percent * MICROSECONDS_PER_PERCENT, _LIMIT_MIN)
        window_ms = int(options.window_seconds * 1000)
        if (options.window_samples, window_ms) != (self._samples, self.window_ms):
            recorded = self._rate.total
            self._samples, self.window_ms = options.window_samples, window_ms
            self._rate = SampledRate(self._samples, window_ms)
            self._rate.record(recorded, now_ms)
        self._safe = self._limit * (self._samples - 1) * window_ms / 1000.0

    def record(self, spent_us: int, now_ms: int) -> None:
        """Count what a request has taken."""
        self._rate.record(spent_us, now_ms)

    def over_ms(self, now_ms: int) -> int:
        """How long to wait until the windows are within the quota; not capped."""
        rate = self._rate
        if rate.total <= self._safe and now_ms < rate.purge_at_ms:
            return 0  # the smallest window allows as much, and no sample is due to be emptied
        return rate.throttle_ms(self._limit, now_ms)


class Source(Protocol):
    """What a throttle needs of the engine."""

    version: object  # replaced by every change
    enforcing: bool


class Limiters(Protocol):
    """Where the limiters are kept."""

    @property
    def source(self) -> Source:
        """The engine."""

    def attach(
        self, user: str, client_id: str, broker: int, now_ms: int
    ) -> tuple[float | None, RequestLimiter | None]:
        """A client's limit in percent and its limiter, brought up to date and counted as used; None while everything
        passes unseen (SIGUSR1).
        """

    def release(self, limiter: RequestLimiter) -> None:
        """One client fewer counts against this limiter."""


class RequestThrottle(Windowed):
    """One client's requests at one broker."""

    __slots__ = (
        "_broker",
        "_forgotten",
        "_limiter",
        "_limiters",
        "_source",
        "_version",
        "client_id",
        "key",
        "limit",
        "spent_us_total",
        "throttle_ms_total",
        "throttled_total",
        "user",
        "would_throttle_ms_total",
        "would_throttled_total",
    )

    def __init__(self, limiters: Limiters, user: str, client_id: str, broker: int) -> None:
        super().__init__()
        self._limiters = limiters
        self._source = limiters.source
        self._broker = broker
        self._version: object = None
        self._limiter: RequestLimiter | None = None
        self._forgotten = False
        self.key = REQUEST_PERCENTAGE
        self.user = user
        self.client_id = client_id
        self.limit: float | None = None  # in percent, as of the last refresh
        self.spent_us_total = 0
        self.throttle_ms_total = 0
        self.throttled_total = 0
        self.would_throttle_ms_total = 0
        self.would_throttled_total = 0

    @property
    def enforcing(self) -> bool:
        """Whether what is decided here holds."""
        return self._source.enforcing

    def limits(self, now_ms: int) -> bool:
        """Whether this client's time is counted; as long as nothing changes, the answer does not either."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        return self._limiter is not None

    def record(self, spent_us: int, now_ms: int, muted_ms: int = 0) -> int:
        """A request is answered: count its time, and say for how long its channel should be muted from now on.

        Args:
            spent_us: what it has taken, in microseconds.
            now_ms: monotonic.
            muted_ms: how long the channel is muted already because of this quota, for requests sent together with
                this one.
        """
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if limiter is None:  # it was sent while there was a quota
            return 0
        self.spent_us_total += spent_us
        limiter.record(spent_us, now_ms)
        over_ms = limiter.over_ms(now_ms)
        return min(over_ms, muted_ms + limiter.window_ms) if over_ms > 0 else 0

    def told(self, throttle_ms: int) -> None:
        """A request was throttled by so much, or would have been."""
        if self.enforcing:
            self.throttled_total += 1
            self.throttle_ms_total += throttle_ms
        else:
            self.would_throttled_total += 1
            self.would_throttle_ms_total += throttle_ms

    def percentage(self, now_ms: int) -> float:
        """The share of a second that was taken over the quota's windows, in percent."""
        return self.per_second(self.spent_us_total, now_ms) / MICROSECONDS_PER_PERCENT

    def detach(self) -> None:
        """Let go of the limiter for good; answers that are still to come count nothing."""
        if self._limiter is not None:
            self._limiters.release(self._limiter)
        self._limiter = None
        self._forgotten = True

    def _refresh(self, now_ms: int) -> None:
        if self._forgotten:
            return
        self.begin(now_ms)
        before = self._limiter
        self.limit, self._limiter = self._limiters.attach(self.user, self.client_id, self._broker, now_ms)
        if before is not None:
            self._limiters.release(before)
        self._version = self._source.version
