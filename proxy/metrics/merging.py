"""Merges the figures of several processes into one /metrics.

    counters, histograms    summed; what a process had counted when it ended stays in the sum, since Prometheus takes a
                            decrease for a restart, and counts the whole value again
    gauges                  summed, but for those of LARGEST and SMALLEST
    rows of clients         bytes and debts summed; a rate is summed at each broker, and the busiest broker's is shown;
                            the longest wait grows as that of the process where it has grown most since the last scrape

A process that does not respond to a scrape keeps what it had counted the last time; its gauges are left out.
"""

import heapq
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from proxy.metrics.families import of_rows
from proxy.metrics.series import OTHER, SERIES, TOTALS, Chosen, Identity, Row, Rows, Weights, rows_max

K = TypeVar("K")

Sample = tuple[str, tuple[tuple[str, str], ...], float]  # name, labels, value

LARGEST: Final = frozenset(
    {
        "process_open_fds",  # beside the maximum of each process
        "sluice_build_info",
        "sluice_workers",
        "sluice_capture_files",  # of one directory
        "sluice_capture_bytes",
        "sluice_capture_oldest_timestamp_seconds",
    }
)
_LONGEST: Final = "longest_wait_ms"  # of the totals, the one that is not summed
_RISING: Final = frozenset({"counter", "histogram"})
SMALLEST: Final = frozenset({"sluice_enforcing", "process_start_time_seconds", "process_max_fds"})


class Flat(NamedTuple):
    """One metric family as plain values, to be sent to another process."""

    name: str
    kind: str
    text: str
    samples: tuple[Sample, ...]


class Part(NamedTuple):
    """The metrics of one process, which `Merging.merge` merges with those of the others."""

    rows: Rows
    cluster_tokens: float | None
    families: tuple[Flat, ...]


def flat(families: Iterable[Metric]) -> tuple[Flat, ...]:
    """Convert Prometheus' families to plain values."""
    return tuple(
        Flat(
            family.name,
            family.type,
            family.documentation,
            tuple(
                (sample.name, tuple(sorted(sample.labels.items())), sample.value) for sample in family.samples
            ),
        )
        for family in families
    )


def of_process() -> tuple[Flat, ...]:
    """Return the families of this process: its processor time, memory, descriptors."""
    return flat(ProcessCollector(registry=CollectorRegistry()).collect())


class RisingSums(Generic[K]):
    """Sums of counters over several processes (sources), which do not decrease when one ends or starts from 0.

    >>> sums = RisingSums[str]()
    >>> sums.take(1, {"a": 5})
    >>> sums.take(2, {"a": 7})
    >>> sums.totals()
    {'a': 12.0}
    >>> sums.end(1)
    >>> sums.take(3, {"a": 2})
    >>> sums.totals()
    {'a': 14.0}
    """

    def __init__(self) -> None:
        self._ended: dict[K, float] = {}
        self._last: dict[int, dict[K, float]] = {}

    def take(self, source: int, values: Mapping[K, float]) -> None:
        """Store the present counters of a source; keys that are not in `values` keep their last counts."""
        last = self._last.setdefault(source, {})
        for key, value in values.items():
            before = last.get(key, 0.0)
            if value < before:
                self._ended[key] = self._ended.get(key, 0.0) + before
            last[key] = value

    def end(self, source: int) -> None:
        """Remove a source that has ended; what it had counted stays in the sums."""
        for key, value in self._last.pop(source, {}).items():
            self._ended[key] = self._ended.get(key, 0.0) + value

    def keep(self, keys: Container[K]) -> None:
        """Drop all keys except these, for example those of clients that no longer have a row."""
        self._ended = {key: value for key, value in self._ended.items() if key in keys}
        for source, last in self._last.items():
            self._last[source] = {key: value for key, value in last.items() if key in keys}

    def totals(self) -> dict[K, float]:
        """Return the sums over all sources, those that have ended included."""
        totals = dict(self._ended)
        for last in self._last.values():
            for key, value in last.items():
                totals[key] = totals.get(key, 0.0) + value
        return totals


class RisingLargest(Generic[K]):
    """Totals of a counter that several processes (sources) have; each scrape adds the largest growth of any source.

    So waits that pass in several processes at the same time count once.

    >>> longest = RisingLargest[str]()
    >>> longest.take(1, {"a": 5})
    >>> longest.take(2, {"a": 7})
    >>> longest.settle()
    {'a': 7.0}
    >>> longest.take(1, {"a": 9})
    >>> longest.take(2, {"a": 8})
    >>> longest.settle()
    {'a': 11.0}
    """

    def __init__(self) -> None:
        self._last: dict[int, dict[K, float]] = {}
        self._grown: dict[K, float] = {}
        self._totals: dict[K, float] = {}

    def take(self, source: int, values: Mapping[K, float]) -> None:
        """Store the present counts of a source; one that is smaller than before has started again from 0."""
        last = self._last.setdefault(source, {})
        for key, value in values.items():
            before = last.get(key, 0.0)
            grown = value - before if value >= before else value
            self._grown[key] = max(self._grown.get(key, 0.0), grown)
            last[key] = value

    def settle(self) -> dict[K, float]:
        """End a scrape: raise each total by the largest growth of any source in it, and return the totals."""
        for key, grown in self._grown.items():
            self._totals[key] = self._totals.get(key, 0.0) + grown
        self._grown = {}
        return dict(self._totals)

    def end(self, source: int) -> None:
        """Remove a source that has ended; the total keeps what it has grown by."""
        self._last.pop(source, None)

    def keep(self, keys: Container[K]) -> None:
        """Drop all keys except these, for example those of clients that no longer have a row."""
        for values in (self._grown, self._totals, *self._last.values()):
            for key in [key for key in values if key not in keys]:
                del values[key]


_SampleKey = tuple[str, tuple[tuple[str, str], ...]]
_RowKey = tuple[str, Identity, str]  # kind, identity, counter


class Merging:
    """Merges the metrics of all processes of one `sluice serve`, from one scrape to the next.

    Args:
        series_max: the largest number of metric series of all clients together.
    """

    def __init__(self, series_max: int) -> None:
        self._rows_max = rows_max(series_max)
        self._counters = RisingSums[_SampleKey]()
        self._totals = RisingSums[_RowKey]()
        self._longest = RisingLargest[_RowKey]()

    def choose(self, weights: Iterable[Weights]) -> Chosen:
        """Choose the clients that get series of their own: those with the highest sums of all processes' weights."""
        chosen: dict[str, frozenset[Identity]] = {}
        found = list(weights)
        for kind in SERIES:
            sums: Counter[Identity] = Counter()
            for one in found:
                for weight, identity in one.get(kind, ()):  # once for each broker
                    sums[identity] += weight
            chosen[kind] = frozenset(
                heapq.nlargest(self._rows_max[kind], sums, key=lambda identity: (sums[identity], identity))
            )
        return chosen

    def merge(self, parts: Mapping[int, Part]) -> tuple[Metric, ...]:
        """Return the metric families of all processes together.

        Args:
            parts: the metrics by process; its number is a new one each time that the process is started.
        """
        rows = self._rows(parts)
        tokens = [part.cluster_tokens for part in parts.values() if part.cluster_tokens is not None]
        return (*of_rows(rows, sum(tokens) if tokens else None), *self._families(parts))

    def end(self, source: int) -> None:
        """Register that a process has ended: its counters stay in the sums, its gauges do not."""
        self._counters.end(source)
        self._totals.end(source)
        self._longest.end(source)

    def _rows(self, parts: Mapping[int, Part]) -> Rows:
        merged: dict[str, dict[Identity, Row]] = {kind: {} for kind in SERIES}
        for source, part in parts.items():
            counted: dict[_RowKey, float] = {}
            longest: dict[_RowKey, float] = {}
            for kind in SERIES:
                for row in part.rows.get(kind, ()):
                    identity = (row.type, row.user, row.client_id)
                    for name, value in row.totals.items():
                        (longest if name == _LONGEST else counted)[kind, identity, name] = value
                    found = merged[kind].setdefault(identity, row)
                    if found is not row:
                        found.absorb(row)
            self._totals.take(source, counted)
            self._longest.take(source, longest)
        kept = {(kind, identity, name) for kind in SERIES for identity in merged[kind] for name in TOTALS}
        self._totals.keep(kept)
        self._longest.keep(kept)
        for (kind, identity, name), total in {**self._totals.totals(), **self._longest.settle()}.items():
            merged[kind][identity].totals.set(name, total)
        return {
            kind: sorted(rows.values(), key=lambda row: (row.client_id == OTHER, -row.totals.bytes))
            for kind, rows in merged.items()
        }

    def _families(self, parts: Mapping[int, Part]) -> list[Metric]:
        families: dict[str, Flat] = {}
        gauges: dict[str, dict[_SampleKey, list[float]]] = {}
        for source, part in parts.items():
            counted: dict[_SampleKey, float] = {}
            for family in part.families:
                families.setdefault(family.name, family)
                for name, labels, value in family.samples:
                    if family.kind in _RISING:
                        counted[name, labels] = value
                    else:
                        gauges.setdefault(family.name, {}).setdefault((name, labels), []).append(value)
            self._counters.take(source, counted)
        totals = self._counters.totals()
        merged = []
        for family in families.values():
            metric = Metric(family.name, family.text, family.kind)
            if family.kind in _RISING:
                names = dict.fromkeys(
                    (name, labels)
                    for part in parts.values()
                    for other in part.families
                    if other.name == family.name
                    for name, labels, _ in other.samples
                )
                for name, labels in names:
                    metric.add_sample(name, dict(labels), totals[name, labels])
            else:
                combine = max if family.name in LARGEST else min if family.name in SMALLEST else sum
                for (name, labels), values in gauges.get(family.name, {}).items():
                    metric.add_sample(name, dict(labels), combine(values))
            merged.append(metric)
        return merged
