"""The data path with clients who say who they are: by SASL, and over TLS; the bars are those of the plain data path.

SASL: the broker asks for PLAIN, HAProxy relays it unread, Sluice sees it in passing and charges the user.
TLS: Sluice and HAProxy end it, with the same certificate, version and cipher as the clients choose (TLS 1.3,
AES-256-GCM), and speak plaintext to the broker. Neither can splice then.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench import perf_tools
from tests.bench.figures import median
from tests.bench.lanes import HAPROXY_SASL, HAPROXY_TLS, SLUICE_SASL, SLUICE_TLS, Lane
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
from tests.cluster.sasl import password

_USER: Final = "alice"
_CONSUMED: Final = "consume-secured"
_SMALL: Final = "small-secured"
_WARM_UP_SECONDS: Final = 1.0
_SMALL_LOG: Final = {"segment.bytes": "67108864", "retention.bytes": "134217728"}
Turn = Callable[[Lane], tuple[float, float]]
"""Does one lane's turn; gives the amount its CPU is divided by, and the speed."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of saying who one is: HAProxy's lane and ours, and what Kafka's tools and the generator need for it."""

    name: str
    haproxy: str
    sluice: str
    tools: str
    generator: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measurement: the units of its cost and of its speed, and the bar against HAProxy."""

    what: str
    unit: str
    speed_unit: str
    limit: float


@dataclass(slots=True)
class Figures:
    """One lane's figures, one a round."""

    cpu: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)


def run_tls(stage: Stage) -> Outcome:
    """Measure with TLS towards clients."""
    authority = str(stage.lanes.papers.cert_file)
    tools = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
    return _run(stage, Way("TLS", HAPROXY_TLS, SLUICE_TLS, tools, ("--tls-ca", authority)))


def run_sasl(stage: Stage) -> Outcome:
    """Measure with SASL identities."""
    login = f'username="{_USER}" password="{password(_USER)}"'
    tools = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {login};\n"
    )
    generator = ("--sasl-user", _USER, "--sasl-password", password(_USER))
    return _run(stage, Way("SASL", HAPROXY_SASL, SLUICE_SASL, tools, generator))


def _run(stage: Stage, way: Way) -> Outcome:
    """Measure producing, consuming and small requests."""
    config = stage.directory / f"clients-{way.name.lower()}.properties"
    config.write_text(way.tools)
    records = int(stage.options.gigabytes * 1e9 / perf_tools.RECORD_BYTES)
    outcome = Outcome()
    producing = _producing(stage, records, config)
    outcome.add([_compare(stage, way, Measure("produce", "CPU s/GB", "MB/s", PRODUCE_LIMIT), producing)])
    stage.create_topic(_CONSUMED, PARTITIONS)
    perf_tools.produce(stage.cluster.bootstrap(), _CONSUMED, records, *PRODUCER, LARGE_BATCHES)
    consuming = _consuming(records, config)
    outcome.add([_compare(stage, way, Measure("consume", "CPU s/GB", "MB/s", CONSUME_LIMIT), consuming)])
    stage.delete_topic(_CONSUMED)
    stage.create_topic(_SMALL, configs=_SMALL_LOG)
    asking = Measure("small requests", "CPU µs/request", "requests/s", SMALL_LIMIT)
    outcome.add([_compare(stage, way, asking, _asking(stage, way))])
    stage.delete_topic(_SMALL)
    return outcome


def _producing(stage: Stage, records: int, config: Path) -> Turn:
    numbers = itertools.count()

    def turn(lane: Lane) -> tuple[float, float]:
        topic = f"produce-secured-{next(numbers)}"
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
        group = f"consume-secured-{next(numbers)}"
        moved = perf_tools.consume(lane.bootstrap, _CONSUMED, records, group, config)
        return moved.gigabytes, moved.megabytes_per_second

    return turn


def _asking(stage: Stage, way: Way) -> Turn:
    def turn(lane: Lane) -> tuple[float, float]:
        connections = stage.options.request_connections
        with stage.generator(
            lane.port, _SMALL, *way.generator, size=SMALL_BYTES, connections=connections
        ) as generator:
            generator.say(f"closed {_WARM_UP_SECONDS}")
            warm = json.loads(generator.hear())["requests"]
            generator.say(f"closed {stage.options.request_seconds}")
            answer = json.loads(generator.hear())
            # The handshakes and the warm-up are in the CPU that is read around this turn, so they count here too.
            return (answer["requests"] + warm) / 1e6, answer["requests"] / answer["seconds"]

    return turn


def _compare(stage: Stage, way: Way, measure: Measure, turn: Turn) -> Outcome:
    figures: dict[str, Figures] = {}
    names = (way.haproxy, way.sluice)
    with stage.lanes.open(*stage.lanes.usable(*names)) as lanes:
        for number in range(stage.options.rounds):
            for lane in rotated(lanes, number):
                assert lane.pid is not None, "both lanes have a proxy"
                mine = figures.setdefault(lane.name, Figures())
                before = cpu_seconds(lane.pid)
                amount, speed = turn(lane)
                mine.cpu.append((cpu_seconds(lane.pid) - before) / amount)
                mine.speed.append(speed)
                stage.say(
                    f"{measure.what} {number + 1}/{stage.options.rounds} {lane.name}: "
                    f"{speed:.0f} {measure.speed_unit}, {mine.cpu[-1]:.3f} {measure.unit}"
                )
    cpu = {name: median(mine.cpu) for name, mine in figures.items()}
    rows = []
    for name in [lane for lane in names if lane in figures]:
        against = ratio(cpu[name], cpu.get(way.haproxy))
        speed = median(figures[name].speed)
        rows.append((name, f"{cpu[name]:.3f}", f"{against:.2f}" if against else MISSING, f"{speed:.0f}"))
    columns = ("lane", f"proxy {measure.unit}", "× HAProxy", measure.speed_unit)
    title = f"{way.name}, {measure.what}"
    bar = Bar(
        f"{title}: CPU against HAProxy", ratio(cpu.get(way.sluice), cpu.get(way.haproxy)), measure.limit
    )
    return Outcome([Table(title, columns, tuple(rows))], [bar])
