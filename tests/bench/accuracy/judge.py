"""What one accuracy run is to do, and from what the relay noted to figures, tables, bars and the picture; pure.

The picture has a panel for each direction and count of connections, with the rate in every second, a line a policy.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.bench.accuracy.relay import Counted
from tests.bench.figures import Event, jain_index, largest_second, per_second, steady_rate, within_first
from tests.bench.picture import Panel, draw_panels
from tests.bench.report import Bar, Outcome, Table, tabulate

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

    policies: Sequence[str] = POLICIES
    directions: Sequence[str] = DIRECTIONS
    connections: Sequence[int] = CONNECTIONS
    seconds: int = _SECONDS
    quota: int = 2_000_000
    write: bool = True

    @property
    def steady_after(self) -> float:
        """When the burst is over: after 15 s, or a third of a shorter run."""
        return min(float(_STEADY_AFTER), self.seconds / 3)


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy", description=__doc__)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    parser.add_argument("--only", nargs="+", choices=DIRECTIONS, default=DIRECTIONS)
    parser.add_argument("--connections", nargs="+", type=int, default=CONNECTIONS)
    parser.add_argument("--seconds", type=int, default=_SECONDS, help=f"of each run, default {_SECONDS}")
    parser.add_argument("--write", action="store_true", help="write the document though the run is a part")
    given = parser.parse_args(arguments)
    part = Options(
        policies=given.policies, directions=given.only, connections=given.connections, seconds=given.seconds
    )
    return replace(part, write=given.write or part == Options())


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
    seconds: tuple[float, ...] = field(repr=False)


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
        timeouts=sum(count for name, count in tally.items() if name == "timeouts" or "TIMED_OUT" in name),
        errors=sum(count for name, count in tally.items() if name.isupper() and "TIMED_OUT" not in name),
        seconds=tuple(size / options.quota for size in per_second(events, 0.0, options.seconds)),
    )


_COLUMNS: Final[Mapping[str, Callable[[Figures], object]]] = {
    "connections": lambda each: each.connections,
    "policy": lambda each: each.policy,
    "first second / quota": lambda each: f"{each.first:.2f}",
    "steady": lambda each: f"{each.steady:.3f}",
    "largest second": lambda each: f"{each.largest:.2f}",
    "Jain index": lambda each: f"{each.jain:.3f}",
    "timeouts": lambda each: each.timeouts,
    "errors": lambda each: each.errors,
}


def report(found: Sequence[Figures], options: Options) -> Outcome:
    """Return the tables and the bars."""
    tables = []
    columns = {
        f"steady after {options.steady_after:.3g} s" if name == "steady" else name: cell
        for name, cell in _COLUMNS.items()
    }
    for direction in options.directions:
        mine = [each for each in found if each.direction == direction]
        mine.sort(key=lambda each: (each.connections, POLICIES.index(each.policy)))
        title = f"Accuracy, {direction}: quota {options.quota / 1e6:g} MB/s, requests of 1 MB, {options.seconds} s"
        tables.append(tabulate(title, mine, columns))
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


_RATE_MAX: Final = 4.0
"""Multiples of the quota at a panel's top; a burst beyond it is cut off, its height stands in the table."""


def draw(found: Sequence[Figures], path: Path) -> None:
    """Draw the rate in every second: a row of panels a direction, a panel a count of connections, a line a policy."""
    panels: dict[str, dict[int, Panel]] = {}
    for each in found:
        title = f"{each.direction}, {each.connections} connections, rate / quota"
        row = panels.setdefault(each.direction, {})
        panel = row.setdefault(each.connections, Panel(title, {}, top=_RATE_MAX))
        panel.lines[each.policy] = [(second + 0.5, rate) for second, rate in enumerate(each.seconds)]
    draw_panels(path, [list(row.values()) for row in panels.values()], "s", (12, 5))
