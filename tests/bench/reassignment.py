"""`python -m tests.bench.reassignment`: three replicas move to three new brokers, all at once and in small batches.

KIP-435's claim, measured: Kafka's own reassignment against Sluice's with R = 1 and R = 2, on one cluster of six
brokers, one after the other, each with a topic that a producer writes to with acks=all. Nothing is throttled.
Everything is measured from outside, the same for every front: what a broker has is read off its log files, who is
catching up off a broker's Metadata, and a record's time is that from handing it to the client to its acknowledgement.
Writes docs/benchmarks.md between the markers `reassignment`; `--quick` is a small move, and prints only.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from tests.bench import machine, report
from tests.bench.clients import fill
from tests.bench.figures import percentile
from tests.bench.report import Bar, Outcome, ratio, tabulate
from tests.cluster import Cluster, ClusterOptions, tools
from tests.support.growth import watch
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.replication_rig import reassignment_json

OLD: Final = (1, 2, 3)
NEW: Final = (4, 5, 6)
RECORD_BYTES: Final = 10_000
MB: Final = 1_000_000
PARTITION_COUNT: Final = 4  # P
_PROBE_SECONDS: Final = 0.01
_MOVE_SECONDS_MAX: Final = 180.0
_SETTLE_SECONDS: Final = 5.0
_HEAP: Final = ("-Xms128m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_QUIET: Final = 2  # brokers end before producers

Replicas = list[list[int]]


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

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.directory = directory
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})

    def sluice(self, name: str, replica_count: int) -> SluiceProcess:
        """Run a Sluice that has so many replicas of a partition added at a time."""
        directory = self.directory / name
        directory.mkdir()
        keys = {
            "mode": "batch",
            "journal": str(directory / "journal"),
            "parallel_replica_count": replica_count,
            "parallel_partition_count": PARTITION_COUNT,
        }
        settings = SluiceSettings(self.cluster.bootstrap(), sections={"reassignment": keys})
        return SluiceProcess.configured(settings, directory)

    def create(self, topic: str, partitions: int, megabytes: float) -> Replicas:
        """Create a topic on the old brokers, fill it, and give its replicas."""
        replicas = [_turned(OLD, number) for number in range(partitions)]
        new = NewTopic(topic, partitions, replica_assignment=replicas, config={"min.insync.replicas": "2"})
        for done in self.admin.create_topics([new]).values():
            done.result(60)
        records = int(megabytes * MB / RECORD_BYTES)
        fill(self.cluster.bootstrap(), topic, records, RECORD_BYTES, range(partitions), {"acks": "all"})
        return replicas

    def delete(self, topic: str) -> None:
        """Delete a topic, and its files with it."""
        for done in self.admin.delete_topics([topic]).values():
            done.result(60)

    def begin(self, bootstrap: str, topic: str, targets: Replicas) -> None:
        """Begin the move to the new brokers with Kafka's own tool."""
        path = self.directory / f"{topic}.json"
        path.write_text(reassignment_json({topic: targets}))
        words = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(path), "--execute")
        tools.run(tools.REASSIGN_PARTITIONS, *words)

    def size(self, topic: str) -> int:
        """Return the bytes of a topic that the new brokers have."""
        total = 0
        for broker in NEW:
            for path in (self.cluster.directory / str(broker) / "data").glob(f"{topic}-*/*.log"):
                try:
                    total += path.stat().st_size
                except FileNotFoundError:  # rolled or deleted meanwhile
                    continue
        return total

    def placed(self, topic: str) -> tuple[Replicas, Replicas]:
        """Return the replicas of each partition, and those in sync."""
        partitions = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        ordered = [partitions[number] for number in sorted(partitions)]
        return [list(one.replicas) for one in ordered], [list(one.isrs) for one in ordered]


def _turned(brokers: Sequence[int], number: int) -> list[int]:
    at = number % len(brokers)
    return [*brokers[at:], *brokers[:at]]


class Progress:
    """How far a move is.

    Attributes:
        catching_up: the most replicas at once that were assigned and not in sync.
        began: when the first partition's replicas were others than before.
        ended: when the last had its target's, all in sync.
    """

    def __init__(self, rig: Rig, topic: str, before: Replicas, targets: Replicas, tool: Future[None]) -> None:
        self._rig, self._topic, self._before, self._targets = rig, topic, before, targets
        self._tool = tool
        self.catching_up = 0
        self.began = self.ended = 0.0

    def over(self, _size: int) -> bool:
        """Look at the replicas; return whether the move is over."""
        if self._tool.done():
            self._tool.result()  # or it has failed
        now = time.monotonic()
        replicas, in_sync = self._rig.placed(self._topic)
        behind = sum(len({*all_of} - {*some}) for all_of, some in zip(replicas, in_sync, strict=True))
        self.catching_up = max(self.catching_up, behind)
        if not self.began and replicas != self._before:
            self.began = now
        self.ended = time.monotonic()
        return replicas == self._targets and not behind


@dataclass(frozen=True, slots=True)
class Front:
    """The executor of the move; R is 0 if the cluster moves by itself."""

    name: str
    replica_count: int


FRONTS: Final = (Front("kafka, all at once", 0), Front("sluice, R = 1", 1), Front("sluice, R = 2", 2))


@dataclass(frozen=True, slots=True)
class Size:
    """How much is moved."""

    partitions: int
    megabytes: float
    calm_seconds: float


FULL: Final = Size(12, 60, 10.0)
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


_COLUMNS: Final[Mapping[str, Callable[[Result], object]]] = {
    "front": lambda one: one.front.name,
    "replicas catching up, at most": lambda one: one.catching_up,
    "MB/s between brokers, largest second": lambda one: f"{one.bytes_per_second / MB:.0f}",
    "producer p99 before, ms": lambda one: f"{one.calm_p99 * 1000:.0f}",
    "p99 during, ms": lambda one: f"{one.p99 * 1000:.0f}",
    "longest, ms": lambda one: f"{one.longest * 1000:.0f}",
    "seconds in all": lambda one: f"{one.seconds:.1f}",
}


def run_front(rig: Rig, front: Front, size: Size, number: int) -> Result:
    """Fill a topic, write to it, move it, and watch."""
    topic = f"move{number}"
    before = rig.create(topic, size.partitions, size.megabytes)
    targets = [[broker + 3 for broker in replicas] for replicas in before]
    direct = rig.cluster.bootstrap()
    sluice: AbstractContextManager[SluiceProcess | None] = nullcontext()
    if front.replica_count:
        sluice = rig.sluice(topic, front.replica_count)
    with sluice as process, Probe(direct, topic, size.partitions) as probe, ThreadPoolExecutor(1) as pool:
        time.sleep(size.calm_seconds)
        calm = probe.times(0, time.monotonic())
        # The tool takes seconds to begin and to end.
        tool = pool.submit(rig.begin, process.bootstrap if process else direct, topic, targets)
        progress = Progress(rig, topic, before, targets, tool)
        growth = watch(lambda: rig.size(topic), progress.over, _MOVE_SECONDS_MAX)
        tool.result()
        during = probe.times(progress.began, progress.ended)
    rig.delete(topic)
    time.sleep(_SETTLE_SECONDS)
    return Result(
        front=front,
        catching_up=progress.catching_up,
        bytes_per_second=growth.largest_second(),
        calm_p99=percentile(sorted(calm[len(calm) // 2 :]), 99),  # the first records also connect
        p99=percentile(sorted(during), 99) if during else 0.0,
        longest=max(during, default=0.0),
        seconds=progress.ended - progress.began,
        failed=probe.failed,
    )


def judge(results: Sequence[Result]) -> Outcome:
    """The bars hold for Sluice, against Kafka in the same run."""
    note = (
        f"R × P bounds what is catching up: P = {PARTITION_COUNT}. The producer writes 100 records of 10 kB a second "
        "with acks=all. Each step's end is a new leader epoch, after which followers begin to fetch anew, some of them "
        "after replica.fetch.backoff.ms (1 s): more steps, more such moments for that partition's producers. "
        "Seconds run from the first changed replica to the last one in sync."
    )
    kafka, *ours = results
    bars = []
    for one in ours:
        name, most = one.front.name, one.front.replica_count * PARTITION_COUNT
        bars.append(Bar(f"{name}: replicas catching up", one.catching_up, most, "replicas"))
        rate = ratio(one.bytes_per_second, kafka.bytes_per_second)
        bars.append(Bar(f"{name}: largest second, against Kafka's", rate, 1.0))
    failed = sum(one.failed for one in results)
    bars.append(Bar("records that were not acknowledged", failed, 0, "records"))
    return Outcome([tabulate("Three replicas to three new brokers", results, _COLUMNS, note)], bars)


def main(console: Console) -> bool:
    """Run all fronts; return whether every bar is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reassignment", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small move; prints only")
    quick = parser.parse_args().quick
    size = QUICK if quick else FULL
    wanted = ClusterOptions(nodes=len(OLD + NEW), jvm_options=_HEAP, ready_seconds_max=180.0)
    with tempfile.TemporaryDirectory(prefix="sluice-reassignment-") as directory, Cluster(wanted) as cluster:
        rig = Rig(Path(directory), cluster)
        results = [run_front(rig, front, size, number) for number, front in enumerate(FRONTS)]
    facts = machine.describe(
        f"six brokers of 400 MiB heap; {size.partitions} partitions of {size.megabytes:g} MB"
    )
    return report.publish(console, facts, judge(results), "" if quick else "reassignment")


if __name__ == "__main__":
    sys.exit(report.run(main))
