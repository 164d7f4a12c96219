"""Which brokers are lost: those that the cluster's metadata does not list, and those that cannot be connected to; pure.

Metadata takes seconds to tell of a broker that has ended; the connections that clients open to it fail at once. Both
make one state: a broker is lost when either says so, and back when neither does. A process repeats its failures
(`proxy.net.shared`), so a report that is not repeated is over: nothing connects to the broker any more.

A change is told at once, and the next one of the same broker EVENT_MS later at the earliest, so that a broker that
flaps makes at most six events in a minute; `settle` tells what was put off.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from proxy.events.kinds import BrokerBack, BrokerLost, Event

# ----------------------------------------------------------------------------------------------------
# Which brokers are lost, and back, by the cluster's metadata; pure.
#
# A broker is lost, or back, when ROUNDS successive rounds agree on it: one broker's stale response is no event, and a
# broker that flaps makes at most one event in ROUNDS rounds.


ROUNDS: Final = 2
LOST_MAX: Final = 10_000  # as many as a broker map may have


class Changed(NamedTuple):
    """The ids of the brokers that a round has shown to be lost, and of those that are back."""

    lost: tuple[int, ...]
    back: tuple[int, ...]


class Brokers:
    """Finds which brokers are lost or back, from the brokers that the cluster's metadata lists at each reading (round).

    A broker is lost when ROUNDS successive rounds do not list it, and back when as many list it again.

    >>> brokers = Brokers()
    >>> brokers.seen([1, 2]), brokers.seen([1]), brokers.seen([1])
    (Changed(lost=(), back=()), Changed(lost=(), back=()), Changed(lost=(2,), back=()))
    """

    def __init__(self) -> None:
        self._present: set[int] = set()
        self._lost: set[int] = set()
        self._rounds: dict[int, int] = {}  # for how many rounds a broker has differed from what was told

    def seen(self, live: Collection[int]) -> Changed:
        """Take the brokers that one round lists, and return the changes; a new broker is neither lost nor back."""
        now = set(live)
        self._present |= now - self._lost
        differ = (self._present - now) | (self._lost & now)
        self._rounds = {broker: self._rounds.get(broker, 0) + 1 for broker in differ}
        settled = {broker for broker, rounds in self._rounds.items() if rounds >= ROUNDS}
        lost, back = settled & self._present, settled & self._lost
        self._present = (self._present - lost) | back
        self._lost = (self._lost - back) | lost
        if len(self._lost) > LOST_MAX:
            self._lost = lost
        for broker in settled:
            del self._rounds[broker]
        return Changed(tuple(sorted(lost)), tuple(sorted(back)))


EVENT_MS: Final = 10_000
REPORT_MS: Final = 60_000  # a report holds for so long; failures are repeated more often


class BrokerStates:
    """Makes an event when a broker is lost or back, from metadata and from the failures of all Sluice processes.

    Args:
        tell: called with each event.
    """

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._listed = Brokers()
        self._unlisted: set[int] = set()
        self._reports: dict[int, dict[int, tuple[int, str]]] = {}  # by broker and process: when, and why
        self._lost: set[int] = set()  # those that were told to be
        self._told_ms: dict[int, int] = {}

    def listed(self, live: Collection[int], now_ms: int) -> None:
        """Take the brokers that one round of metadata lists, and make events of the changes."""
        changed = self._listed.seen(live)
        self._unlisted.update(changed.lost)
        self._unlisted.difference_update(changed.back)
        if len(self._unlisted) > LOST_MAX:
            self._unlisted = set(changed.lost)
        self.settle(now_ms)

    def reported(self, source: int, broker: int, problem: str, now_ms: int) -> None:
        """Take one process's report on its connections to a broker.

        Args:
            source: the number of the process.
            problem: why connections to the broker fail; "" if they do not.
        """
        reports = self._reports.get(broker)
        if problem:
            if reports is None:
                if len(self._reports) >= LOST_MAX:
                    return
                reports = self._reports[broker] = {}
            reports[source] = now_ms, problem
        elif reports is not None:
            reports.pop(source, None)
        self._settle_one(broker, now_ms)

    def ended(self, source: int, now_ms: int) -> None:
        """Drop the reports of a Sluice process that has ended."""
        for reports in self._reports.values():
            reports.pop(source, None)
        self.settle(now_ms)

    def settle(self, now_ms: int) -> None:
        """Make the events that are due, and drop reports older than REPORT_MS; called every few seconds.

        An event of a broker is delayed until EVENT_MS after its last one.
        """
        for reports in self._reports.values():
            for source in [one for one, (at_ms, _) in reports.items() if now_ms - at_ms > REPORT_MS]:
                del reports[source]
        for broker in sorted(self._unlisted | self._lost | self._reports.keys()):
            self._settle_one(broker, now_ms)
        for broker in [one for one, at_ms in self._told_ms.items() if now_ms - at_ms >= EVENT_MS]:
            del self._told_ms[broker]

    def _settle_one(self, broker: int, now_ms: int) -> None:
        reports = self._reports.get(broker)
        if reports is not None and not reports:
            del self._reports[broker]
        lost = bool(reports) or broker in self._unlisted
        if lost == (broker in self._lost) or now_ms - self._told_ms.get(broker, -EVENT_MS) < EVENT_MS:
            return
        self._told_ms[broker] = now_ms
        if lost:
            self._lost.add(broker)
            self._tell(BrokerLost(broker, next(iter(reports.values()))[1] if reports else ""))
        else:
            self._lost.discard(broker)
            self._tell(BrokerBack(broker))
