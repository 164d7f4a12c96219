"""From a run with faults to a table, bars and a picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.figures import Event, jain_index, per_second
from tests.bench.fleet.bound import Bound, Worst, below, rate, worst
from tests.bench.fleet.faults import CONNECTIONS, Direction, Fault, Played
from tests.bench.picture import Panel, draw_panels
from tests.bench.report import MISSING, Bar, Outcome, tabulate

BURST_SECONDS: Final = 1.0
LEAST: Final = 0.97
_RATE_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault made of one direction; rates as multiples of the quota, the excess in seconds of it."""

    fault: Fault
    direction: str
    seconds: float
    rate: float
    below: float
    excess: Worst
    jain: float
    lost: int


_COLUMNS: Final[Mapping[str, Callable[[Row], object]]] = {
    "fault": lambda row: row.fault.label,
    "direction": lambda row: row.direction,
    "seconds": lambda row: f"{row.seconds:.0f}",
    "let through / quota": lambda row: f"{row.rate:.3f}",
    f"below {LEAST:g} for": lambda row: f"{row.below:.1f} s",
    "nearest to the bound": lambda row: (
        f"{row.excess.excess:+.2f} s in {row.excess.ended - row.excess.began:.0f} s"
    ),
    "Jain index": lambda row: f"{row.jain:.3f}",
    "lost": lambda row: row.lost if row.direction == "produce" else MISSING,
}


def rows(played: Played, quota: int) -> list[Row]:
    """Return a row for each fault and direction."""
    found = []
    for fault, began, ended in played.marks:
        for direction, each in played.directions.items():
            bound = Bound(quota, BURST_SECONDS, max(size for _, _, size in each.let_through))
            # What a process has let pass it had to decide on when it began.
            starts: list[Event] = [(first, size) for first, _, size in each.let_through]
            farthest = worst(starts, played.lives, bound, began, ended)
            found.append(
                Row(
                    fault=fault,
                    direction=direction,
                    seconds=ended - began,
                    rate=rate(each.passed, began, ended) / quota,
                    below=below(each.passed, LEAST * quota, began, ended),
                    excess=Worst(farthest.excess / quota, farthest.began, farthest.ended),
                    jain=jain_index(_shares(each, direction, began, ended)),
                    lost=sum(began <= note[0] < ended for note in each.lost),
                )
            )
    return found


def _shares(each: Direction, direction: str, began: float, ended: float) -> list[float]:
    shares = [0.0] * CONNECTIONS[direction]
    for at, client, _, size in each.notes:
        if began <= at < ended:
            shares[client] += size
    return shares


def report(played: Played, quota: int) -> Outcome:
    """Return the table and the bars."""
    found = rows(played, quota)
    title = f"Faults, policy `schedule`: 2 × 2, quotas of {quota / 1e6:g} MB/s, requests of 50 kB"
    seen = "; ".join(f"{name}: {_seen(each)}" for name, each in played.directions.items())
    acknowledged = len(played.directions["produce"].notes)
    note = f"{acknowledged} records were acknowledged and read back. What clients reported: {seen}."
    return Outcome([tabulate(title, found, _COLUMNS, note)], _bars(found, played))


def _seen(each: Direction) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(each.seen.items())) or "nothing"


def _bars(found: Sequence[Row], played: Played) -> list[Bar]:
    bars = []
    for direction, each in played.directions.items():
        excess = max(row.excess.excess for row in found if row.direction == direction)
        measured = {"above the bound": max(0.0, excess)}
        if direction == "produce":
            measured |= {
                "acknowledged records lost": len(each.lost),
                "records there twice": each.repeated,
                "not delivered": each.seen["not delivered"],
            }
        else:
            measured["skipped or repeated"] = each.seen["skipped or repeated"]
        measured["fatal errors"] = each.seen["fatal"]
        for name, value in measured.items():
            unit = "s" if name == "above the bound" else ""
            bars.append(Bar(f"schedule, {direction}, all faults: {name}", float(value), 0.0, unit))
    return bars


def draw(played: Played, quota: int, path: Path) -> None:
    """Draw the rate in every second, with a mark for each fault."""
    seconds = int(max(ended for _, _, ended in played.marks))
    lines = {
        direction: [
            (second + 0.5, size / quota) for second, size in enumerate(per_second(each.passed, 0.0, seconds))
        ]
        for direction, each in played.directions.items()
    }
    marks = [(began, fault.name) for fault, began, _ in played.marks]
    draw_panels(path, [[Panel("rate / quota, in each second", lines, marks, _RATE_MAX)]], "s", (14, 4))
