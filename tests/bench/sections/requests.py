"""Ping-pong with Produce requests of three sizes: the proxy's CPU per request, every lane with the same generator.

Small ones twice: a proxy with many connections finds several of them ready in one turn of its loop.
"""

import itertools
import json
from dataclasses import dataclass, field
from typing import Final

from tests.bench.figures import median
from tests.bench.lanes import CAPTURING, DIRECT, HAPROXY, OTHER_PYTHON, SIDECAR, SLUICE, Lane
from tests.bench.process import cpu_seconds
from tests.bench.results import MISSING, Bar, Outcome, Table, ratio
from tests.bench.sections.throughput import rotated
from tests.bench.stage import Stage

LANES: Final = (DIRECT, HAPROXY, SLUICE, SIDECAR)
SMALL_BYTES: Final = 100
MEDIUM_BYTES: Final = 16384
LARGE_BYTES: Final = 65536
MANY_CONNECTIONS: Final = 64
SMALL_LIMIT: Final = 1.15
MEDIUM_LIMIT: Final = 0.95
_WARM_UP_SECONDS: Final = 1.0


@dataclass(slots=True)
class Figures:
    """One lane's figures, one a round."""

    microseconds: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)


def run_small(stage: Stage) -> Outcome:
    """Measure requests whose record has 100 bytes."""
    outcome, cost = _run(stage, "100-byte requests", SMALL_BYTES)
    outcome.bars.append(Bar("small requests: CPU per request against HAProxy", cost, SMALL_LIMIT))
    return outcome


def run_many(stage: Stage) -> Outcome:
    """Measure requests whose record has 100 bytes, over many connections."""
    title = f"100-byte requests, {MANY_CONNECTIONS} connections"
    outcome, cost = _run(stage, title, SMALL_BYTES, MANY_CONNECTIONS)
    name = f"small requests, {MANY_CONNECTIONS} connections: CPU per request against HAProxy"
    outcome.bars.append(Bar(name, cost, SMALL_LIMIT))
    return outcome


def run_medium(stage: Stage) -> Outcome:
    """Measure requests whose record has 16 KiB, a producer's default batch."""
    outcome, cost = _run(stage, "16 KiB requests", MEDIUM_BYTES)
    outcome.bars.append(Bar("16 KiB requests: CPU per request against HAProxy", cost, MEDIUM_LIMIT))
    return outcome


def run_large(stage: Stage) -> Outcome:
    """Measure requests whose record has 64 KiB; there is no bar, the produce bar covers it."""
    return _run(stage, "64 KiB requests", LARGE_BYTES)[0]


def _run(stage: Stage, title: str, size: int, connections: int | None = None) -> tuple[Outcome, float | None]:
    connections = connections or stage.options.request_connections
    topics = (f"requests-{size}-{connections}-{number}" for number in itertools.count())
    figures: dict[str, Figures] = {}
    with stage.lanes.open(*stage.lanes.usable(*LANES)) as lanes:
        for number in range(stage.options.rounds):
            for lane in rotated(lanes, number):
                mine = figures.setdefault(lane.name, Figures())
                topic = next(topics)  # one for each turn: a turn's records may be 6 GB
                stage.create_topic(topic)
                _turn(stage, lane, topic, size, connections, mine)
                stage.delete_topic(topic)
                cost = f", {mine.microseconds[-1]:.1f} CPU µs each" if lane.pid else ""
                stage.say(
                    f"{title} {number + 1}/{stage.options.rounds} {lane.name}: {mine.per_second[-1]:.0f}/s{cost}"
                )
    return _report(stage, title, connections, figures)


def _turn(stage: Stage, lane: Lane, topic: str, size: int, connections: int, mine: Figures) -> None:
    with stage.generator(lane.port, topic, size=size, connections=connections) as generator:
        generator.say(f"closed {_WARM_UP_SECONDS}")
        generator.hear()
        before = cpu_seconds(lane.pid) if lane.pid else 0.0
        generator.say(f"closed {stage.options.request_seconds}")
        answer = json.loads(generator.hear())
        if lane.pid:
            mine.microseconds.append((cpu_seconds(lane.pid) - before) * 1e6 / answer["requests"])
        mine.per_second.append(answer["requests"] / answer["seconds"])


def _report(
    stage: Stage, title: str, connections: int, figures: dict[str, Figures]
) -> tuple[Outcome, float | None]:
    cost = {name: median(mine.microseconds) for name, mine in figures.items() if mine.microseconds}
    rate = {name: median(mine.per_second) for name, mine in figures.items()}
    rows = []
    for name in [lane for lane in (*LANES, CAPTURING, OTHER_PYTHON) if lane in figures]:
        to_haproxy = ratio(cost.get(name), cost.get(HAPROXY))
        rows.append(
            (
                name,
                f"{cost[name]:.1f}" if name in cost else MISSING,
                f"{min(figures[name].microseconds):.1f}" if name in cost else MISSING,
                f"{to_haproxy:.2f}" if to_haproxy else MISSING,
                f"{rate[name]:.0f}",
                f"{rate[name] / rate[DIRECT]:.2f}",
            )
        )
    columns = ("lane", "proxy CPU µs/request", "least", "× HAProxy", "requests/s", "× direct")
    note = f"Produce with acks=1, one record, {connections} connections with one request under way each."
    measured = ratio(cost.get(stage.lanes.subject), cost.get(HAPROXY))
    return Outcome([Table(title, columns, tuple(rows), note)]), measured
