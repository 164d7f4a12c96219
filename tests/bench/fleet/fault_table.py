"""From a run with faults to a table, bars and a picture: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.accuracy.judge import SCHEDULE
from tests.bench.figures import Event, jain_index, per_second
from tests.bench.fleet.bound import Bound, Worst, below, rate, worst
from tests.bench.fleet.faults import CONNECTIONS, FAULTS, Direction, Played
from tests.bench.report import MISSING, Bar, Outcome, Table

BURST_SECONDS: Final = 1.0
LEAST: Final = 0.97
_COLOURS: Final = {"produce": "#c2571a", "consume": "#1a6fc2"}
_SECOND: Final = 3.0
_HEIGHT: Final = 190
_LEFT, _TOP, _BELOW = 34, 46, 26
_RATE_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault made of one direction; rates as multiples of the quota, the excess in seconds of it."""

    fault: str
    direction: str
    seconds: float
    rate: float
    below: float
    excess: Worst
    jain: float
    lost: int


def rows(played: Played, quota: int) -> list[Row]:
    """Return a row for each fault and direction."""
    found = []
    for name, began, ended in played.marks:
        for direction, each in played.directions.items():
            passed: list[Event] = [(last, size) for _, last, size in each.let_through]
            size_max = max(size for _, _, size in each.let_through)
            bound = Bound(quota, BURST_SECONDS, size_max)
            # What a process has let pass it had to decide on when it began.
            starts: list[Event] = [(first, size) for first, _, size in each.let_through]
            farthest = worst(starts, played.lives, bound, began, ended)
            found.append(
                Row(
                    fault=name,
                    direction=direction,
                    seconds=ended - began,
                    rate=rate(passed, began, ended) / quota,
                    below=below(passed, LEAST * quota, began, ended),
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


def report(played: Played, quota: int, policy: str) -> Outcome:
    """Return the table and the bars."""
    found = rows(played, quota)
    bounded = policy == SCHEDULE
    columns = (
        *("fault", "direction", "seconds", "let through / quota", f"below {LEAST:g} for"),
        *("nearest to the bound", "Jain index", "lost"),
    )
    labels = {fault.name: fault.label for fault in FAULTS}
    cells = tuple(
        (
            *(
                labels[row.fault],
                row.direction,
                f"{row.seconds:.0f}",
                f"{row.rate:.3f}",
                f"{row.below:.1f} s",
            ),
            f"{row.excess.excess:+.2f} s in {row.excess.ended - row.excess.began:.0f} s"
            if bounded
            else MISSING,
            *(f"{row.jain:.3f}", str(row.lost) if row.direction == "produce" else MISSING),
        )
        for row in found
    )
    title = f"Faults, policy `{policy}`: 2 × 2, quotas of {quota / 1e6:g} MB/s, requests of 50 kB"
    seen = "; ".join(f"{name}: {_seen(each)}" for name, each in played.directions.items())
    acknowledged = len(played.directions["produce"].notes)
    note = f"{acknowledged} records were acknowledged and read back. What clients reported: {seen}."
    return Outcome([Table(title, columns, cells, note)], _bars(found, played, policy))


def _seen(each: Direction) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(each.seen.items())) or "nothing"


def _bars(found: Sequence[Row], played: Played, policy: str) -> list[Bar]:
    bars = []
    for direction, each in played.directions.items():
        name = f"{policy}, {direction}, all faults"
        if policy == SCHEDULE:
            excess = max(row.excess.excess for row in found if row.direction == direction)
            bars.append(Bar(f"{name}: above the bound", max(0.0, excess), 0.0, "s"))
        if direction == "produce":
            bars.append(Bar(f"{name}: acknowledged records lost", float(len(each.lost)), 0.0, ""))
            bars.append(Bar(f"{name}: records there twice", float(each.repeated), 0.0, ""))
            bars.append(Bar(f"{name}: not delivered", float(each.seen["not delivered"]), 0.0, ""))
        else:
            bars.append(Bar(f"{name}: skipped or repeated", float(each.seen["skipped or repeated"]), 0.0, ""))
        bars.append(Bar(f"{name}: fatal errors", float(each.seen["fatal"]), 0.0, ""))
    return bars


def svg(played: Played, quota: int) -> str:
    """Return the rate in every second as a picture, with a mark for each fault."""
    seconds = int(max(mark[2] for mark in played.marks))
    width = _LEFT + seconds * _SECOND + 10
    height = _TOP + _HEIGHT + _BELOW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-size="11">',
        f'<rect width="{width:.0f}" height="{height}" fill="white"/>',
        *(
            f'<text x="{_LEFT + index * 90}" y="14" fill="{colour}">— {name}</text>'
            for index, (name, colour) in enumerate(_COLOURS.items())
        ),
        f'<text x="{_LEFT + 190}" y="14" fill="#666">rate / quota, in each second</text>',
        f'<g transform="translate({_LEFT},{_TOP})">',
    ]
    for rate_ in (0.0, 0.5, 1.0, 1.5, 2.0):
        stroke = "#444" if rate_ == 1 else "#ddd"
        parts.append(
            f'<line x1="0" y1="{_y(rate_):.1f}" x2="{seconds * _SECOND:.0f}" y2="{_y(rate_):.1f}"'
            f' stroke="{stroke}" stroke-width="0.7"/>'
        )
        parts.append(f'<text x="-24" y="{_y(rate_) + 4:.1f}" fill="#666">{rate_:g}</text>')
    for number, (name, began, _) in enumerate(played.marks):
        x = began * _SECOND
        parts.append(
            f'<line x1="{x:.1f}" y1="-6" x2="{x:.1f}" y2="{_HEIGHT}" stroke="#999" stroke-dasharray="3 3"/>'
        )
        parts.append(f'<text x="{x + 2:.1f}" y="{-8 - 11 * (number % 2)}" fill="#444">{name}</text>')
    for direction, each in played.directions.items():
        events: list[Event] = [(last, size) for _, last, size in each.let_through]
        points = " ".join(
            f"{(second + 0.5) * _SECOND:.1f},{_y(size / quota):.1f}"
            for second, size in enumerate(per_second(events, 0.0, seconds))
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[direction]}" stroke-width="1.2"/>'
        )
    parts.append(
        f'<text x="{seconds * _SECOND:.0f}" y="{_HEIGHT + 16}" text-anchor="end" fill="#666">{seconds} s</text>'
    )
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _y(rate_: float) -> float:
    return _HEIGHT * (1 - min(rate_, _RATE_MAX) / _RATE_MAX)
