"""What a soak's samples and records say: memory early against late, records lost or doubled; bars, page and plot.

Each producer numbers the records of each partition by itself: 0, 1, 2, … With idempotence they must stand in the
partition in that order, each once; an acknowledged one that is missing is lost. No socket, no clock.
"""

import csv
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Final

from tests.bench.figures import median, percentile
from tests.bench.picture import Panel, draw_panels
from tests.bench.report import MISSING, Bar, Outcome, Table

_WARM_UP_SHARE: Final = 0.25
_WARM_UP_SECONDS_MAX: Final = 900.0
_MIB: Final = 1024.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The proxy at one moment; latencies and CPU are those since the sample before."""

    seconds: float
    resident_kib: int
    descriptors: int
    sockets: int
    cpu_percent: float
    ping_p50_ms: float
    ping_p99_ms: float
    ping_max_ms: float
    connections: int
    connection_errors: int
    throttled_channels: int
    acknowledged: int
    read: int
    reloads: int


class Log:
    """Writes samples to a CSV file as they come, so that a run that is cut off leaves what it has."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", newline="")
        self._writer = csv.DictWriter(self._file, [each.name for each in fields(Sample)])
        self._writer.writeheader()
        self.samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self.samples.append(sample)
        self._writer.writerow(asdict(sample))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def windows(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return the first and the last third of what comes after the warm-up: a quarter of the run, 15 minutes at most."""
    if not samples:
        return [], []
    end = samples[-1].seconds
    warm = min(end * _WARM_UP_SHARE, _WARM_UP_SECONDS_MAX)
    third = (end - warm) / 3
    early = [sample for sample in samples if warm <= sample.seconds <= warm + third]
    late = [sample for sample in samples if sample.seconds >= end - third]
    return early, late


def growth(samples: Sequence[Sample]) -> float | None:
    """Return by how much the late window's median of resident memory is over the early one's: 0.02 is 2 %."""
    early, late = windows(samples)
    if not early or not late:
        return None
    return median(one.resident_kib for one in late) / median(one.resident_kib for one in early) - 1


def plot(samples: Sequence[Sample], events: Sequence[tuple[float, str]], path: Path) -> None:
    """Draw memory, descriptors, CPU and latency over time, with a line where a broker restarted."""
    drawn: Mapping[str, Callable[[Sample], float]] = {
        "resident MiB": lambda sample: sample.resident_kib / _MIB,
        "descriptors": lambda sample: sample.descriptors,
        "CPU %": lambda sample: sample.cpu_percent,
        "ping p99 ms": lambda sample: sample.ping_p99_ms,
    }
    marks = [(at / 60, "") for at, what in events if what == "broker"]
    panels = [
        [Panel(name, {name: [(sample.seconds / 60, value(sample)) for sample in samples]}, marks)]
        for name, value in drawn.items()
    ]
    draw_panels(path, panels, "minutes", (10, 9))


RECORD_BYTES: Final = 500
_EXAMPLES_MAX: Final = 20
Key = tuple[int, int]
"""Producer, partition."""
_HEAD: Final = struct.Struct(">iq")
_FILL: Final = bytes(RECORD_BYTES - _HEAD.size)


def record(producer: int, number: int) -> bytes:
    """Return the value of one record."""
    return _HEAD.pack(producer, number) + _FILL


@dataclass(slots=True)
class Tally:
    """Counts how often each record was seen, and whether in order.

    >>> tally = Tally()
    >>> for number in (0, 1, 3, 2, 2):
    ...     tally.see(0, record(7, number))
    >>> tally.doubled, tally.disordered, list(tally.seen[7, 0])
    (1, 1, [1, 1, 1, 1])
    >>> tally.examples
    ['producer 7, partition 0: 2 late, behind 3', 'producer 7, partition 0: 2 again, behind 3']
    """

    seen: dict[Key, bytearray] = field(default_factory=dict)
    records: int = 0
    doubled: int = 0
    disordered: int = 0
    examples: list[str] = field(default_factory=list)
    _last: dict[Key, int] = field(default_factory=dict)

    def see(self, partition: int, value: bytes) -> None:
        """Note one record of a partition, in the order of its log."""
        producer, number = _HEAD.unpack_from(value)
        key = (producer, partition)
        found = self.seen.setdefault(key, bytearray())
        if number >= len(found):
            found.extend(bytes(number + 1 - len(found)))
        last = self._last.get(key, -1)
        self.records += 1
        if found[number]:
            self.doubled += 1
            self._note(key, f"{number} again, behind {last}")
        elif number < last:
            self.disordered += 1
            self._note(key, f"{number} late, behind {last}")
        found[number] = 1
        self._last[key] = max(number, last)

    def _note(self, key: Key, what: str) -> None:
        if len(self.examples) < _EXAMPLES_MAX:
            self.examples.append(f"producer {key[0]}, partition {key[1]}: {what}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the acknowledged records."""

    acknowledged: int
    lost: int
    doubled: int
    disordered: int
    examples: tuple[str, ...] = ()


def verdict(sent: Mapping[Key, int], failed: Mapping[Key, Iterable[int]], tally: Tally) -> Verdict:
    """Compare what producers were told with what was seen; `failed` were not acknowledged.

    >>> tally = Tally()
    >>> for number in (0, 2):
    ...     tally.see(0, record(1, number))
    >>> verdict({(1, 0): 4}, {(1, 0): [1]}, tally)
    Verdict(acknowledged=3, lost=1, doubled=0, disordered=0, examples=())
    """
    acknowledged = lost = 0
    for key, count in sent.items():
        unsure = set(failed.get(key, ()))
        acknowledged += count - len(unsure)
        found = tally.seen.get(key, bytearray())
        missing = [number for number in range(count) if number >= len(found) or not found[number]]
        lost += len(set(missing) - unsure)
    return Verdict(acknowledged, lost, tally.doubled, tally.disordered, tuple(tally.examples))


GROWTH_MAX: Final = 0.02
_NO_VERDICT: Final = Verdict(0, 0, 0, 0)


@dataclass(slots=True)
class Found:
    """Everything that one run has found.

    Attributes:
        events: seconds, and "broker" or "reload".
        honest: counts of the honest clients at the end.
        hostile: counts of the hostile ones, by what and kind.
        problem: why samples are missing; "" where none are.
    """

    samples: list[Sample] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    honest: dict[str, int] = field(default_factory=dict)
    hostile: dict[str, dict[str, int]] = field(default_factory=dict)
    errors_by_cause: dict[str, int] = field(default_factory=dict)
    verdict: Verdict = _NO_VERDICT
    refused_reloads: int = 0
    sockets_before: int = 0
    sockets_after: int = 0
    alive: bool = False
    exit_code: int = -1
    problem: str = ""


def outcome(found: Found) -> Outcome:
    """Return the tables and the bars."""
    verdict, counts = found.verdict, found.honest
    grown = growth(found.samples)
    grown_percent = None if grown is None else 100 * grown
    unresolved = counts.get("unresolved", 0) + counts.get("failed", 0)
    none = {
        "sockets left over": found.sockets_after - found.sockets_before,
        "records lost": verdict.lost,
        "records doubled": verdict.doubled,
        "records out of order": verdict.disordered,
        "records never resolved or failed": unresolved,
        "records missed by the group": counts.get("missed by the group", 0),
        "reloads refused": found.refused_reloads,
        # Real brokers respond in order: a response that is not owed is a fault of the proxy.
        "answers out of order": found.errors_by_cause.get("broker_out_of_order", 0),
        "its exit code": found.exit_code,
    }
    bars = [
        Bar("the proxy lived to the end", float(found.alive), 1.0, "", at_least=True),
        Bar("resident memory, late over early", grown_percent, 100 * GROWTH_MAX, "%"),
        Bar("records acknowledged", float(verdict.acknowledged), 1.0, "", at_least=True),
        *(Bar(name, float(count), 0.0, "") for name, count in none.items()),
    ]
    causes = sorted(found.errors_by_cause.items(), key=lambda pair: -pair[1])
    tables = [
        _course(found.samples),
        _clients(found),
        _counts("Connections ended, by cause", "cause", causes),
    ]
    if verdict.examples:
        rows = tuple((one,) for one in verdict.examples)
        tables.append(Table("Records that are not where they belong", ("which",), rows))
    return Outcome(tables, bars)


_PARTS: Final[Mapping[str, Callable[[Sequence[Sample]], str]]] = {
    "minutes": lambda some: f"{some[0].seconds / 60:.0f} … {some[-1].seconds / 60:.0f}",
    "resident MiB, min / median / max": lambda some: " / ".join(
        f"{kind(one.resident_kib / _MIB for one in some):.1f}" for kind in (min, median, max)
    ),
    "sockets": lambda some: f"{min(one.sockets for one in some)} … {max(one.sockets for one in some)}",
    "CPU %": lambda some: f"{median(one.cpu_percent for one in some):.0f}",
    "ping p50 ms": lambda some: f"{median(one.ping_p50_ms for one in some):.1f}",
    "p99 ms": lambda some: f"{median(one.ping_p99_ms for one in some):.1f}",
    "p99 ms, worst of 20": lambda some: f"{percentile(sorted(one.ping_p99_ms for one in some), 95):.1f}",
    "max ms": lambda some: f"{max(one.ping_max_ms for one in some):.0f}",
}


def _course(samples: Sequence[Sample]) -> Table:
    early, late = windows(samples)
    parts = {"whole run": samples, "early window": early, "late window": late}
    rows = tuple((name, *(cell(some) for cell in _PARTS.values())) for name, some in parts.items() if some)
    grown = growth(samples)
    flat = MISSING if grown is None else f"{100 * grown:+.1f} %"
    note = "Latencies are of pings (ApiVersions) in samples of ten seconds, broker restarts among them: medians over "
    note += f"samples, and their 95th percentile. Memory, late over early: {flat}."
    return Table("The proxy", ("part", *_PARTS), rows, note)


def _clients(found: Found) -> Table:
    opened = sorted(found.hostile.get("opened", {}).items())
    happened = Counter(what for _, what in found.events)
    counted = [
        *found.honest.items(),
        *((f"hostile connections, {kind}", count) for kind, count in opened),
        ("broker restarts", happened["broker"]),
        ("reloads", happened["reload"]),
    ]
    return _counts("Clients and events", "what", counted)


def _counts(title: str, what: str, counted: Sequence[tuple[str, int]]) -> Table:
    return Table(title, (what, "count"), tuple((name, str(count)) for name, count in counted))
