"""`python -m tests.bench.reassignment`: three replicas move to three new brokers, all at once and in small batches.

KIP-435's claim, measured: Kafka's own reassignment against Sluice's with R = 1 and R = 2, on one cluster of six
brokers, one after the other, each with a topic that a producer writes to with acks=all. Nothing is throttled.
Writes docs/benchmarks.md between the markers `reassignment`; `--quick` is a small move, and prints only.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import machine, report
from tests.bench.reassignment_rig import Probe, Rig, largest_second, percentile
from tests.bench.results import Bar, Outcome, Table, ratio
from tests.cluster import processes

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
        calm_p99=percentile(calm[len(calm) // 2 :], 0.99),  # the first records also connect
        p99=percentile(during, 0.99),
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
