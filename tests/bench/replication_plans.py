"""Kafka's own tests of replication quotas, with their figures, in front of Sluice and without it.

- ReplicationQuotasTest: six leaders, two followers that come late, six throttled and two free partitions of 10 MB; the
  leaders held to 1 MB/s, or the followers to 3 MB/s. Free partitions within 9 s, throttled ones in 9 to 30 s, the rate
  at 0.5 to 1.1 of the quota. Old segments: 20 MB at 5 MB/s in 3.6 to 6 s.
- throttling_test.py: three partitions with two replicas each move at 4 MiB/s to other brokers while a producer writes
  and consumes, with every other broker bounced or not: not before 0.9 of the estimate, nothing lost. Its 0.8 GB are
  0.08 here.
- KAFKA-4313: low-volume partitions beside a high-volume one that is behind, all replicas listed; no ISR may flap.
- An unthrottled partition beside a throttled one on the same connection.
"""

import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Self

from confluent_kafka import Message, Producer

from tests.bench.replication_moves import MB, set_rates, throttled_topics
from tests.bench.report import Bar, Table
from tests.support.growth import watch
from tests.support.numbered import read_all
from tests.support.replication_rig import ReplicationRig


class VerifiedProducer:
    """A client that produces 1000 records a second, and reads them all at the end."""

    def __init__(self, rig: ReplicationRig, topic: str) -> None:
        self._rig = rig
        self._topic = topic
        self.acknowledged: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def lost(self) -> int:
        """How many were acknowledged and cannot be read."""
        values = read_all(self._rig.cluster.bootstrap(), self._topic)
        return len(self.acknowledged - {int.from_bytes(value) for value in values})

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._rig.cluster.bootstrap(),
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        began, sent = time.monotonic(), 0

        def acknowledged(error: object, record: Message) -> None:
            if error is None:
                self.acknowledged.add(int.from_bytes(record.value() or b""))

        while not self._ended.wait(0.01):
            while sent < (time.monotonic() - began) * 1000:
                producer.produce(self._topic, sent.to_bytes(8), on_delivery=acknowledged)
                sent += 1
            producer.poll(0)
        producer.flush(60)


NODES: Final = 8
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
    rows: list[tuple[str, ...]] = field(default_factory=list)
    free_rate: float = 0.0  # MB/s of an unthrottled partition beside a throttled one
    shrinks: int = 0

    def add(self, plan: str, what: str, measured: str, expected: str, holds: bool) -> None:
        """Write a row of the table."""
        self.rows.append((plan, self.front, what, measured, expected, "yes" if holds else "NO"))
        print(" | ".join(self.rows[-1]), file=sys.stderr, flush=True)


def run_plans(rig: ReplicationRig, front: str) -> Plans:
    """Run all of them on a cluster of eight brokers."""
    plans = Plans(front)
    _quotas_test(rig, plans, leaders=True)
    _quotas_test(rig, plans, leaders=False)
    _old_segments(rig, plans)
    _throttling_test(rig, plans, bounced=())
    _throttling_test(rig, plans, bounced=_BOUNCED)
    _low_beside_high(rig, plans)
    _free_besidethrottled_topics(rig, plans)
    return plans


def tables(found: Sequence[Plans]) -> list[Table]:
    """The plans beside each other."""
    rows = sorted((row for plans in found for row in plans.rows), key=lambda row: (row[0], row[2]))
    columns = ("test", "throttle", "what", "measured", "Kafka's test asks for", "holds")
    free = tuple((plans.front, f"{plans.free_rate:.0f}") for plans in found)
    return [
        Table("Kafka's own tests", columns, tuple(rows)),
        Table(
            "An unthrottled partition beside a throttled one, on the same connection",
            ("throttle", "MB/s"),
            free,
            f"Median of {_FREE_REPEATS} partitions of {_FREE_MB} MB, one after another; two cores for everything.",
        ),
    ]


def bars(found: Sequence[Plans]) -> list[Bar]:
    """What must hold for `schedule`."""
    by_front = {plans.front: plans for plans in found}
    ours = by_front.get("schedule")
    if ours is None:
        return []
    failed = sum(row[-1] == "NO" for row in ours.rows)
    kept = [
        Bar("schedule: figures of Kafka's own tests that do not hold", failed, 0, ""),
        Bar("schedule: times that a low-volume partition left the ISR", ours.shrinks, 0, ""),
    ]
    if "kafka" in by_front:
        share = ours.free_rate / by_front["kafka"].free_rate
        kept.append(
            Bar("schedule: unthrottled beside throttled, against no proxy", share, 0.95, at_least=True)
        )
    return kept


def _fill(
    rig: ReplicationRig, topic: str, partitions: Sequence[int], records: int, record_bytes: int
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": rig.cluster.bootstrap(),
            "acks": "1",
            "queue.buffering.max.kbytes": 400_000,
            "log_level": 0,
        }
    )
    for _ in range(records):
        for partition in partitions:
            producer.produce(topic, bytes(record_bytes), partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0, "every record is written"


def _partition_size(rig: ReplicationRig, topic: str, partition: int, broker: int) -> int:
    data = rig.cluster.directory / str(broker) / "data" / f"{topic}-{partition}"
    return sum(path.stat().st_size for path in data.glob("*.log"))


def _quotas_test(rig: ReplicationRig, plans: Plans, *, leaders: bool) -> None:
    """ReplicationQuotasTest: shouldMatchQuotaReplicatingThroughAnAsymmetricTopology."""
    topic = f"asymmetric-{'leader' if leaders else 'follower'}"
    late = (7, 7, 7, 8, 8, 8)
    rig.create(
        topic,
        [*([leader, follower] for leader, follower in zip(_LEADERS, late, strict=True)), [1, 7], [2, 8]],
    )
    lists = (
        ",".join(f"{number}:{leader}" for number, leader in enumerate(_LEADERS)),
        ",".join(f"{number}:{follower}" for number, follower in enumerate(late)),
    )
    rate = MB if leaders else 3 * MB
    chosen = (lists[0], "") if leaders else ("", lists[1])
    with (
        throttled_topics(
            rig, plans.front, {topic: chosen}, rate if leaders else None, None if leaders else rate
        ),
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        # The throttle is set before: a broker's configs are set by a request to that broker.
        for broker in _LATE:
            rig.cluster.kill_broker(broker)
        _fill(rig, topic, range(8), _RECORDS, _RECORD_BYTES)
        throttled = sum(_partition_size(rig, topic, number, leader) for number, leader in enumerate(_LEADERS))
        free = _partition_size(rig, topic, 6, 1) + _partition_size(rig, topic, 7, 2)
        freely = pool.submit(
            watch,
            lambda: _partition_size(rig, topic, 6, 7) + _partition_size(rig, topic, 7, 8),
            lambda size: size >= free,
            120,
        )
        held = pool.submit(
            watch,
            lambda: sum(
                _partition_size(rig, topic, number, follower) for number, follower in enumerate(late)
            ),
            lambda size: size >= throttled,
            120,
        )
        for broker in _LATE:
            rig.cluster.start_broker(broker, wait=False)
        rig.cluster.wait_ready()
        growth, free_growth = held.result(), freely.result()
    plan = "ReplicationQuotasTest, " + ("leaders at 1 MB/s" if leaders else "followers at 3 MB/s")
    seconds, free_seconds = growth.seconds, free_growth.seconds
    share = growth.rate / (rate * (len(_LEADERS) if leaders else len(_LATE)))
    plans.add(plan, "free partitions, s", f"{free_seconds:.1f}", "< 9", free_seconds < 9)
    plans.add(plan, "throttled partitions, s", f"{seconds:.1f}", "9 to 30", 9 <= seconds <= 30)
    plans.add(plan, "rate / quota", f"{share:.2f}", "0.5 to 1.1", 0.5 <= share <= 1.1)


def _old_segments(rig: ReplicationRig, plans: Plans) -> None:
    """ReplicationQuotasTest: shouldThrottleOldSegments."""
    rig.create("segments", [[1, 8]], **{"segment.bytes": str(_MIB)})
    with (
        throttled_topics(rig, plans.front, {"segments": ("0:1", "")}, 5 * MB, None),
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        rig.cluster.kill_broker(8)
        _fill(rig, "segments", (0,), 200, _RECORD_BYTES)
        size = rig.size("segments", 1)
        watching = pool.submit(watch, lambda: rig.size("segments", 8), lambda have: have >= size, 60)
        rig.cluster.start_broker(8)
        growth = watching.result()
    # Kafka's test reads the clock after the first fetches; here the first bytes begin it, so it is a little longer.
    plans.add(
        "ReplicationQuotasTest, old segments",
        "s",
        f"{growth.seconds:.1f}",
        "3.6 to 6.0",
        3.6 <= growth.seconds <= 6,
    )


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
    with VerifiedProducer(rig, f"{topic}-verified") as verified:
        began = time.monotonic()
        starter = threading.Thread(target=rig.reassign, args=(after, throttled))
        starter.start()
        with ThreadPoolExecutor(max_workers=1) as pool:
            watching = pool.submit(
                watch,
                lambda: sum(rig.size(topic, broker) for broker in (4, 5, 6)),
                lambda have: have >= 2 * size,
                300,
            )
            for broker in bounced:
                rig.cluster.stop_broker(broker)
                rig.cluster.start_broker(broker)
            growth = watching.result()
        starter.join()
        _until_settled(rig, topic, {0: {4, 5}, 1: {5, 6}, 2: {6, 4}})
        whole = time.monotonic() - began
    if throttled is not None:
        rig.reassign(after, None, "--verify")
    plan = "throttling_test.py" + (", every other broker bounced" if bounced else "")
    least = 0.9 * estimated
    plans.add(
        plan,
        "s until all bytes are there",
        f"{growth.seconds:.1f}",
        f"≥ {least:.1f}",
        growth.seconds >= least,
    )
    if not bounced:
        plans.add(
            plan,
            "s until it is complete",
            f"{whole:.1f}",
            f"≤ {2 * estimated:.1f} + start of the tool",
            whole <= 2 * estimated + 5,
        )
    lost = verified.lost()
    plans.add(
        plan, "records acknowledged, lost", f"{len(verified.acknowledged)}, {lost}", "none lost", not lost
    )


def _until_settled(rig: ReplicationRig, topic: str, wanted: dict[int, set[int]]) -> None:
    deadline = time.monotonic() + 120
    while rig.in_sync(topic) != wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: in sync are {rig.in_sync(topic)}")
        time.sleep(0.2)


def _low_beside_high(rig: ReplicationRig, plans: Plans) -> None:
    """KAFKA-4313: no replica leaves the ISR because others are throttled."""
    rig.create("low", [[1, 3]] * 4)
    rig.create("high", [[1]])
    _fill(rig, "high", (0,), 400, _RECORD_BYTES)
    shrinks = looks = 0
    with throttled_topics(rig, plans.front, {"low": ("*", "*"), "high": ("*", "*")}, MB / 2, MB / 2):
        rig.reassign({"high": [[1, 3]]})
        rig.watch("high", 3, 100_000)
        deadline = time.monotonic() + _FLAP_SECONDS
        while time.monotonic() < deadline:
            _fill(rig, "low", range(4), 1, 2_000)
            looks += 1
            shrinks += sum(replicas != {1, 3} for replicas in rig.in_sync("low").values())
            time.sleep(0.2)
        held = rig.size("high", 3) < rig.size("high", 1)
    plans.shrinks = shrinks
    plans.add(
        "KAFKA-4313", f"low-volume replicas out of the ISR, {looks} looks", str(shrinks), "0", not shrinks
    )
    plans.add("KAFKA-4313", "the high-volume one is still held", "yes" if held else "no", "yes", held)
    rig.watch("high", 3, rig.size("high", 1))


def _free_besidethrottled_topics(rig: ReplicationRig, plans: Plans) -> None:
    """Move partitions that are not throttled beside one that is and falls behind."""
    rig.create("held", [[1]])
    _fill(rig, "held", (0,), 200, _RECORD_BYTES)
    rates = []
    with throttled_topics(rig, plans.front, {"held": ("*", "")}, MB / 10, None):
        rig.reassign({"held": [[1, 2]]})
        rig.watch("held", 2, 1)
        for number in range(_FREE_REPEATS):
            topic = f"free-{number}"
            rig.create(topic, [[1]])
            _fill(rig, topic, (0,), _FREE_MB * MB // _RECORD_BYTES, _RECORD_BYTES)
            size = rig.size(topic, 1)
            plan = {topic: [[1, 2]]}
            starter = threading.Thread(target=rig.reassign, args=(plan, None, "--execute", "--additional"))
            starter.start()
            rates.append(rig.watch(topic, 2, size).rate / MB)
            starter.join()
    plans.free_rate = statistics.median(rates)
    print(f"unthrottled | {plans.front} | {rates}", file=sys.stderr, flush=True)
