"""Added latency: an open loop at a modest rate, so that a stall costs every request it kept back."""

import json
from collections.abc import Mapping
from typing import Final

from tests.bench.figures import median
from tests.bench.lanes import CAPTURING, DIRECT, HAPROXY, OTHER_PYTHON, SIDECAR, SLUICE
from tests.bench.results import MISSING, Bar, Outcome, Table
from tests.bench.sections.throughput import rotated
from tests.bench.stage import Stage

LANES: Final = (DIRECT, HAPROXY, SLUICE, SIDECAR)
PERCENTILES: Final = ("p50", "p99", "p99.9")
_SIZE: Final = 1000
_WARM_UP_SECONDS: Final = 1.0
Middle = Mapping[str, Mapping[str, float]]
"""The medians of each lane's percentiles."""


def run(stage: Stage) -> Outcome:
    """Measure Produce requests of 1000 bytes at a fixed rate over a few connections."""
    options = stage.options
    stage.create_topic("latency")
    figures: dict[str, dict[str, list[float]]] = {}
    with stage.lanes.open(*stage.lanes.usable(*LANES)) as lanes:
        for number in range(options.rounds):
            for lane in rotated(lanes, number):
                mine = figures.setdefault(lane.name, {name: [] for name in PERCENTILES})
                with stage.generator(
                    lane.port, "latency", size=_SIZE, connections=options.request_connections
                ) as generator:
                    generator.say(f"open {_WARM_UP_SECONDS} {options.latency_rate}")
                    generator.hear()
                    generator.say(f"open {options.latency_seconds} {options.latency_rate}")
                    answer = json.loads(generator.hear())
                for name in PERCENTILES:
                    mine[name].append(answer[name])
                shown = ", ".join(f"{name} {answer[name]:.2f} ms" for name in PERCENTILES)
                stage.say(f"latency {number + 1}/{options.rounds} {lane.name}: {shown}")
    stage.delete_topic("latency")
    middle = {lane: {name: median(mine[name]) for name in PERCENTILES} for lane, mine in figures.items()}
    more = over_haproxy(middle, stage.lanes.subject)
    bars = [Bar("added latency p99.9 above HAProxy's", more, 0.0, "ms")]
    return Outcome([_table(middle, f"{options.latency_rate:g} requests/s")], bars)


def over_haproxy(middle: Middle, subject: str) -> float | None:
    """Return by how much more the subject adds to p99.9 than HAProxy; None without either.

    >>> over_haproxy({"HAProxy": {"p99.9": 4.0}, "Sluice": {"p99.9": 4.5}}, "Sluice")
    0.5
    """
    mine, others = middle.get(subject), middle.get(HAPROXY)
    return mine["p99.9"] - others["p99.9"] if mine and others else None


def _table(middle: Middle, rate: str) -> Table:
    rows = []
    for lane in [name for name in (*LANES, CAPTURING, OTHER_PYTHON) if name in middle]:
        total = [f"{middle[lane][name]:.2f}" for name in PERCENTILES]
        added = [
            MISSING if lane == DIRECT else f"{middle[lane][name] - middle[DIRECT][name]:+.2f}"
            for name in PERCENTILES
        ]
        rows.append((lane, *total, *added))
    columns = ("lane", *(f"{name} ms" for name in PERCENTILES), *(f"added {name}" for name in PERCENTILES))
    note = f"Produce of {_SIZE} bytes, acks=1, open loop at {rate}, timed from the moment each was due."
    return Table("Latency", columns, tuple(rows), note)
