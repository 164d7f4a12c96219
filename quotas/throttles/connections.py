"""The rate at which an IP address creates connections: `connection_creation_rate` (KIP-612; kafka-quotas.md §5).

Kafka's arithmetic: each connection is recorded in sampled windows; one that would exceed the quota is subtracted again
and closed, after a wait of (O - T) / T * W, at most one window's length. As every quota, the rate applies at each
broker separately, or with scope `gateway` at all brokers together. With `observe` all connections are accepted, and
those that would have been closed are counted.

This is the part of KIP-612 for IP entities. Rates of a broker or listener are broker configs, and so are the counts
(max.connections, max.connections.per.ip); Sluice's own limit is limits.connections_max.
"""

from typing import Final, NamedTuple

from quotas.limiters.rate import SampledRate
from quotas.throttles.footprint import ADDRESS_BYTES
from quotas.throttles.mutation import Source
from quotas.throttles.quota_view import GATEWAY

__all__ = ["ADDRESSES_MAX", "ConnectionDecision", "ConnectionRates"]

ADDRESSES_MAX: Final = 20_000  # the least recent one is removed first
_EXPIRE_AT_ONCE: Final = 2  # addresses checked for each connection: more than are added


class ConnectionDecision(NamedTuple):
    """The decision on a new connection.

    Args:
        wait_ms: the time to leave it unread before closing it; 0: it is accepted.
        would_wait_ms: the same without enforcement: the connection is accepted.
    """

    wait_ms: int = 0
    would_wait_ms: int = 0


_ADMITTED: Final = ConnectionDecision()


class ConnectionRates:
    """The rates of all addresses with a quota.

    Args:
        engine: the definitions and options in force.
    """

    __slots__ = ("_engine", "_rates", "_windows")

    def __init__(self, engine: Source) -> None:
        self._engine = engine
        self._rates: dict[tuple[str, int], tuple[SampledRate, int]] = {}  # the most recent one is last
        self._windows = (0, 0)

    def connect(self, ip: str, broker: int, now_ms: int) -> ConnectionDecision:
        """Count a connection and decide whether it is accepted.

        Args:
            ip: the client's address in canonical form (`quotas.definitions.entities.ip_name`).
            broker: the broker that it connects to.
            now_ms: the time at which it was accepted.
        """
        engine = self._engine
        limit = engine.definitions.connection_rate(ip)
        if limit is None:
            return _ADMITTED
        options = engine.options
        window_ms = int(options.window_seconds * 1000)
        if self._windows != (options.window_samples, window_ms):
            self._windows = (options.window_samples, window_ms)
            self._rates.clear()
        place = (ip, GATEWAY if options.scope == "gateway" else broker)
        known = self._rates.pop(place, None)
        rate = known[0] if known else SampledRate(options.window_samples, window_ms)
        self._rates[place] = (rate, now_ms)
        self._expire(now_ms)
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), window_ms)
        if wait_ms <= 0:
            return _ADMITTED
        rate.record(-1, now_ms)
        return (
            ConnectionDecision(wait_ms=wait_ms)
            if engine.enforcing
            else ConnectionDecision(would_wait_ms=wait_ms)
        )

    @property
    def kept_bytes(self) -> int:
        """The memory of all addresses, in bytes."""
        return len(self._rates) * ADDRESS_BYTES

    def __len__(self) -> int:
        return len(self._rates)

    def _expire(self, now_ms: int) -> None:
        """Remove addresses with empty windows, and the oldest ones if there are too many."""
        samples, window_ms = self._windows
        for _ in range(_EXPIRE_AT_ONCE):
            place = next(iter(self._rates))
            since_ms = now_ms - self._rates[place][1]
            if since_ms <= samples * window_ms and len(self._rates) <= ADDRESSES_MAX:
                return
            del self._rates[place]
