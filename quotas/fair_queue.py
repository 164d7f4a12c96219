"""Whose turn it is among the channels of one identity: start-time fair queueing in bytes (the `schedule` policy).

A channel's tag is the virtual time, in bytes, at which its next request begins: the end of its own last request, or
the virtual time if that is later. The lowest tag is next, equal tags in order of arrival. So channels that always
have something to send get equal bytes whatever the size of their requests, and one that sends little is soon served.

The queue holds one place for every Produce that waits at its header, and one for every channel that was told to come
back: its reservation, of the size it last had. Virtual time is the start of the last request that passed, or the
first place before it. Two refinements, both found in simulation:

- A channel without a request of its own waiting (its round trip is longer than its slots) keeps up to half a burst of
  its share; otherwise large requests pass in every gap it leaves, and it gets one small request for each of them.
- A new channel begins where the virtual time was one to two bursts ago, so that whoever came a moment earlier and
  found the whole burst does not stay ahead of it for a minute. Channels that come anew for every request would hold
  the virtual time back for ever; so each new one moves the mark, as if there were at least NEWCOMER_SHARE others.

It knows no rate and no limit: those are `schedule`'s.
"""

from bisect import bisect_left, bisect_right
from itertools import compress
from operator import not_
from typing import Final

from quotas.turn import GRACE_MS, Turn

# A held channel asks again by itself; one that is this late has gone without a word.
HELD_GRACE_MS: Final = 5_000
# Channels that come anew for every request leave at least this many parts in as many plus one to the others.
NEWCOMER_SHARE: Final = 8


class FairQueue:
    """The places of one identity, and its virtual time."""

    __slots__ = (
        "_before",
        "_mark",
        "_mark_ms",
        "_newcomers",
        "_sizes",
        "_tags",
        "lag_bytes",
        "turns",
        "virtual",
    )

    def __init__(self) -> None:
        self.lag_bytes = 0  # of its share a channel keeps that has nothing waiting
        self.virtual = 0  # where the last request that passed began
        self._newcomers = 0
        self._mark = 0
        self._mark_ms = -1
        self._before = 0
        # Three columns of one table: by tag, equal tags in order of arrival.
        self._tags: list[int] = []
        self._sizes: list[int] = []
        self.turns: list[Turn] = []

    def enter(self, turn: Turn) -> int:
        """Where in the queue the turn is or would be."""
        if turn.queued:
            return self._index(turn)
        if turn.held_since_ms < 0:  # one that waits outside the queue keeps the tag it came with
            turn.tag = max(turn.tag, self._now() if turn.passed else self._before)
        return bisect_right(self._tags, turn.tag)

    def behind(self, turn: Turn) -> int:
        """Where a turn without a place goes that just passed and goes on with the tag it has."""
        return bisect_right(self._tags, turn.tag)

    def ahead(self, turn: Turn, index: int) -> tuple[int, int]:
        """Bytes ahead of a place: one request of each; and all that is due to them before its tag comes."""
        if not index:
            return 0, 0
        once = sum(self._sizes[:index])
        return once, max(once, index * turn.tag - sum(self._tags[:index]))

    def started(self, turn: Turn, start: int, size: int, doubtful: int) -> None:
        """A request passed; its channel's next one has its tag now. What may never come moves no newcomers' mark."""
        self.virtual = max(self.virtual, start)
        if not turn.passed:
            turn.passed = True
            self._newcomers = max(self._newcomers, self._now()) + (size - doubtful) // (
                len(self.turns) + NEWCOMER_SHARE
            )
        turn.tag = start + size
        if not turn.waited:
            turn.tag = max(turn.tag, self.virtual - self.lag_bytes)

    def came(self, doubtful: int) -> None:
        """What a newcomer's first request announced is here after all."""
        self._newcomers = max(self._newcomers, self._now()) + doubtful // (len(self.turns) + NEWCOMER_SHARE)

    def put(self, turn: Turn, size: int) -> None:
        """Give the turn its place, or keep it."""
        if turn.queued:
            if turn.size != size:
                self._sizes[self._index(turn)] = size
        else:
            index = bisect_right(self._tags, turn.tag)
            self._tags.insert(index, turn.tag)
            self._sizes.insert(index, size)
            self.turns.insert(index, turn)
            turn.queued = True
        turn.size = size

    def remove(self, turn: Turn) -> None:
        """Take the turn's place away, if it has one."""
        if turn.queued:
            index = self._index(turn)
            del self._tags[index], self._sizes[index], self.turns[index]
            turn.queued = False

    def sweep(self, now_ms: int, mark_every_ms: int) -> None:
        """Take away the places of channels that did not come back; note the virtual time for those to come."""
        if now_ms >= self._mark_ms:
            self._mark_ms = now_ms + mark_every_ms
            self._before, self._mark = self._mark, max(self._now(), self._newcomers)
        turns = self.turns
        kept = [
            now_ms <= turn.due_ms + (GRACE_MS if turn.held_since_ms < 0 else HELD_GRACE_MS) for turn in turns
        ]
        if all(kept):
            return
        # All at once: thousands may be late together, and each that is taken away alone moves all behind it.
        for turn in compress(turns, map(not_, kept)):
            turn.queued = False
        self._tags = list(compress(self._tags, kept))
        self._sizes = list(compress(self._sizes, kept))
        self.turns = list(compress(turns, kept))

    def _now(self) -> int:
        tags = self._tags
        return tags[0] if tags and tags[0] < self.virtual else self.virtual

    def _index(self, turn: Turn) -> int:
        return self.turns.index(turn, bisect_left(self._tags, turn.tag))
