"""Checks that the clocks of all processes agree: together they must have recorded at most forty days.

A machine without a clock battery starts in 1970. One process with such a clock beside one with a correct clock would
make a recording of half a century, and each table by second as long.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

__all__ = ["SPAN_DAYS_MAX", "Clock", "too_far_apart"]

SPAN_DAYS_MAX: Final = (
    40  # a task of the backtest keeps a number for each second and candidate: 0.6 GB with 20
)
_DAY_MS: Final = 86_400_000


class Clock(NamedTuple):
    """The clock of one process: the number of its requests, and their first and last time in ms."""

    process: str
    requests: int
    first_ms: int
    last_ms: int


def too_far_apart(clocks: Sequence[Clock]) -> str:
    """Return the reason why these clocks are not of one recording; "" if they may be.

    The message names the process whose times are farthest from the middle request's, since most requests have the right
    time.
    """
    first_ms, last_ms = min(clock.first_ms for clock in clocks), max(clock.last_ms for clock in clocks)
    days = (last_ms - first_ms) // _DAY_MS
    if last_ms - first_ms <= SPAN_DAYS_MAX * _DAY_MS:
        return ""
    middle_ms = _middle_ms(clocks)
    outlying = max(
        clocks, key=lambda clock: max(abs(clock.first_ms - middle_ms), abs(clock.last_ms - middle_ms))
    )
    return (
        f"the capture would be {days:,} days long, from {_day(first_ms)} to {_day(last_ms)}, and "
        f"{SPAN_DAYS_MAX} are taken at most: look at process {outlying.process}, which says that its "
        f"{outlying.requests:,} requests are from {_day(outlying.first_ms)} to {_day(outlying.last_ms)}; "
        "its files bear its name and can be left out"
    )


def _middle_ms(clocks: Sequence[Clock]) -> int:
    """Return the first time, in ms, of the process that has the middle request."""
    half = sum(clock.requests for clock in clocks) / 2
    for clock in sorted(clocks, key=lambda clock: clock.first_ms):
        half -= clock.requests
        if half <= 0:
            return clock.first_ms
    raise AssertionError("half of the requests are before the last process's end")


def _day(at_ms: int) -> str:
    """Format a time as a date, or as a number if it is beyond the calendar.

    >>> _day(0), _day(10**18)
    ('1970-01-01', '1000000000000000000 ms')
    """
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
