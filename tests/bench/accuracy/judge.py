"""What one accuracy run is to do, and from what the relay noted to figures, tables, bars and the picture; pure.

The picture has a panel for each direction and count of connections, with the rate in every second, a line a policy.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.accuracy.relay import Counted
from tests.bench.figures import Event, jain_index, largest_second, per_second, steady_rate, within_first
from tests.bench.options import DOCUMENT
from tests.bench.report import Bar, Outcome, Table

KAFKA: Final = "kafka"
KIP13: Final = "kip13"
SCHEDULE: Final = "schedule"
POLICIES: Final = (KAFKA, KIP13, SCHEDULE)
DIRECTIONS: Final = ("produce", "consume")
CONNECTIONS: Final = (1, 5, 20)
_SECONDS: Final = 45
_STEADY_AFTER: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The amounts of a run; the defaults are the issue's."""

    policies: tuple[str, ...] = POLICIES
    directions: tuple[str, ...] = DIRECTIONS
    connections: tuple[int, ...] = CONNECTIONS
    seconds: int = _SECONDS
    quota: int = 2_000_000
    write: bool = True
    document: Path = DOCUMENT

    @property
    def steady_after(self) -> float:
        """When the burst is over: after 15 s, or a third of a shorter run."""
        return min(float(_STEADY_AFTER), self.seconds / 3)


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy", description=__doc__)
    parser.add_argument("--policies", type=_some(POLICIES), default=POLICIES, help=f"of {','.join(POLICIES)}")
    parser.add_argument(
        "--only", type=_some(DIRECTIONS), default=DIRECTIONS, help=f"of {','.join(DIRECTIONS)}"
    )
    parser.add_argument("--connections", type=_numbers, default=CONNECTIONS, help="default 1,5,20")
    parser.add_argument("--seconds", type=int, default=_SECONDS, help=f"of each run, default {_SECONDS}")
    parser.add_argument(
        "--write", action="store_true", help="write the document even if the run is not complete"
    )
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    given = parser.parse_args(arguments)
    whole = (POLICIES, DIRECTIONS, CONNECTIONS, _SECONDS)
    complete = (given.policies, given.only, given.connections, given.seconds) == whole
    return Options(
        policies=given.policies,
        directions=given.only,
        connections=given.connections,
        seconds=given.seconds,
        write=given.write or complete,
        document=given.document,
    )


def _some(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of some of the known names, which keeps their own order."""

    def names(text: str) -> tuple[str, ...]:
        wanted = {name.strip() for name in text.split(",")}
        if unknown := wanted - set(known):
            raise argparse.ArgumentTypeError(f"no {min(unknown)!r}; there are {', '.join(known)}")
        return tuple(name for name in known if name in wanted)

    return names


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from error


STEADY_LIMIT = 0.02
FIRST_LIMIT = 2.5
JAIN_LIMIT = 0.98
_WITHOUT_RECORDS_BYTES = 1000
"""Smaller responses carry no records; the clock starts with the first that does."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy made of one direction and count of connections; rates as multiples of the quota."""

    policy: str
    direction: str
    connections: int
    first: float
    steady: float
    largest: float
    jain: float
    timeouts: int
    errors: int
    seconds: tuple[float, ...]


def judge(
    run: tuple[str, str, int], noted: Iterable[tuple[int, Counted]], tally: dict[str, int], options: Options
) -> Figures:
    """Return the figures of one run (policy, direction, connections)."""
    policy, direction, connections = run
    counted = [(number, each) for number, each in noted if each.size >= _WITHOUT_RECORDS_BYTES]
    if not counted:
        raise ValueError(f"{policy}, {direction}, {connections} connections: no byte passed")
    began = min(each.began for _, each in counted)
    events: list[Event] = [(each.ended - began, each.size) for _, each in counted]
    shares: dict[int, float] = {}
    for number, each in counted:
        if each.ended - began < options.seconds:
            shares[number] = shares.get(number, 0.0) + each.size
    # A connection that never had its turn has a share too.
    missing = [0.0] * (connections - len(shares))
    end = float(options.seconds)
    return Figures(
        policy=policy,
        direction=direction,
        connections=connections,
        first=within_first(events, 0.0) / options.quota,
        steady=steady_rate(events, options.steady_after, end) / options.quota,
        largest=largest_second(events) / options.quota,
        jain=jain_index([*shares.values(), *missing]),
        timeouts=tally.get("timeouts", 0),
        errors=tally.get("errors", 0),
        seconds=tuple(size / options.quota for size in per_second(events, 0.0, options.seconds)),
    )


def report(found: Sequence[Figures], options: Options) -> Outcome:
    """Return the tables and the bars."""
    tables = []
    for direction in options.directions:
        mine = [each for each in found if each.direction == direction]
        mine.sort(key=lambda each: (each.connections, POLICIES.index(each.policy)))
        columns = (
            *("connections", "policy", "first second / quota", f"steady after {options.steady_after:.3g} s"),
            *("largest second", "Jain index", "timeouts", "errors"),
        )
        title = f"Accuracy, {direction}: quota {options.quota / 1e6:g} MB/s, requests of 1 MB, {options.seconds} s"
        tables.append(Table(title, columns, tuple(_row(each) for each in mine)))
    bars = []
    for direction in options.directions:
        scheduled = [each for each in found if (each.policy, each.direction) == (SCHEDULE, direction)]
        if scheduled:
            bars += _bars(direction, scheduled)
    comparison = _against_kafka(found)
    if comparison:
        heads = ("kip13 − Kafka", "connections", "first second", "steady", "largest second")
        tables.append(Table("`kip13` against Kafka's own quotas", heads, comparison))
    return Outcome(tables, bars)


def _row(each: Figures) -> tuple[str, ...]:
    figures = (f"{each.first:.2f}", f"{each.steady:.3f}", f"{each.largest:.2f}", f"{each.jain:.3f}")
    return (str(each.connections), each.policy, *figures, str(each.timeouts), str(each.errors))


def _bars(direction: str, scheduled: Sequence[Figures]) -> list[Bar]:
    name = f"schedule, {direction}, worst count of connections"
    return [
        Bar(f"{name}: steady off by", max(abs(each.steady - 1.0) for each in scheduled), STEADY_LIMIT),
        Bar(f"{name}: first second", max(each.first for each in scheduled), FIRST_LIMIT),
        Bar(f"{name}: Jain index", min(each.jain for each in scheduled), JAIN_LIMIT, "", at_least=True),
        Bar(f"{name}: timeouts", float(sum(each.timeouts for each in scheduled)), 0.0, ""),
    ]


def _against_kafka(found: Sequence[Figures]) -> tuple[tuple[str, ...], ...]:
    by_run = {(each.policy, each.direction, each.connections): each for each in found}
    rows = []
    for (policy, direction, connections), mine in by_run.items():
        kafka = by_run.get((KAFKA, direction, connections))
        if policy == KIP13 and kafka is not None:
            off = (mine.first - kafka.first, mine.steady - kafka.steady, mine.largest - kafka.largest)
            rows.append((direction, str(connections), *(f"{value:+.2f}" for value in off)))
    return tuple(rows)


_COLOURS: Final = {KAFKA: "#8a8f98", KIP13: "#c2571a", SCHEDULE: "#1a6fc2"}
_WIDTH: Final = 300
_HEIGHT: Final = 150
_GAP: Final = 46
_TOP: Final = 40
_RATE_MAX: Final = 4.0
"""Multiples of the quota at a panel's top; a burst beyond it is cut off, its height stands in the table."""


def svg(found: Sequence[Figures]) -> str:
    """Return the picture."""
    directions = list(dict.fromkeys(each.direction for each in found))
    counts = list(dict.fromkeys(each.connections for each in found))
    width = _GAP + len(counts) * (_WIDTH + _GAP)
    height = _TOP + len(directions) * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for row, direction in enumerate(directions):
        for column, count in enumerate(counts):
            mine = [each for each in found if (each.direction, each.connections) == (direction, count)]
            left, top = _GAP + column * (_WIDTH + _GAP), _TOP + row * (_HEIGHT + _GAP)
            parts += [f'<g transform="translate({left},{top})">', *_panel(direction, count, mine), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    return [
        f'<text x="{_GAP + index * 90}" y="16" fill="{colour}">— {policy}</text>'
        for index, (policy, colour) in enumerate(_COLOURS.items())
    ]


def _panel(direction: str, count: int, mine: Sequence[Figures]) -> list[str]:
    parts = [
        f'<text x="0" y="-6">{direction}, {count} connection{"s" if count > 1 else ""}, rate / quota</text>'
    ]
    for rate in range(int(_RATE_MAX) + 1):
        y = _y(rate)
        stroke = "#444" if rate == 1 else "#ddd"
        parts.append(
            f'<line x1="0" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" stroke="{stroke}" stroke-width="0.7"/>'
        )
        parts.append(f'<text x="-14" y="{y + 4:.1f}" fill="#666">{rate}</text>')
    for each in mine:
        step = _WIDTH / max(1, len(each.seconds))
        points = " ".join(
            f"{(index + 0.5) * step:.1f},{_y(rate):.1f}" for index, rate in enumerate(each.seconds)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[each.policy]}" stroke-width="1.4"/>'
        )
    seconds = max((len(each.seconds) for each in mine), default=0)
    parts.append(f'<text x="{_WIDTH}" y="{_HEIGHT + 14}" text-anchor="end" fill="#666">{seconds} s</text>')
    return parts


def _y(rate: float) -> float:
    return _HEIGHT * (1 - min(rate, _RATE_MAX) / _RATE_MAX)
