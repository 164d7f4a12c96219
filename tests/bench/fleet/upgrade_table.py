"""From a rolling upgrade to tables, bars and a picture; pure but for the file of the picture."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.figures import Event, largest_second, per_second, percentile
from tests.bench.fleet.bound import Bound, Worst, rate, worst
from tests.bench.fleet.faults import Direction
from tests.bench.fleet.upgrade import (
    CONNECTIONS,
    PRODUCERS,
    QUOTA,
    RATE,
    UPGRADE,
    WITHOUT,
    Phase,
    Seen,
    Upgraded,
)
from tests.bench.picture import Panel, draw_panels
from tests.bench.report import MISSING, Bar, Outcome, Table, tabulate
from tests.support.pods import Lifecycle, Replaced

BURST_SECONDS: Final = 1.0
PERCENTS: Final = (50.0, 99.0, 99.9)
_RATE_MAX: Final = 2.0

LABELS: Final[Mapping[str, str]] = {WITHOUT: "no upgrade", UPGRADE: "upgrade, one pod after the other"}


def took(found: Upgraded, phase: Phase) -> list[float]:
    """Return how long the records took that were due in a phase, in seconds, the shortest first."""
    return sorted(seconds for at, seconds in found.probed if phase.began <= at < phase.ended)


def excess(each: Direction, found: Upgraded, phase: Phase) -> Worst:
    """Return the interval that ends in the phase and is nearest to the bound, or farthest above it.

    Its excess is in seconds of the quota.
    """
    bound = Bound(QUOTA, BURST_SECONDS, max(size for _, _, size in each.let_through))
    # What a process has let pass it had to decide on when it began.
    starts: list[Event] = [(first, size) for first, _, size in each.let_through]
    farthest = worst(starts, found.lives, bound, phase.began, phase.ended)
    return Worst(farthest.excess / QUOTA, farthest.began, farthest.ended)


def _latencies(found: Upgraded) -> Table:
    def at(percent: float) -> Callable[[Phase], str]:
        return lambda phase: f"{percentile(took(found, phase), percent) * 1000:.0f} ms"

    columns: dict[str, Callable[[Phase], object]] = {
        "": lambda phase: LABELS[phase.name],
        "seconds": lambda phase: f"{phase.ended - phase.began:.0f}",
        "records": lambda phase: len(took(found, phase)),
        **{f"p{percent:g}": at(percent) for percent in PERCENTS},
        "longest": lambda phase: f"{took(found, phase)[-1] * 1000:.0f} ms",
        "connections": lambda phase: phase.connections,
        "refused": lambda phase: phase.failed,
    }
    clients = sum(CONNECTIONS.values()) + PRODUCERS
    note = (
        f"{PRODUCERS} idempotent producers, {RATE:g} records/s in all, sent when they are due whatever comes back;"
        f" from then until each is acknowledged by all replicas. `connections`: those that all {clients} clients opened"
        " through the Service; `refused`: by a pod."
    )
    phases = [phase for phase in found.phases if phase.name in LABELS]
    return tabulate("A rolling upgrade of three pods under load: latency", phases, columns, note)


def _quotas(found: Upgraded) -> Table:
    rows = [
        (phase, name, each)
        for phase in found.phases
        if phase.name in LABELS
        for name, each in found.directions.items()
    ]

    def passed(row: tuple[Phase, str, Direction]) -> list[Event]:
        phase, _, each = row
        return [event for event in each.passed if phase.began <= event[0] < phase.ended]

    def nearest(row: tuple[Phase, str, Direction]) -> str:
        phase, _, each = row
        farthest = excess(each, found, phase)
        return f"{farthest.excess:+.2f} s in {farthest.ended - farthest.began:.0f} s"

    columns: dict[str, Callable[[tuple[Phase, str, Direction]], object]] = {
        "": lambda row: LABELS[row[0].name],
        "direction": lambda row: row[1],
        "let through / quota": lambda row: f"{rate(row[2].passed, row[0].began, row[0].ended) / QUOTA:.3f}",
        "largest second / quota": lambda row: f"{largest_second(passed(row)) / QUOTA:.2f}",
        "nearest to the bound": nearest,
        "lost": lambda row: len(row[2].lost) if row[1] == "produce" else MISSING,
        "there twice": lambda row: row[2].repeated if row[1] == "produce" else MISSING,
    }
    note = (
        f"{CONNECTIONS['produce']} idempotent producers and {CONNECTIONS['consume']} consumers that want more than"
        f" their client id's quota of {QUOTA / 1e6:g} MB/s, requests of 50 kB. The bound: in any interval of T seconds"
        " at most 1.01 × quota × T, a burst of a second, and one request for each process that lives in it. `lost`,"
        " `there twice`: over the whole run."
    )
    return tabulate("The same: quotas", rows, columns, note)


def _pods(found: Upgraded) -> Table:
    rows = [one for phase in found.phases for one in phase.replaced]
    columns: dict[str, Callable[[Replaced], object]] = {
        "pod": lambda one: f"{one.number}, the holder" if one.held else one.number,
        "at": lambda one: f"{one.began:.0f} s",
        "SIGTERM to its end": lambda one: f"{one.drain_seconds:.1f} s",
        "start to ready": lambda one: f"{one.ready_seconds:.1f} s",
    }
    life = Lifecycle()
    note = (
        f"Deleted, the last first: no new connection from then on, SIGTERM after {life.pre_stop:g} s, killed after"
        f" {life.grace:g} s; the next one when the new one was ready for {life.min_ready:g} s."
        f" {UPGRADE}: from {found.before} to the working tree; then back."
    )
    return tabulate("The same: pods", rows, columns, note)


_FAMILY_COLUMNS: Final[Mapping[str, Callable[[Seen], object]]] = {
    "client": lambda seen: seen.family,
    "acknowledged": lambda seen: seen.written,
    "lost": lambda seen: seen.lost,
    "there twice": lambda seen: seen.doubled,
    "given up": lambda seen: seen.given_up,
    "longest gap": lambda seen: f"{seen.gap:.1f} s",
    "not consumed": lambda seen: seen.missed,
    "consumed again": lambda seen: seen.repeated,
    "consumer's gap": lambda seen: f"{seen.consumer_gap:.1f} s",
}


def report(found: Upgraded) -> Outcome:
    """Return the tables and the bars."""
    tables = [_latencies(found), _quotas(found), _pods(found)]
    if found.families:
        note = (
            "A producer and a consumer in a group, with the client's own defaults (acks, retries, idempotence), about"
            " 50 records/s to three partitions, while the pods are replaced back. Gap: the longest time that a"
            " partition was without a record that was acknowledged, or consumed."
        )
        tables.append(tabulate("The same: client families", found.families, _FAMILY_COLUMNS, note))
    return Outcome(tables, _bars(found))


def _bars(found: Upgraded) -> list[Bar]:
    produced = found.directions["produce"]
    given_up = produced.seen["not delivered"] + found.probe_seen["not delivered"]
    measured = {
        "acknowledged records lost": len(produced.lost) + found.probe_lost + _sum(found, "lost"),
        "records there twice": produced.repeated + found.probe_doubled + _sum(found, "doubled"),
        "records given up": given_up + _sum(found, "given_up"),
        "records not consumed": _sum(found, "missed")
        + found.directions["consume"].seen["skipped or repeated"],
        "fatal errors": found.probe_seen["fatal"]
        + sum(each.seen["fatal"] for each in found.directions.values()),
        "connections refused": sum(phase.failed for phase in found.phases),
    }
    bars = [Bar(f"upgrade: {name}", float(value), 0.0, "") for name, value in measured.items()]
    for direction, each in found.directions.items():
        above = max(excess(each, found, phase).excess for phase in found.phases)
        bars.append(Bar(f"upgrade, {direction}: above the bound", max(0.0, above), 0.0, "s"))
    drains = [one.drain_seconds for phase in found.phases for one in phase.replaced]
    bars.append(Bar("upgrade: longest drain", max(drains), Lifecycle().drain, "s"))
    return bars


def _sum(found: Upgraded, name: str) -> int:
    return sum(getattr(seen, name) for seen in found.families)


def draw(found: Upgraded, path: Path) -> None:
    """Draw the rate and the slowest record in every second, with a mark for each pod that is replaced."""
    seconds = int(found.phases[-1].ended)
    rates = {
        direction: [
            (second + 0.5, size / QUOTA) for second, size in enumerate(per_second(each.passed, 0.0, seconds))
        ]
        for direction, each in found.directions.items()
    }
    slowest = [0.0] * seconds
    for at, took_seconds in found.probed:
        if 0 <= at < seconds:
            slowest[int(at)] = max(slowest[int(at)], took_seconds)
    marks = [(one.began, f"pod {one.number}") for phase in found.phases for one in phase.replaced]
    longest = {"slowest record": [(second + 0.5, value * 1000) for second, value in enumerate(slowest)]}
    panels: Sequence[Sequence[Panel]] = [
        [Panel("rate / quota, in each second", rates, marks, _RATE_MAX)],
        [Panel("ms until acknowledged, in each second", longest, marks)],
    ]
    draw_panels(path, panels, "s", (14, 7))
