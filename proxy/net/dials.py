"""Reports the brokers to which this process cannot connect: when it begins, regularly while it lasts, when it ends.

A single failure is ignored, since a broker's backlog may be full for a moment. As long as no attempt has failed,
successful ones cost nothing here.
"""

from collections.abc import Callable
from typing import Final

FAILURES_MIN: Final = 2  # in succession
REPORT_MS: Final = 20_000  # between two reports of a broker's failures
_BROKERS_MAX: Final = 10_000  # as many as a broker map may have


class _Failures:
    """The number of one broker's consecutive failures, and the time of the last report."""

    __slots__ = ("count", "reported", "reported_ms")

    def __init__(self) -> None:
        self.count = 0
        self.reported = False  # and the end is not
        self.reported_ms = -REPORT_MS


class Dials:
    """The outcomes of one process's attempts to connect to brokers.

    Attributes:
        report: called with a broker's id and the reason why connections to it fail; "" if they succeed again.
    """

    def __init__(self) -> None:
        self._failures: dict[int, _Failures] = {}
        self.report: Callable[[int, str], object] = _unreported

    def failed(self, broker: int, problem: str, now_ms: int) -> None:
        """Note a failed attempt to connect to a broker; -1, an unknown broker, is ignored."""
        if broker < 0:
            return
        found = self._failures.get(broker)
        if found is None:
            if len(self._failures) >= _BROKERS_MAX:
                return
            found = self._failures[broker] = _Failures()
        found.count += 1
        if found.count >= FAILURES_MIN and now_ms - found.reported_ms >= REPORT_MS:
            found.reported, found.reported_ms = True, now_ms
            self.report(broker, problem)

    def opened(self, broker: int) -> None:
        """Note a successful attempt to connect to a broker."""
        found = self._failures.get(broker)
        if found is None:
            return
        found.count = 0  # when it was reported is kept, so that a broker that flaps is reported no more often
        if found.reported:
            found.reported = False
            self.report(broker, "")


def _unreported(_broker: int, _problem: str) -> None: ...
