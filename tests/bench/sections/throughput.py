"""Produce and consume at full speed with Kafka's tools: the proxy's CPU per GB, and throughput against direct.

Every lane takes its turn in every round, in an order that rotates; what is shown is the median of the rounds.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.bench import perf_tools
from tests.bench.figures import median
from tests.bench.lanes import CAPTURING, DIRECT, HAPROXY, OTHER_PYTHON, SIDECAR, SLUICE, UNPRIVILEGED, Lane
from tests.bench.process import cpu_seconds
from tests.bench.results import MISSING, Bar, Outcome, Table, ratio
from tests.bench.stage import Stage

LANES: Final = (DIRECT, HAPROXY, SLUICE, SIDECAR, UNPRIVILEGED)
QUICK_LANES: Final = (DIRECT, HAPROXY, SLUICE)
PARTITIONS: Final = 6
PRODUCER: Final = ("acks=1", "client.id=bench-producer")
LARGE_BATCHES: Final = "batch.size=131072"
PRODUCE_LIMIT: Final = 0.9
DEFAULT_BATCHES_LIMIT: Final = 1.1
CONSUME_LIMIT: Final = 0.4
SPEED_LIMIT: Final = 0.9
_WARM_UP_RECORDS: Final = 200_000
Move = Callable[[Lane, int], perf_tools.Throughput]


@dataclass(slots=True)
class Figures:
    """One lane's figures, one a round."""

    cpu_per_gigabyte: list[float] = field(default_factory=list)
    megabytes_per_second: list[float] = field(default_factory=list)


def rotated(lanes: Sequence[Lane], round_number: int) -> list[Lane]:
    """Return the lanes so that in every round another one begins.

    >>> rotated([], 3)
    []
    """
    first = round_number % len(lanes) if lanes else 0
    return [*lanes[first:], *lanes[:first]]


def run_produce(stage: Stage) -> Outcome:
    """Measure producing with batches of 128 KiB, and, unless it is to be quick, with the tool's default of 16 KiB."""
    outcome = _produce(stage, "produce", PRODUCE_LIMIT, LARGE_BATCHES)
    if not stage.options.quick:
        outcome.add([_produce(stage, "produce, default batches", DEFAULT_BATCHES_LIMIT)])
    return outcome


def _produce(stage: Stage, what: str, limit: float, *properties: str) -> Outcome:
    """Produce to a new topic in every turn, deleted after it."""
    records = int(stage.options.gigabytes * 1e9 / perf_tools.RECORD_BYTES)
    numbers = itertools.count()

    def move(lane: Lane, number: int) -> perf_tools.Throughput:
        topic = f"{what.replace(', ', '-').replace(' ', '-')}-{next(numbers)}"
        stage.create_topic(topic, PARTITIONS)
        try:
            return perf_tools.produce(lane.bootstrap, topic, number, *PRODUCER, *properties)
        finally:
            stage.delete_topic(topic)

    return _report(stage, what, limit, _measure(stage, what, records, move))


def run_consume(stage: Stage) -> Outcome:
    """Measure consuming: the same records again and again, by a new group each time."""
    records = int(stage.options.gigabytes * 1e9 / perf_tools.RECORD_BYTES)
    stage.say(f"consume: filling a topic with {stage.options.gigabytes:g} GB")
    stage.create_topic("consume", PARTITIONS)
    perf_tools.produce(stage.cluster.bootstrap(), "consume", records, *PRODUCER, LARGE_BATCHES)
    numbers = itertools.count()

    def move(lane: Lane, number: int) -> perf_tools.Throughput:
        return perf_tools.consume(lane.bootstrap, "consume", number, f"consume-{next(numbers)}")

    outcome = _report(stage, "consume", CONSUME_LIMIT, _measure(stage, "consume", records, move))
    stage.delete_topic("consume")
    return outcome


def _measure(stage: Stage, what: str, records: int, move: Move) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    wanted = QUICK_LANES if stage.options.quick else LANES
    with stage.lanes.open(*stage.lanes.usable(*wanted)) as lanes:
        for lane in lanes[: 1 if stage.options.quick else None]:  # the broker's JIT, and each proxy's pools
            move(lane, _WARM_UP_RECORDS)
        for number in range(stage.options.rounds):
            for lane in rotated(lanes, number):
                mine = figures.setdefault(lane.name, Figures())
                before = cpu_seconds(lane.pid) if lane.pid else 0.0
                moved = move(lane, records)
                mine.megabytes_per_second.append(moved.megabytes_per_second)
                cpu = ""
                if lane.pid:
                    mine.cpu_per_gigabyte.append((cpu_seconds(lane.pid) - before) / moved.gigabytes)
                    cpu = f", {mine.cpu_per_gigabyte[-1]:.3f} CPU s/GB"
                speed = f"{moved.megabytes_per_second:.0f} MB/s"
                stage.say(f"{what} {number + 1}/{stage.options.rounds} {lane.name}: {speed}{cpu}")
    return figures


def _report(stage: Stage, what: str, limit: float, figures: dict[str, Figures]) -> Outcome:
    speed = {name: median(mine.megabytes_per_second) for name, mine in figures.items()}
    cpu = {name: median(mine.cpu_per_gigabyte) for name, mine in figures.items() if mine.cpu_per_gigabyte}
    rows = []
    for name in [lane for lane in (*LANES, CAPTURING, OTHER_PYTHON) if lane in figures]:
        to_haproxy = ratio(cpu.get(name), cpu.get(HAPROXY))
        rows.append(
            (
                name,
                f"{cpu[name]:.3f}" if name in cpu else MISSING,
                " ".join(f"{value:.2f}" for value in sorted(figures[name].cpu_per_gigabyte)) or MISSING,
                f"{to_haproxy:.2f}" if to_haproxy else MISSING,
                f"{speed[name]:.0f}",
                f"{speed[name] / speed[DIRECT]:.2f}",
            )
        )
    columns = (what, "proxy CPU s/GB", "each round", "× HAProxy", "MB/s", "× direct")
    subject = stage.lanes.subject
    bars = [
        Bar(f"{what}: CPU per GB against HAProxy", ratio(cpu.get(subject), cpu.get(HAPROXY)), limit),
        # What is cheap for the proxy may be dear for the broker: a splice too early has cost 40 % of the speed.
        Bar(
            f"{what}: MB/s against HAProxy",
            ratio(speed.get(subject), speed.get(HAPROXY)),
            SPEED_LIMIT,
            at_least=True,
        ),
    ]
    return Outcome([Table(f"{what.capitalize()}, full speed", columns, tuple(rows))], bars)
