"""librdkafka clients with one client id, one connection each, from a process of their own: for `accuracy` and `fleet`.

    python -m tests.bench.clients produce|consume --bootstrap … --topic … --client-id … --connections N --bytes N

It says `ready`, begins with a line, and ends with the next one, with a line of JSON: what the clients complained about,
in delivery reports, errors and librdkafka's log. One request of `--bytes` is under way on each connection, so what a
quota does to it is not hidden by a queue: a producer sends one record in each, a consumer asks for no more.

With `--notes` records are numbered, producers are idempotent, and each note is a line: time, client, number, bytes. A
number is noted when it was acknowledged. A consumer notes the next offset, and counts those that it did not get.
"""

import argparse
import json
import logging
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.bench.process import Child

CLIENTS_MAX: Final = 1000
_READY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.005
_FEW: Final = 1000


def value(client: int, number: int, size: int) -> bytes:
    """Return the value of a record; its first bytes say which it is.

    >>> len(value(3, 7, 50)), int.from_bytes(value(3, 7, 50)[:8])
    (50, 7003)
    """
    return (number * CLIENTS_MAX + client).to_bytes(8).ljust(size, b".")


def read_notes(path: Path) -> list[tuple[float, int, int, int]]:
    """Return all notes: time, client, number, bytes."""
    lines = (line.split() for line in path.read_text().splitlines())
    return [(float(at), int(client), int(number), int(size)) for at, client, number, size in lines]


def fill(
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int = 10_000,
    partitions: Sequence[int] = (0,),
    config: Mapping[str, object] | None = None,
) -> None:
    """Put so many records into each of these partitions, directly."""
    client = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0, **(config or {})})
    for _ in range(records):
        for partition in partitions:
            while True:
                try:
                    client.produce(topic, bytes(record_bytes), partition=partition)
                    break
                except BufferError:
                    client.poll(0.1)
        client.poll(0)
    if left := client.flush(60):
        raise ChildProcessError(f"{left} records were not delivered while filling {topic}")


class Load(logging.Handler):
    """What producers and consumers have in common; all that is not named here is librdkafka's default."""

    def __init__(self, options: argparse.Namespace, notes: TextIO) -> None:
        super().__init__()
        self.options = options
        self.numbered = options.notes is not None
        self.seen: Counter[str] = Counter()
        self.numbers = range(options.first, options.first + options.connections)
        self._notes = notes
        logger = logging.getLogger("librdkafka")
        logger.propagate = False
        logger.addHandler(self)
        self.common: dict[str, Any] = {
            "bootstrap.servers": options.bootstrap,
            "client.id": options.client_id,
            "error_cb": self.complain,
            "logger": logger,
            **({"reconnect.backoff.max.ms": 1000, "log_level": 0} if self.numbered else {}),
        }

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line of a client's log."""
        text = record.getMessage()
        self.seen["timeouts" if "timed out" in text.lower() else "log lines"] += 1
        print(text, file=sys.stderr)

    def complain(self, problem: KafkaError) -> None:
        """Count what a client reports; librdkafka goes on by itself unless it is fatal."""
        self.seen["fatal" if problem.fatal() else problem.name()] += 1
        print(problem, file=sys.stderr)

    def note(self, client: int, number: int, size: int) -> None:
        """Write down what has come."""
        self._notes.write(f"{time.monotonic():.4f} {client} {number} {size}\n")


class Producing(Load):
    """Producers that always have a record more."""

    def __init__(self, options: argparse.Namespace, notes: TextIO) -> None:
        super().__init__(options, notes)
        own: dict[str, Any] = {"max.in.flight.requests.per.connection": 1, "linger.ms": 0}
        if self.numbered:
            own |= {"enable.idempotence": True, "acks": "all", "batch.num.messages": 1}
        else:
            own |= {"acks": 1, "message.max.bytes": 2_000_000}
        self._clients = {number: Producer(self.common | own) for number in self.numbers}
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
                made = value(number, sent, self.options.bytes)
                delivered = partial(self._delivered, number, sent)
                client.produce(self.options.topic, made, partition=0, on_delivery=delivered)
            client.poll(0)

    def _delivered(self, client: int, number: int, problem: KafkaError | None, _: Message) -> None:
        if problem is None:
            self.note(client, number, self.options.bytes)
        else:
            self.complain(problem)
            self.seen["not delivered"] += 1


class Consuming(Load):
    """Consumers of the whole partition each."""

    def __init__(self, options: argparse.Namespace, notes: TextIO) -> None:
        super().__init__(options, notes)
        own: dict[str, Any] = {
            "group.id": options.client_id,
            "enable.auto.commit": False,
            "message.max.bytes": options.bytes,
            "fetch.max.bytes": options.bytes,
            "max.partition.fetch.bytes": options.bytes,
            "auto.offset.reset": "error",
        }
        self._clients = {number: Consumer(self.common | own) for number in self.numbers}
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the clients until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clients")
    parser.add_argument("direction", choices=("produce", "consume"))
    for name in ("--bootstrap", "--topic", "--client-id"):
        parser.add_argument(name, required=True)
    for name in ("--connections", "--bytes"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="the number of the first client")
    parser.add_argument("--notes", type=Path)
    options = parser.parse_args(arguments)
    with (options.notes or Path(os.devnull)).open("w") as notes:
        load: Producing | Consuming
        load = (Producing if options.direction == "produce" else Consuming)(options, notes)
        print("ready", flush=True)
        sys.stdin.readline()
        load.go()
        while not select.select([sys.stdin], [], [], 0)[0]:
            load.turn()
            time.sleep(_PAUSE_SECONDS)
    print(json.dumps(dict(load.seen)), flush=True)


def complaints(children: Sequence[Child]) -> Counter[str]:
    """End these processes, and return what their clients complained about."""
    found: Counter[str] = Counter()
    for child in children:
        found.update(child.ask("end"))
    return found


if __name__ == "__main__":
    main()
    # Closing would wait for requests that are held back; their responses are not needed.
    os._exit(0)
