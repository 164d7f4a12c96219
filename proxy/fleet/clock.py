"""The clock of leases."""

import time

__all__ = ["boot_ms"]


def boot_ms() -> int:
    """Return milliseconds on a clock that never goes back and counts suspension.

    A machine that slept for a minute must know that its leases are over.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
