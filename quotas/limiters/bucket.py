"""The token bucket of KIP-599: a burst of partition mutations at once, then a steady rate.

Kafka's arithmetic (`TokenBucket`, kafka-quotas.md §3.1), to which the proposal's formula leads:

- the bucket is full at the start, and refilled at `rate` tokens/s up to `burst`;
- a request is admitted while the bucket is not overdrawn, and takes all its tokens: the bucket may become negative
  without a bound, so that a topic of any size can be created;
- overdrawn means strictly below 0; it ends after -tokens / rate.

A failed creation returns its tokens (not needed in Kafka, which takes them when nothing can fail any more). Topics and
clients are in `throttles.mutation`; time is an argument.
"""

import math
from typing import Final

from quotas.limiters.limiter import LimiterKey

# The largest throttle_time_ms, 24 days; Kafka's cast to it overflows.
THROTTLE_MS_MAX: Final = 2**31 - 1


class TokenBucket:
    """A token bucket: tokens are added at a steady rate, and taken in any number.

    >>> bucket = TokenBucket(rate=10, burst=100, now_ms=0)
    >>> bucket.take(90, 0), bucket.take(90, 0), bucket.tokens(0)  # 100 - 90 - 90
    (True, True, -80.0)
    >>> bucket.take(90, 0), bucket.throttle_ms(0), bucket.throttle_ms(5000)  # 80 / 10 per s; 5 s later
    (False, 8000, 3000)
    """

    __slots__ = (
        "_burst",
        "_filled_ms",
        "_share",
        "_tokens",
        "_used",
        "burst",
        "limit",
        "limiter_key",
        "rate",
    )

    def __init__(self, rate: float, burst: float, now_ms: int) -> None:
        assert rate > 0, "a bucket that is never refilled limits for ever"
        self.limit = self.rate = rate
        self._burst = self.burst = burst
        self._share = 1.0
        self._tokens = float(burst)
        self._filled_ms = now_ms
        self._used = 0.0
        self.limiter_key: LimiterKey | None = None

    def configure(self, rate: float, burst: float) -> None:
        """Change rate and burst; taken tokens stay taken.

        The time since the last refill counts at the new rate, and a smaller burst caps the tokens, as in Kafka.
        """
        assert rate > 0, "a bucket that is never refilled limits for ever"
        self.limit, self.rate = rate, rate * self._share
        self._burst, self.burst = burst, burst * self._share

    def lend(self, share: float, now_ms: int) -> None:
        """Use this share (0 to 1) of rate and burst from now on; no tokens are added, and those beyond the burst are
        lost.
        """
        self.tokens(now_ms)
        self._share = share
        self.configure(self.limit, self._burst)
        self._tokens = min(self._tokens, self.burst)

    def begin_empty(self, since_ms: int, now_ms: int) -> None:
        """Start with the tokens that an empty bucket would have got since `since_ms`."""
        self._tokens, self._filled_ms = 0.0, min(since_ms, now_ms)

    @property
    def decides_again(self) -> bool:
        """False: every request is charged when it arrives, so its mute is never shortened (`Lendable`)."""
        return False

    def used(self) -> float:
        """The number of tokens taken so far."""
        return self._used

    def tokens(self, now_ms: int) -> float:
        """The number of tokens in the bucket now; if it is negative, the bucket is overdrawn."""
        elapsed_ms = max(0, now_ms - self._filled_ms)
        self._tokens = min(self.burst, self._tokens + self.rate * elapsed_ms / 1000)
        self._filled_ms += elapsed_ms
        return self._tokens

    def elapse(self, ms: int) -> None:
        """Add the tokens of `ms`, as if that time had passed: a predicted wait, while quotas are not enforced."""
        self._filled_ms -= ms

    def overdrawn(self, now_ms: int) -> bool:
        """Whether the number of tokens is negative; 0 is not overdrawn."""
        return self.tokens(now_ms) < 0

    def take(self, count: float, now_ms: int) -> bool:
        """Take tokens unless the bucket is overdrawn; returns whether they were taken."""
        if self.overdrawn(now_ms):
            return False
        self._tokens -= count
        self._used += count
        return True

    def record(self, count: float, now_ms: int) -> None:
        """Take tokens unconditionally; a negative count returns tokens, up to the burst."""
        self._tokens = min(self.burst, self.tokens(now_ms) - count)
        self._used += count

    def settle(self, now_ms: int) -> None:
        """Clear the debt that was made while quotas were not enforced; called when enforcement begins."""
        self._tokens = max(0.0, self.tokens(now_ms))

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time in ms until the bucket is no longer overdrawn; 0 if it is not. Rounded to the nearest ms."""
        tokens = self.tokens(now_ms)
        return math.floor(min(-tokens / self.rate * 1000, THROTTLE_MS_MAX) + 0.5) if tokens < 0 else 0
