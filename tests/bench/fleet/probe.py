"""Producers that send at a fixed rate, whatever comes back: how long each record takes until it is acknowledged.

    python -m tests.bench.fleet.probe --bootstrap … --topic … --rate N --producers N --notes FILE

It says `ready`, begins with a line, and ends with the next one, with a line of JSON: what the clients complained about.
A record's time counts from when it was due, so a producer that is late, or waits for a connection, is not excused. Each
note is a line: when it was due, its seconds. All settings but `linger.ms` are librdkafka's defaults, with idempotence.
"""

import argparse
import json
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from confluent_kafka import KafkaError, Message, Producer

PARTITIONS: Final = 3
_BYTES: Final = 200
_READY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.001
_END_SECONDS: Final = 30.0


def due(began: float, rate: float, sent: int, now: float) -> Iterator[float]:
    """Yield when each record was due that has not been sent by now.

    >>> list(due(100.0, 10.0, 3, 100.55))
    [100.3, 100.4, 100.5]
    """
    while (at := began + sent / rate) <= now:
        yield at
        sent += 1


def read_notes(path: Path) -> list[tuple[float, float]]:
    """Return all notes: when a record was due, and how many seconds it took."""
    lines = (line.split() for line in path.read_text().splitlines())
    return [(float(at), float(seconds)) for at, seconds in lines]


class Probe:
    """The producers, which take turns; record number i goes to partition i mod PARTITIONS."""

    def __init__(self, options: argparse.Namespace, notes: TextIO) -> None:
        self.seen: Counter[str] = Counter()
        self._topic = options.topic
        self._rate = options.rate
        self._notes = notes
        self._sent = 0
        common = {
            "bootstrap.servers": options.bootstrap,
            "client.id": options.topic,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            "error_cb": self._complain,
        }
        self._producers = [Producer(common) for _ in range(options.producers)]
        for producer in self._producers:
            producer.list_topics(options.topic, _READY_SECONDS)

    def run(self) -> None:
        """Send until standard input says something, then wait until nothing is under way."""
        began = time.monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            for at in due(began, self._rate, self._sent, time.monotonic()):
                self._send(at)
            for producer in self._producers:
                producer.poll(0)
            time.sleep(_PAUSE_SECONDS)
        for producer in self._producers:
            self.seen["not delivered"] += producer.flush(_END_SECONDS)

    def _send(self, at: float) -> None:
        number, self._sent = self._sent, self._sent + 1
        producer = self._producers[number // PARTITIONS % len(self._producers)]
        value = number.to_bytes(8).ljust(_BYTES, b".")
        delivered = partial(self._delivered, at)
        producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=delivered)

    def _delivered(self, at: float, problem: KafkaError | None, _: Message) -> None:
        if problem is None:
            self._notes.write(f"{at:.4f} {time.monotonic() - at:.4f}\n")
        else:
            self._complain(problem)
            self.seen["not delivered"] += 1

    def _complain(self, problem: KafkaError) -> None:
        self.seen["fatal" if problem.fatal() else problem.name()] += 1
        print(problem, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the producers until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet.probe")
    for name in ("--bootstrap", "--topic"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rate", type=float, required=True, help="records/s of all producers")
    parser.add_argument("--producers", type=int, required=True)
    parser.add_argument("--notes", type=Path, required=True)
    options = parser.parse_args(arguments)
    with options.notes.open("w") as notes:
        probe = Probe(options, notes)
        print("ready", flush=True)
        sys.stdin.readline()
        probe.run()
    print(json.dumps(dict(probe.seen)), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # closing would wait for connections
