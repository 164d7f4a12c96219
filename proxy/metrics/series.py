"""Chooses the clients with metric series of their own: the heaviest; the rest is summed as `<other>`.

Pure, and fed in portions, so that 200,000 clients can be visited without blocking the event loop. Prometheus
interprets a decreasing counter as a restart, and counts its whole value again: so the sums of `<other>` never
decrease, and a client keeps its series until another has moved twice as much. KIP-13 asks for metrics per client id
without a bound; Kafka's brokers have none.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from itertools import islice
from typing import Final, Protocol
from zlib import crc32

import msgspec

from quotas.definitions.kinds import KINDS, PRODUCE
from quotas.throttles.figures import QuotaView

OTHER: Final = "<other>"
LABEL_CHARACTERS_MAX: Final = 200  # a client id may have 32,767
PORTION: Final = 200  # clients visited at a time: about a millisecond
_LOOKS_ESCAPED: Final = re.compile(r"\\(?=x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
STAY: Final = 2  # how many times heavier another client must be to take a series over


class Totals(msgspec.Struct, array_like=True):
    """The counters of one client for one kind of quota: bytes, and times and numbers of throttles."""

    bytes: int = 0
    throttle_ms: int = 0
    throttled: int = 0
    would_throttle_ms: int = 0
    would_throttled: int = 0
    longest_wait_ms: int = 0

    def add(self, other: "Totals", sign: int = 1) -> None:
        """Add another client's counters; subtract them if `sign` is -1."""
        for name in TOTALS:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield each counter's name and value."""
        return ((name, getattr(self, name)) for name in TOTALS)

    def set(self, name: str, value: float) -> None:
        """Set the counter with this name to a value."""
        setattr(self, name, int(value))


TOTALS: Final = Totals.__struct_fields__
SERIES_PER_ROW: Final = 8  # five counters, byte rate, quota, debt

Identity = tuple[str, str, str]  # type, user, client id


class Row(msgspec.Struct, array_like=True):
    """The figures of one client, or topic, and one kind of quota, as /metrics shows them.

    Attributes:
        type: Kafka's name of the kind, such as Produce.
        quota: the limit; None if there is none.
        rates: the byte rate by broker.
    """

    type: str
    user: str
    client_id: str
    byte_rate: float
    quota: float | None
    debt_bytes: float
    totals: Totals
    tokens: float | None = None  # of partition mutations
    rates: dict[int, float] = {}

    def absorb(self, other: "Row") -> None:
        """Add the figures of the same client at another broker, or in another process.

        The quota applies at each broker separately, so the rate shown with it is the busiest broker's.
        """
        for broker, rate in other.rates.items():
            self.rates[broker] = self.rates.get(broker, 0.0) + rate
        self.byte_rate = max(self.rates.values(), default=self.byte_rate + other.byte_rate)
        if other.tokens is not None:
            self.tokens = other.tokens + (self.tokens or 0.0)
        self.debt_bytes += other.debt_bytes
        self.totals.add(other.totals)


class ClientSeries:
    """Chooses the clients that have rows of their own in a scrape; all others are summed in the row `<other>`.

    A scrape visits all clients twice, in portions: `begin`, `weigh` them, `choose`, `take` them, `rows`.
    A client may be visited several times, as once for each broker: all of its figures go to one row.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._named: frozenset[Identity] = frozenset()
        self._before: frozenset[Identity] = frozenset()
        self._carried: dict[str, Totals] = {}  # type -> amount that keeps `<other>` from decreasing
        self._reported: dict[str, Totals] = {}
        self._heap: list[tuple[int, Identity]] = []
        self._rows: dict[Identity, Row] = {}
        self._rest: dict[str, Row] = {}

    def begin(self) -> None:
        """Start a scrape, and discard an unfinished one."""
        self._heap, self._rows, self._rest = [], {}, {}

    def weigh(self, views: Iterable[QuotaView]) -> None:
        """Visit a portion of the clients, to find those with the most bytes."""
        if not self._rows_max:
            return
        for view in views:
            if view.client_id == OTHER:
                continue
            identity = _identity(view)
            entry = (view.bytes_total * (STAY if identity in self._named else 1), identity)
            if len(self._heap) < self._rows_max:
                heapq.heappush(self._heap, entry)
            elif entry > self._heap[0]:
                heapq.heapreplace(self._heap, entry)

    def weights(self) -> list[tuple[int, Identity]]:
        """Return the heaviest clients of those visited, with their weights: bytes, doubled if they had rows before."""
        return list(self._heap)

    def choose(self, named: frozenset[Identity]) -> None:
        """Set the clients that get rows of their own; called after all were weighed, before `take`."""
        self._before, self._named = self._named, named

    def take(self, views: Iterable[QuotaView]) -> None:
        """Visit a portion of the clients, and add their figures to their own rows or to `<other>`."""
        for view in views:
            identity = _identity(view)
            row = _row(view, identity)
            if identity in self._named:
                below = self._rows.setdefault(identity, row)
                if below is not row:
                    below.absorb(row)
            else:
                self._sum(row, had_series=identity in self._before)

    def rows(self) -> list[Row]:
        """Return the scrape's rows, and begin the next scrape.

        First the named clients, those with the most bytes first; then for each type one row `<other>` with
        the sum of all other clients, if it ever had one.
        """
        rows = sorted(self._rows.values(), key=lambda row: row.totals.bytes, reverse=True)
        for kind in sorted({*self._rest, *self._reported}):
            row = self._rest.get(kind) or Row(kind, "", OTHER, 0.0, None, 0.0, Totals())
            self._keep_rising(row)
            rows.append(row)
        self.begin()
        return rows

    def _sum(self, row: Row, *, had_series: bool) -> None:
        if had_series:  # a series counted all this already
            self._carried.setdefault(row.type, Totals()).add(row.totals, -1)
        below = self._rest.get(row.type)
        if below is None:
            below = self._rest[row.type] = Row(row.type, "", OTHER, 0.0, None, 0.0, Totals())
        below.byte_rate += row.byte_rate
        below.debt_bytes += row.debt_bytes
        below.totals.add(row.totals)

    def _keep_rising(self, row: Row) -> None:
        """Keep in `<other>` the counts of clients that have left it, for a row of their own or by expiry."""
        carried = self._carried.setdefault(row.type, Totals())
        reported = self._reported.setdefault(row.type, Totals())
        row.totals.add(carried)
        for name in TOTALS:
            missing = getattr(reported, name) - getattr(row.totals, name)
            if missing > 0:
                setattr(carried, name, getattr(carried, name) + missing)
                setattr(row.totals, name, getattr(reported, name))
        self._reported[row.type] = copy(row.totals)


def rows_of(series_max: int, series_per_row: int = SERIES_PER_ROW, kinds: int = 2) -> int:
    """Return how many clients' rows fit into `series_max` metric series, beside a row `<other>` of each kind.

    Args:
        series_per_row: the number of metric series that a row has.
        kinds: the number of kinds of quotas, such as 2 for Produce and Fetch.
    """
    return max(0, series_max // series_per_row - kinds)


def label(text: str) -> str:
    r"""Make a label value of a client id: printable, bounded, and different for different client ids.

    A character that is not printable is written as `\xhh`, `\uhhhh` or `\Uhhhhhhhh`. A backslash that looks like the
    beginning of one of these is written as `\x5c`; any other backslash stays. A cut label ends with a checksum.

    >>> label("a" * 300)[-12:]
    'aaa~89971909'
    >>> print(label("a\x1b[2J"), label(r"a\x1b[2J"), label(r"CORP\web"))
    a\x1b[2J a\x5cx1b[2J CORP\web
    """
    clean = text[:LABEL_CHARACTERS_MAX]
    if "\\" in clean:
        clean = _LOOKS_ESCAPED.sub(r"\\x5c", clean)
    if not clean.isprintable():
        clean = "".join(c if c.isprintable() else _escaped(ord(c)) for c in clean)
    if len(clean) <= LABEL_CHARACTERS_MAX and len(text) <= LABEL_CHARACTERS_MAX:
        return clean
    return f"{clean[: LABEL_CHARACTERS_MAX - 9]}~{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _escaped(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def portions(views: Iterable[QuotaView]) -> Iterator[list[QuotaView]]:
    """Divide views into lists of PORTION, so that one takes about a millisecond of work."""
    remaining = iter(views)
    while portion := list(islice(remaining, PORTION)):
        yield portion


def _identity(view: QuotaView) -> Identity:
    return view.type, label(view.user), label(view.client_id)


def _row(view: QuotaView, identity: Identity) -> Row:
    totals = Totals(
        bytes=view.bytes_total,
        throttle_ms=view.throttle_ms_total,
        throttled=view.throttled_total,
        would_throttle_ms=view.would_throttle_ms_total,
        would_throttled=view.would_throttled_total,
        longest_wait_ms=view.longest_wait_ms_total,
    )
    rates = {view.broker: view.byte_rate}
    return Row(*identity, view.byte_rate, view.quota, view.debt_bytes, totals, view.tokens, rates)


# ----------------------------------------------------------------------------------------------------
# The rows of clients, requests, mutations, topics, and clients' waits; each has its own bound of series.

WAITS: Final = "waits"
# Of quotas (`Kind.series`), and of the waits for them.
SERIES: Final = (*dict.fromkeys(kind.series for kind in KINDS if kind.series), WAITS)
# One in so many of all series is for mutations, as many for each other kind but clients.
SMALL_SHARE: Final = 8
_WAIT_SERIES: Final = 2  # of one client and kind of quota

Weights = Mapping[str, list[tuple[int, Identity]]]
Chosen = Mapping[str, frozenset[Identity]]
Rows = Mapping[str, list[Row]]


class Quotas(Protocol):
    """The part of the quota engine's interface that metrics use."""

    @property
    def enforcing(self) -> bool:
        """Whether quotas are enforced; if False, they are only measured, and no client waits for them."""

    def views(self, now_ms: int, series: str) -> Iterable[QuotaView]:
        """Yield the clients' figures for the kinds of quotas of one metric series (`Kind.series`)."""

    def cluster_tokens(self, now_ms: int) -> float | None:
        """Return the partition mutations left for all clients together; None if they are unlimited."""


def no_waits() -> Iterable[QuotaView]:
    """Return nothing: the default of `waits`, for a process that does not measure clients' waits."""
    return ()


class QuotaSeries:
    """Makes the rows of one process's clients and topics for /metrics: a `ClientSeries` for each kind of rows.

    A single process calls `portions`, then `rows`; it chooses the clients with rows of their own itself. If there are
    several processes, all must show the same clients: each calls `weigh`, one of them chooses from all `weights`
    (`Merging.choose`), then each calls `take` with that choice, and `rows`.

    Args:
        series_max: the largest number of metric series of all clients together.
        waits: returns how long clients have waited: a view for each client and each kind of quota that it has waited
            for, whose `bytes_total` is the waits in ms.
    """

    def __init__(
        self, quotas: Quotas, series_max: int, waits: Callable[[], Iterable[QuotaView]] = no_waits
    ) -> None:
        self._quotas = quotas
        self._waits = waits
        self._series = {series: ClientSeries(rows) for series, rows in rows_max(series_max).items()}

    def portions(self, now_ms: int) -> Iterator[None]:
        """Visit all clients twice, to choose the heaviest and to add up the figures; the work is done in portions."""
        yield from self.weigh(now_ms)
        heaviest = self.weights().items()
        yield from self.take(
            {series: frozenset(one for _, one in found) for series, found in heaviest}, now_ms
        )

    def weigh(self, now_ms: int) -> Iterator[None]:
        """Visit all clients, in portions, to find those with the most bytes."""
        for series, rows in self._series.items():
            rows.begin()
            for portion in portions(self._views(series, now_ms)):
                rows.weigh(portion)
                yield

    def weights(self) -> Weights:
        """Return the heaviest clients and their weights, by kind of rows; called after `weigh`."""
        return {series: self._series[series].weights() for series in SERIES}

    def take(self, chosen: Chosen, now_ms: int) -> Iterator[None]:
        """Visit all clients, in portions: the chosen ones get rows of their own, the others are summed in `<other>`."""
        for series, rows in self._series.items():
            rows.choose(chosen.get(series, frozenset()))
            for portion in portions(self._views(series, now_ms)):
                rows.take(portion)
                yield

    def rows(self) -> Rows:
        """End the scrape; return its rows by kind: one of SERIES."""
        return {series: self._series[series].rows() for series in SERIES}

    def _views(self, series: str, now_ms: int) -> Iterable[QuotaView]:
        return self._waits() if series == WAITS else self._quotas.views(now_ms, series)


def rows_max(series_max: int) -> dict[str, int]:
    """Return how many rows of each kind there may be: `series_max` is divided, so that no kind displaces another.

    >>> rows_max(2000)
    {'clients': 122, 'requests': 29, 'mutations': 29, 'topics': 29, 'waits': 117}
    """
    share = series_max // SMALL_SHARE
    parts = dict.fromkeys(SERIES, share) | {PRODUCE.series: series_max - (len(SERIES) - 1) * share}
    return {
        series: rows_of(part, _WAIT_SERIES, len(KINDS))
        if series == WAITS
        else rows_of(part, kinds=max(2, sum(kind.series == series for kind in KINDS)))
        for series, part in parts.items()
    }
