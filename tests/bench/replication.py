"""`python -m tests.bench.replication`: the test plan of KIP-73, by Kafka's throttle and by Sluice's, in one run.

Each front has a cluster of its own: `kafka` replicates directly and is throttled by kafka-reassign-partitions;
`schedule` and `kip73` replicate through Sluice, which throttles what reassignments add. What a broker has is read off
its log files 50 times a second. Writes docs/benchmarks.md between the markers `replication`; with `--only` it prints.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tests.bench import machine, report
from tests.bench.results import Bar, Outcome, Table
from tests.cluster import processes
from tests.support.replication_rig import RECORD_BYTES, ReplicationRig

__all__ = ["main"]

MB: Final = 1_000_000
FRONTS: Final = ("kafka", "schedule", "kip73")
DOCUMENT: Final = Path("docs/benchmarks.md")
# Beside a partition that is left out nearly always, one that is never.
_FREE: Final = "unthrottled beside throttled"
_FREE_MB: Final = 300
_HELD_RATE: Final = MB / 10
_SETTLE_SECONDS: Final = 2.0
_PRODUCE_RATE: Final = 0.25  # of the throttle


@dataclass(frozen=True, slots=True)
class Scenario:
    """One move: partitions from some brokers to others.

    Args:
        partitions: how many; their leaders are dealt out over `sources`.
        targets: each partition goes to one of them.
        rate: the throttle of each broker, bytes/s.
        produces: whether somebody writes to the partitions meanwhile, a quarter of the throttle.
    """

    name: str
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    megabytes: float
    partitions: int
    rate: float
    produces: bool = False
    batch_bytes: int = 100_000

    @property
    def streams(self) -> int:
        """How many brokers' throttles the move passes at a time: the fewer of both sides."""
        return min(len(self.sources), len(self.targets))

    @property
    def limit(self) -> float:
        """Bytes/s of the whole move."""
        return self.rate * self.streams


SCENARIOS: Final = (
    Scenario("burst: 1 partition, 40 MB", (1,), (2,), 40, 1, 4 * MB),
    Scenario("1 to 1 node", (1,), (2,), 40, 100, 4 * MB),
    Scenario("1 to 1 node, with producers", (1,), (2,), 40, 100, 4 * MB, produces=True),
    Scenario("1 to 2 nodes", (1,), (2, 3), 40, 100, 4 * MB),
    Scenario("1 to 2 nodes, with producers", (1,), (2, 3), 40, 100, 4 * MB, produces=True),
    Scenario("2 nodes to 1", (1, 2), (3,), 40, 100, 4 * MB),
    Scenario("2 nodes to 1, with producers", (1, 2), (3,), 40, 100, 4 * MB, produces=True),
    Scenario("a tenth of a megabyte a second", (1,), (2,), 2, 1, MB / 10, batch_bytes=20_000),
)


@dataclass(frozen=True, slots=True)
class Result:
    """One scenario by one front."""

    front: str
    scenario: Scenario
    achieved: float  # rate / quota
    largest: float  # largest second / quota
    largest_bytes: float
    seconds: float
    estimated: float

    def row(self) -> tuple[str, ...]:
        return (
            self.scenario.name,
            self.front,
            f"{self.achieved:.3f}",
            f"{self.largest:.2f}",
            f"{self.seconds:.1f}",
            f"{self.estimated:.1f}",
        )


@contextmanager
def rig_of(front: str) -> Iterator[ReplicationRig]:
    """Start a cluster, and Sluice before it."""
    keys = {"throttled": "reassignments", "policy": front} if front != "kafka" else {}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-replication-") as directory,
        ReplicationRig(Path(directory), keys, proxied=front != "kafka") as rig,
    ):
        yield rig


@contextmanager
def producing(rig: ReplicationRig, topic: str, partitions: int, rate: float) -> Iterator[None]:
    """Write to every partition in turn at a steady rate."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": rig.cluster.bootstrap(), "linger.ms": 5, "acks": "1"})
        started, sent = time.monotonic(), 0
        while not ended.wait(0.02):
            while sent * RECORD_BYTES < (time.monotonic() - started) * rate:
                producer.produce(topic, bytes(RECORD_BYTES), partition=sent % partitions)
                sent += 1
            producer.poll(0)
        producer.flush(20)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run_scenario(rig: ReplicationRig, front: str, scenario: Scenario, number: int) -> Result:
    """Fill a topic, move it, and watch it come."""
    topic = f"move-{number}"
    sources, targets = scenario.sources, scenario.targets
    before = [[sources[index % len(sources)]] for index in range(scenario.partitions)]
    after = [[*old, targets[index % len(targets)]] for index, old in enumerate(before)]
    rig.create(topic, before)
    rig.fill(topic, scenario.megabytes / scenario.partitions, scenario.partitions, scenario.batch_bytes)
    if front != "kafka":
        throttle(rig, scenario.rate)
    size = sum(rig.size(topic, source) for source in sources)
    written = _PRODUCE_RATE * scenario.limit if scenario.produces else 0.0
    estimated = size / (scenario.limit - written)
    throttled = int(scenario.rate) if front == "kafka" else None

    def wanted() -> int:
        return sum(rig.size(topic, source) for source in sources)

    def begin() -> None:
        rig.reassign({topic: after}, throttled)

    if scenario.produces:
        with producing(rig, topic, scenario.partitions, written):
            samples = watch(rig, topic, targets, begin, wanted, written / 2, 6 * estimated + 30)
    else:
        samples = watch(rig, topic, targets, begin, wanted, written / 2, 6 * estimated + 30)
    if throttled is not None:
        rig.reassign({topic: after}, None, "--verify")
    time.sleep(_SETTLE_SECONDS)
    seconds = samples[-1][0] - samples[0][0]
    amount = samples[-1][1]
    largest = largest_second(samples)
    return Result(
        front,
        scenario,
        amount / seconds / scenario.limit,
        largest / scenario.limit,
        largest,
        seconds,
        estimated,
    )


def run_free(rig: ReplicationRig, front: str) -> float:
    """Move a partition that is not throttled beside one that is and falls behind, on one connection; gives MB/s."""
    for topic, megabytes in (("held", 20), ("free", _FREE_MB)):
        rig.create(topic, [[1]])
        rig.fill(topic, megabytes, 1)
    if front == "kafka":
        rig.reassign({"held": [[1, 2]]}, int(_HELD_RATE))
    else:
        throttle(rig, _HELD_RATE, throttled="file", leader_throttled_replicas={"held": "*"})
        rig.reassign({"held": [[1, 2]]})
    rig.watch("held", 2, 1)
    size = rig.size("free", 1)
    starter = threading.Thread(
        target=rig.reassign, args=({"free": [[1, 2]]}, None, "--execute", "--additional")
    )
    starter.start()
    watched = rig.watch("free", 2, size)
    starter.join()
    return watched.rate / MB


def throttle(rig: ReplicationRig, rate: float, **more: object) -> None:
    """Set Sluice's rates, and wait until they hold."""
    assert rig.sluice is not None, "this front has a Sluice"
    sluice = rig.sluice
    before = sluice.metric("sluice_reloads_total", result="ok")
    rig.settings(leader_rate=int(rate), follower_rate=int(rate), **more).write(rig.directory)
    deadline = time.monotonic() + 20
    while sluice.metric("sluice_reloads_total", result="ok") <= before:
        if time.monotonic() > deadline:
            raise TimeoutError("Sluice has not read its configuration again")
        time.sleep(0.1)


def watch(
    rig: ReplicationRig,
    topic: str,
    targets: Sequence[int],
    begin: Callable[[], None],
    wanted: Callable[[], int],
    behind: float,
    seconds_max: float,
) -> list[tuple[float, int]]:
    """Sample what the targets have together, from the first byte until they have everything."""
    samples: list[tuple[float, int]] = []
    starter = threading.Thread(target=begin)  # the tool takes seconds to end
    starter.start()
    deadline = time.monotonic() + seconds_max
    last = (time.monotonic(), 0)
    while True:
        now, size = time.monotonic(), sum(rig.size(topic, target) for target in targets)
        if size and not samples:
            samples.append(last)
        if samples:
            samples.append((now, size))
        last = (now, size)
        # What is being written is on its way for ever: half a second of it behind is caught up.
        if size and size >= wanted() - behind and not starter.is_alive():
            starter.join()
            return samples
        if now > deadline:
            raise TimeoutError(f"{topic}: {size} of {wanted()} bytes after {seconds_max:.0f} s")
        time.sleep(0.02)


def largest_second(samples: Sequence[tuple[float, int]]) -> int:
    """The most bytes in any one second."""
    largest = first = 0
    for at, size in samples:
        while samples[first][0] < at - 1.0:
            first += 1
        largest = max(largest, size - samples[first][1])
    return largest


def judge(results: Sequence[Result]) -> Outcome:
    """The bars hold for `schedule`."""
    ours = [result for result in results if result.front == "schedule"]
    rates = [result.achieved for result in ours if not result.scenario.produces]
    over = max(
        (
            result.largest_bytes - result.scenario.limit - result.scenario.batch_bytes
            for result in ours
            if not result.scenario.produces
        ),
        default=0,
    )
    times = [abs(result.seconds / result.estimated - 1) for result in ours if not result.scenario.produces]
    bars = [
        Bar("schedule: lowest achieved / quota", min(rates, default=0), 0.95, at_least=True),
        Bar("schedule: highest achieved / quota", max(rates, default=0), 1.02),
        Bar(
            "schedule: bytes of the largest second over quota and one batch, without producers",
            over,
            0,
            "bytes",
        ),
        Bar("schedule: time against the estimate, without producers", max(times, default=0), 0.10),
    ]
    columns = ("move", "throttle", "achieved / quota", "largest second / quota", "seconds", "estimated")
    return Outcome([Table("Moves", columns, tuple(result.row() for result in results))], bars)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fronts and scenarios that are asked for; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replication", description=__doc__)
    parser.add_argument("--fronts", default=",".join(FRONTS), help="some of " + ", ".join(FRONTS))
    parser.add_argument("--only", default="", help="scenarios whose name holds this; prints only")
    options = parser.parse_args(arguments)
    processes.exit_on_signals()
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    results = []
    free: dict[str, float] = {}
    for front in options.fronts.split(","):
        with rig_of(front) as rig:
            for number, scenario in enumerate(chosen):
                result = run_scenario(rig, front, scenario, number)
                results.append(result)
                print(" | ".join(result.row()), file=sys.stderr, flush=True)
            if options.only in _FREE:
                free[front] = run_free(rig, front)
                print(f"{_FREE} | {front} | {free[front]:.0f} MB/s", file=sys.stderr, flush=True)
    results.sort(key=lambda result: SCENARIOS.index(result.scenario))
    outcome = judge(results)
    outcome.tables.append(
        Table(
            "An unthrottled partition beside a throttled one, on the same connection",
            ("front", "MB/s"),
            tuple((front, f"{rate:.0f}") for front, rate in free.items()),
        )
    )
    if "kafka" in free and "schedule" in free:
        name = "schedule: unthrottled beside throttled, against no proxy"
        outcome.bars.append(Bar(name, free["schedule"] / free["kafka"], 0.95, at_least=True))
    facts = machine.describe("up to three brokers")
    report.show(report.screen(), facts, outcome)
    if not options.only and options.fronts == ",".join(FRONTS):
        report.write(DOCUMENT, "replication", facts, outcome)
    return 0 if all(bar.passed for bar in outcome.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
