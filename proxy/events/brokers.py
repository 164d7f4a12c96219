"""Which brokers are lost, and back, by the cluster's metadata; pure.

A broker is lost, or back, when ROUNDS successive rounds agree on it: one broker's stale response is no event, and a
broker that flaps makes at most one event in ROUNDS rounds.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

ROUNDS: Final = 2
LOST_MAX: Final = 10_000  # as many as a broker map may have


class Changed(NamedTuple):
    """The brokers that were lost, and that are back."""

    lost: tuple[int, ...]
    back: tuple[int, ...]


class Brokers:
    """The brokers as they were told.

    >>> brokers = Brokers()
    >>> brokers.seen([1, 2]), brokers.seen([1]), brokers.seen([1])
    (Changed(lost=(), back=()), Changed(lost=(), back=()), Changed(lost=(2,), back=()))
    """

    def __init__(self) -> None:
        self._present: set[int] = set()
        self._lost: set[int] = set()
        self._rounds: dict[int, int] = {}  # for how many rounds a broker has differed from what was told

    def seen(self, live: Collection[int]) -> Changed:
        """Take the brokers of one round; a broker that is new to the cluster is neither lost nor back."""
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
