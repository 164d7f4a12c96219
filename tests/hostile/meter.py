"""Counts in buckets of 10 ms, and what they say: the fullest second anywhere, and the sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

BUCKETS_A_SECOND: Final = 100


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes by the number of their bucket."""

    buckets: Mapping[int, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.buckets.values())

    def fullest(self, seconds: float = 1.0) -> int:
        """The most bytes within any `seconds`.

        >>> Counted({0: 5, 99: 5, 100: 7}).fullest()
        12
        """
        length = round(seconds * BUCKETS_A_SECOND)
        most = held = 0
        first = 0
        order = sorted(self.buckets)
        for bucket in order:
            held += self.buckets[bucket]
            while order[first] <= bucket - length:
                held -= self.buckets[order[first]]
                first += 1
            most = max(most, held)
        return most


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a quota lets pass: a burst, the rate, and one request.

    >>> Allowance(2_000_000, 1_000_000).in_second
    5000000
    """

    rate: float
    request_bytes: int
    burst_seconds: float = 1.0

    @property
    def in_second(self) -> int:
        """In any second: burst + 1 s + one request."""
        return round(self.rate * (self.burst_seconds + 1) + self.request_bytes)

    def in_run(self, seconds: float) -> int:
        """In a whole run: burst + 1.02 × rate × time + one request."""
        return round(self.rate * (self.burst_seconds + 1.02 * seconds) + self.request_bytes)
