"""The request quota: the share of broker time that a client may use (`request_percentage`; kafka-quotas.md §2).

P percent are P * 10,000 microseconds per second, counted in Kafka's sampled windows under both policies: a request's
time is known only when it is over, so it cannot be held. The throttle time of one request is at most one window's
length, as in Kafka's `boundedThrottleTime`. Kafka counts the time of its own threads, which a proxy cannot see;
`proxy.channel.request_time` measures what is counted instead.

A broker handles one request of a connection at a time and throttles each after the one before. Pipelined requests pass
a proxy together: each of their responses extends the mute by at most one window, and never beyond the whole debt.

The channel measures and mutes.
"""

from typing import Final

from quotas.definitions.kinds import REQUEST, REQUEST_PERCENTAGE
from quotas.limiters.limiter import Decision, LimiterKey, ThrottleSource
from quotas.limiters.sampled import SampledLimit
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions
from quotas.throttles.figures import ClientThrottle
from quotas.throttles.prediction import predict_afterwards

_MICROSECONDS_PER_PERCENT: Final = REQUEST.unit.counted  # of one second


class RequestLimiter(SampledLimit):
    """Counts the broker time of all clients that share one request quota (`request_percentage`).

    >>> limiter = RequestLimiter(1, EngineOptions())
    >>> for second in range(10):
    ...     limiter.record(4_000, second * 1000)
    >>> limiter.record(67_100, 10_500)
    >>> limiter.exceeded_ms(10_500)  # 107.1 ms in 10.5 s, where 105 ms are allowed: 2.1 ms at 10 ms/s
    210
    """

    __slots__ = ("_used_us", "enforced", "users", "version")

    def __init__(self, percent: float, options: EngineOptions) -> None:
        window_ms = int(options.window_seconds * 1000)
        super().__init__(percent * _MICROSECONDS_PER_PERCENT, options.window_samples, window_ms)
        self.users = 0  # the number of attached throttles
        self.version: object = None  # the engine's version when it was last configured
        self._used_us = 0
        self.enforced = True

    def configure(self, percent: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit; recorded time stays, unless the windows have changed."""
        self.limit_to(percent * _MICROSECONDS_PER_PERCENT)
        self.resize(options.window_samples, int(options.window_seconds * 1000), now_ms)

    def used(self) -> int:
        """Return the time of all requests so far, in microseconds."""
        return self._used_us

    def record(self, spent_us: int, now_ms: int) -> None:
        """Count the time of one request, in microseconds."""
        self._rate.record(spent_us, now_ms)
        self._used_us += spent_us

    def exceeded_ms(self, now_ms: int) -> int:
        """Return the time in ms until the recorded time is within the quota again, without an upper bound."""
        rate = self._rate
        if rate.total <= self._safe and now_ms < rate.purge_at_ms:
            return 0  # the smallest window allows as much, and no sample is due to be emptied
        return rate.throttle_ms(self._limit, now_ms)


class RequestThrottle(ClientThrottle):
    """The throttle of one client's broker time at one broker."""

    __slots__ = ("_broker", "_detached", "_limiter", "_limiters", "_source", "_version")

    def __init__(self, limiters: "RequestQuotas", user: str, client_id: str, broker: int) -> None:
        super().__init__(REQUEST, user, client_id)
        self._limiters = limiters
        self._source = limiters.source
        self._broker = broker
        self._version: object = None
        self._limiter: RequestLimiter | None = None
        self._detached = False

    @property
    def enforcing(self) -> bool:
        """Whether the request quota mutes channels; if False, it is only measured."""
        return self._source.enforcing

    def limits(self, now_ms: int) -> bool:
        """Whether this client's time is counted; the result changes only with the engine's `version`."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        return self._limiter is not None

    def record(self, spent_us: int, now_ms: int, muted_ms: int = 0) -> int:
        """Count a request's time at its response; returns the mute of its channel from now on, in ms.

        Args:
            spent_us: the request's time, in microseconds.
            now_ms: monotonic.
            muted_ms: for how many ms this quota already mutes the channel; above 0 only for a request that was sent
                before that mute began.
        """
        source = self._source
        if self._version is not source.version or (
            source.lease_until_ms is not None and now_ms >= source.lease_until_ms
        ):
            self._refresh(now_ms)
        limiter = self._limiter
        if limiter is None:  # it was sent while there was a quota
            return 0
        self.total += spent_us
        limiter.record(spent_us, now_ms)
        exceeded_ms = limiter.exceeded_ms(now_ms)
        if exceeded_ms <= 0:
            return 0
        throttle_ms = min(exceeded_ms, muted_ms + limiter.window_ms)
        budgets = source.budgets
        if budgets is not None:
            throttle_ms = budgets.waits(limiter, self, Decision(throttle_ms=throttle_ms), now_ms).throttle_ms
        return throttle_ms

    def predict(self, spent_us: int, now_ms: int, connection: ConnectionTime) -> None:
        """Count a request's time at its response, and the mute that it would have begun if quotas were enforced."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if limiter is None:  # it was sent while there was a quota
            return
        self.total += spent_us

        def charge() -> int:
            limiter.record(spent_us, now_ms)
            return min(limiter.exceeded_ms(now_ms), connection.muted_ms(now_ms) + limiter.window_ms)

        predict_afterwards(limiter, connection, self, charge, now_ms)

    def detach(self) -> None:
        """Detach from the limiter for good; responses that arrive later are not counted."""
        if self._limiter is not None:
            self._limiters.release(self._limiter)
        self._limiter = None
        self._detached = True

    def _refresh(self, now_ms: int) -> None:
        if self._detached:
            return
        self._source.end_lease(now_ms)
        self.begin(now_ms)
        before = self._limiter
        self.limit, self._limiter = self._limiters.attach(self.user, self.client_id, self._broker, now_ms)
        if before is not None:
            self._limiters.release(before)
        self._version = self._source.version


# ----------------------------------------------------------------------------------------------------
# All request quotas of one process: their limiters, one for each identity at each broker or, with scope `cluster`, at
# all of them together (`request_percentage`; kafka-quotas.md §2).
#
# A limiter is created for its first client, updated after a change of definitions or options, and removed with its last
# client. A client without a request quota has none.


class RequestQuotas:
    """The request quotas of one process: a limiter for the clients that share one, at each broker."""

    def __init__(self, source: ThrottleSource) -> None:
        self.source = source
        self._limiters: dict[LimiterKey, RequestLimiter] = {}
        self._limiting: tuple[object, bool] = (None, False)

    def limiting(self) -> bool:
        """Whether any request quota is in force; False while enforcement is switched off (SIGUSR1)."""
        version, found = self._limiting
        if version is not self.source.version:
            found = self.source.definitions.has(REQUEST_PERCENTAGE) and not self.source.relaying
            self._limiting = (self.source.version, found)
        return found

    def client(self, user: str, client_id: str, broker: int) -> RequestThrottle:
        """Create a throttle for this client."""
        return RequestThrottle(self, user, client_id, broker)

    def attach(
        self, user: str, client_id: str, broker: int, now_ms: int
    ) -> tuple[float | None, RequestLimiter | None]:
        """Attach a client: return its limit in percent, and the limiter of all clients that share it.

        Both are None if the client is unlimited, or while enforcement is switched off (SIGUSR1).
        """
        source = self.source
        if source.relaying:
            return None, None
        limit, bucket = source.definitions.limit(REQUEST_PERCENTAGE, user, client_id)
        if limit is None:
            return None, None
        limiter_key = (REQUEST_PERCENTAGE, bucket, broker)
        limiter = self._limiters.get(limiter_key)
        if limiter is None:
            limiter = self._limiters[limiter_key] = RequestLimiter(limit, source.options)
            limiter.limiter_key = limiter_key
            if source.budgets is not None:
                source.budgets.begin(limiter, limiter_key, now_ms)
        elif limiter.version is not source.version:
            limiter.configure(limit, source.options, now_ms)
            if source.budgets is not None:
                source.budgets.lend(limiter, limiter_key, now_ms)
            if source.enforcing and not limiter.enforced:
                limiter.settle(now_ms)
        limiter.enforced = source.enforcing
        limiter.version = source.version
        limiter.users += 1
        return limit, limiter

    def release(self, limiter: RequestLimiter) -> None:
        """Detach one client from this limiter; the limiter is removed with its last client."""
        limiter.users -= 1
        limiter_key = limiter.limiter_key
        if limiter.users <= 0 and limiter_key is not None and self._limiters.get(limiter_key) is limiter:
            del self._limiters[limiter_key]
            if self.source.budgets is not None:
                self.source.budgets.end(limiter)

    def __len__(self) -> int:
        return len(self._limiters)
