"""Names of topics by their ids (KIP-516): requests since Fetch 13 and Produce 13 name topics by id, quotas by name.

A topic's id never gets another name, so what is known stays true; a topic that is made anew has a new id. Ids that
traffic shows and nobody knows are collected here, and whoever can ask the cluster is woken (`proxy.cluster`), who asks
for the ids of topics that have limits of their own as well: a client may show more ids than can be asked for.
"""

from collections.abc import Callable, Sequence
from typing import Final

from quotas.recent import Recent

__all__ = ["ASKED_AT_ONCE_MAX", "ASK_AGAIN_MS", "NAMES_MAX", "TopicNames"]

NAMES_MAX: Final = 100_000  # about as many topics as one cluster can have; the one learned first makes room
ASKED_AT_ONCE_MAX: Final = 1000
# An id that the cluster does not know (the topic is gone), or may not tell us, is not asked for again sooner.
ASK_AGAIN_MS: Final = 5000


def _nobody() -> None:
    """Nobody asks: in tests, and before the application has said who does."""


class TopicNames:
    """What is known of ids.

    Attributes:
        wake: called when there is something to ask.
        limited: the names of all topics that have limits of their own.
    """

    __slots__ = ("_asked", "_names", "_next", "_wanted", "limited", "wake")

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._wanted: dict[bytes, None] = {}
        self._asked = Recent[bytes, bool](ASKED_AT_ONCE_MAX, ASK_AGAIN_MS)
        self.wake: Callable[[], None] = _nobody
        self.limited: Callable[[], Sequence[str]] = tuple
        self._next = 0  # of the limited ones, when there are too many to ask for at once

    def name(self, topic_id: bytes, now_ms: int) -> str | None:
        """The topic's name; None where it is not known, and then it will be asked for."""
        found = self._names.get(topic_id)
        if found is None:
            self._want(topic_id, now_ms)
        return found

    def known(self, topic_id: bytes) -> str | None:
        """The topic's name if it is known; nobody is asked. Any thread may call it."""
        return self._names.get(topic_id)

    def take_wanted(self, now_ms: int) -> list[bytes]:
        """What is to be asked for now: not again for a while, whatever the answer."""
        wanted = list(self._wanted)
        self._wanted.clear()
        for topic_id in wanted:
            self._asked.put(topic_id, True, now_ms)
        return wanted

    def take_limited(self) -> list[str]:
        """Names of topics that have limits, for whose ids to ask now: in turn, where they are many."""
        names = self.limited()
        if self._next >= len(names):
            self._next = 0
        taken = list(names[self._next : self._next + ASKED_AT_ONCE_MAX])
        self._next += len(taken)
        return taken

    def learn(self, topic_id: bytes, name: str) -> None:
        """This is its name."""
        if topic_id not in self._names and len(self._names) >= NAMES_MAX:
            del self._names[next(iter(self._names))]
        self._names[topic_id] = name

    def __len__(self) -> int:
        return len(self._names)

    def _want(self, topic_id: bytes, now_ms: int) -> None:
        if topic_id in self._wanted or len(self._wanted) >= ASKED_AT_ONCE_MAX:
            return
        if self._asked.get(topic_id, now_ms) is None:
            self._wanted[topic_id] = None
            self.wake()
