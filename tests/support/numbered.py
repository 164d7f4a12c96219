"""Numbered records: produced in the background through whatever is being tried, and counted afterwards at the brokers.

    with NumberedProducer(sluice.bootstrap, topic, partitions=3) as load:
        load.wait_for(500)
        ...  # kill, drain, reload
        load.wait_for(500)
    assert lost(load, kafka.bootstrap()) == []

librdkafka's idempotent producer: what it calls delivered must be there once. Reading goes to the brokers directly.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.waiting import until

_FLUSH_SECONDS_MAX: Final = 90.0
_READ_SECONDS_MAX: Final = 60.0
_RECORD_BYTES: Final = 1000
_SILENT: Final = 0  # librdkafka's log level: that brokers go away is what is being tried


class NumberedProducer:
    """Produces 0, 1, 2, … from a thread of its own until it is stopped.

    Attributes:
        delivered: the numbers that were acknowledged.
        failed: what became of the others.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int = 1,
        client_id: str = "numbered",
        records_per_second: int = 500,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.delivered: list[int] = []
        self.failed: list[str] = []
        self._pause = 1 / records_per_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="numbered producer", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": int(_FLUSH_SECONDS_MAX * 1000),
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 5000,
                "log_level": _SILENT,
                **(settings or {}),
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Produce no more, and wait until everything is acknowledged or has failed."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush(_FLUSH_SECONDS_MAX)

    def wait_for(self, records: int, seconds: float = 60.0) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = len(self.delivered) + records
        until(
            lambda: len(self.delivered) >= wanted,
            lambda: f"{len(self.delivered)} of {wanted} are acknowledged, failed: {Counter(self.failed)}",
            seconds,
            0.02,
        )

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value = number.to_bytes(8, "big").ljust(_RECORD_BYTES, b".")
            try:
                self._producer.produce(
                    self.topic, value, partition=number % self.partitions, on_delivery=self._on_delivery
                )
                number += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
            self._stopping.wait(self._pause)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error.name())
        else:
            self.delivered.append(int.from_bytes((message.value() or b"")[:8], "big"))


def write_all(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    *,
    partitions: int = 1,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Produce values, to the partitions in turn, and wait until all are acknowledged."""
    problems: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": _SILENT, **(settings or {})})
    for number, value in enumerate(values):
        to = number % partitions
        producer.produce(topic, value, partition=to, on_delivery=lambda error, _: problems.append(error))
        producer.poll(0)
    assert producer.flush(_FLUSH_SECONDS_MAX) == 0
    assert problems == [None] * len(values)


def lost(load: NumberedProducer, bootstrap: str) -> list[int]:
    """Return the acknowledged numbers that are not to be found exactly once."""
    found = Counter(
        int.from_bytes(value[:8], "big") for value in read_all(bootstrap, load.topic, load.partitions)
    )
    return [number for number in load.delivered if found[number] != 1]


def read_all(bootstrap: str, topic: str, partitions: int = 1, **more: Any) -> list[bytes]:
    """Return the values of a whole topic, as it is now; for `more` see `messages`."""
    return [message.value() or b"" for message in messages(bootstrap, topic, partitions, **more)]


def messages(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    *,
    committed: bool = True,
    seconds: float = _READ_SECONDS_MAX,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Message]:
    """Give a whole topic, as it is now, each partition in its own order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": _SILENT,
            **(settings or {}),
        }
    )
    open_partitions = set(range(partitions))
    deadline = time.monotonic() + seconds
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while open_partitions:
            assert time.monotonic() < deadline, f"{topic} is not read to its end: {open_partitions} left"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition() or 0)
            else:
                raise AssertionError(f"reading {topic}: {error}")
    finally:
        consumer.close()
