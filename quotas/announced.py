"""Produce requests that are charged and not here yet: what a header announces is owed only while its bytes come.

A Produce is charged as a whole when its header is seen (decision 0001). A client may announce 100 MB and send
nothing, in the name of another: its identity would stand still for as long as that takes to pay. Three rules:

- A charge holds for `ARRIVAL_MS`. What has not arrived by then is given back to the limiter, and is charged again,
  behind whatever else waits, when it does arrive; so bytes that were paid for long ago cannot come all at once either.
- A channel is trusted with twice the most that it announced and sent. What it announces beyond that is doubtful: no
  other channel is muted for it, and it keeps no place from others.
- Where doubtful bytes did not come, such requests pass one at a time, in the order in which they came; under the
  `schedule`, where one that is under way keeps all others waiting, none for `_WARY_MS`. So a false announcement costs
  the owner of the name at most a fifth of the time, or the attacker a sixteenth as many bytes.

Each turn has one request under way at most. The channel counts arriving bytes down in `Turn.announced`; this module
finds the requests whose time is over. It knows no rate.
"""

from typing import Final

from quotas.rate import NEVER_MS
from quotas.turn import Turn

__all__ = ["ARRIVAL_MS", "Announcements"]

# A request of 1 MB takes 80 ms at 100 Mbit/s. To be charged twice costs an honest client nothing but its place.
ARRIVAL_MS: Final = 250
_WARY_MS: Final = 4 * ARRIVAL_MS
# Where at least one in so many bytes of a doubtful request came in time, it comes slowly: that makes no channel wait.
# 1 MB over 2 Mbit/s is one in sixteen a charge.
_SLOW_SHARE: Final = 17
_IN_ORDER_MS: Final = 10_000  # after the last doubtful bytes that did not come
_POLL_MS_MIN: Final = 25
_FAR_MS: Final = 1 << 60
# With so much each channel is trusted: the batch size that producers begin with (batch.size).
_TRUSTED_BYTES_MIN: Final = 16 * 1024


class Announcements:
    """The requests of one identity that are under way.

    Attributes:
        turns: whose they are, and how many bytes were missing when each was charged, the oldest first.
        doubtful: how many of those are more than their channels are trusted with, all together.
        wary_until_ms: until when no further doubtful ones are admitted.
        due_ms: when `overdue` may find one; none does before.

    >>> announcements, turn = Announcements(), Turn()
    >>> announcements.begin(turn, 1_000_000, now_ms=0)
    >>> turn.announced -= 30_000  # that much has come
    >>> len(announcements.overdue(now_ms=249)), len(announcements.overdue(now_ms=250)), turn.lost
    (0, 1, 970000)
    >>> announcements.wary_until_ms, turn.trusted  # it was new, and so trusted with 16 KiB
    (1250, 30000)
    """

    __slots__ = ("_waiting", "doubtful", "due_ms", "turns", "wary_until_ms")

    def __init__(self) -> None:
        self.turns: dict[Turn, int] = {}
        self.doubtful = 0
        self.wary_until_ms = NEVER_MS
        self._waiting: dict[Turn, None] = {}  # whose doubtful requests wait, in the order in which they came
        self.due_ms = _FAR_MS

    def begin(self, turn: Turn, missing: int, now_ms: int) -> None:
        """A request was charged of which `missing` bytes are still to come."""
        self._end(turn)
        self.waits_no_longer(turn)
        turn.announced = missing
        turn.announced_ms = now_ms
        turn.lost = 0
        if not self.turns:
            self.due_ms = now_ms + ARRIVAL_MS
        self.turns[turn] = missing
        self.doubtful += self.beyond_trust(turn, missing)

    def doubted(self, turn: Turn) -> int:
        """How many bytes of the request under way were doubtful when it was charged."""
        return self.beyond_trust(turn, self.turns.get(turn, 0))

    def arrived(self, turn: Turn) -> None:
        """All of it is here."""
        announced = self._end(turn)
        turn.announced = turn.lost = 0
        turn.trusted = max(turn.trusted, announced)

    def keeps_waiting(self, turn: Turn, now_ms: int) -> bool:
        """Whether a doubtful request has to wait, whatever the quota says."""
        return now_ms < self.wary_until_ms + _IN_ORDER_MS and not self.in_order(turn, now_ms)

    def in_order(self, turn: Turn, now_ms: int) -> bool:
        """Whether a doubtful request, which waits from now on, is the first of those that do, and may pass."""
        self._waiting[turn] = None
        return now_ms >= self.wary_until_ms and next(iter(self._waiting)) is turn

    def waits_no_longer(self, turn: Turn) -> None:
        """A request passes, or does not."""
        self._waiting.pop(turn, None)

    def ask_again_ms(self, now_ms: int) -> int:
        """When one that keeps waiting is to ask again."""
        return max(self.wary_until_ms, now_ms + min(max(_POLL_MS_MIN, len(self._waiting)), ARRIVAL_MS))

    def gone(self, turn: Turn, now_ms: int) -> int:
        """The channel is gone; gives the bytes that were charged and did not come."""
        self.waits_no_longer(turn)
        lost = self._lost(turn, now_ms) if turn in self.turns else 0
        turn.announced = turn.lost = 0
        return lost

    def overdue(self, now_ms: int) -> list[Turn]:
        """Take out the requests whose charge no longer holds; what is missing of each is then `Turn.lost`."""
        if now_ms < self.due_ms:
            return []
        found = []
        self.due_ms = _FAR_MS
        for turn in self.turns:
            if now_ms < turn.announced_ms + ARRIVAL_MS:
                self.due_ms = turn.announced_ms + ARRIVAL_MS
                break
            found.append(turn)
        for turn in found:
            turn.lost, turn.announced = self._lost(turn, now_ms), 0
        return found

    def beyond_trust(self, turn: Turn, missing: int) -> int:
        """How many of these bytes are doubtful."""
        return max(0, missing - max(_TRUSTED_BYTES_MIN, 2 * turn.trusted))

    def _end(self, turn: Turn) -> int:
        """The request under way, if there is one, no longer is; gives what was missing when it was charged."""
        announced = self.turns.pop(turn, 0)
        self.doubtful -= self.beyond_trust(turn, announced)
        return announced

    def _lost(self, turn: Turn, now_ms: int) -> int:
        """What was charged and is not here."""
        announced = self._end(turn)
        lost = max(turn.announced, 0)
        if lost:
            came = announced - lost
            if self.beyond_trust(turn, announced) and came * _SLOW_SHARE < announced:
                self.wary_until_ms = now_ms + _WARY_MS
            turn.trusted = came
        return lost
