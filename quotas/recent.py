"""What was learned moments ago and will soon be known otherwise: a bounded map whose entries end by themselves.

Brokers hear of a new topic a moment after its creator does (KIP-599 counts the partitions of topics that are
deleted). The oldest entry makes room for a new one; time is an argument.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `entries_max` entries, each for `keep_ms`.

    >>> sizes = Recent[str, int](entries_max=2, keep_ms=1000)
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
        """Remember; what was known of this key is replaced."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (value, now_ms + self._keep_ms)

    def get(self, key: K, now_ms: int) -> V | None:
        """What is remembered of this key; None once its time is over."""
        found = self._entries.get(key)
        return None if found is None or now_ms >= found[1] else found[0]

    def forget(self, keys: Iterable[K]) -> None:
        """These are known otherwise by now."""
        for key in keys:
            self._entries.pop(key, None)
