"""What `make reassignment` measures with: six brokers, a producer that times itself, and a watcher of a moving topic.

Everything is measured from outside, the same for every front: what a broker has is read off its log files, who is
catching up off a broker's Metadata, and a record's time is that from handing it to the client to its acknowledgement.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as _NewTopic  # type: ignore[attr-defined]  # theirs

from tests.cluster import Cluster, ClusterOptions, tools
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings

OLD: Final = (1, 2, 3)
NEW: Final = (4, 5, 6)
RECORD_BYTES: Final = 10_000
_SAMPLE_SECONDS: Final = 0.05
_PROBE_SECONDS: Final = 0.01
_HEAP: Final = ("-Xms128m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_QUIET: Final = 2  # brokers end before producers

Replicas = list[list[int]]


def percentile(values: Sequence[float], share: float) -> float:
    """Give the value that this share of all values does not exceed.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5), percentile([], 0.99)
    (2.0, 0.0)
    """
    ordered = sorted(values)
    return ordered[max(0, int(share * len(ordered) + 0.999999) - 1)] if ordered else 0.0


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
        new = _NewTopic(topic, partitions, replica_assignment=replicas, config={"min.insync.replicas": "2"})
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
