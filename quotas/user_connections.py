"""How many connections a user may create a second: `connection_creation_rate` of a user. Kafka knows it of IPs alone.

The arithmetic is that of partition mutations (`bucket`): a token each, `rate` of them a second, and as many at once
as all windows hold, as for IPs (`connections`). Nobody is refused: who finds no token is muted until his is there.
Mutes are capped, so a user may owe tokens; never more than a minute's, or a storm that is over would be punished for
ever. The rate holds at each broker by itself, or with scope `gateway` at all of them together. In `observe` everybody
goes on at once, and is counted.

When a connection is its user's is `proxy.channel.requests`' business.
"""

from typing import Final, Protocol

from quotas.bucket import TokenBucket
from quotas.mutations import Source

__all__ = ["DEBT_SECONDS_MAX", "USERS_MAX", "UserConnections", "UserThrottle"]

USERS_MAX: Final = 20_000  # remembered at a time; the one that came longest ago is forgotten first
DEBT_SECONDS_MAX: Final = 60
_FORGET_AT_ONCE: Final = 2  # looked at with each connection: more than are added
_EVERYWHERE: Final = -1  # in place of a broker, where one budget spans all


class Counted(Protocol):
    """What is counted of all users together."""

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
    """The rates of all users that have one."""

    __slots__ = ("_source", "_users")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._users: dict[tuple[str, int], UserThrottle] = {}  # the one that came last is last

    def connect(
        self, user: str, broker: int, stats: Counted, now_ms: int, *, exactly: bool
    ) -> tuple[UserThrottle, int] | None:
        """Count a connection; the throttle and for how long it is to be muted, in ms; None for not at all.

        Args:
            user: whose it is.
            broker: the broker it wants to reach.
            stats: where it is counted.
            exactly: whether only an entry counts that names this user, and not the default user's.
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
        if not source.enforcing:
            stats.connections_would_throttle += 1
            return None
        stats.connections_throttled += 1
        return throttle, wait_ms

    def __len__(self) -> int:
        return len(self._users)

    def _throttle(self, user: str, broker: int, rate: float, now_ms: int, *, exactly: bool) -> UserThrottle:
        options = self._source.options
        burst = rate * options.window_samples * options.window_seconds
        place = (user, _EVERYWHERE if options.scope == "gateway" else broker)
        throttle = self._users.pop(place, None)
        if throttle is None:
            bucket = TokenBucket(rate, burst, now_ms)
            throttle = UserThrottle(self._source, user, bucket, exactly=exactly)
        else:
            throttle.bucket.configure(rate, burst)
            if self._source.enforcing and not throttle.enforced:  # what passed unenforced is nobody's debt
                throttle.bucket.settle(now_ms)
            throttle.enforced = self._source.enforcing
        self._users[place] = throttle
        self._forget(now_ms)
        return throttle

    def _forget(self, now_ms: int) -> None:
        """Drop users whose bucket is full again, and the oldest where they are too many."""
        for _ in range(_FORGET_AT_ONCE):
            place = next(iter(self._users))
            bucket = self._users[place].bucket
            if len(self._users) == 1 or (
                bucket.tokens(now_ms) < bucket.burst and len(self._users) <= USERS_MAX
            ):
                return
            del self._users[place]
