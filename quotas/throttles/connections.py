"""The rate at which an IP address creates connections: `connection_creation_rate` (KIP-612; kafka-quotas.md §5).

Kafka's arithmetic: each connection is recorded in sampled windows; one that would exceed the quota is subtracted again
and closed, after a wait of (O - T) / T * W, at most one window's length. As every quota, the rate applies at each
broker separately, or with scope `cluster` at all brokers together. With `observe` all connections are accepted, and
those that would have been closed are counted.

This is the part of KIP-612 for IP entities. The rates of a broker or listener, and the limits of connection counts
(max.connections, max.connections.per.ip), are broker configs; Sluice's own limit is limits.connections_max.
"""

from typing import Final, NamedTuple, Protocol

from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import CONNECTION_CREATION_RATE
from quotas.limiters.bucket import TokenBucket
from quotas.limiters.limiter import ALL_BROKERS, Decision, ThrottleSource
from quotas.limiters.sampled import SampledLimit
from quotas.throttles.figures import ADDRESS_BYTES

ADDRESSES_MAX: Final = 20_000  # the least recent one is removed first
_EXPIRE_AT_ONCE: Final = 2  # addresses checked for each connection: more than are added


class ConnectionDecision(NamedTuple):
    """The decision on a new connection.

    Args:
        wait_ms: the time to leave the connection unread before it is closed; 0 if it is accepted.
        would_wait_ms: while quotas are not enforced, what `wait_ms` would be; the connection is accepted.
    """

    wait_ms: int = 0
    would_wait_ms: int = 0


_ADMITTED: Final = ConnectionDecision()


class _AddressRate(SampledLimit):
    """The rate of connections of one address to one broker, or to all of them."""

    __slots__ = ("_used", "last_ms")

    def __init__(self, limit: float, samples: int, window_ms: int) -> None:
        super().__init__(limit, samples, window_ms)
        self.last_ms = 0
        self._used = 0

    def used(self) -> int:
        """Return the number of accepted connections."""
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
    """The connection creation rates of all client IP addresses that have a quota (KIP-612).

    Args:
        engine: the definitions and options in force.
    """

    def __init__(self, engine: ThrottleSource) -> None:
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


# ----------------------------------------------------------------------------------------------------
# The rate at which a user creates connections: `connection_creation_rate` of a user. Kafka has it for IPs only.
#
# The arithmetic is that of partition mutations: one token per connection, `rate` tokens per second, and a burst of all
# windows, as for IPs. No connection is refused: a connection without a token is muted until its token is added. Mutes
# are capped, so a user may owe tokens; the debt is limited to the tokens of a minute, so that a reconnect storm has a
# bounded effect. The rate applies at each broker separately, or with scope `cluster` at all brokers together. With
# `observe` connections are counted and not muted.
#
# `proxy.channel.requests` decides from which request on a connection belongs to its user.

USERS_MAX: Final = 20_000  # remembered at a time; the one that came longest ago is forgotten first
DEBT_SECONDS_MAX: Final = 60


class ConnectionCounters(Protocol):
    """The counters of muted connections, for all users together."""

    connections_throttled: int
    connections_would_throttle: int


class UserThrottle:
    """The throttle of the rate at which one user connects to one broker."""

    __slots__ = ("_exactly", "_source", "bucket", "enforced", "user")

    def __init__(self, source: ThrottleSource, user: str, bucket: TokenBucket, *, exactly: bool) -> None:
        self._source = source
        self.user = user
        self.bucket = bucket
        self.enforced = source.enforcing
        self._exactly = exactly

    def limit_now(self) -> float | None:
        """The rate in force, in connections/s; None: unlimited."""
        return self._source.definitions.user_connection_rate(self.user, exactly=self._exactly)


class UserConnections:
    """The throttles of all users that have a quota for the rate of their connections."""

    def __init__(self, source: ThrottleSource) -> None:
        self._source = source
        self._users: dict[tuple[str, int], UserThrottle] = {}  # the most recent one is last

    def connect(
        self, user: str, broker: int, stats: ConnectionCounters, now_ms: int, *, exactly: bool
    ) -> tuple[UserThrottle, int] | None:
        """Count a connection; returns its throttle, and for how many ms to mute it. None if it is not muted.

        Args:
            user: the connection's user.
            broker: the broker that it connects to.
            stats: the counters.
            exactly: whether only the user's own quota applies, not the default user's.
        """
        source = self._source
        rate = source.definitions.user_connection_rate(user, exactly=exactly)
        if rate is None or source.relaying:
            return None
        throttle = self._throttle(user, broker, rate, now_ms, exactly=exactly)
        bucket = throttle.bucket
        bucket.record(1, now_ms)
        bucket.record(min(0.0, bucket.tokens(now_ms) + rate * DEBT_SECONDS_MAX), now_ms)
        wait_ms = bucket.throttle_ms(now_ms)
        if wait_ms <= 0:
            return None
        if source.budgets is not None:
            decision = Decision(throttle_ms=wait_ms)
            wait_ms = source.budgets.waits(bucket, throttle, decision, now_ms).throttle_ms
        if not source.enforcing:
            stats.connections_would_throttle += 1
            return None
        stats.connections_throttled += 1
        return throttle, wait_ms

    def __len__(self) -> int:
        return len(self._users)

    def _throttle(self, user: str, broker: int, rate: float, now_ms: int, *, exactly: bool) -> UserThrottle:
        options, budgets = self._source.options, self._source.budgets
        burst = rate * options.window_samples * options.window_seconds
        place = (user, ALL_BROKERS if options.scope == "cluster" else broker)
        throttle = self._users.pop(place, None)
        if throttle is None:
            bucket = TokenBucket(rate, burst, now_ms)
            throttle = UserThrottle(self._source, user, bucket, exactly=exactly)
            bucket.limiter_key = (CONNECTION_CREATION_RATE, BucketKey(user, None), place[1])
            if budgets is not None:
                budgets.begin(bucket, bucket.limiter_key, now_ms)
        else:
            bucket = throttle.bucket
            bucket.configure(rate, burst)
            if budgets is not None and bucket.limiter_key is not None:
                budgets.lend(bucket, bucket.limiter_key, now_ms)  # each time: a lease may be over
            if self._source.enforcing and not throttle.enforced:  # debt made without enforcement is cleared
                throttle.bucket.settle(now_ms)
            throttle.enforced = self._source.enforcing
        self._users[place] = throttle
        self._expire(now_ms)
        return throttle

    def _expire(self, now_ms: int) -> None:
        """Remove users whose bucket is full, and the oldest ones if there are too many."""
        for _ in range(_EXPIRE_AT_ONCE):
            place = next(iter(self._users))
            bucket = self._users[place].bucket
            if len(self._users) == 1 or (
                bucket.tokens(now_ms) < bucket.burst and len(self._users) <= USERS_MAX
            ):
                return
            del self._users[place]
            if self._source.budgets is not None:
                self._source.budgets.end(bucket)
