"""The rate at which an IP address creates connections: `connection_creation_rate` (KIP-612; kafka-quotas.md §5).

Kafka's arithmetic: each connection is recorded in sampled windows; one that would exceed the quota is subtracted again
and closed, after a wait of (O - T) / T * W, at most one window's length. As every quota, the rate applies at each
broker separately, or with scope `cluster` at all brokers together. With `observe` all connections are accepted, and
those that would have been closed are counted.

This is the part of KIP-612 for IP entities. The rates of a broker or listener, and the limits of connection counts
(max.connections, max.connections.per.ip), are broker configs; Sluice's own limit is limits.connections_max.
"""

from typing import Final, NamedTuple

from quotas.decisions import Decision
from quotas.definitions.definitions import CONNECTION_CREATION_RATE
from quotas.definitions.entities import BucketKey
from quotas.limiters.lending import ALL_BROKERS
from quotas.limiters.sampled import SampledLimit
from quotas.throttles.footprint import ADDRESS_BYTES
from quotas.throttles.mutation import Source

__all__ = ["ADDRESSES_MAX", "ConnectionDecision", "ConnectionRates"]

ADDRESSES_MAX: Final = 20_000  # the least recent one is removed first
_EXPIRE_AT_ONCE: Final = 2  # addresses checked for each connection: more than are added


class ConnectionDecision(NamedTuple):
    """The decision on a new connection.

    Args:
        wait_ms: the time to leave the connection unread before it is closed; 0 if it is accepted.
        would_wait_ms: the wait that it would have with enforcement; it is accepted.
    """

    wait_ms: int = 0
    would_wait_ms: int = 0


_ADMITTED: Final = ConnectionDecision()


class _AddressRate(SampledLimit):
    """The connections of one address to one broker, or to all of them."""

    __slots__ = ("_used", "last_ms")

    def __init__(self, limit: float, samples: int, window_ms: int) -> None:
        super().__init__(limit, samples, window_ms)
        self.last_ms = 0
        self._used = 0

    def used(self) -> int:
        """The number of accepted connections."""
        return self._used

    def accept(self, now_ms: int) -> int:
        """Count a connection; returns the time in ms until there is room for it, 0 if it is accepted."""
        self._rate.record(1, now_ms)
        wait_ms = self._rate.throttle_ms(self._limit, now_ms)
        if wait_ms > 0:
            self._rate.record(-1, now_ms)
        else:
            self._used += 1
        return max(0, wait_ms)


class ConnectionRates:
    """The rates of all addresses with a quota.

    Args:
        engine: the definitions and options in force.
    """

    __slots__ = ("_engine", "_rates", "_windows")

    def __init__(self, engine: Source) -> None:
        self._engine = engine
        self._rates: dict[tuple[str, int], _AddressRate] = {}  # the most recent one is last
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
        rate = self._rate(ip, broker, limit, now_ms)
        wait_ms = min(rate.accept(now_ms), self._windows[1])
        if wait_ms <= 0:
            return _ADMITTED
        if engine.budgets is not None:
            engine.budgets.waits(rate, rate, Decision(throttle_ms=wait_ms), now_ms)
        if engine.enforcing:
            return ConnectionDecision(wait_ms=wait_ms)
        return ConnectionDecision(would_wait_ms=wait_ms)

    @property
    def kept_bytes(self) -> int:
        """The memory of all addresses, in bytes."""
        return len(self._rates) * ADDRESS_BYTES

    def __len__(self) -> int:
        return len(self._rates)

    def _rate(self, ip: str, broker: int, limit: float, now_ms: int) -> _AddressRate:
        options, budgets = self._engine.options, self._engine.budgets
        windows = options.window_samples, int(options.window_seconds * 1000)
        if self._windows != windows:
            self._windows = windows
            for rate in self._rates.values():
                self._end(rate)
            self._rates.clear()
        place = (ip, ALL_BROKERS if options.scope == "cluster" else broker)
        found = self._rates.pop(place, None)
        if found is None:
            found = _AddressRate(limit, *windows)
            found.limiter_key = (f"ip_{CONNECTION_CREATION_RATE}", BucketKey(None, ip), place[1])
            if budgets is not None:
                budgets.begin(found, found.limiter_key, now_ms)
        else:
            found.limit_to(limit)
            if budgets is not None and found.limiter_key is not None:
                budgets.lend(found, found.limiter_key, now_ms)  # each time: a lease may be over
        found.last_ms = now_ms
        self._rates[place] = found
        self._expire(now_ms)
        return found

    def _end(self, rate: _AddressRate) -> None:
        if self._engine.budgets is not None:
            self._engine.budgets.end(rate)

    def _expire(self, now_ms: int) -> None:
        """Remove addresses with empty windows, and the oldest ones if there are too many."""
        samples, window_ms = self._windows
        for _ in range(_EXPIRE_AT_ONCE):
            place = next(iter(self._rates))
            oldest = self._rates[place]
            idle = now_ms - oldest.last_ms > samples * window_ms
            if not idle and len(self._rates) <= ADDRESSES_MAX:
                return
            del self._rates[place]
            self._end(oldest)
