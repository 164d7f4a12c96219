"""Which clients get metric series of their own: the heaviest; the rest are summed as `<other>`.

Pure, and fed in portions, so that 200,000 clients can be looked through without holding up the event loop. Prometheus
takes a counter that falls for a restart, and then counts its whole value again: so the sums of `<other>` never fall, and
a client that has a series keeps it until another has moved twice as much. KIP-13 asks for metrics per client id and sets
no bound; Kafka's brokers have none. Nothing here knows Prometheus.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Final, Protocol
from zlib import crc32

OTHER: Final = "<other>"
LABEL_CHARACTERS_MAX: Final = 200  # a client id may have 32,767
STAY: Final = 2  # how many times heavier another client must be to take a series over


class QuotaView(Protocol):
    """What the quotas engine tells of one client and one direction; totals never fall while the client is known."""

    @property
    def type(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def byte_rate(self) -> float: ...
    @property
    def quota(self) -> float | None: ...
    @property
    def bytes_total(self) -> int: ...
    @property
    def throttle_ms_total(self) -> int: ...
    @property
    def throttled_total(self) -> int: ...
    @property
    def would_throttle_ms_total(self) -> int: ...
    @property
    def would_throttled_total(self) -> int: ...
    @property
    def debt_bytes(self) -> float: ...


@dataclass(slots=True)
class Totals:
    """What is counted of one client: these never fall, as Prometheus sees them."""

    bytes: int = 0
    throttle_ms: int = 0
    throttled: int = 0
    would_throttle_ms: int = 0
    would_throttled: int = 0

    def add(self, other: "Totals", sign: int = 1) -> None:
        """Add another's counts, or take them away."""
        for name in _TOTALS:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))


_TOTALS: Final = tuple(field.name for field in fields(Totals))
SERIES_PER_ROW: Final = len(_TOTALS) + 3  # and byte rate, quota, debt

Identity = tuple[str, str, str]  # type, user, client id


@dataclass(slots=True)
class Row:
    """One client and direction as /metrics shows it; `quota` None where nothing limits it."""

    type: str
    user: str
    client_id: str
    byte_rate: float
    quota: float | None
    debt_bytes: float
    totals: Totals

    def absorb(self, other: "Row") -> None:
        """Take in another row of the same name."""
        self.byte_rate += other.byte_rate
        self.debt_bytes += other.debt_bytes
        self.totals.add(other.totals)


class ClientSeries:
    """Chooses the rows of one scrape after another: `begin`, `add` portion by portion, then `rows`."""

    def __init__(self, series_max: int) -> None:
        # Produce and Fetch each may need a row for the rest; they come out of the same bound.
        self._rows_max = max(0, series_max // SERIES_PER_ROW - 2)
        self._named: set[Identity] = set()
        self._carried: dict[str, Totals] = {}  # type -> what keeps the rest from falling
        self._reported: dict[str, Totals] = {}
        self._heap: list[tuple[int, int, Row]] = []
        self._rest: dict[str, Row] = {}
        self._order = 0

    def begin(self) -> None:
        """Start a scrape."""
        self._heap, self._rest, self._order = [], {}, 0

    def add(self, views: Iterable[QuotaView]) -> None:
        """Look through some of the clients."""
        for view in views:
            row = _row(view)
            identity = (row.type, row.user, row.client_id)
            if row.client_id == OTHER:
                self._sum(row)
                continue
            weight = row.totals.bytes * (STAY if identity in self._named else 1)
            self._order += 1
            entry = (weight, self._order, row)
            if len(self._heap) < self._rows_max:
                heapq.heappush(self._heap, entry)
            else:
                self._sum(heapq.heappushpop(self._heap, entry)[2])

    def rows(self) -> list[Row]:
        """End the scrape: the heaviest, heaviest first, and one row for the rest of each type that has a rest."""
        named = [entry[2] for entry in sorted(self._heap, key=itemgetter(0), reverse=True)]
        merged: dict[Identity, Row] = {}
        for row in named:
            below = merged.setdefault((row.type, row.user, row.client_id), row)
            if below is not row:  # one client seen twice, as once for each broker
                below.absorb(row)
        self._named = set(merged)
        for kind in {*self._rest, *self._reported}:
            row = self._rest.get(kind) or Row(kind, "", OTHER, 0.0, None, 0.0, Totals())
            self._keep_rising(row)
            merged[(kind, "", OTHER)] = row
        self._heap, self._rest = [], {}
        return list(merged.values())

    def _sum(self, row: Row) -> None:
        if (row.type, row.user, row.client_id) in self._named:
            # It had a series that counted all this already.
            self._carried.setdefault(row.type, Totals()).add(row.totals, -1)
        below = self._rest.get(row.type)
        if below is None:
            self._rest[row.type] = Row(
                row.type, "", OTHER, row.byte_rate, None, row.debt_bytes, _copied(row.totals)
            )
        else:
            below.absorb(row)

    def _keep_rising(self, row: Row) -> None:
        """Whoever left the rest, to a series of its own or for good, must not take what it had counted with it."""
        carried = self._carried.setdefault(row.type, Totals())
        reported = self._reported.setdefault(row.type, Totals())
        row.totals.add(carried)
        for name in _TOTALS:
            missing = getattr(reported, name) - getattr(row.totals, name)
            if missing > 0:
                setattr(carried, name, getattr(carried, name) + missing)
                setattr(row.totals, name, getattr(reported, name))
        self._reported[row.type] = _copied(row.totals)


def label(text: str) -> str:
    """Make a label value of a client id: valid Unicode, bounded, and still different for different client ids.

    >>> label("a" * 300)[-12:]
    'aaa~983a5d36'
    """
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(clean) <= LABEL_CHARACTERS_MAX:
        return clean
    return f"{clean[: LABEL_CHARACTERS_MAX - 9]}~{crc32(clean.encode()):08x}"


def _row(view: QuotaView) -> Row:
    totals = Totals(
        bytes=view.bytes_total,
        throttle_ms=view.throttle_ms_total,
        throttled=view.throttled_total,
        would_throttle_ms=view.would_throttle_ms_total,
        would_throttled=view.would_throttled_total,
    )
    client_id, user = label(view.client_id), label(view.user)
    return Row(view.type, user, client_id, view.byte_rate, view.quota, view.debt_bytes, totals)


def _copied(totals: Totals) -> Totals:
    copy = Totals()
    copy.add(totals)
    return copy
