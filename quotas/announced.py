"""Produce requests that are charged and not here yet: what a header announces is owed only while its bytes come.

A Produce is charged as a whole when its header is seen (decision 0001). A client may announce 100 MB and send
nothing: its identity would stand still for as long as that takes to pay. So a charge holds for `ARRIVAL_MS`. What has
not arrived by then is given back to the limiter, and is charged again, behind whatever else waits, when it does
arrive; so bytes that were paid for long ago cannot come all at once either.

Each turn has one request under way at most. The channel counts arriving bytes down in `Turn.announced`; this module
finds the requests whose time is over. It knows no rate.
"""

from typing import Final

from quotas.turn import Turn

__all__ = ["ARRIVAL_MS", "Announcements"]

# A request of 1 MB takes 80 ms at 100 Mbit/s. To be charged twice costs an honest client nothing but its place.
ARRIVAL_MS: Final = 250


class Announcements:
    """The requests of one identity that are under way.

    >>> announcements, turn = Announcements(), Turn()
    >>> announcements.begin(turn, 1_000_000, now_ms=0)
    >>> turn.announced -= 300_000  # that much has come
    >>> len(announcements.overdue(now_ms=249)), len(announcements.overdue(now_ms=250)), turn.lost
    (0, 1, 700000)
    """

    __slots__ = ("_due_ms", "_turns")

    def __init__(self) -> None:
        self._turns: dict[Turn, None] = {}  # the oldest charge first
        self._due_ms = 0

    def __len__(self) -> int:
        return len(self._turns)

    def begin(self, turn: Turn, missing: int, now_ms: int) -> None:
        """A request was charged of which `missing` bytes are still to come."""
        turn.announced = missing
        turn.announced_ms = now_ms
        turn.lost = 0
        self._turns.pop(turn, None)
        if not self._turns:
            self._due_ms = now_ms + ARRIVAL_MS
        self._turns[turn] = None

    def end(self, turn: Turn) -> int:
        """The request has arrived, or its channel is gone; gives the bytes that were charged and did not come."""
        missing = max(turn.announced, 0) if turn in self._turns else 0
        self._turns.pop(turn, None)
        turn.announced = turn.lost = 0
        return missing

    def overdue(self, now_ms: int) -> list[Turn]:
        """Take out the requests whose charge no longer holds; what is missing of each is then `Turn.lost`."""
        if not self._turns or now_ms < self._due_ms:
            return []
        found = []
        for turn in self._turns:
            if now_ms < turn.announced_ms + ARRIVAL_MS:
                self._due_ms = turn.announced_ms + ARRIVAL_MS
                break
            found.append(turn)
        for turn in found:
            del self._turns[turn]
            turn.lost, turn.announced = max(turn.announced, 0), 0
        return found
