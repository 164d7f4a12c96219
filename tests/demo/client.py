"""One client of the demo, a process of its own: librdkafka as applications use it, without code of Sluice.

It writes records of 2 kB at a given rate (or as fast as it can), reads them back in a consumer group, and responds to
each line with its counters as one line of JSON. It ends with its standard input.
They are librdkafka's own statistics of bytes on the wire, sent by the producer and received by the consumer: what a
quota counts, counted at the other end.
"""

import argparse
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer

RECORD_BYTES: Final = 2_000
_POLL_SECONDS: Final = 0.1
_STATISTICS_MS: Final = 200
# About this share of the bytes on the wire are records' values. What a plan offers is meant on the wire.
_VALUES_SHARE: Final = 0.977


@dataclass(slots=True)
class Counters:
    """What one client has done so far; each field is written by one thread only."""

    sent_bytes: int = 0
    received_bytes: int = 0
    errors: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        """Count a record that could not be delivered."""
        self.errors += error is not None

    def producer_statistics(self, text: str) -> None:
        """Take the producer's sum over its connections."""
        self.sent_bytes = sum(broker["txbytes"] for broker in json.loads(text)["brokers"].values())

    def consumer_statistics(self, text: str) -> None:
        """Take the consumer's sum over its connections."""
        self.received_bytes = sum(broker["rxbytes"] for broker in json.loads(text)["brokers"].values())


def produce(bootstrap: str, client_id: str, topic: str, offered: float | None, counters: Counters) -> None:
    """Write until told to stop."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            # Small requests, so that the counters move evenly; a short queue, so that "acknowledged" follows closely.
            "batch.size": 20_000,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 1_000,
            "partitioner": "random",
            "sticky.partitioning.linger.ms": 0,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": counters.producer_statistics,
        }
    )
    value = b"." * RECORD_BYTES
    began, sent = time.monotonic(), 0
    while not counters.stop.is_set():
        due = None if offered is None else (time.monotonic() - began) * offered * _VALUES_SHARE
        if due is not None and sent >= due:
            producer.poll(min(0.01, _POLL_SECONDS))
            continue
        try:
            producer.produce(topic, value, on_delivery=counters.delivered)
            sent += RECORD_BYTES
            producer.poll(0)
        except BufferError:
            producer.poll(_POLL_SECONDS)  # the queue is full: the proxy is slowing this client down
    producer.purge()
    producer.poll(0)


def consume(bootstrap: str, client_id: str, topic: str, counters: Counters) -> None:
    """Read until told to stop."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": f"demo-{client_id}",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": counters.consumer_statistics,
            "fetch.max.bytes": 500_000,
            "message.max.bytes": 100_000,  # librdkafka wants it below fetch.max.bytes
        }
    )
    consumer.subscribe([topic])
    try:
        while not counters.stop.is_set():
            for message in consumer.consume(num_messages=100, timeout=_POLL_SECONDS):
                if message.error() is not None:
                    counters.errors += 1
    finally:
        consumer.close()


def main() -> None:
    """Run both threads, and report until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--bootstrap", "--client-id", "--topic"):
        parser.add_argument(name, required=True)
    parser.add_argument("--offered", type=float)
    options = parser.parse_args()
    counters = Counters()
    own = (options.bootstrap, options.client_id, options.topic)
    threads = [
        threading.Thread(target=produce, args=(*own, options.offered, counters), daemon=True),
        threading.Thread(target=consume, args=(*own, counters), daemon=True),
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for _ in sys.stdin:
        if not all(thread.is_alive() for thread in threads):
            break
        report = {
            "monotonic": time.monotonic(),
            "sent": counters.sent_bytes,
            "received": counters.received_bytes,
            "errors": counters.errors,
        }
        print(json.dumps(report), flush=True)
    counters.stop.set()
    for thread in threads:
        thread.join(timeout=5)


if __name__ == "__main__":
    main()
