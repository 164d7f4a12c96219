"""All request quotas of one process: their limiters, one for each identity at each broker or, with scope `cluster`, at
all of them together (`request_percentage`; kafka-quotas.md §2).

A limiter is created for its first client, updated after a change of definitions or options, and removed with its last
client. A client without a request quota has none.
"""

from quotas.definitions.definitions import REQUEST_PERCENTAGE, Definitions
from quotas.limiters.lending import LimiterKey
from quotas.throttles.mutation import Source
from quotas.throttles.request import RequestLimiter, RequestThrottle

__all__ = ["RequestQuotas"]


class RequestQuotas:
    """The limiters of one process."""

    __slots__ = ("_limiters", "_limiting", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._limiters: dict[LimiterKey, RequestLimiter] = {}
        self._limiting: tuple[object, bool] = (None, False)

    def limiting(self) -> bool:
        """Whether any request quota is in force."""
        version, found = self._limiting
        if version is not self.source.version:
            definitions: Definitions = self.source.definitions
            found = definitions.has(REQUEST_PERCENTAGE) and not self.source.relaying
            self._limiting = (self.source.version, found)
        return found

    def client(self, user: str, client_id: str, broker: int) -> RequestThrottle:
        """Create a throttle for this client."""
        return RequestThrottle(self, user, client_id, broker)

    def attach(
        self, user: str, client_id: str, broker: int, now_ms: int
    ) -> tuple[float | None, RequestLimiter | None]:
        """Attach a client: return its limit in percent and its limiter, updated; None while enforcement is switched off
        (SIGUSR1).
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
