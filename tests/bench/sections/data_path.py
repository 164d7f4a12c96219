"""The data path at full speed, and its latency at a modest rate: the proxy's CPU, and every lane's speed.

Produce and consume are Kafka's own performance tools, with the proxy's CPU per GB; small requests are ping-pong by one
generator for all lanes, with the CPU per request. Every lane takes its turn in every round, in an order that rotates;
what is shown is the median of the rounds. Latency is an open loop, so that a stall costs every request it kept back.

Clients that say who they are are held to the bars of the plain data path. SASL: the broker asks for PLAIN, HAProxy
relays it unread, Sluice sees it in passing and charges the user. TLS: Sluice and HAProxy end it, with the same
certificate, version and cipher as the clients choose (TLS 1.3, AES-256-GCM), and speak plaintext to the broker. Neither
can splice then.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tests.bench import perf_tools
from tests.bench.figures import median
from tests.bench.lanes import (
    DIRECT,
    HAPROXY,
    HAPROXY_SASL,
    HAPROXY_TLS,
    SIDECAR,
    SLUICE,
    SLUICE_SASL,
    SLUICE_TLS,
    UNPRIVILEGED,
    Lane,
)
from tests.bench.process import cpu_seconds
from tests.bench.report import MISSING, Bar, Outcome, ratio, tabulate
from tests.bench.stage import Stage
from tests.cluster.sasl import password

LANES: Final = (DIRECT, HAPROXY, SLUICE, SIDECAR)
PARTITIONS: Final = 6
PRODUCER: Final = ("acks=1", "client.id=bench-producer")
LARGE_BATCHES: Final = "batch.size=131072"
PRODUCE_LIMIT: Final = 0.9
DEFAULT_BATCHES_LIMIT: Final = 1.1
CONSUME_LIMIT: Final = 0.4
# What is cheap for the proxy may be dear for the broker: a splice too early has cost 40 % of the speed.
SPEED_LIMIT: Final = 0.9
SMALL_BYTES: Final = 100
MEDIUM_BYTES: Final = 16384
LARGE_BYTES: Final = 65536
MANY_CONNECTIONS: Final = 64
SMALL_LIMIT: Final = 1.1
MEDIUM_LIMIT: Final = 0.95
PERCENTILES: Final = ("p50", "p99", "p99.9")
_LATENCY_BYTES: Final = 1000
_WARM_UP_RECORDS: Final = 200_000
_WARM_UP_SECONDS: Final = 1.0
_USER: Final = "alice"

T = TypeVar("T")
Middle = Mapping[str, Mapping[str, float]]
"""The medians of each lane's percentiles."""
Turn = Callable[[Lane], tuple[float | None, float]]
"""Does one lane's turn; gives its cost (None where there is no proxy) and its speed."""


@dataclass(frozen=True, slots=True)
class Way:
    """How clients get to the broker, and say who they are.

    Args:
        name: before the titles; "" for the plain data path.
        yardstick, subject: the lanes that are compared.
        tools: more properties of Kafka's tools.
        generator: more arguments of the generator.
    """

    name: str
    lanes: tuple[str, ...]
    yardstick: str
    subject: str
    tools: Path | None = None
    generator: tuple[str, ...] = ()

    def title(self, what: str) -> str:
        return f"{self.name}, {what}" if self.name else what


@dataclass(frozen=True, slots=True)
class Units:
    """Of the cost and of the speed."""

    cost: str
    speed: str


BYTES: Final = Units("CPU s/GB", "MB/s")
REQUESTS: Final = Units("CPU µs/request", "requests/s")


@dataclass(slots=True)
class Figures:
    """One lane's figures, one a round."""

    cost: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)


def rotated(lanes: Sequence[Lane], round_number: int) -> list[Lane]:
    """Return the lanes so that in every round another one begins.

    >>> rotated([], 3)
    []
    """
    first = round_number % len(lanes) if lanes else 0
    return [*lanes[first:], *lanes[:first]]


def compare(
    stage: Stage,
    way: Way,
    what: str,
    units: Units,
    turn: Turn,
    *,
    limit: float | None,
    speed_limit: float | None = None,
    warm_up: Callable[[Lane], object] | None = None,
    note: str = "",
) -> Outcome:
    """Let the lanes of a way take turns; return the table, and bars for the subject's cost and speed."""
    title, rounds = way.title(what), stage.options.rounds
    figures: dict[str, Figures] = {}
    with stage.lanes.open(*stage.lanes.usable(*way.lanes)) as lanes:
        if warm_up is not None:  # the broker's JIT, and each proxy's pools
            for lane in lanes[: 1 if stage.options.quick else None]:
                warm_up(lane)
        for number in range(rounds):
            for lane in rotated(lanes, number):
                mine = figures.setdefault(lane.name, Figures())
                cost, speed = turn(lane)
                mine.speed.append(speed)
                mine.cost += [] if cost is None else [cost]
                said = "" if cost is None else f", {cost:.3f} {units.cost}"
                stage.say(f"{title} {number + 1}/{rounds} {lane.name}: {speed:.0f} {units.speed}{said}")
    costs = {name: median(mine.cost) for name, mine in figures.items() if mine.cost}
    speeds = {name: median(mine.speed) for name, mine in figures.items()}
    columns: dict[str, Callable[[str], object]] = {
        "lane": str,
        f"proxy {units.cost}": lambda name: _figure(costs.get(name), 3),
        "each round": lambda name: " ".join(map("{:.2f}".format, sorted(figures[name].cost))) or MISSING,
        "× HAProxy": lambda name: _figure(ratio(costs.get(name), costs.get(way.yardstick))),
        units.speed: lambda name: _figure(speeds[name], 0),
        "× direct": lambda name: _figure(ratio(speeds[name], speeds.get(DIRECT))),
    }
    measured = [
        (f"{title}: CPU against HAProxy", costs, limit, False),
        (f"{title}: {units.speed} against HAProxy", speeds, speed_limit, True),
    ]
    bars = [
        Bar(name, ratio(found.get(way.subject), found.get(way.yardstick)), most, at_least=at_least)
        for name, found, most, at_least in measured
        if most is not None
    ]
    return Outcome([tabulate(title, figures, columns, note)], bars)


def _figure(value: float | None, digits: int = 2) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def plain(stage: Stage, *more: str) -> Way:
    """The data path of clients that say nothing of themselves."""
    lanes = LANES[:3] if stage.options.quick and more else (*LANES, *more)
    return Way("", lanes, HAPROXY, stage.lanes.subject)


def with_cost(lane: Lane, work: Callable[[], T]) -> tuple[T, float | None]:
    """Do something, and return the CPU seconds of the lane's proxy meanwhile as well."""
    before = cpu_seconds(lane.pid) if lane.pid else 0.0
    done = work()
    return done, cpu_seconds(lane.pid) - before if lane.pid else None


# Kafka's tools


def _moving(move: Callable[[Lane, int], perf_tools.Throughput], records: int) -> Turn:
    def turn(lane: Lane) -> tuple[float | None, float]:
        moved, spent = with_cost(lane, lambda: move(lane, records))
        return None if spent is None else spent / moved.gigabytes, moved.megabytes_per_second

    return turn


def _records(stage: Stage) -> int:
    return int(stage.options.gigabytes * 1e9 / perf_tools.RECORD_BYTES)


def _produce(stage: Stage, way: Way, what: str, limit: float, *properties: str) -> Outcome:
    """Produce to a new topic in every turn, deleted after it."""
    stem = way.title(what).lower().replace(", ", "-").replace(" ", "-")
    topics = (f"{stem}-{number}" for number in itertools.count())

    def move(lane: Lane, records: int) -> perf_tools.Throughput:
        topic = next(topics)
        stage.create_topic(topic, PARTITIONS)
        try:
            return perf_tools.produce(
                lane.bootstrap, topic, records, *PRODUCER, *properties, config=way.tools
            )
        finally:
            stage.delete_topic(topic)

    turn, speed_limit = _moving(move, _records(stage)), None if way.name else SPEED_LIMIT
    warm_up = None if way.name else lambda lane: move(lane, _WARM_UP_RECORDS)
    return compare(stage, way, what, BYTES, turn, limit=limit, speed_limit=speed_limit, warm_up=warm_up)


def _consume(stage: Stage, way: Way) -> Outcome:
    """Consume the same records again and again, by a new group each time."""
    stage.say(f"consume: filling a topic with {stage.options.gigabytes:g} GB")
    topic = way.title("consume").lower().replace(", ", "-")
    stage.create_topic(topic, PARTITIONS)
    perf_tools.produce(stage.cluster.bootstrap(), topic, _records(stage), *PRODUCER, LARGE_BATCHES)
    numbers = itertools.count()

    def move(lane: Lane, records: int) -> perf_tools.Throughput:
        return perf_tools.consume(lane.bootstrap, topic, records, f"{topic}-{next(numbers)}", way.tools)

    turn, speed_limit = _moving(move, _records(stage)), None if way.name else SPEED_LIMIT
    warm_up = None if way.name else lambda lane: move(lane, _WARM_UP_RECORDS)
    found = compare(
        stage, way, "consume", BYTES, turn, limit=CONSUME_LIMIT, speed_limit=speed_limit, warm_up=warm_up
    )
    stage.delete_topic(topic)
    return found


def run_produce(stage: Stage) -> Outcome:
    """Measure producing with batches of 128 KiB, and, unless it is to be quick, with the tool's default of 16 KiB."""
    way = plain(stage, UNPRIVILEGED)
    outcome = _produce(stage, way, "produce", PRODUCE_LIMIT, LARGE_BATCHES)
    if not stage.options.quick:
        outcome.add(_produce(stage, way, "produce, default batches", DEFAULT_BATCHES_LIMIT))
    return outcome


def run_consume(stage: Stage) -> Outcome:
    """Measure consuming."""
    return _consume(stage, plain(stage, UNPRIVILEGED))


# The generator


def _requests(
    stage: Stage, way: Way, what: str, size: int, limit: float | None, connections: int | None = None
) -> Outcome:
    """Ping-pong with Produce requests; each turn has a topic of its own, since its records may be 6 GB."""
    count = connections or stage.options.request_connections
    topics = (f"requests-{size}-{count}-{way.name or 'plain'}-{number}" for number in itertools.count())

    def turn(lane: Lane) -> tuple[float | None, float]:
        topic = next(topics)
        stage.create_topic(topic)
        with stage.generator(lane.port, topic, *way.generator, size=size, connections=count) as generator:
            generator.ask(f"closed {_WARM_UP_SECONDS}")
            done, spent = with_cost(lane, lambda: generator.ask(f"closed {stage.options.request_seconds}"))
        stage.delete_topic(topic)
        cost = None if spent is None else spent * 1e6 / done["requests"]
        return cost, done["requests"] / done["seconds"]

    note = f"Produce with acks=1, one record, {count} connections with one request under way each."
    return compare(stage, way, what, REQUESTS, turn, limit=limit, note=note)


def run_small(stage: Stage) -> Outcome:
    """Measure requests whose record has 100 bytes."""
    return _requests(stage, plain(stage), "100-byte requests", SMALL_BYTES, SMALL_LIMIT)


def run_many(stage: Stage) -> Outcome:
    """Measure the same over many connections, of which a proxy finds several ready in one turn of its loop."""
    title = f"100-byte requests, {MANY_CONNECTIONS} connections"
    return _requests(stage, plain(stage), title, SMALL_BYTES, SMALL_LIMIT, MANY_CONNECTIONS)


def run_medium(stage: Stage) -> Outcome:
    """Measure requests whose record has 16 KiB, a producer's default batch."""
    return _requests(stage, plain(stage), "16 KiB requests", MEDIUM_BYTES, MEDIUM_LIMIT)


def run_large(stage: Stage) -> Outcome:
    """Measure requests whose record has 64 KiB; there is no bar, the produce bar covers it."""
    return _requests(stage, plain(stage), "64 KiB requests", LARGE_BYTES, None)


# Clients that say who they are


def _secured(stage: Stage, way: Way) -> Outcome:
    outcome = _produce(stage, way, "produce", PRODUCE_LIMIT, LARGE_BATCHES)
    outcome.add(_consume(stage, way), _requests(stage, way, "small requests", SMALL_BYTES, SMALL_LIMIT))
    return outcome


def _properties(stage: Stage, name: str, text: str) -> Path:
    path = stage.directory / f"clients-{name}.properties"
    path.write_text(text)
    return path


def run_tls(stage: Stage) -> Outcome:
    """Measure with TLS towards clients."""
    authority = str(stage.lanes.papers.cert_file)
    text = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
    tools, lanes = _properties(stage, "tls", text), (HAPROXY_TLS, SLUICE_TLS)
    return _secured(stage, Way("TLS", lanes, *lanes, tools, ("--tls-ca", authority)))


def run_sasl(stage: Stage) -> Outcome:
    """Measure with SASL identities."""
    login = f'username="{_USER}" password="{password(_USER)}"'
    text = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {login};\n"
    )
    tools, lanes = _properties(stage, "sasl", text), (HAPROXY_SASL, SLUICE_SASL)
    generator = ("--sasl-user", _USER, "--sasl-password", password(_USER))
    return _secured(stage, Way("SASL", lanes, *lanes, tools, generator))


# Latency


def run_latency(stage: Stage) -> Outcome:
    """Measure Produce requests of 1000 bytes at a fixed rate over a few connections."""
    options = stage.options
    stage.create_topic("latency")
    figures: dict[str, dict[str, list[float]]] = {}
    with stage.lanes.open(*stage.lanes.usable(*LANES)) as lanes:
        for number in range(options.rounds):
            for lane in rotated(lanes, number):
                mine = figures.setdefault(lane.name, {name: [] for name in PERCENTILES})
                with stage.generator(
                    lane.port, "latency", size=_LATENCY_BYTES, connections=options.request_connections
                ) as generator:
                    generator.ask(f"open {_WARM_UP_SECONDS} {options.latency_rate}")
                    found = generator.ask(f"open {options.latency_seconds} {options.latency_rate}")
                for name in PERCENTILES:
                    mine[name].append(found[name])
                shown = ", ".join(f"{name} {found[name]:.2f} ms" for name in PERCENTILES)
                stage.say(f"latency {number + 1}/{options.rounds} {lane.name}: {shown}")
    stage.delete_topic("latency")
    middle = {lane: {name: median(mine[name]) for name in PERCENTILES} for lane, mine in figures.items()}
    more = over_haproxy(middle, stage.lanes.subject)
    bars = [Bar("added latency p99.9 above HAProxy's", more, 0.0, "ms")]

    def added(lane: str, name: str) -> str:
        return MISSING if lane == DIRECT else f"{middle[lane][name] - middle[DIRECT][name]:+.2f}"

    columns: dict[str, Callable[[str], object]] = {
        "lane": str,
        **{
            f"{name} ms": partial(lambda name, lane: f"{middle[lane][name]:.2f}", name)
            for name in PERCENTILES
        },
        **{f"added {name}": partial(added, name=name) for name in PERCENTILES},
    }
    note = (
        f"Produce of {_LATENCY_BYTES} bytes, acks=1, open loop at {options.latency_rate:g} requests/s, timed from the "
        "moment each was due."
    )
    return Outcome([tabulate("Latency", middle, columns, note)], bars)


def over_haproxy(middle: Middle, subject: str) -> float | None:
    """Return by how much more the subject adds to p99.9 than HAProxy; None without either.

    >>> over_haproxy({"HAProxy": {"p99.9": 4.0}, "Sluice": {"p99.9": 4.5}}, "Sluice")
    0.5
    """
    mine, others = middle.get(subject), middle.get(HAPROXY)
    return mine["p99.9"] - others["p99.9"] if mine and others else None
