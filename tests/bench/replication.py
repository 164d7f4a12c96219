"""`python -m tests.bench.replication`: the test plan of KIP-73, by Kafka's throttle and by Sluice's, in one run.

Each front has a cluster of its own: `kafka` replicates directly and is throttled by kafka-reassign-partitions;
`schedule` and `kip73` replicate through Sluice, which throttles what reassignments add. What a broker has is read off
its log files 50 times a second. Writes docs/benchmarks.md between the markers `replication`; with `--only` it prints.

A front is who throttles. Throttles are set while something runs: the brokers' own, or Sluice's.

Kafka's own tests of replication quotas, with their figures, in front of Sluice and without it.

- ReplicationQuotasTest: six leaders, two followers that come late, six throttled and two free partitions of 10 MB; the
  leaders held to 1 MB/s, or the followers to 3 MB/s. Free partitions within 9 s, throttled ones in 9 to 30 s, the rate
  at 0.5 to 1.1 of the quota. Old segments: 20 MB at 5 MB/s in 3.6 to 6 s.
- throttling_test.py: three partitions with two replicas each move at 4 MiB/s to other brokers while a producer writes
  and consumes, with every other broker bounced or not: not before 0.9 of the estimate, nothing lost. Its 0.8 GB are
  0.08 here.
- KAFKA-4313: low-volume partitions beside a high-volume one that is behind, all replicas listed; no ISR may flap.
- An unthrottled partition beside a throttled one on the same connection.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, Literal

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # theirs
from rich.console import Console

from tests.bench import machine, report
from tests.bench.clients import fill
from tests.bench.report import Bar, Outcome, Table, tabulate
from tests.support.growth import Growth, Milestone, watch
from tests.support.numbered import NumberedProducer, lost
from tests.support.replication_rig import RECORD_BYTES, ReplicationRig
from tests.support.waiting import until

MB: Final = 1_000_000
_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def set_rates(rig: ReplicationRig, front: str, rate: float | None, **more: object) -> None:
    """Set every broker's rates, or take them away; Sluice's hold when it returns, Kafka's within a moment."""
    if front == "kafka":
        value = None if rate is None else str(int(rate))
        _alter_brokers(rig, dict.fromkeys((_LEADER_RATE, _FOLLOWER_RATE), value))
        return
    assert rig.sluice is not None, "this front has a Sluice"
    keys: dict[str, object] = {"throttled": "off"}
    if rate is not None:
        keys = {"throttled": "reassignments", "leader_rate": int(rate), "follower_rate": int(rate), **more}
    rig.settings(**keys).write(rig.directory)
    rig.sluice.reload()


@contextmanager
def throttled_topics(
    rig: ReplicationRig,
    front: str,
    topics: Mapping[str, tuple[str, str]],
    leader: float | None,
    follower: float | None,
) -> Iterator[None]:
    """Throttle the replicas of these topics (leaders' list, followers' list) for a while."""
    if front == "kafka":
        for topic, texts in topics.items():
            _alter(rig, ConfigResource.Type.TOPIC.value, topic, dict(zip(_LISTS, texts, strict=True)))
        rates = ((_LEADER_RATE, leader), (_FOLLOWER_RATE, follower))
        _alter_brokers(rig, {name: str(int(rate)) for name, rate in rates if rate})
    else:
        set_rates(
            rig,
            front,
            leader or follower,
            throttled="file",
            leader_throttled_replicas={topic: lists[0] for topic, lists in topics.items()},
            follower_throttled_replicas={topic: lists[1] for topic, lists in topics.items()},
            # A throttle that is never reached stands for none.
            leader_rate=int(leader or 1e12),
            follower_rate=int(follower or 1e12),
        )
    try:
        yield
    finally:
        set_rates(rig, front, None)


def _alter_brokers(rig: ReplicationRig, configs: Mapping[str, str | None]) -> None:
    for broker in rig.cluster.nodes:  # librdkafka takes one broker a call
        _alter(rig, ConfigResource.Type.BROKER.value, str(broker), configs)


def _alter(rig: ReplicationRig, kind: int, name: str, configs: Mapping[str, str | None]) -> None:
    """Change one topic's or broker's configs; None deletes."""
    entries = [
        ConfigEntry(
            *(key, value or ""),
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type(kind), name, incremental_configs=entries)
    for done in rig.admin.incremental_alter_configs([resource]).values():
        done.result(30)


_SETTLE_SECONDS: Final = 2.0
_PRODUCE_RATE: Final = 0.25  # of the throttle

Event = Literal["", "changed and removed", "Sluice killed", "follower bounced"]


@dataclass(frozen=True, slots=True)
class Move:
    """Partitions that go from some brokers to others.

    Args:
        partitions: how many; their leaders are dealt out over `sources`.
        targets: each partition goes to one of them.
        rate: the throttle of each broker, bytes/s.
        produces: whether a producer writes to the partitions meanwhile, a quarter of the throttle.
        event: what happens when a quarter of the bytes are there.
    """

    name: str
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    megabytes: float
    partitions: int
    rate: float
    produces: bool = False
    batch_bytes: int = 100_000
    event: Event = ""

    @property
    def limit(self) -> float:
        """Bytes/s of the whole move: the throttles of the side that has fewer brokers."""
        return self.rate * min(len(self.sources), len(self.targets))

    @property
    def steady(self) -> bool:
        """Whether nothing but the throttle says how long it takes."""
        return not (self.produces or self.event)


MOVES: Final = (
    Move("burst: 1 partition, 40 MB", (1,), (2,), 40, 1, 4 * MB),
    Move("1 to 1 node", (1,), (2,), 40, 100, 4 * MB),
    Move("1 to 1 node, with producers", (1,), (2,), 40, 100, 4 * MB, produces=True),
    Move("1 to 2 nodes", (1,), (2, 3), 40, 100, 4 * MB),
    Move("1 to 2 nodes, with producers", (1,), (2, 3), 40, 100, 4 * MB, produces=True),
    Move("2 nodes to 1", (1, 2), (3,), 40, 100, 4 * MB),
    Move("2 nodes to 1, with producers", (1, 2), (3,), 40, 100, 4 * MB, produces=True),
    Move("a tenth of a megabyte a second", (1,), (2,), 2, 1, MB / 10, batch_bytes=20_000),
    Move("throttle doubled at 1/4, removed at 3/4", (1,), (3,), 40, 10, 2 * MB, event="changed and removed"),
    Move("Sluice killed and started at 1/4", (1,), (3,), 40, 10, 4 * MB, event="Sluice killed"),
    Move("follower bounced at 1/4", (1,), (3,), 40, 10, 4 * MB, event="follower bounced"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """One move by one front; the rates are shares of the quota."""

    front: str
    move: Move
    achieved: float
    largest: float
    largest_bytes: int
    seconds: float
    estimated: float


COLUMNS: Final[Mapping[str, Callable[[Result], object]]] = {
    "move": lambda one: one.move.name,
    "throttle": lambda one: one.front,
    "achieved / quota": lambda one: f"{one.achieved:.3f}",
    "largest second / quota": lambda one: f"{one.largest:.2f}",
    "seconds": lambda one: f"{one.seconds:.1f}",
    "estimated": lambda one: f"{one.estimated:.1f}",
}


def run_move(rig: ReplicationRig, front: str, move: Move, number: int) -> Result:
    """Fill a topic, move it, and watch it come."""
    topic = f"move-{number}"
    before = [[move.sources[index % len(move.sources)]] for index in range(move.partitions)]
    after = [[*old, move.targets[index % len(move.targets)]] for index, old in enumerate(before)]
    rig.create(topic, before)
    rig.fill(topic, move.megabytes / move.partitions, move.partitions, move.batch_bytes)
    if front != "kafka":
        set_rates(rig, front, move.rate)
    size = sum(rig.size(topic, source) for source in move.sources)
    written = _PRODUCE_RATE * move.limit if move.produces else 0.0
    estimated = size / (move.limit - written)
    throttled = int(move.rate) if front == "kafka" else None
    starter = threading.Thread(target=rig.reassign, args=({topic: after}, throttled))
    event = _EventAt(rig, front, move, size)

    def have() -> int:
        return sum(rig.size(topic, target) for target in move.targets)

    def done(size: int) -> bool:
        # What is being written is on its way for ever: half a second of it behind is caught up.
        wanted = sum(rig.size(topic, source) for source in move.sources)
        return 0 < wanted - written / 2 <= size and not starter.is_alive()

    with producing(rig, topic, move.partitions, written) if written else nullcontext():
        starter.start()  # the tool takes seconds to end
        growth = watch(have, done, 6 * estimated + 60, event.milestones)
        starter.join()
    if throttled is not None:
        rig.reassign({topic: after}, None, "--verify")
    if front != "kafka":
        set_rates(rig, front, move.rate)
    time.sleep(_SETTLE_SECONDS)
    return event.result(front, growth, estimated)


class _EventAt:
    """What happens in the middle of a move, and what the move's time and rate then mean."""

    def __init__(self, rig: ReplicationRig, front: str, move: Move, size: int) -> None:
        self._rig = rig
        self._move = move
        self._quarter = size // 4
        self._down_seconds = 0.0
        raised = Milestone(self._quarter, lambda: set_rates(rig, front, 2 * move.rate))
        removed = Milestone(3 * self._quarter, lambda: set_rates(rig, front, None))
        self.milestones: Sequence[Milestone] = {
            "": (),
            "changed and removed": (raised, removed),
            "Sluice killed": (self._outage(self._kill),),
            "follower bounced": (self._outage(self._bounce),),
        }[move.event]

    def result(self, front: str, growth: Growth, estimated: float) -> Result:
        move, quarter = self._move, self._quarter
        limit, seconds, amount = move.limit, growth.seconds, float(growth.samples[-1].size)
        largest = growth.largest_second()
        if move.event == "changed and removed":
            limit *= 2
            # A quarter at the first rate, a half at twice that, and the rest at once.
            estimated = quarter / move.limit + 2 * quarter / limit
            seconds, largest = growth.seconds_until(3 * quarter), 0
        if move.event:  # no broker replicates during an outage, or not for all of it
            estimated += self._down_seconds
            amount = limit * estimated
        return Result(front, move, amount / seconds / limit, largest / limit, largest, seconds, estimated)

    def _outage(self, act: Callable[[], None]) -> Milestone:
        def run() -> None:
            began = time.monotonic()
            act()
            self._down_seconds = time.monotonic() - began

        return Milestone(self._quarter, run)

    def _kill(self) -> None:
        assert self._rig.sluice is not None, "this front has a Sluice"
        self._rig.sluice.kill()
        self._rig.start_sluice()
        self._rig.sluice.wait_ready()

    def _bounce(self) -> None:
        for broker in self._move.targets:
            self._rig.cluster.stop_broker(broker)
            self._rig.cluster.start_broker(broker)


@contextmanager
def producing(rig: ReplicationRig, topic: str, partitions: int, rate: float) -> Iterator[None]:
    """Write to every partition in turn at a steady rate."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": rig.cluster.bootstrap(), "linger.ms": 5, "acks": "1", "log_level": 0}
        )
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


_PLANNED_NODES: Final = 8
_LEADERS: Final = (1, 2, 3, 4, 5, 6)
_LATE: Final = (7, 8)
_RECORDS: Final = 100
_RECORD_BYTES: Final = 100_000
_FREE_REPEATS: Final = 5
_FREE_MB: Final = 200
_MIB: Final = 1 << 20
_BOUNCED: Final = (1, 3, 5)
_FLAP_SECONDS: Final = 40.0  # longer than replica.lag.time.max.ms, 30 s


@dataclass(slots=True)
class Plans:
    """What one front did in every plan."""

    front: str
    console: Console
    rows: list[tuple[str, ...]] = field(default_factory=list)
    free_rate: float = 0.0  # MB/s of an unthrottled partition beside a throttled one
    shrinks: int = 0

    def add(self, plan: str, what: str, measured: object, expected: str, holds: bool) -> None:
        """Write a row of the table."""
        shown = f"{measured:.1f}" if isinstance(measured, float) else str(measured)
        self.rows.append((plan, self.front, what, shown, expected, "yes" if holds else "NO"))
        self.console.print(" | ".join(self.rows[-1]))


def run_plans(rig: ReplicationRig, front: str, console: Console) -> Plans:
    """Run all of them on a cluster of eight brokers."""
    plans = Plans(front, console)
    _quotas_test(rig, plans, leaders=True)
    _quotas_test(rig, plans, leaders=False)
    _old_segments(rig, plans)
    _throttling_test(rig, plans, bounced=())
    _throttling_test(rig, plans, bounced=_BOUNCED)
    _low_beside_high(rig, plans)
    _free_beside_throttled(rig, plans)
    return plans


def plan_tables(found: Sequence[Plans]) -> list[Table]:
    """The plans beside each other."""
    rows = sorted((row for plans in found for row in plans.rows), key=lambda row: (row[0], row[2]))
    columns = ("test", "throttle", "what", "measured", "Kafka's test asks for", "holds")
    title = "An unthrottled partition beside a throttled one, on the same connection"
    free = tuple((plans.front, f"{plans.free_rate:.0f}") for plans in found)
    note = (
        f"Median of {_FREE_REPEATS} partitions of {_FREE_MB} MB, one after another; two cores for everything."
    )
    return [Table("Kafka's own tests", columns, tuple(rows)), Table(title, ("throttle", "MB/s"), free, note)]


def plan_bars(found: Sequence[Plans]) -> list[Bar]:
    """What must hold for `schedule`; it runs after Kafka."""
    kafka, ours = found
    failed = sum(row[-1] == "NO" for row in ours.rows)
    share = ours.free_rate / kafka.free_rate
    return [
        Bar("schedule: figures of Kafka's own tests that do not hold", failed, 0, ""),
        Bar("schedule: times that a low-volume partition left the ISR", ours.shrinks, 0, ""),
        Bar("schedule: unthrottled beside throttled, against no proxy", share, 0.95, at_least=True),
    ]


def _fill(
    rig: ReplicationRig,
    topic: str,
    partitions: Sequence[int],
    records: int,
    record_bytes: int = _RECORD_BYTES,
) -> None:
    config = {"acks": "1", "queue.buffering.max.kbytes": 400_000}
    fill(rig.cluster.bootstrap(), topic, records, record_bytes, partitions, config)


def _partition_size(rig: ReplicationRig, topic: str, partition: int, broker: int) -> int:
    data = rig.cluster.directory / str(broker) / "data" / f"{topic}-{partition}"
    return sum(path.stat().st_size for path in data.glob("*.log"))


def _watching(
    pool: ThreadPoolExecutor, read: Callable[[], int], size: int, seconds: float
) -> "Future[Growth]":
    return pool.submit(watch, read, lambda have: have >= size, seconds)


def _quotas_test(rig: ReplicationRig, plans: Plans, *, leaders: bool) -> None:
    """ReplicationQuotasTest: shouldMatchQuotaReplicatingThroughAnAsymmetricTopology."""
    topic = f"asymmetric-{'leader' if leaders else 'follower'}"
    late = (7, 7, 7, 8, 8, 8)
    pairs = [[leader, follower] for leader, follower in zip(_LEADERS, late, strict=True)]
    rig.create(topic, [*pairs, [1, 7], [2, 8]])
    listed = ",".join(f"{number}:{pair[0 if leaders else 1]}" for number, pair in enumerate(pairs))
    lists, rates = ((listed, ""), (MB, None)) if leaders else (("", listed), (None, 3 * MB))

    def size(partitions: Sequence[tuple[int, int]]) -> int:
        return sum(_partition_size(rig, topic, partition, broker) for partition, broker in partitions)

    with (
        throttled_topics(rig, plans.front, {topic: lists}, *rates),
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        # The throttle is set before: a broker's configs are set by a request to that broker.
        for broker in _LATE:
            rig.cluster.kill_broker(broker)
        _fill(rig, topic, range(8), _RECORDS)
        free, throttled = size([(6, 1), (7, 2)]), size([*enumerate(_LEADERS)])
        freely = _watching(pool, lambda: size([(6, 7), (7, 8)]), free, 120)
        held = _watching(pool, lambda: size([*enumerate(late)]), throttled, 120)
        for broker in _LATE:
            rig.cluster.start_broker(broker, wait=False)
        rig.cluster.wait_ready()
        growth, free_growth = held.result(), freely.result()
    plan = "ReplicationQuotasTest, " + ("leaders at 1 MB/s" if leaders else "followers at 3 MB/s")
    seconds, free_seconds = growth.seconds, free_growth.seconds
    share = growth.rate / (MB * len(_LEADERS) if leaders else 3 * MB * len(_LATE))
    plans.add(plan, "free partitions, s", free_seconds, "< 9", free_seconds < 9)
    plans.add(plan, "throttled partitions, s", seconds, "9 to 30", 9 <= seconds <= 30)
    plans.add(plan, "rate / quota", f"{share:.2f}", "0.5 to 1.1", 0.5 <= share <= 1.1)


def _old_segments(rig: ReplicationRig, plans: Plans) -> None:
    """ReplicationQuotasTest: shouldThrottleOldSegments."""
    rig.create("segments", [[1, 8]], **{"segment.bytes": str(_MIB)})
    with (
        throttled_topics(rig, plans.front, {"segments": ("0:1", "")}, 5 * MB, None),
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        rig.cluster.kill_broker(8)
        _fill(rig, "segments", (0,), 200)
        watching = _watching(pool, lambda: rig.size("segments", 8), rig.size("segments", 1), 60)
        rig.cluster.start_broker(8)
        seconds = watching.result().seconds
    # Kafka's test reads the clock after the first fetches; here the first bytes begin it, so it is a little longer.
    plans.add("ReplicationQuotasTest, old segments", "s", seconds, "3.6 to 6.0", 3.6 <= seconds <= 6)


def _throttling_test(rig: ReplicationRig, plans: Plans, bounced: Sequence[int]) -> None:
    """throttling_test.py, a tenth of its size."""
    topic = "throttling-" + ("bounced" if bounced else "still")
    rig.create(topic, [[1, 2], [2, 3], [3, 1]], **{"segment.bytes": str(64 * _MIB)})
    rig.create(f"{topic}-verified", [[4, 5, 6]], **{"min.insync.replicas": "1"})
    _fill(rig, topic, range(3), 67, 409_600)
    size = sum(rig.size(topic, broker) for broker in (1, 2, 3)) // 2
    rate = 4 * _MIB
    after = {topic: [[4, 5], [5, 6], [6, 4]]}
    throttled = rate if plans.front == "kafka" else None
    if throttled is None:
        set_rates(rig, plans.front, rate)
    # Each leader sends its partition, a third of the bytes, twice.
    estimated = 2 * size / 3 / rate
    bootstrap = rig.cluster.bootstrap()
    with (
        NumberedProducer(bootstrap, f"{topic}-verified", records_per_second=1000) as verified,
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        began = time.monotonic()
        starter = threading.Thread(target=rig.reassign, args=(after, throttled))
        starter.start()
        there = _watching(pool, lambda: sum(rig.size(topic, broker) for broker in (4, 5, 6)), 2 * size, 300)
        for broker in bounced:
            rig.cluster.stop_broker(broker)
            rig.cluster.start_broker(broker)
        seconds = there.result().seconds
        starter.join()
        wanted = {0: {4, 5}, 1: {5, 6}, 2: {6, 4}}
        until(lambda: rig.in_sync(topic) == wanted, f"{topic} is in sync", 120, pause=0.2)
        whole = time.monotonic() - began
    if throttled is not None:
        rig.reassign(after, None, "--verify")
    plan = "throttling_test.py" + (", every other broker bounced" if bounced else "")
    least, most = 0.9 * estimated, 2 * estimated
    plans.add(plan, "s until all bytes are there", seconds, f"≥ {least:.1f}", seconds >= least)
    if not bounced:
        plans.add(
            plan, "s until it is complete", whole, f"≤ {most:.1f} + start of the tool", whole <= most + 5
        )
    missing = len(lost(verified, bootstrap))
    shown = f"{len(verified.delivered)}, {missing}"
    plans.add(plan, "records acknowledged, lost", shown, "none lost", not missing)


def _low_beside_high(rig: ReplicationRig, plans: Plans) -> None:
    """KAFKA-4313: no replica leaves the ISR because others are throttled."""
    rig.create("low", [[1, 3]] * 4)
    rig.create("high", [[1]])
    _fill(rig, "high", (0,), 400)
    looks = 0
    with throttled_topics(rig, plans.front, {"low": ("*", "*"), "high": ("*", "*")}, MB / 2, MB / 2):
        rig.reassign({"high": [[1, 3]]})
        rig.watch("high", 3, 100_000)
        deadline = time.monotonic() + _FLAP_SECONDS
        while time.monotonic() < deadline:
            _fill(rig, "low", range(4), 1, 2_000)
            looks += 1
            plans.shrinks += sum(replicas != {1, 3} for replicas in rig.in_sync("low").values())
            time.sleep(0.2)
        held = rig.size("high", 3) < rig.size("high", 1)
    name = f"low-volume replicas out of the ISR, {looks} looks"
    plans.add("KAFKA-4313", name, plans.shrinks, "0", not plans.shrinks)
    plans.add("KAFKA-4313", "the high-volume one is still held", "yes" if held else "no", "yes", held)
    rig.watch("high", 3, rig.size("high", 1))


def _free_beside_throttled(rig: ReplicationRig, plans: Plans) -> None:
    """Move partitions that are not throttled beside one that is and falls behind."""
    rig.create("held", [[1]])
    _fill(rig, "held", (0,), 200)
    rates = []
    with throttled_topics(rig, plans.front, {"held": ("*", "")}, MB / 10, None):
        rig.reassign({"held": [[1, 2]]})
        rig.watch("held", 2, 1)
        for number in range(_FREE_REPEATS):
            topic = f"free-{number}"
            rig.create(topic, [[1]])
            _fill(rig, topic, (0,), _FREE_MB * MB // _RECORD_BYTES)
            size = rig.size(topic, 1)
            plan = {topic: [[1, 2]]}
            starter = threading.Thread(target=rig.reassign, args=(plan, None, "--execute", "--additional"))
            starter.start()
            rates.append(rig.watch(topic, 2, size).rate / MB)
            starter.join()
    plans.free_rate = median(rates)
    plans.console.print(f"unthrottled | {plans.front} | {rates}")


FRONTS: Final = ("kafka", "schedule", "kip73")
_NODES: Final = 3
_PLANNED: Final = ("kafka", "schedule")  # who does Kafka's own tests as well


@contextmanager
def rig_of(front: str, nodes: int) -> Iterator[ReplicationRig]:
    """Start a cluster, and Sluice before it."""
    keys = {"throttled": "reassignments", "policy": front} if front != "kafka" else {}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-replication-") as directory,
        ReplicationRig(Path(directory), keys, nodes=nodes, proxied=front != "kafka") as rig,
    ):
        yield rig


def judge(results: Sequence[Result]) -> Outcome:
    """The bars hold for `schedule`."""
    steady = [result for result in results if result.front == "schedule" and result.move.steady]
    rates = [result.achieved for result in steady]
    over = [result.largest_bytes - result.move.limit - result.move.batch_bytes for result in steady]
    times = [abs(result.seconds / result.estimated - 1) for result in steady]
    bars = [
        Bar("schedule: lowest achieved / quota", min(rates, default=None), 0.95, at_least=True),
        Bar("schedule: highest achieved / quota", max(rates, default=None), 1.02),
        Bar("schedule: largest second over quota and one batch", max(0, *over) if over else None, 0, "bytes"),
        Bar("schedule: time against the estimate", max(times, default=None), 0.10),
    ]
    return Outcome([tabulate("Moves", results, COLUMNS)], bars)


def main(console: Console) -> bool:
    """Run the fronts and moves that are asked for; return whether every bar is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replication", description=__doc__)
    parser.add_argument(
        "--only", default="", help="moves whose name holds this; `plans`: Kafka's own tests alone"
    )
    only = parser.parse_args().only
    results, plans = [], []
    for front in FRONTS:
        moves = [move for move in MOVES if only in move.name]
        if front == "kafka":
            moves = [move for move in moves if move.event != "Sluice killed"]
        if moves:
            with rig_of(front, _NODES) as rig:
                for move in moves:
                    results.append(run_move(rig, front, move, MOVES.index(move)))
                    console.print(results[-1])
        if only in ("", "plans") and front in _PLANNED:
            with rig_of(front, _PLANNED_NODES) as rig:
                plans.append(run_plans(rig, front, console))
    results.sort(key=lambda result: MOVES.index(result.move))
    outcome = judge(results)
    if plans:
        outcome.tables += plan_tables(plans)
        outcome.bars += plan_bars(plans)
    facts = machine.describe("three brokers, eight for Kafka's own tests")
    return report.publish(console, facts, outcome, "" if only else "replication")


if __name__ == "__main__":
    sys.exit(report.run(main))
