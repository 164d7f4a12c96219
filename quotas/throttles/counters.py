"""Counters of one throttle: how often, and for how long together, it has throttled a client or topic."""

__all__ = ["ThrottleCounters"]


class ThrottleCounters:
    """The counters that every throttle has, since the start of the process.

    Attributes:
        throttled_total: throttled requests.
        throttle_ms_total: the sum of their throttle times in ms; for Produce also the times of holds.
        would_throttled_total, would_throttle_ms_total: the same without enforcement.

    >>> counters = ThrottleCounters()
    >>> counters.count(500, enforced=True)
    >>> counters.count(300, enforced=False)
    >>> counters.totals()
    (500, 1, 300, 1)
    """

    __slots__ = ("throttle_ms_total", "throttled_total", "would_throttle_ms_total", "would_throttled_total")

    def __init__(self) -> None:
        self.throttle_ms_total = 0
        self.throttled_total = 0
        self.would_throttle_ms_total = 0
        self.would_throttled_total = 0

    def count(self, throttle_ms: int, *, enforced: bool) -> None:
        """Count one throttled request."""
        if enforced:
            self.throttled_total += 1
            self.throttle_ms_total += throttle_ms
        else:
            self.would_throttled_total += 1
            self.would_throttle_ms_total += throttle_ms

    def totals(self) -> tuple[int, int, int, int]:
        """All four counters, in the order of `QuotaView`."""
        return (
            self.throttle_ms_total,
            self.throttled_total,
            self.would_throttle_ms_total,
            self.would_throttled_total,
        )
