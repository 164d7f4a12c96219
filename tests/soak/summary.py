"""The soak's bars, its tables, and the page that is left of it. No socket, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench.figures import median, percentile
from tests.bench.report import bars_table, facts_table, markdown
from tests.bench.results import MISSING, Bar, Outcome, Table
from tests.soak.records import Verdict
from tests.soak.samples import Sample, growth, percentage, windows

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
        # Real brokers answer in order: an answer that is not owed is a fault of the proxy.
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
