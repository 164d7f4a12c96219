"""A bounded map whose entries expire.

Used for facts that brokers will know soon, for example the size of a topic that was just created: KIP-599 counts the
partitions of a deleted topic, and brokers learn of a topic a moment after its creator. If the map is full, the oldest
entry is removed; time is an argument.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["TtlMap"]

K = TypeVar("K")
V = TypeVar("V")


class TtlMap(Generic[K, V]):
    """At most `entries_max` entries, each for `keep_ms`.

    >>> sizes = TtlMap[str, int](entries_max=2, keep_ms=1000)
    >>> sizes.put("a", 3, now_ms=0)
    >>> sizes.get("a", 999), sizes.get("a", 1000)
    (3, None)
    """

    __slots__ = ("_entries", "_entries_max", "_keep_ms")

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
        """Remove keys."""
        for key in keys:
            self._entries.pop(key, None)
