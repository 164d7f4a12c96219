"""Ping-pong with small and large Produce requests: the proxy's CPU per request, every lane with the same generator."""

import json
from dataclasses import dataclass, field
from typing import Final

from tests.bench.figures import median
from tests.bench.lanes import CAPTURING, DIRECT, HAPROXY, SIDECAR, SLUICE, Lane
from tests.bench.process import cpu_seconds
from tests.bench.results import MISSING, Bar, Outcome, Table, ratio
from tests.bench.sections.throughput import rotated
from tests.bench.stage import Stage

__all__ = ["run_large", "run_small"]

LANES: Final = (DIRECT, HAPROXY, SLUICE, SIDECAR)
SMALL_BYTES: Final = 100
LARGE_BYTES: Final = 65536
SMALL_LIMIT: Final = 1.25
_WARM_UP_SECONDS: Final = 1.0
# Millions of records accumulate, and are not read.
_SMALL_LOG: Final = {"segment.bytes": "67108864", "retention.bytes": "134217728"}


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


def run_large(stage: Stage) -> Outcome:
    """Measure requests whose record has 64 KiB; there is no bar, the produce bar covers it."""
    return _run(stage, "64 KiB requests", LARGE_BYTES)[0]


def _run(stage: Stage, title: str, size: int) -> tuple[Outcome, float | None]:
    topic = f"requests-{size}"
    stage.create_topic(topic, configs=_SMALL_LOG)
    figures: dict[str, Figures] = {}
    with stage.lanes.open(*stage.lanes.usable(*LANES)) as lanes:
        for number in range(stage.options.rounds):
            for lane in rotated(lanes, number):
                mine = figures.setdefault(lane.name, Figures())
                _turn(stage, lane, topic, size, mine)
                cost = f", {mine.microseconds[-1]:.1f} CPU µs each" if lane.pid else ""
                stage.say(
                    f"{title} {number + 1}/{stage.options.rounds} {lane.name}: {mine.per_second[-1]:.0f}/s{cost}"
                )
    stage.delete_topic(topic)
    return _report(stage, title, figures)


def _turn(stage: Stage, lane: Lane, topic: str, size: int, mine: Figures) -> None:
    with stage.generator(
        lane.port, topic, size=size, connections=stage.options.request_connections
    ) as generator:
        generator.say(f"closed {_WARM_UP_SECONDS}")
        generator.hear()
        before = cpu_seconds(lane.pid) if lane.pid else 0.0
        generator.say(f"closed {stage.options.request_seconds}")
        answer = json.loads(generator.hear())
        if lane.pid:
            mine.microseconds.append((cpu_seconds(lane.pid) - before) * 1e6 / answer["requests"])
        mine.per_second.append(answer["requests"] / answer["seconds"])


def _report(stage: Stage, title: str, figures: dict[str, Figures]) -> tuple[Outcome, float | None]:
    cost = {name: median(mine.microseconds) for name, mine in figures.items() if mine.microseconds}
    rate = {name: median(mine.per_second) for name, mine in figures.items()}
    rows = []
    for name in [lane for lane in (*LANES, CAPTURING) if lane in figures]:
        to_haproxy = ratio(cost.get(name), cost.get(HAPROXY))
        rows.append(
            (
                name,
                f"{cost[name]:.1f}" if name in cost else MISSING,
                f"{to_haproxy:.2f}" if to_haproxy else MISSING,
                f"{rate[name]:.0f}",
                f"{rate[name] / rate[DIRECT]:.2f}",
            )
        )
    columns = ("lane", "proxy CPU µs/request", "× HAProxy", "requests/s", "× direct")
    connections = stage.options.request_connections
    note = f"Produce with acks=1, one record, {connections} connections with one request under way each."
    measured = ratio(cost.get(stage.lanes.subject), cost.get(HAPROXY))
    return Outcome([Table(title, columns, tuple(rows), note)]), measured
