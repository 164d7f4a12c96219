"""Honest clients of the soak: librdkafka's producers with idempotence, and a consumer group, from a process of its own.

    python -m tests.soak.honest --bootstrap 127.0.0.1:9092 --topic soak --partitions 6

Of the producers some have a quota and some have none, by client id (`LIMITED`, `FREE`); so have the consumers. It
prints `ready` and responds to `report` with counts; `stop` ends the producers, waits until all is acknowledged, lets
the group read to the end, and responds with what was sent and what has failed. It ends with its standard input.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tests.soak.judge import Key, Tally, record

FREE: Final = "soak-free"
LIMITED: Final = "soak-limited"
_TIMEOUT_SECONDS: Final = 300.0
"""A record may wait so long: brokers restart, and quotas hold back."""
_CATCH_UP_SECONDS: Final = 120.0
_SILENT: Final = 0
_PATIENT: Final = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.interval.ms": 10_000,
    "log_level": _SILENT,
}


class Numbering:
    """One producer: numbers its records in each partition, and is told what became of them."""

    def __init__(self, options: argparse.Namespace, index: int, client_id: str) -> None:
        self._topic, self._partitions = options.topic, options.partitions
        self._period = 1 / options.records_per_second
        self._index = index
        self._stopping = threading.Event()
        self.sent: dict[Key, int] = {(index, partition): 0 for partition in range(self._partitions)}
        self.failed: dict[Key, list[int]] = {}
        self.acknowledged = 0
        self._producer = Producer(
            {
                **_PATIENT,
                "bootstrap.servers": options.bootstrap,
                "client.id": client_id,
                "enable.idempotence": True,
                "linger.ms": 20,
                "queue.buffering.max.messages": 500,
                "message.timeout.ms": int(_TIMEOUT_SECONDS * 1000),
            }
        )
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()

    def flush(self) -> int:
        """Wait until all is acknowledged or has failed; return how many are neither."""
        self._thread.join()
        return int(self._producer.flush(_TIMEOUT_SECONDS))

    def _run(self) -> None:
        turn = 0
        while not self._stopping.wait(self._period):
            key = (self._index, turn % self._partitions)
            number = self.sent[key]
            try:
                self._producer.produce(
                    self._topic,
                    record(self._index, number),
                    partition=key[1],
                    on_delivery=self._delivered(key, number),
                )
            except BufferError:  # over its quota for a while, or no broker
                self._producer.poll(0.1)
                continue
            self.sent[key] += 1
            turn += 1
            self._producer.poll(0)

    def _delivered(self, key: Key, number: int) -> Any:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged += 1
            else:
                self.failed.setdefault(key, []).append(number)

        return delivered


class Reading:
    """One consumer of a group; what it read goes into the group's tally."""

    _lock: Final = threading.Lock()

    def __init__(self, options: argparse.Namespace, group: str, client_id: str, tally: Tally) -> None:
        self._tally = tally
        self._stopping = threading.Event()
        self.errors = 0
        self._consumer = Consumer(
            {
                **_PATIENT,
                "bootstrap.servers": options.bootstrap,
                "client.id": client_id,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "queued.max.messages.kbytes": 4096,
            }
        )
        self._consumer.subscribe([options.topic])
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join(_CATCH_UP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                messages = self._consumer.consume(200, 0.5)
            except KafkaException:
                self.errors += 1
                continue
            with self._lock:
                for message in messages:
                    if message.error() is not None:
                        self.errors += 1
                    else:
                        self._tally.see(message.partition() or 0, message.value() or b"")
        self._consumer.close()


class Clients:
    """All of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        names = [f"{FREE}-{n}" for n in range(2)] + [f"{LIMITED}-{n}" for n in range(2)]
        self.producers = [Numbering(options, index, name) for index, name in enumerate(names)]
        self.group, self.limited = Tally(), Tally()
        self.readers = [Reading(options, "soak-group", f"{FREE}-reader-{n}", self.group) for n in range(2)]
        self.readers.append(Reading(options, "soak-limited-group", f"{LIMITED}-reader", self.limited))

    def report(self) -> dict[str, int]:
        """Return the counts until now."""
        return {
            "sent": sum(sum(producer.sent.values()) for producer in self.producers),
            "acknowledged": sum(producer.acknowledged for producer in self.producers),
            "failed": sum(map(len, (numbers for one in self.producers for numbers in one.failed.values()))),
            "read": self.group.records,
            "read again": self.group.doubled,
            "read under a quota": self.limited.records,
            "reader errors": sum(reader.errors for reader in self.readers),
        }

    def stop(self) -> dict[str, Any]:
        """End in order, and return what is needed to judge the records."""
        for producer in self.producers:
            producer.stop()
        unresolved = sum(producer.flush() for producer in self.producers)
        sent = {key: count for producer in self.producers for key, count in producer.sent.items()}
        failed = {key: numbers for producer in self.producers for key, numbers in producer.failed.items()}
        wanted = sum(sent.values()) - sum(map(len, failed.values()))
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while self.group.records - self.group.doubled < wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        missed = wanted - (self.group.records - self.group.doubled)
        for reader in self.readers:
            reader.stop()
        return {
            **self.report(),
            "unresolved": unresolved,
            "missed by the group": max(0, missed),
            "sent by": [[*key, count] for key, count in sent.items()],
            "failed by": [[*key, numbers] for key, numbers in failed.items()],
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Produce and consume until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.honest")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--records-per-second", type=float, default=100.0, help="of each producer")
    clients = Clients(parser.parse_args(arguments))
    print("ready", flush=True)
    for line in sys.stdin:
        response = clients.stop() if line.strip() == "stop" else clients.report()
        print(json.dumps(response), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
