"""Names of topics by their ids (KIP-516): requests since Fetch 13 and Produce 13 name topics by id, quotas by name.

The name of a topic id never changes; a topic that is created again has a new id. Unknown ids of the traffic are
collected here, and `wake` is called so that the cluster is asked. It is also asked for the ids of topics with
limits of their own, since a client may send more ids than can be asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

# ----------------------------------------------------------------------------------------------------
# A bounded map whose entries expire.
#
# Used for facts that brokers will know soon, for example the size of a topic that was just created: KIP-599 counts the
# partitions of a deleted topic, and brokers learn of a topic a moment after its creator. If the map is full, the oldest
# entry is removed; time is an argument.

K = TypeVar("K")
V = TypeVar("V")


class TtlMap(Generic[K, V]):
    """A map of at most `entries_max` entries, each of which expires after `keep_ms`.

    >>> sizes = TtlMap[str, int](entries_max=2, keep_ms=1000)
    >>> sizes.put("a", 3, now_ms=0)
    >>> sizes.get("a", 999), sizes.get("a", 1000)
    (3, None)
    """

    def __init__(self, entries_max: int, keep_ms: int) -> None:
        self._entries: dict[K, tuple[V, int]] = {}
        self._entries_max = entries_max
        self._keep_ms = keep_ms

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V, now_ms: int) -> None:
        """Store a value, or replace the key's value."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (value, now_ms + self._keep_ms)

    def get(self, key: K, now_ms: int) -> V | None:
        """Return the key's value; None if it has expired or is missing."""
        found = self._entries.get(key)
        return None if found is None or now_ms >= found[1] else found[0]

    def forget(self, keys: Iterable[K]) -> None:
        """Remove these keys with their values; missing ones are ignored."""
        for key in keys:
            self._entries.pop(key, None)


# About the largest number of topics in a cluster; the oldest name is removed first.
NAMES_MAX: Final = 100_000
ASKED_AT_ONCE_MAX: Final = 1000
# An id that the cluster does not know (the topic was deleted), or may not reveal, is not asked for again sooner.
ASK_AGAIN_MS: Final = 5000


class TopicNames:
    """The names of topics by topic id, as far as known, and the ids that the cluster is to be asked for.

    Attributes:
        wake: called when there are ids to ask for.
        limited: returns the names of all topics with limits of their own.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._wanted: dict[bytes, None] = {}
        self._asked = TtlMap[bytes, bool](ASKED_AT_ONCE_MAX, ASK_AGAIN_MS)
        self.wake: Callable[[], None] = lambda: None
        self.limited: Callable[[], Sequence[str]] = tuple
        self._next = 0  # of the limited ones, when there are too many to ask for at once

    def name(self, topic_id: bytes, now_ms: int) -> str | None:
        """Return the topic's name; None if it is not known, in which case the cluster will be asked for it."""
        found = self._names.get(topic_id)
        if found is None:
            self._want(topic_id, now_ms)
        return found

    def known(self, topic_id: bytes) -> str | None:
        """Return the topic's name if it is known, without asking for it. Thread-safe."""
        return self._names.get(topic_id)

    def take_wanted(self, now_ms: int) -> list[bytes]:
        """Return the unknown topic ids for which to ask the cluster now; an id is returned again only after a while."""
        wanted = list(self._wanted)
        self._wanted.clear()
        for topic_id in wanted:
            self._asked.put(topic_id, True, now_ms)
        return wanted

    def take_limited(self) -> list[str]:
        """Return names of topics with limits for whose ids the cluster is to be asked now.

        If there are many, each call returns the next ones, in turn.
        """
        names = self.limited()
        if self._next >= len(names):
            self._next = 0
        taken = list(names[self._next : self._next + ASKED_AT_ONCE_MAX])
        self._next += len(taken)
        return taken

    def learn(self, topic_id: bytes, name: str) -> None:
        """Store a topic's name."""
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
