"""TLS towards clients, plaintext towards the broker: Sluice against HAProxy, which ends the same TLS.

Both show the same certificate and leave version and cipher to the clients: TLS 1.3, AES-256-GCM. Neither can splice.
The bars are those of the plain data path.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench import perf_tools
from tests.bench.figures import median
from tests.bench.lanes import HAPROXY_TLS, SLUICE_TLS, Lane
from tests.bench.process import cpu_seconds
from tests.bench.results import MISSING, Bar, Outcome, Table, ratio
from tests.bench.sections.requests import SMALL_BYTES, SMALL_LIMIT
from tests.bench.sections.throughput import (
    CONSUME_LIMIT,
    LARGE_BATCHES,
    PARTITIONS,
    PRODUCE_LIMIT,
    PRODUCER,
    rotated,
)
from tests.bench.stage import Stage

__all__ = ["LANES", "run"]

LANES: Final = (HAPROXY_TLS, SLUICE_TLS)
_WARM_UP_SECONDS: Final = 1.0
_SMALL_LOG: Final = {"segment.bytes": "67108864", "retention.bytes": "134217728"}
Turn = Callable[[Lane], tuple[float, float]]
"""Does one lane's turn; gives the amount its CPU is divided by, and the speed."""


@dataclass(slots=True)
class Figures:
    """One lane's figures, one a round."""

    cpu: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)


def run(stage: Stage) -> Outcome:
    """Measure producing, consuming and small requests."""
    config = stage.directory / "clients-tls.properties"
    config.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={stage.lanes.papers.cert_file}\n"
    )
    records = int(stage.options.gigabytes * 1e9 / perf_tools.RECORD_BYTES)
    outcome = Outcome()
    outcome.add(
        [_compare(stage, "produce", "CPU s/GB", "MB/s", PRODUCE_LIMIT, _producing(stage, records, config))]
    )
    stage.create_topic("consume-tls", PARTITIONS)
    perf_tools.produce(stage.cluster.bootstrap(), "consume-tls", records, *PRODUCER, LARGE_BATCHES)
    outcome.add([_compare(stage, "consume", "CPU s/GB", "MB/s", CONSUME_LIMIT, _consuming(records, config))])
    stage.delete_topic("consume-tls")
    stage.create_topic("small-tls", configs=_SMALL_LOG)
    outcome.add(
        [_compare(stage, "small requests", "CPU µs/request", "requests/s", SMALL_LIMIT, _asking(stage))]
    )
    stage.delete_topic("small-tls")
    return outcome


def _producing(stage: Stage, records: int, config: Path) -> Turn:
    numbers = itertools.count()

    def turn(lane: Lane) -> tuple[float, float]:
        topic = f"produce-tls-{next(numbers)}"
        stage.create_topic(topic, PARTITIONS)
        try:
            moved = perf_tools.produce(
                lane.bootstrap, topic, records, *PRODUCER, LARGE_BATCHES, config=config
            )
        finally:
            stage.delete_topic(topic)
        return moved.gigabytes, moved.megabytes_per_second

    return turn


def _consuming(records: int, config: Path) -> Turn:
    numbers = itertools.count()

    def turn(lane: Lane) -> tuple[float, float]:
        group = f"consume-tls-{next(numbers)}"
        moved = perf_tools.consume(lane.bootstrap, "consume-tls", records, group, config)
        return moved.gigabytes, moved.megabytes_per_second

    return turn


def _asking(stage: Stage) -> Turn:
    def turn(lane: Lane) -> tuple[float, float]:
        connections = stage.options.request_connections
        ca = stage.lanes.papers.cert_file
        with stage.generator(
            lane.port, "small-tls", size=SMALL_BYTES, connections=connections, ca=ca
        ) as generator:
            generator.say(f"closed {_WARM_UP_SECONDS}")
            warm = json.loads(generator.hear())["requests"]
            generator.say(f"closed {stage.options.request_seconds}")
            answer = json.loads(generator.hear())
            # The handshakes and the warm-up are in the CPU that is read around this turn, so they count here too.
            return (answer["requests"] + warm) / 1e6, answer["requests"] / answer["seconds"]

    return turn


def _compare(stage: Stage, what: str, unit: str, speed_unit: str, limit: float, turn: Turn) -> Outcome:
    figures: dict[str, Figures] = {}
    with stage.lanes.open(*stage.lanes.usable(*LANES)) as lanes:
        for number in range(stage.options.rounds):
            for lane in rotated(lanes, number):
                assert lane.pid is not None, "both lanes have a proxy"
                mine = figures.setdefault(lane.name, Figures())
                before = cpu_seconds(lane.pid)
                amount, speed = turn(lane)
                mine.cpu.append((cpu_seconds(lane.pid) - before) / amount)
                mine.speed.append(speed)
                stage.say(
                    f"TLS, {what} {number + 1}/{stage.options.rounds} {lane.name}: "
                    f"{speed:.0f} {speed_unit}, {mine.cpu[-1]:.3f} {unit}"
                )
    cpu = {name: median(mine.cpu) for name, mine in figures.items()}
    rows = []
    for name in [lane for lane in LANES if lane in figures]:
        against = ratio(cpu[name], cpu.get(HAPROXY_TLS))
        speed = median(figures[name].speed)
        rows.append((name, f"{cpu[name]:.3f}", f"{against:.2f}" if against else MISSING, f"{speed:.0f}"))
    columns = ("lane", f"proxy {unit}", "× HAProxy", speed_unit)
    bar = Bar(f"TLS, {what}: CPU against HAProxy", ratio(cpu.get(SLUICE_TLS), cpu.get(HAPROXY_TLS)), limit)
    return Outcome([Table(f"TLS towards clients, {what}", columns, tuple(rows))], [bar])
