"""The time that a client has waited for quotas since it was first seen: sums that never decrease, for metrics.

There are two sums for each kind of quota. One adds up all connections of the client: ten connections that wait for a
second at once have waited ten seconds. The other adds up, for each minute, the wait of the connection that waited
longest in it; it grows by at most a second per second, so its growth is a share of time.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

SPAN_MS: Final = 60_000


class Waited(NamedTuple):
    """The time that a client has waited for one kind of quota.

    Args:
        all_ms: the waits of all connections together, in ms.
        longest_ms: the sum, over minutes, of the wait of the connection that waited longest in each, in ms.
    """

    kind: str
    all_ms: float
    longest_ms: float


class ConnectionWaits:
    """The time that one connection has waited in the present minute, by kind."""

    __slots__ = ("_by_kind", "_span")

    def __init__(self) -> None:
        self._span = 0
        self._by_kind: dict[str, float] = {}

    def add(self, kind: str, ms: float, span: int) -> float:
        """Add a wait; returns the sum in the minute `span`, in ms, at most a minute."""
        if span != self._span:
            self._span = span
            self._by_kind.clear()
        waited_ms = min(self._by_kind.get(kind, 0.0) + ms, SPAN_MS)
        self._by_kind[kind] = waited_ms
        return waited_ms


class _Sum:
    """The sums of one kind."""

    __slots__ = ("all_ms", "before_ms", "span", "span_ms")

    def __init__(self) -> None:
        self.all_ms = 0.0
        self.before_ms = 0.0  # the longest waits of all earlier minutes together
        self.span = 0
        self.span_ms = 0.0  # the longest wait of the present minute


class Waits:
    """The waits of one client.

    >>> waits, one, other = Waits(), ConnectionWaits(), ConnectionWaits()
    >>> for connection, ms in ((one, 30_000), (other, 20_000), (one, 5_000)):
    ...     waits.add("fetch", connection, ms, now_ms=60_000)
    >>> waits.add("fetch", other, 1_000, now_ms=120_000)
    >>> list(waits)
    [Waited(kind='fetch', all_ms=56000.0, longest_ms=36000.0)]
    """

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[str, _Sum] = {}

    def add(self, kind: str, connection: ConnectionWaits, ms: float, now_ms: int) -> None:
        """Add the wait of one connection of the client."""
        found = self._by_kind.get(kind)
        if found is None:
            found = self._by_kind[kind] = _Sum()
        found.all_ms += ms
        span = now_ms // SPAN_MS
        if span != found.span:
            found.before_ms += found.span_ms
            found.span, found.span_ms = span, 0.0
        found.span_ms = max(found.span_ms, connection.add(kind, ms, span))

    def __iter__(self) -> Iterator[Waited]:
        """Yield the waits of each kind of quota that it has waited for."""
        for kind, found in self._by_kind.items():
            yield Waited(kind, found.all_ms, found.before_ms + found.span_ms)
