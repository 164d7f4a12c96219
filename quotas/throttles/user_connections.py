"""The rate at which a user creates connections: `connection_creation_rate` of a user. Kafka has it for IPs only.

The arithmetic is that of partition mutations (`bucket`): one token per connection, `rate` tokens per second, and a
burst of all windows, as for IPs (`connections`). No connection is refused: a connection without a token is muted until
its token is added. Mutes are capped, so a user may owe tokens; the debt is limited to the tokens of a minute, so that a
reconnect storm has a bounded effect. The rate applies at each broker separately, or with scope `cluster` at all brokers
together. With `observe` connections are counted and not muted.

`proxy.channel.requests` decides from which request on a connection belongs to its user.
"""

from typing import Final, Protocol

from quotas.decisions import Decision
from quotas.definitions.definitions import CONNECTION_CREATION_RATE
from quotas.definitions.entities import BucketKey
from quotas.limiters.bucket import TokenBucket
from quotas.limiters.lending import ALL_BROKERS
from quotas.throttles.mutation import Source

__all__ = ["DEBT_SECONDS_MAX", "USERS_MAX", "UserConnections", "UserThrottle"]

USERS_MAX: Final = 20_000  # remembered at a time; the one that came longest ago is forgotten first
DEBT_SECONDS_MAX: Final = 60
_EXPIRE_AT_ONCE: Final = 2  # looked at with each connection: more than are added


class ConnectionCounters(Protocol):
    """The counters for all users together."""

    connections_throttled: int
    connections_would_throttle: int


class UserThrottle:
    """One user's connections to one broker."""

    __slots__ = ("_exactly", "_source", "bucket", "enforced", "user")

    def __init__(self, source: Source, user: str, bucket: TokenBucket, *, exactly: bool) -> None:
        self._source = source
        self.user = user
        self.bucket = bucket
        self.enforced = source.enforcing
        self._exactly = exactly

    def rate(self) -> float | None:
        """The rate in force, in connections/s; None: unlimited."""
        return self._source.definitions.user_connection_rate(self.user, exactly=self._exactly)


class UserConnections:
    """The throttles of all users with a connection rate."""

    __slots__ = ("_source", "_users")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._users: dict[tuple[str, int], UserThrottle] = {}  # the most recent one is last

    def connect(
        self, user: str, broker: int, stats: ConnectionCounters, now_ms: int, *, exactly: bool
    ) -> tuple[UserThrottle, int] | None:
        """Count a connection; returns its throttle and its mute in ms, or None for no mute.

        Args:
            user: the connection's user.
            broker: the broker that it connects to.
            stats: the counters.
            exactly: use only the user's own entry, not the default user's.
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
            wait_ms = source.budgets.waits(
                bucket, throttle, Decision(throttle_ms=wait_ms), now_ms
            ).throttle_ms
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
