"""Sluice's own CPU time and delays: how busy its loop is, how long bytes wait for it, and the cost of a request.

A visit cannot see the microseconds that relaying takes. Figures of the whole process, taken at each tick, show whether
Sluice is the cause of a delay: its CPU time, the number of its requests, and the length of a full turn of its loop,
which is the time that newly arrived bytes wait. It is waited for twice: by a request, and by its response.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from proxy.explain.latencies import CLASSES, class_of, percentile_ms
from proxy.explain.windows import Windows

_TURNS: Final = CLASSES
_CPU_MS: Final = CLASSES
_REQUESTS: Final = CLASSES + 1
_MS: Final = CLASSES + 2
_NS_PER_MS: Final = 1_000_000


class OwnReport(NamedTuple):
    """The figures of one process, or of several, over a window.

    Args:
        turns: the number of turns of the loop in each class of `latencies`.
        cpu_ms: the CPU time of the process, in ms.
        requests: the number of requests that it has relayed in this time.
        busy: the CPU time as a part of the whole time; for several processes that of the busiest.
    """

    turns: tuple[float, ...]
    cpu_ms: float
    requests: float
    busy: float

    @property
    def cpu_ms_per_request(self) -> float:
        """The CPU time of the process per request, in ms, all other work included."""
        return self.cpu_ms / self.requests if self.requests else 0.0

    def turn_ms(self, part: float) -> float:
        """The time in ms that this part of the turns did not exceed."""
        return percentile_ms(self.turns, part)


class OwnTime:
    """The CPU time and the turns of one process.

    >>> from proxy.explain.windows import MINUTE
    >>> own = OwnTime()
    >>> own.tick(turn_ns=20_000, cpu_ns=0, requests=0, now_ms=0)
    >>> own.tick(turn_ns=20_000, cpu_ns=25_000_000, requests=500, now_ms=100)
    >>> found = own.report(MINUTE, 100)
    >>> found.busy, found.cpu_ms_per_request, found.turn_ms(0.99) < 0.025
    (0.25, 0.05, True)
    """

    def __init__(self) -> None:
        self._windows = Windows(CLASSES + 3)
        self._last: tuple[int, int, int] | None = None

    def tick(self, *, turn_ns: int, cpu_ns: int, requests: int, now_ms: int) -> None:
        """Take the length of a turn, and the process's counters."""
        windows, last = self._windows, self._last
        self._last = cpu_ns, requests, now_ms
        windows.add(class_of(turn_ns // 1000), 1.0, now_ms)
        if last is not None:
            windows.add(_CPU_MS, (cpu_ns - last[0]) / _NS_PER_MS, now_ms)
            windows.add(_REQUESTS, requests - last[1], now_ms)
            windows.add(_MS, now_ms - last[2], now_ms)

    def report(self, window: int, now_ms: int) -> OwnReport:
        """Return the figures over a window."""
        sums = self._windows.sums(window, now_ms)
        cpu_ms, ms = sums[_CPU_MS], sums[_MS]
        return OwnReport(tuple(sums[:_TURNS]), cpu_ms, sums[_REQUESTS], cpu_ms / ms if ms else 0.0)


def merge_own(reports: Iterable[OwnReport | None]) -> OwnReport | None:
    """Add up the figures of several processes; None for none."""
    found = [one for one in reports if one is not None]
    if not found:
        return None
    return OwnReport(
        tuple(map(sum, zip(*(one.turns for one in found), strict=True))),
        sum(one.cpu_ms for one in found),
        sum(one.requests for one in found),
        max(one.busy for one in found),
    )
