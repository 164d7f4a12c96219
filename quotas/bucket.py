"""The token bucket of KIP-599: a burst of partition mutations at once, then a steady rate.

Kafka's arithmetic (`TokenBucket`, kafka-quotas.md §3.1), to which the proposal's formula leads:

- the bucket is full at first, and refilled at `rate` tokens/s up to `burst`;
- whatever is asked is admitted while the bucket is not overdrawn, and all of it is taken: it may go negative
  without a bound, so that a topic of any size can be created;
- overdrawn means below 0, strictly; then it takes -tokens / rate until it is not any more.

A failed creation gives its tokens back (Kafka needs not: it asks the bucket last, when nothing can fail any
more). It counts tokens, and knows neither topics nor clients (`mutations`), nor a clock.
"""

import math
from typing import Final

# What throttle_time_ms can hold, 24 days; Kafka's cast to it wraps round.
THROTTLE_MS_MAX: Final = 2**31 - 1


class TokenBucket:
    """Tokens that come at a steady rate and are taken in any number.

    >>> bucket = TokenBucket(rate=10, burst=100, now_ms=0)
    >>> bucket.take(90, 0), bucket.take(90, 0), bucket.tokens(0)  # 100 - 90 - 90
    (True, True, -80.0)
    >>> bucket.take(90, 0), bucket.throttle_ms(0), bucket.throttle_ms(5000)  # 80 / 10 per s; 5 s later
    (False, 8000, 3000)
    """

    __slots__ = ("_filled_ms", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now_ms: int) -> None:
        assert rate > 0, "a bucket that is never refilled limits for ever"
        self.rate = rate
        self.burst = burst
        self._tokens = float(burst)
        self._filled_ms = now_ms

    def configure(self, rate: float, burst: float) -> None:
        """Take over another rate and burst; what was taken stays taken.

        The time since the last refill counts at the new rate, and a smaller burst takes away, as in Kafka.
        """
        assert rate > 0, "a bucket that is never refilled limits for ever"
        self.rate = rate
        self.burst = burst

    def tokens(self, now_ms: int) -> float:
        """How many there are; below 0 it is overdrawn."""
        elapsed_ms = max(0, now_ms - self._filled_ms)
        self._tokens = min(self.burst, self._tokens + self.rate * elapsed_ms / 1000)
        self._filled_ms += elapsed_ms
        return self._tokens

    def overdrawn(self, now_ms: int) -> bool:
        """Whether it holds less than nothing: exactly nothing is still enough."""
        return self.tokens(now_ms) < 0

    def take(self, count: float, now_ms: int) -> bool:
        """Take tokens if it is not overdrawn already; whether it did."""
        if self.overdrawn(now_ms):
            return False
        self._tokens -= count
        return True

    def record(self, count: float, now_ms: int) -> None:
        """Take tokens whatever there is; a negative count gives back, to no more than the burst."""
        self._tokens = min(self.burst, self.tokens(now_ms) - count)

    def settle(self, now_ms: int) -> None:
        """Forget what it is overdrawn by: nobody was told of it."""
        self._tokens = max(0.0, self.tokens(now_ms))

    def throttle_ms(self, now_ms: int) -> int:
        """How long it will be overdrawn, rounded to the nearest millisecond; 0 when it is not."""
        tokens = self.tokens(now_ms)
        return math.floor(min(-tokens / self.rate * 1000, THROTTLE_MS_MAX) + 0.5) if tokens < 0 else 0
