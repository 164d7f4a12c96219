"""Whether records that were acknowledged can be read: a producer of numbers, and who reads them all at the end."""

import threading
import time
from typing import Self

from confluent_kafka import Consumer, Message, Producer, TopicPartition

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
        consumer = Consumer(
            {"bootstrap.servers": self._rig.cluster.bootstrap(), "group.id": "verifier", "log_level": 0}
        )
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        read: set[int] = set()
        _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), 10)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            records = consumer.consume(1000, 1.0)
            read.update(int.from_bytes(record.value() or b"") for record in records if record.error() is None)
            if records and (records[-1].offset() or 0) >= end - 1:
                break
        consumer.close()
        return len(self.acknowledged - read)

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
