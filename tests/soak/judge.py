"""What a soak's samples and records say: memory early against late, records lost or doubled; bars, page and plot.

Each producer numbers the records of each partition by itself: 0, 1, 2, … With idempotence they must stand in the
partition in that order, each once; an acknowledged one that is missing is lost. No socket, no clock.
"""

import csv
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, Final

from tests.bench.figures import median, percentile
from tests.bench.report import MISSING, Bar, Outcome, Table, bars_table, facts_table, markdown

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


def percentage(share: float) -> str:
    """Write a share.

    >>> percentage(-0.0123)
    '-1.2 %'
    """
    return f"{100 * share:+.1f} %"


def plot(samples: Sequence[Sample], events: Sequence[tuple[float, str]], path: Path) -> bool:
    """Draw memory, descriptors, CPU and latency over time; False where matplotlib is missing."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    minutes = [sample.seconds / 60 for sample in samples]
    drawn = (
        ("resident MiB", [sample.resident_kib / _MIB for sample in samples]),
        ("descriptors", [float(sample.descriptors) for sample in samples]),
        ("CPU %", [sample.cpu_percent for sample in samples]),
        ("ping p99 ms", [sample.ping_p99_ms for sample in samples]),
    )
    figure, axes = pyplot.subplots(len(drawn), 1, sharex=True, figsize=(10, 9))
    for axis, (name, values) in zip(axes, drawn, strict=True):
        axis.plot(minutes, values, linewidth=0.8)
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        axis.grid(visible=True, alpha=0.3)
        for at, what in events:
            axis.axvline(
                at / 60, color="tab:red" if what == "broker" else "tab:gray", alpha=0.25, linewidth=0.6
            )
    axes[-1].set_xlabel("minutes (red: a broker restarts, gray: a reload)")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return True


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
    bars = [
        Bar("the proxy lived to the end", float(found.alive), 1.0, "", at_least=True),
        Bar("its exit code", float(found.exit_code), 0.0, ""),
        Bar(
            "resident memory, late over early", None if grown is None else 100 * grown, 100 * GROWTH_MAX, "%"
        ),
        Bar("sockets left over", float(found.sockets_after - found.sockets_before), 0.0, ""),
        Bar("records acknowledged", float(verdict.acknowledged), 1.0, "", at_least=True),
        Bar("records lost", float(verdict.lost), 0.0, ""),
        Bar("records doubled", float(verdict.doubled), 0.0, ""),
        Bar("records out of order", float(verdict.disordered), 0.0, ""),
        Bar(
            "records never resolved or failed",
            float(counts.get("unresolved", 0) + counts.get("failed", 0)),
            0.0,
            "",
        ),
        Bar("records missed by the group", float(counts.get("missed by the group", 0)), 0.0, ""),
        Bar("reloads refused", float(found.refused_reloads), 0.0, ""),
        # Real brokers respond in order: a response that is not owed is a fault of the proxy.
        Bar("answers out of order", float(found.errors_by_cause.get("broker_out_of_order", 0)), 0.0, ""),
    ]
    tables = [_course(found.samples), _clients(found), _causes(found)]
    if verdict.examples:
        tables.append(
            Table(
                "Records that are not where they belong",
                ("which",),
                tuple((one,) for one in verdict.examples),
            )
        )
    return Outcome(tables, bars)


def _course(samples: Sequence[Sample]) -> Table:
    rows = []
    early, late = windows(samples)
    for name, some in (("whole run", samples), ("early window", early), ("late window", late)):
        if not some:
            continue
        resident = [one.resident_kib / 1024 for one in some]
        p99 = sorted(one.ping_p99_ms for one in some)
        rows.append(
            (
                name,
                f"{some[0].seconds / 60:.0f} … {some[-1].seconds / 60:.0f}",
                f"{min(resident):.1f} / {median(resident):.1f} / {max(resident):.1f}",
                f"{min(one.sockets for one in some)} … {max(one.sockets for one in some)}",
                f"{median(one.cpu_percent for one in some):.0f}",
                f"{median(one.ping_p50_ms for one in some):.1f}",
                f"{median(p99):.1f}",
                f"{percentile(p99, 95):.1f}",
                f"{max(one.ping_max_ms for one in some):.0f}",
            )
        )
    columns = (
        *("part", "minutes", "resident MiB, min / median / max", "sockets", "CPU %"),
        *("ping p50 ms", "p99 ms", "p99 ms, worst of 20", "max ms"),
    )
    grown = growth(samples)
    flat = MISSING if grown is None else percentage(grown)
    note = "Latencies are of pings (ApiVersions) in samples of ten seconds, broker restarts among them: medians over "
    note += f"samples, and their 95th percentile. Memory, late over early: {flat}."
    return Table("The proxy", columns, tuple(rows), note)


def _clients(found: Found) -> Table:
    rows: list[tuple[str, ...]] = [(name, str(count)) for name, count in found.honest.items()]
    counted: dict[str, Any] = found.hostile.get("opened", {})
    rows += [(f"hostile connections, {kind}", str(count)) for kind, count in sorted(counted.items())]
    rows.append(("broker restarts", str(sum(what == "broker" for _, what in found.events))))
    rows.append(("reloads", str(sum(what == "reload" for _, what in found.events))))
    return Table("Clients and events", ("what", "count"), tuple(rows))


def _causes(found: Found) -> Table:
    rows = sorted(found.errors_by_cause.items(), key=lambda pair: -pair[1])
    return Table(
        "Connections ended, by cause", ("cause", "count"), tuple((cause, str(count)) for cause, count in rows)
    )


def write(path: Path, facts: Sequence[tuple[str, str]], judged: Outcome, *, plotted: bool) -> None:
    """Write the page."""
    tables = [facts_table(facts), bars_table(judged), *judged.tables]
    text = "# Soak\n\n" + "\n".join(markdown(table) for table in tables)
    path.write_text(
        text + ("\n![memory, descriptors, CPU and latency over time](soak.svg)\n" if plotted else "")
    )
