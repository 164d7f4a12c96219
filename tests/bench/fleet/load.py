"""The clients of the faults: librdkafka, one client id, numbered records, in a process of their own.

    python -m tests.bench.fleet.load produce|consume --bootstrap … --topic … --client-id … --connections N --notes FILE

It says `ready`, begins with the line `go`, and ends with its standard input, with a line of JSON: what the clients
complained about. Each note is a line: time, client, number, bytes. A producer is idempotent; a number is noted when
it was acknowledged. A consumer notes the next offset, and counts those that it did not get.
"""

import argparse
import json
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TextIO

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

RECORD_BYTES: Final = 50_000
"""One in each request: small beside a quota's second, so that a rate shows, and what a process may add is small."""
CLIENTS_MAX: Final = 1000
_READY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.005
_NUMBER_BYTES: Final = 8
_FEW: Final = 1000


def value(client: int, number: int) -> bytes:
    """Return the value of a record; its first bytes say which it is.

    >>> len(value(3, 7)), int.from_bytes(value(3, 7)[:8])
    (50000, 7003)
    """
    return (number * CLIENTS_MAX + client).to_bytes(_NUMBER_BYTES).ljust(RECORD_BYTES, b".")


def read_notes(path: Path) -> list[tuple[float, int, int, int]]:
    """Return all notes: time, client, number, bytes."""
    found = []
    for line in path.read_text().splitlines():
        at, client, number, size = line.split()
        found.append((float(at), int(client), int(number), int(size)))
    return found


class Load:
    """What producers and consumers have in common."""

    def __init__(self, options: argparse.Namespace, notes: TextIO) -> None:
        self.options = options
        self.seen: Counter[str] = Counter()
        self._notes = notes
        self._numbers = range(options.first, options.first + options.connections)

    def note(self, client: int, number: int, size: int) -> None:
        """Write down what has come."""
        self._notes.write(f"{time.monotonic():.4f} {client} {number} {size}\n")

    def complain(self, problem: KafkaError) -> None:
        """Count what a client reports; librdkafka goes on by itself unless it is fatal."""
        self.seen["fatal" if problem.fatal() else problem.name()] += 1
        print(problem, file=sys.stderr)

    def common(self) -> dict[str, object]:
        """Return what is not librdkafka's default in either."""
        return {
            "bootstrap.servers": self.options.bootstrap,
            "client.id": self.options.client_id,
            "error_cb": self.complain,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,
        }


class Producing(Load):
    """Producers that always have a record more."""

    def __init__(self, options: argparse.Namespace, notes: TextIO) -> None:
        super().__init__(options, notes)
        own = {
            "enable.idempotence": True,
            "acks": "all",
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
        self._clients = {number: Producer(self.common() | own) for number in self._numbers}
        self._sent: Counter[int] = Counter()
        for client in self._clients.values():
            client.list_topics(options.topic, _READY_SECONDS)

    def go(self) -> None:
        """Begin: producers need nothing."""

    def turn(self) -> None:
        """Give each a record more, if it has none that waits."""
        for number, client in self._clients.items():
            if len(client) < 2:  # the next one is ready when the response to this one comes
                sent = self._sent[number]
                self._sent[number] += 1
                client.produce(
                    self.options.topic,
                    value(number, sent),
                    partition=0,
                    on_delivery=self._noting(number, sent),
                )
            client.poll(0)

    def _noting(self, client: int, number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(problem: KafkaError | None, _: Message) -> None:
            if problem is None:
                self.note(client, number, RECORD_BYTES)
            else:
                self.complain(problem)
                self.seen["not delivered"] += 1

        return delivered


class Consuming(Load):
    """Consumers of the whole partition each."""

    def __init__(self, options: argparse.Namespace, notes: TextIO) -> None:
        super().__init__(options, notes)
        own = {
            "group.id": options.client_id,
            "enable.auto.commit": False,
            "message.max.bytes": RECORD_BYTES,
            "fetch.max.bytes": RECORD_BYTES,
            "max.partition.fetch.bytes": RECORD_BYTES,
            "auto.offset.reset": "error",
        }
        self._clients = {number: Consumer(self.common() | own) for number in self._numbers}
        self._next: Counter[int] = Counter()
        for client in self._clients.values():
            client.list_topics(options.topic, _READY_SECONDS)

    def go(self) -> None:
        """Begin at the first record."""
        for client in self._clients.values():
            client.assign([TopicPartition(self.options.topic, 0, 0)])

    def turn(self) -> None:
        """Take what has come."""
        for number, client in self._clients.items():
            size = 0
            for message in client.consume(_FEW, timeout=0):
                problem = message.error()
                if problem is not None:
                    self.complain(problem)
                    continue
                offset = message.offset() or 0
                if offset != self._next[number]:
                    self.seen["skipped or repeated"] += 1
                self._next[number] = offset + 1
                size += len(message.value() or b"")
            if size:
                self.note(number, self._next[number], size)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what is to run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet.load")
    parser.add_argument("direction", choices=("produce", "consume"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="the number of the first client")
    parser.add_argument("--notes", type=Path, required=True)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clients until standard input ends."""
    options = parse(arguments)
    with options.notes.open("w") as notes:
        load = (Producing if options.direction == "produce" else Consuming)(options, notes)
        print("ready", flush=True)
        sys.stdin.readline()
        load.go()
        while not select.select([sys.stdin], [], [], 0)[0]:
            load.turn()
            time.sleep(_PAUSE_SECONDS)
    print(json.dumps(dict(load.seen)), flush=True)
    return 0


if __name__ == "__main__":
    code = main()
    # Closing would wait for requests that are held back; their responses are not needed.
    os._exit(code)
