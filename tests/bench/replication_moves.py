"""The moves of KIP-73's test plan, and what may happen in the middle of one: what `tests.bench.replication` measures.

A front is who throttles: `kafka` (brokers replicate directly, kafka-reassign-partitions sets the throttle), `schedule`
or `kip73` (they replicate through Sluice, which throttles what reassignments add). Throttles are set while something
runs: the brokers' own, or Sluice's.
"""

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # theirs

from tests.support.growth import Growth, Milestone, watch
from tests.support.replication_rig import RECORD_BYTES, ReplicationRig

MB: Final = 1_000_000
_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def set_rates(rig: ReplicationRig, front: str, rate: float | None, **more: object) -> None:
    """Set every broker's rates, or take them away; Sluice's hold when it returns, Kafka's within a moment."""
    if front == "kafka":
        _set_broker_configs(rig, rate)
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
        resources = [
            _resource(ConfigResource.Type.TOPIC.value, topic, dict(zip(_LISTS, texts, strict=True)))
            for topic, texts in topics.items()
        ]
        chosen = {name: rate for name, rate in ((_LEADER_RATE, leader), (_FOLLOWER_RATE, follower)) if rate}
        rates = {name: str(int(rate)) for name, rate in chosen.items()}
        _alter(rig, [*resources, *_of_brokers(rig, rates)])
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


def _set_broker_configs(rig: ReplicationRig, rate: float | None) -> None:
    value = None if rate is None else str(int(rate))
    _alter(rig, _of_brokers(rig, dict.fromkeys((_LEADER_RATE, _FOLLOWER_RATE), value)))


def _of_brokers(rig: ReplicationRig, configs: Mapping[str, str | None]) -> list[ConfigResource]:
    return [_resource(ConfigResource.Type.BROKER.value, str(broker), configs) for broker in rig.cluster.nodes]


def _resource(kind: int, name: str, configs: Mapping[str, str | None]) -> ConfigResource:
    """Changes of one topic's or broker's configs; None deletes."""
    entries = [
        ConfigEntry(
            key,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    return ConfigResource(ConfigResource.Type(kind), name, incremental_configs=entries)


def _alter(rig: ReplicationRig, resources: Sequence[ConfigResource]) -> None:
    for resource in resources:  # librdkafka takes one broker a call
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

    def row(self) -> tuple[str, ...]:
        """Its line in the table."""
        return (
            self.move.name,
            self.front,
            f"{self.achieved:.3f}",
            f"{self.largest:.2f}",
            f"{self.seconds:.1f}",
            f"{self.estimated:.1f}",
        )


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
        growth = watch(have, done, 6 * estimated + 60, event.milestones())
        starter.join()
    if throttled is not None:
        rig.reassign({topic: after}, None, "--verify")
    if front != "kafka":
        set_rates(rig, front, move.rate)
    time.sleep(_SETTLE_SECONDS)
    return event.result(growth, estimated)


class _EventAt:
    """What happens in the middle of a move, and what the move's time and rate then mean."""

    def __init__(self, rig: ReplicationRig, front: str, move: Move, size: int) -> None:
        self._rig = rig
        self._front = front
        self._move = move
        self._size = size
        self._down_seconds = 0.0

    def milestones(self) -> Sequence[Milestone]:
        quarter = self._size // 4
        match self._move.event:
            case "":
                return ()
            case "changed and removed":
                raised = Milestone(quarter, lambda: set_rates(self._rig, self._front, 2 * self._move.rate))
                return raised, Milestone(3 * quarter, lambda: set_rates(self._rig, self._front, None))
            case "Sluice killed":
                return (Milestone(quarter, self._kill),)
            case "follower bounced":
                return (Milestone(quarter, self._bounce),)

    def result(self, growth: Growth, estimated: float) -> Result:
        move, quarter = self._move, self._size // 4
        limit, seconds, amount = move.limit, growth.seconds, float(growth.samples[-1].size)
        if move.event == "changed and removed":
            limit *= 2
            # A quarter at the first rate, a half at twice that, and the rest at once.
            estimated = quarter / move.limit + 2 * quarter / limit
            seconds = growth.seconds_until(3 * quarter)
            amount = limit * estimated
        if self._down_seconds:
            # No broker replicates meanwhile, or not for all of it.
            estimated += self._down_seconds
            amount = limit * estimated
        largest = growth.largest_second() if move.event != "changed and removed" else 0
        return Result(
            self._front, move, amount / seconds / limit, largest / limit, largest, seconds, estimated
        )

    def _kill(self) -> None:
        assert self._rig.sluice is not None, "this front has a Sluice"
        began = time.monotonic()
        self._rig.sluice.signal(signal.SIGKILL)
        self._rig.sluice.stop()
        self._rig.start_sluice()
        self._rig.sluice.wait_ready()
        self._down_seconds = time.monotonic() - began

    def _bounce(self) -> None:
        began = time.monotonic()
        for broker in self._move.targets:
            self._rig.cluster.stop_broker(broker)
            self._rig.cluster.start_broker(broker)
        self._down_seconds = time.monotonic() - began


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
