"""The rate of one leader or one follower (KIP-73): Kafka's windows, or paced.

Both kinds grant the bytes that a Fetch may ask for, and count the bytes that it brought:

- `WindowRate` (`kip73`): Kafka's `ReplicationQuotaManager`. While the bytes of the last N windows, divided by the time
  since the oldest began (at least one window), are within the quota, a Fetch may ask for everything; arrived bytes are
  recorded afterwards. So the first second, or the one after a pause, may exceed the quota by a whole response for each
  follower. Kafka also records zeros, which keeps its window always full and lets ten times the quota through at once
  (reference/replication.md §2.3); this class does not.
- `PacedRate` (`schedule`): bytes are reserved before a Fetch asks for them, and returned if they do not arrive. When
  reserved bytes and those of the last second reach one second's quota, nothing more is granted; so no second exceeds it
  by more than one batch. A token bucket, a quarter of a second deep, spreads the grants over that second and holds
  debts. A batch larger than the bucket is granted when nothing else is under way, and paid for before the next one.
  When a loan ends, what it brought in the last second still counts, so nothing more is granted for most of a second,
  except for the floor: what of the limit is not lent.

Partitions and brokers are in `replication_quotas`; time is an argument.
"""

import math
from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import Final

from quotas.limiters.rate import NEVER_MS, SampledRate

# The longest wait for room: after it only a higher quota would help.
READY_MS_MAX: Final = 60_000
# Meanwhile a response may arrive that makes room.
RESERVED_MS: Final = 20
_SECOND_MS: Final = 1000
# The depth of the bucket: a follower that is busy writing for this time loses nothing.
_BURST_SECONDS: Final = 0.25
# Debt of in-sync replicas beyond this is cleared, as it leaves Kafka's windows: these replicas cannot be delayed, and
# one that was far over the quota must not stop the others for ever.
_DEBT_SECONDS_MAX: Final = 10.0
# Room for less than this part of a second is not worth a request, unless a batch is as small.
_SHARE_MIN: Final = 0.02


class WindowRate:
    """The rate of one leader or follower by Kafka's windows (policy `kip73`).

    Before a Fetch the rate is compared with the limit; the bytes of its response are recorded afterwards.

    >>> rate = WindowRate(limit=100, samples=10, sample_ms=1000)
    >>> rate.record(150, 0)  # 150 B in 1.5 s are 100 B/s
    >>> rate.per_second(1500), rate.grant(1, 1000, 1500)
    (100.0, 1000)
    >>> rate.record(1, 1500)
    >>> rate.grant(1, 1000, 1500), rate.grant(1, 1000, 2000)  # 151 / 1.5 s = 100.67; 151 / 2 s = 75.5
    (0, 1000)
    """

    __slots__ = ("_rate", "_sample_ms", "held_ms", "limit", "total")

    def __init__(self, limit: float | None, samples: int, sample_ms: int) -> None:
        self.limit = limit
        self.total = 0  # bytes ever recorded
        self.held_ms = NEVER_MS  # when a grant was last smaller than asked for
        self._sample_ms = sample_ms
        self._rate = SampledRate(samples, sample_ms)

    def allow(self, limit: float | None, floor: float, now_ms: int) -> None:  # noqa: ARG002 - the pace needs it
        """Set the limit; nothing is lent to a rate by windows."""
        self.limit = limit

    def per_second(self, now_ms: int) -> float:
        """Return the observed rate in bytes/s, over the time since the oldest window began (Kafka's `SimpleRate`)."""
        return self._rate.total_in(now_ms) / (self._window_ms(now_ms) / 1000)

    def room(self, now_ms: int) -> int | None:
        """Return the bytes that a Fetch may ask for now: 0 if the limit is exceeded, otherwise None, for any number."""
        return None if self.limit is None or self.per_second(now_ms) <= self.limit else 0

    def grant(self, least: int, most: int, now_ms: int) -> int:  # noqa: ARG002 - the pace needs it
        """Return the bytes of one partition that a Fetch may ask for: `most`, or 0 if the limit is exceeded."""
        return most if self.room(now_ms) is None else 0

    def reserve(self, size: int) -> None:
        """Do nothing, since Kafka's arithmetic reserves no bytes; here for the same interface as `PacedRate`."""

    def settle(self, reserved: int, size: int, now_ms: int) -> None:  # noqa: ARG002 - the pace needs it
        """Count the `size` bytes of a throttled replica that have arrived; `reserved` has no effect here."""
        self.record(size, now_ms)

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes of a throttled replica that have arrived, whether it is in sync or not."""
        if size:
            self.total += size
            self._rate.record(size, now_ms)

    def ready_in_ms(self, least: int, now_ms: int) -> int:  # noqa: ARG002 - the pace needs it
        """Return the time in ms until the rate is within the limit, if no more bytes arrive; a minute at most."""
        if self.room(now_ms) is None:
            return 0
        assert self.limit is not None, "without a limit there is room"
        if self.limit <= 0:
            return min(READY_MS_MAX, max(1, self._rate.empty_in_ms(now_ms)))
        needed_ms = math.ceil(self._rate.total_in(now_ms) / self.limit * 1000) - self._window_ms(now_ms)
        return max(1, min(needed_ms, self._rate.empty_in_ms(now_ms), READY_MS_MAX))

    def _window_ms(self, now_ms: int) -> int:
        return max(self._rate.elapsed_ms(now_ms), self._sample_ms)


@dataclass(slots=True, eq=False)
class PacedRate:
    """The rate of one leader or follower by a token bucket (policy `schedule`).

    Bytes are reserved before a Fetch asks for them. So in any second at most the limit and one more batch arrive.

    >>> rate = PacedRate(limit=1_000_000, now_ms=0)
    >>> rate.grant(16_384, 1_048_576, 0)  # a quarter of a second's quota at once
    250000
    >>> rate.reserve(250_000)
    >>> rate.settle(250_000, 200_000, 0)  # 50,000 did not come
    >>> rate.grant(16_384, 1_048_576, 0), rate.ready_in_ms(100_000, 0)
    (50000, 50)
    """

    limit: float | None
    now_ms: InitVar[int]
    total: int = field(default=0, init=False)
    held_ms: int = field(default=NEVER_MS, init=False)
    # For /metrics.
    _observed: SampledRate = field(default_factory=lambda: SampledRate(11, _SECOND_MS), init=False)
    _delivered: deque[tuple[int, int]] = field(
        default_factory=deque, init=False
    )  # (when, bytes), last second
    _in_second: int = field(default=0, init=False)
    _last_size: int = field(default=0, init=False)
    _floor: float = field(default=0.0, init=False)
    # Bytes of the floor that may be granted, since more than the limit came in the last second; negative for a debt.
    _floor_tokens: float = field(default=0.0, init=False)
    _reserved: int = field(default=0, init=False)
    _tokens: float = field(init=False)
    _filled_ms: int = field(init=False)

    def __post_init__(self, now_ms: int) -> None:
        self._tokens = (self.limit or 0) * _BURST_SECONDS
        self._filled_ms = now_ms

    def allow(self, limit: float | None, floor: float, now_ms: int) -> None:
        """Set the limit, and what is not lent of it, in bytes/s; a floor of 0 for a limit of which nothing is lent."""
        if self.limit is not None:
            self._refill(now_ms, self.limit)
        self.limit = limit
        self._floor = floor

    def per_second(self, now_ms: int) -> float:
        """Return the observed rate in bytes/s over the last eleven seconds, for metrics."""
        total = self._observed.total_in(now_ms)
        return total / (max(self._observed.elapsed_ms(now_ms), _SECOND_MS) / 1000)

    def room(self, now_ms: int) -> int | None:
        """Return the bytes that a Fetch may ask for now; None for any number, without a limit."""
        if self.limit is None:
            return None
        self._refill(now_ms, self.limit)
        return max(0, math.floor(min(self._free(self.limit), self._tokens)))

    def grant(self, least: int, most: int, now_ms: int) -> int:
        """Return the bytes of one partition that a Fetch may ask for: 0 to leave it out, or `least` to `most`.

        Args:
            least: the estimated size of a batch; fewer bytes are not worth asking for.
            most: the bytes that the follower asks for.
        """
        limit = self.limit
        if limit is None:
            return most
        self._refill(now_ms, limit)
        free = self._free(limit)
        if free <= 0:
            return 0
        # The last batch of a second may exceed it; otherwise the rest of every second would be lost.
        allowed = min(most, max(math.floor(free), least))
        worth = min(max(least, math.ceil(limit * _SHARE_MIN)), allowed)
        if self._tokens >= worth:
            return min(allowed, math.floor(self._tokens))
        # A batch larger than the bucket: nothing else may be under way, and it leaves a debt.
        burst = limit * _BURST_SECONDS
        alone = worth > burst and not self._reserved and self._tokens >= burst
        return worth if alone else 0

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes that were granted and are about to be asked for."""
        self._reserved += size
        self._tokens -= size
        if self._past_loan:
            self._floor_tokens -= size

    def settle(self, reserved: int, size: int, now_ms: int) -> None:
        """Count `size` bytes that have arrived, and end the reservation of `reserved` bytes.

        Reserved bytes that did not arrive may be granted again.
        """
        if self.limit is not None:
            self._refill(now_ms, self.limit)  # first: bytes returned to a full bucket would be lost
        self._reserved -= reserved
        self._tokens += reserved
        if self._past_loan:
            self._floor_tokens += reserved - size
        if size:
            self._count(size, now_ms)

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes that have arrived without a reservation, as of a replica in sync, which is never delayed."""
        if size:
            if self.limit is not None:
                self._refill(now_ms, self.limit)
            self._count(size, now_ms)

    @property
    def _past_loan(self) -> bool:
        """Whether the last second brought more than the limit and one batch, which may exceed any second."""
        limit = self.limit
        return bool(self._floor) and limit is not None and self._in_second > limit + self._last_size

    def _free(self, limit: float) -> float:
        """Return what the last second leaves of the limit, or of the floor if it is more."""
        return max(limit - self._in_second - self._reserved, self._floor_tokens)

    def _count(self, size: int, now_ms: int) -> None:
        """Count arrived bytes, after the bucket was refilled."""
        self.total += size
        self._observed.record(size, now_ms)
        limit = self.limit
        if limit is None:
            return
        delivered = self._delivered
        if delivered and delivered[-1][0] == now_ms:  # a response brings thousands of replicas at once
            delivered[-1] = (now_ms, delivered[-1][1] + size)
        else:
            delivered.append((now_ms, size))
        self._in_second += size
        self._last_size = size
        self._tokens -= size
        self._forgive(limit)

    def ready_in_ms(self, least: int, now_ms: int) -> int:
        """Return the time in ms until `least` bytes may be asked for, if no more bytes arrive; a minute at most."""
        limit = self.limit
        if limit is None:
            return 0
        if limit <= 0:
            return READY_MS_MAX
        self._refill(now_ms, limit)
        worth = max(least, math.ceil(limit * _SHARE_MIN))
        burst = limit * _BURST_SECONDS
        tokens_ms = math.ceil((min(worth, burst) - self._tokens) / limit * 1000)
        over = self._in_second + self._reserved - limit
        second_ms = RESERVED_MS if over >= 0 or (worth > burst and self._reserved) else 0
        for when_ms, size in self._delivered:
            if over < 0:
                break
            over -= size
            second_ms = when_ms + _SECOND_MS - now_ms
        if second_ms and self._past_loan:
            floor_ms = math.ceil((min(worth, burst) - self._floor_tokens) / self._floor * 1000)
            second_ms = min(second_ms, max(1, floor_ms))
        return max(0, min(max(tokens_ms, second_ms), READY_MS_MAX))

    def _refill(self, now_ms: int, limit: float) -> None:
        delivered = self._delivered
        while delivered and delivered[0][0] <= now_ms - _SECOND_MS:
            self._in_second -= delivered.popleft()[1]
        self._forgive(limit)
        if now_ms > self._filled_ms:
            seconds = (now_ms - self._filled_ms) / 1000
            self._tokens = min(limit * _BURST_SECONDS, self._tokens + limit * seconds)
            gained = self._floor_tokens + self._floor * seconds
            self._floor_tokens = min(limit * _BURST_SECONDS, gained) if self._past_loan else 0.0
            self._filled_ms = now_ms

    def _forgive(self, limit: float) -> None:
        """Reduce the debt to its bound, also after the limit was lowered; the debt of one batch stays."""
        debt = max(limit * _DEBT_SECONDS_MAX, self._last_size) + self._reserved
        self._tokens = max(self._tokens, -debt)
