"""`python -m tests.bench.reassignment`: three replicas move to three new brokers, all at once and in small batches.

KIP-435's claim, measured: Kafka's own reassignment against Sluice's with R = 1 and R = 2, on one cluster of six
brokers, one after the other, each with a topic that a producer writes to with acks=all. Nothing is throttled.
Everything is measured from outside, the same for every front: what a broker has is read off its log files, who is
catching up off a broker's Metadata, and a record's time is that from handing it to the client to its acknowledgement.
Writes docs/benchmarks.md between the markers `reassignment`; `--quick` is a small move, and prints only.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench import machine, report
from tests.bench.figures import percentile
from tests.bench.report import Bar, Outcome, Table, ratio
from tests.cluster import Cluster, ClusterOptions, processes, tools
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings

OLD: Final = (1, 2, 3)
NEW: Final = (4, 5, 6)
RECORD_BYTES: Final = 10_000
_SAMPLE_SECONDS: Final = 0.05
_PROBE_SECONDS: Final = 0.01
_HEAP: Final = ("-Xms128m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_QUIET: Final = 2  # brokers end before producers

Replicas = list[list[int]]


def largest_second(samples: Sequence[tuple[float, int]]) -> int:
    """Give the most bytes that came in any one second.

    >>> largest_second([(0.0, 0), (0.5, 10), (1.0, 30), (1.5, 40)])
    30
    """
    largest = first = 0
    for at, size in samples:
        while samples[first][0] < at - 1.0:
            first += 1
        largest = max(largest, size - samples[first][1])
    return largest


@dataclass(slots=True)
class Watch:
    """What was seen of one move.

    Attributes:
        samples: (seconds, bytes that the new brokers have).
        catching_up: the most replicas at once that were assigned and not in sync.
        began: when the first partition's replicas were others than before.
        ended: when the last had its target's, all in sync.
    """

    samples: list[tuple[float, int]] = field(default_factory=list)
    catching_up: int = 0
    began: float = 0.0
    ended: float = 0.0


class Probe:
    """A producer with acks=all that writes 100 records a second and keeps each one's time."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.taken: list[tuple[float, float]] = []
        self.failed = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": _QUIET}
        )
        self._topic = topic
        self._partitions = partitions
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(30)

    def times(self, since: float, until: float) -> list[float]:
        """The seconds that records took which were sent in this time."""
        return [seconds for at, seconds in self.taken if since <= at < until]

    def _run(self) -> None:
        sent, due = 0, time.monotonic()
        while not self._ended.is_set():
            now = time.monotonic()
            if now >= due:
                self._send(sent % self._partitions, now)
                sent, due = sent + 1, max(due + _PROBE_SECONDS, now - 1)
            self._producer.poll(max(0.0, due - time.monotonic()))

    def _send(self, partition: int, at: float) -> None:
        def delivered(error: object, message: object) -> None:
            self.failed += error is not None
            self.taken.append((at, time.monotonic() - at))

        self._producer.produce(self._topic, bytes(RECORD_BYTES), partition=partition, on_delivery=delivered)


class Rig:
    """Six brokers, and a Sluice before them where one is asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = Cluster(
            ClusterOptions(nodes=len(OLD + NEW), jvm_options=_HEAP, ready_seconds_max=180.0)
        )

    def __enter__(self) -> Self:
        self.cluster.start()
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap()})
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()

    @contextmanager
    def sluice(self, name: str, reassignment: dict[str, object]) -> Iterator[str]:
        """Run a Sluice with these keys of `[reassignment]`; give its bootstrap address."""
        directory = self.directory / name
        directory.mkdir()
        keys = {"mode": "batch", "journal": str(directory / "journal"), **reassignment}
        settings = SluiceSettings(
            self.cluster.bootstrap(), SluicePorts.free(), sections={"reassignment": keys}
        )
        with SluiceProcess.configured(settings, directory) as process:
            yield process.bootstrap

    def create(self, topic: str, partitions: int, megabytes: float) -> Replicas:
        """Create a topic on the old brokers, fill it, and give its replicas."""
        replicas = [_turned(OLD, number) for number in range(partitions)]
        new = NewTopic(topic, partitions, replica_assignment=replicas, config={"min.insync.replicas": "2"})
        for done in self.admin.create_topics([new]).values():
            done.result(60)
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap(),
                "acks": "all",
                "linger.ms": 20,
                "log_level": _QUIET,
            }
        )
        for number in range(int(megabytes * 1e6 / RECORD_BYTES)):
            for partition in range(partitions):
                producer.produce(topic, bytes(RECORD_BYTES), partition=partition)
            if number % 50 == 0:
                producer.flush()
        assert producer.flush(60) == 0, "every record is written"
        return replicas

    def delete(self, topic: str) -> None:
        """Delete a topic, and its files with it."""
        for done in self.admin.delete_topics([topic]).values():
            done.result(60)

    def begin(self, bootstrap: str, topic: str, partitions: int) -> Replicas:
        """Begin the move to the new brokers with Kafka's own tool; give the targets."""
        targets = [_turned(NEW, number) for number in range(partitions)]
        path = self.directory / f"{topic}.json"
        entries = [{"topic": topic, "partition": number, "replicas": to} for number, to in enumerate(targets)]
        path.write_text(json.dumps({"version": 1, "partitions": entries}))
        words = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(path), "--execute")
        tools.run(tools.REASSIGN_PARTITIONS, *words)
        return targets

    def watch(self, topic: str, before: Replicas, targets: Replicas, ends: threading.Event) -> Watch:
        """Watch a move until it is over, or until the event says that it takes too long."""
        found, size, replicas = Watch(), 0, before
        while not ends.is_set():
            now, size = time.monotonic(), self._size(topic)
            found.samples.append((now, size))
            replicas, in_sync = self._placed(topic)
            behind = sum(len({*all_of} - {*some}) for all_of, some in zip(replicas, in_sync, strict=True))
            found.catching_up = max(found.catching_up, behind)
            if not found.began and replicas != before:
                found.began = now
            if replicas == targets and not behind:
                found.ended = time.monotonic()
                return found
            time.sleep(_SAMPLE_SECONDS)
        raise TimeoutError(f"{topic}: {size} bytes at the new brokers, replicas {replicas}")

    def _size(self, topic: str) -> int:
        total = 0
        for broker in NEW:
            for path in (self.cluster.directory / str(broker) / "data").glob(f"{topic}-*/*.log"):
                try:
                    total += path.stat().st_size
                except FileNotFoundError:  # rolled or deleted meanwhile
                    continue
        return total

    def _placed(self, topic: str) -> tuple[Replicas, Replicas]:
        partitions = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        ordered = [partitions[number] for number in sorted(partitions)]
        return [list(one.replicas) for one in ordered], [list(one.isrs) for one in ordered]


def _turned(brokers: Sequence[int], number: int) -> list[int]:
    at = number % len(brokers)
    return [*brokers[at:], *brokers[:at]]


DOCUMENT: Final = Path("docs/benchmarks.md")
MB: Final = 1_000_000
PARTITION_COUNT: Final = 4  # P
_CALM_SECONDS: Final = 10.0
_MOVE_SECONDS_MAX: Final = 180.0
_SETTLE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Front:
    """The executor of the move; R is 0 if the cluster moves by itself."""

    name: str
    replica_count: int

    @property
    def bound(self) -> int:
        """The most replicas that may be catching up: R × P."""
        return self.replica_count * PARTITION_COUNT


FRONTS: Final = (Front("kafka, all at once", 0), Front("sluice, R = 1", 1), Front("sluice, R = 2", 2))


@dataclass(frozen=True, slots=True)
class Size:
    """How much is moved."""

    partitions: int
    megabytes: float
    calm_seconds: float


FULL: Final = Size(12, 60, _CALM_SECONDS)
QUICK: Final = Size(6, 4, 3.0)


@dataclass(frozen=True, slots=True)
class Result:
    """One front's move."""

    front: Front
    catching_up: int
    bytes_per_second: int
    calm_p99: float
    p99: float
    longest: float
    seconds: float
    failed: int

    def row(self) -> tuple[str, ...]:
        return (
            self.front.name,
            str(self.catching_up),
            f"{self.bytes_per_second / MB:.0f}",
            f"{self.calm_p99 * 1000:.0f}",
            f"{self.p99 * 1000:.0f}",
            f"{self.longest * 1000:.0f}",
            f"{self.seconds:.1f}",
        )


def run_front(rig: Rig, front: Front, size: Size, number: int) -> Result:
    """Fill a topic, write to it, move it, and watch."""
    topic = f"move{number}"
    before = rig.create(topic, size.partitions, size.megabytes)
    late = threading.Event()
    timer = threading.Timer(_MOVE_SECONDS_MAX + size.calm_seconds, late.set)
    sluice: AbstractContextManager[str] = nullcontext(rig.cluster.bootstrap())
    if front.replica_count:
        keys: dict[str, object] = {
            "parallel_replica_count": front.replica_count,
            "parallel_partition_count": PARTITION_COUNT,
        }
        sluice = rig.sluice(topic, keys)
    with sluice as bootstrap, Probe(rig.cluster.bootstrap(), topic, size.partitions) as probe:
        time.sleep(size.calm_seconds)
        calm = probe.times(0, time.monotonic())
        targets = [[broker + 3 for broker in replicas] for replicas in before]
        timer.start()
        with ThreadPoolExecutor(1) as pool:  # the tool takes seconds to begin and to end
            begun = pool.submit(rig.begin, bootstrap, topic, size.partitions)
            begun.add_done_callback(lambda done: late.set() if done.exception() else None)
            try:
                watched = rig.watch(topic, before, targets, late)
            finally:
                timer.cancel()
                begun.result()
        during = probe.times(watched.began, watched.ended)
    rig.delete(topic)
    time.sleep(_SETTLE_SECONDS)
    return Result(
        front=front,
        catching_up=watched.catching_up,
        bytes_per_second=largest_second(watched.samples),
        calm_p99=percentile(sorted(calm[len(calm) // 2 :]), 99),  # the first records also connect
        p99=percentile(sorted(during), 99) if during else 0.0,
        longest=max(during, default=0.0),
        seconds=watched.ended - watched.began,
        failed=probe.failed,
    )


def judge(results: Sequence[Result]) -> Outcome:
    """The bars hold for Sluice, against Kafka in the same run."""
    columns = (
        "front",
        "replicas catching up, at most",
        "MB/s between brokers, largest second",
        "producer p99 before, ms",
        "p99 during, ms",
        "longest, ms",
        "seconds in all",
    )
    note = (
        f"R × P bounds what is catching up: P = {PARTITION_COUNT}. The producer writes 100 records of 10 kB a second "
        "with acks=all. Each step's end is a new leader epoch, after which followers begin to fetch anew, some of them "
        "after replica.fetch.backoff.ms (1 s): more steps, more such moments for that partition's producers. "
        "Seconds run from the first changed replica to the last one in sync."
    )
    table = Table("Three replicas to three new brokers", columns, tuple(one.row() for one in results), note)
    bars = []
    kafka = next((one for one in results if not one.front.replica_count), None)
    for one in results:
        if not one.front.replica_count:
            continue
        name = one.front.name
        bars.append(Bar(f"{name}: replicas catching up", one.catching_up, one.front.bound, "replicas"))
        if kafka is not None:
            rate = ratio(one.bytes_per_second, kafka.bytes_per_second)
            bars.append(Bar(f"{name}: largest second, against Kafka's", rate, 1.0))
    failed = sum(one.failed for one in results)
    bars.append(Bar("records that were not acknowledged", failed, 0, "records"))
    return Outcome([table], bars)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fronts that are asked for; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reassignment", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small move; prints only")
    parser.add_argument("--only", default="", help="fronts whose name holds this; prints only")
    options = parser.parse_args(arguments)
    processes.exit_on_signals()
    size = QUICK if options.quick else FULL
    chosen = [front for front in FRONTS if options.only in front.name]
    results = []
    with tempfile.TemporaryDirectory(prefix="sluice-reassignment-") as directory, Rig(Path(directory)) as rig:
        for number, front in enumerate(chosen):
            result = run_front(rig, front, size, number)
            results.append(result)
            print(" | ".join(result.row()), file=sys.stderr, flush=True)
    outcome = judge(results)
    facts = machine.describe(
        f"six brokers of 400 MiB heap; {size.partitions} partitions of {size.megabytes:g} MB"
    )
    report.show(report.screen(), facts, outcome)
    if not options.quick and not options.only:
        report.write(DOCUMENT, "reassignment", facts, outcome)
    return 0 if all(bar.passed for bar in outcome.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
