"""Counts in buckets of 10 ms, and what they say: the fullest second anywhere, and the sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

BUCKETS_A_SECOND: Final = 100
WINDOWS: Final = 11  # of a second each: Kafka's default


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
    """What a quota lets pass, in bytes: `in_second` in any second, `in_run` in all."""

    in_second: float
    in_run: float


def scheduled(rate: float, request_bytes: int, seconds: float, burst_seconds: float = 1.0) -> Allowance:
    """Under `schedule`: burst + 1 s + one request in any second; burst + 1.02 × the rate and one request in all.

    >>> scheduled(2_000_000, 1_000_000, 10)
    Allowance(in_second=5000000.0, in_run=23400000.0)
    """
    burst = rate * burst_seconds
    return Allowance(burst + rate + request_bytes, burst + 1.02 * rate * seconds + request_bytes)


def as_kafka(
    rate: float, request_bytes: int, seconds: float, connections: int, mute_seconds_max: float
) -> Allowance:
    """Under `kip13`: all windows' worth at once, and of each connection one request each longest mute.

    That is Kafka's own arithmetic for connections that stay; one that is made anew has no more.

    >>> as_kafka(2_000_000, 1_000_000, 10, connections=4, mute_seconds_max=20)
    Allowance(in_second=26000000, in_run=46400000.0)
    """
    windows = rate * WINDOWS
    each = request_bytes * connections
    return Allowance(
        windows + each, windows + 1.02 * rate * seconds + each * (1 + seconds // mute_seconds_max)
    )
