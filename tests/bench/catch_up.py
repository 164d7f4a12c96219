"""`python -m tests.bench.catch_up`: ten consumers at a log's end beside one that replays, all of one client id.

Each lane is a gateway of its own before the same broker, and a producer writes to the brokers directly: the time from
there to each of the ten is measured. The one that replays has twenty connections, as one with an instance for each
partition has: policy `schedule` gives each connection an equal part, so a single one would take little of the ten.
With `catch_up_byte_rate` it has a budget of its own, and with a capacity it borrows what they leave. Prints; with
`--write` it replaces what is between the markers `catch-up` of docs/benchmarks.md.
"""

import argparse
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition
from rich.console import Console

from tests.bench import machine, report
from tests.bench.clients import fill
from tests.bench.figures import percentile
from tests.bench.report import Bar, Outcome, ratio, tabulate
from tests.cluster import Cluster, ClusterOptions
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import create

MB: Final = 1_000_000
READERS: Final = 10
CLIENT_ID: Final = "team"
CAPACITY: Final = 8 * MB
REPLAYS: Final = 20  # connections
# Each of the ten gets 20 records of 1 kB a second, and with all connections a thirtieth of this would be its part.
CONSUMER_RATE: Final = MB // 2
CATCH_UP_RATE: Final = 4 * MB
LAG: Final = 1000
_RECORD_BYTES: Final = 1_000
_EVERY_SECONDS: Final = 0.05
_PAST_RECORD_BYTES: Final = 10_000
_PAST_BATCH_BYTES: Final = 64 * 1024
_SETTLE_SECONDS: Final = 3.0

BUDGET: Final = {"consumer_byte_rate": CONSUMER_RATE}
CLASS: Final = {**BUDGET, "catch_up_byte_rate": CATCH_UP_RATE, "catch_up_lag": LAG}
LENT: Final = {**CLASS, "catch_up_byte_rate": MB, "catch_up_byte_rate_ceiling": CAPACITY}


@dataclass(frozen=True, slots=True)
class Lane:
    """What is measured once.

    Args:
        limits: the quotas of the client id.
        replays: how many connections replay.
        capacity: bytes/s of each broker; 0 for none.
    """

    name: str
    limits: Mapping[str, int]
    replays: int = REPLAYS
    capacity: int = 0


LANES: Final = (
    Lane("no replay", CLASS, replays=0),
    Lane("replay, one budget", BUDGET),
    Lane("replay, a class of its own", CLASS),
    Lane("replay, what is left of a capacity", LENT, capacity=CAPACITY),
)


@dataclass(frozen=True, slots=True)
class Readings:
    """What was measured in one lane.

    Args:
        delays_ms: from the producer to each of the ten, in order of size.
        replayed, present: bytes/s that the replay got, and the ten together.
        throttled: how many Fetches the quota of the ten has throttled.
    """

    lane: Lane
    delays_ms: Sequence[float]
    replayed: float
    present: float
    throttled: float

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the delays; infinite if nothing arrived."""
        return percentile(self.delays_ms, 99) if self.delays_ms else inf


class Topics:
    """Two topics on a broker: one that is written to all the time, and one that is full of records."""

    def __init__(self, cluster: Cluster, past_bytes: int) -> None:
        self.bootstrap = cluster.bootstrap()
        self.present, self.past = (f"catch-up-{kind}-{secrets.token_hex(4)}" for kind in ("present", "past"))
        create(cluster, self.present, partitions=READERS, replication=1, configs={})
        create(cluster, self.past, partitions=1, replication=1, configs={})
        records = past_bytes // _PAST_RECORD_BYTES
        fill(self.bootstrap, self.past, records, _PAST_RECORD_BYTES, config={"batch.size": _PAST_BATCH_BYTES})


def _consumer(bootstrap: str, topic: str, partition: int, offset: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": CLIENT_ID,
            "group.id": "none",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1024,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    return consumer


class _Present:
    """The producer, and the ten at the log's end."""

    def __init__(self, topics: Topics, bootstrap: str) -> None:
        self.ended = threading.Event()
        self.delays: list[tuple[float, float]] = []  # when a record arrived, and ms after it was sent
        self._topics = topics
        self._bootstrap = bootstrap

    def write(self) -> None:
        """Send a record to each partition, again and again."""
        producer = Producer({"bootstrap.servers": self._topics.bootstrap, "linger.ms": 0, "acks": 1})
        due = time.monotonic()
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            due += _EVERY_SECONDS
            for partition in range(READERS):
                value = time.monotonic_ns().to_bytes(8, "big").ljust(_RECORD_BYTES, b".")
                producer.produce(self._topics.present, value, partition=partition)
            producer.poll(0)
        producer.flush(10)

    def read(self, partition: int) -> None:
        """Note when each record of a partition arrives."""
        consumer = _consumer(self._bootstrap, self._topics.present, partition, OFFSET_END)
        while not self.ended.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                sent_ns = int.from_bytes((message.value() or b"")[:8], "big")
                now_ns = time.monotonic_ns()
                self.delays.append((now_ns / 1e9, (now_ns - sent_ns) / 1e6))
        consumer.close()


def _replay(present: _Present, topics: Topics, bootstrap: str, counted: list[tuple[float, int]]) -> None:
    """Read the other topic from its beginning."""
    consumer = _consumer(bootstrap, topics.past, 0, OFFSET_BEGINNING)
    while not present.ended.is_set():
        messages = consumer.consume(500, timeout=0.1)
        counted.append((time.monotonic(), sum(len(one) for one in messages if one.error() is None)))
    consumer.close()


def measure(lane: Lane, topics: Topics, sluice: SluiceProcess, seconds: float) -> Readings:
    """Measure one lane through a gateway for so many seconds."""
    bootstrap = sluice.bootstrap
    present = _Present(topics, bootstrap)
    counted: list[tuple[float, int]] = []
    with ThreadPoolExecutor(READERS + 1 + lane.replays) as pool:
        running = [pool.submit(present.read, partition) for partition in range(READERS)]
        running.append(pool.submit(present.write))
        try:
            time.sleep(_SETTLE_SECONDS)
            running += [
                pool.submit(_replay, present, topics, bootstrap, counted) for _ in range(lane.replays)
            ]
            time.sleep(_SETTLE_SECONDS)
            began = time.monotonic()
            time.sleep(seconds)
            ended = time.monotonic()
        finally:
            present.ended.set()
        for one in running:
            one.result()
    delays = sorted(delay for at, delay in present.delays if began <= at < ended)
    replayed = sum(size for at, size in counted if began <= at < ended)
    throttled = sluice.metric("sluice_client_throttled_requests_total", client_id=CLIENT_ID, type="Fetch")
    return Readings(lane, delays, replayed / seconds, len(delays) * _RECORD_BYTES / seconds, throttled)


@contextmanager
def gateway(lane: Lane, bootstrap: str, directory: Path) -> Iterator[SluiceProcess]:
    """Start a gateway with a lane's quotas."""
    settings = SluiceSettings(
        bootstrap, quotas={"policy": "schedule", "scope": "broker"}, client_quotas={CLIENT_ID: lane.limits}
    )
    config = settings.write(directory)
    if lane.capacity:
        with (directory / "quotas.toml").open("a") as file:
            file.write(f'[[capacity]]\nscope = "broker"\nout = {lane.capacity}\n')
    with SluiceProcess(["--config", str(config)], settings.ports, directory) as sluice:
        yield sluice


def outcome_of(readings: Sequence[Readings]) -> Outcome:
    """Return the table and the bars."""
    alone = readings[0]
    found = {one.lane.name: one for one in readings}
    table = tabulate(
        "Ten consumers at the log's end beside one that replays, all of one client id",
        readings,
        {
            "lane": lambda one: one.lane.name,
            "p99 of the ten": lambda one: f"{one.p99_ms:.1f} ms" if one.delays_ms else "nothing arrived",
            "records": lambda one: len(one.delays_ms),
            "throttled by their quota": lambda one: f"{one.throttled:.0f}",
            "the replay": lambda one: f"{one.replayed / MB:.2f} MB/s" if one.lane.replays else "",
        },
        f"The ten have {CONSUMER_RATE / MB:g} MB/s together and read {alone.present / MB:.2g}; the replay's class has "
        f"{CATCH_UP_RATE / MB:g} MB/s of its own, or 1 MB/s and what the ten leave of a capacity of {CAPACITY / MB:g}.",
    )
    bars = []
    for lane in LANES[2:]:
        one = found.get(lane.name)
        if one is None:
            continue
        left = lane.capacity - one.present if lane.capacity else CATCH_UP_RATE
        name = lane.name.removeprefix("replay, ")
        bars += [
            Bar(f"p99 of the ten: {name}", ratio(one.p99_ms, alone.p99_ms), 1.2),
            Bar(f"the replay, of what is left: {name}", ratio(one.replayed, left), 0.9, at_least=True),
        ]
    return Outcome([table], bars)


def main(console: Console) -> bool:
    """Measure each lane, print and write."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.catch_up", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each lane")
    parser.add_argument(
        "--only", type=int, nargs="*", default=range(len(LANES)), help="lanes by number, from 0"
    )
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    lanes = [LANES[number] for number in sorted({0, *options.only})]
    with Cluster(ClusterOptions(nodes=1)) as cluster, tempfile.TemporaryDirectory() as name:
        # What each connection could read of it, and twice what counts as the log's end.
        each = CAPACITY * (options.seconds + 2 * _SETTLE_SECONDS) / REPLAYS
        topics = Topics(cluster, int(each) + 2 * LAG * _PAST_RECORD_BYTES)
        readings = []
        for number, lane in enumerate(lanes):
            directory = Path(name) / str(number)
            directory.mkdir()
            with gateway(lane, topics.bootstrap, directory) as sluice:
                readings.append(measure(lane, topics, sluice, options.seconds))
            console.print(
                f"{lane.name}: p99 {readings[-1].p99_ms:.1f} ms, {readings[-1].replayed / MB:.2f} MB/s"
            )
    facts = [*machine.describe(), ("amounts", f"{options.seconds:g} s a lane")]
    return report.publish(console, facts, outcome_of(readings), "catch-up" if options.write else "")


if __name__ == "__main__":
    sys.exit(report.run(main))
