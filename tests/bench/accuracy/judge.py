"""From what the relay noted to figures, tables and bars: pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.bench.accuracy.frames import Counted
from tests.bench.accuracy.options import KAFKA, KIP13, POLICIES, SCHEDULE, Options
from tests.bench.figures import Event, jain_index, largest_second, per_second, steady_rate, within_first
from tests.bench.results import Bar, Outcome, Table

STEADY_LIMIT = 0.02
FIRST_LIMIT = 2.5
JAIN_LIMIT = 0.98
_WITHOUT_RECORDS_BYTES = 1000
"""Smaller answers carry no records; the clock starts with the first that does."""


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
