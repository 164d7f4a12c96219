"""Producers whose load follows a day, in a process of its own: `python -m tests.bench.capacity.day`.

An hour takes 2.5 s. Records come at random (Poisson) times that are the same in every run, whether or not earlier ones
were acknowledged, with acks=all. Each of the instances is a producer with its own connections.

It says `ready`, and begins the day at the time (seconds of the monotonic clock) in the first line that it is told;
days repeat until the next line. Then it prints a line of JSON: of each record when it was due, in seconds of the day,
and the seconds from there to its acknowledgement; how many were not acknowledged.
"""

import argparse
import heapq
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from random import Random
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

HOUR_SECONDS: Final = 2.5
DAY_SECONDS: Final = 24 * HOUR_SECONDS
SURGE: Final = (13 * HOUR_SECONDS, 17 * HOUR_SECONDS)
RECORD_BYTES: Final = 10_000
_WARM_SECONDS: Final = 2.0
_READY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.002
# Bytes/s of each client to each broker, by hour; linear in between.
_HOURS: Final = (
    *((0, 100_000), (5, 50_000), (9, 225_000), (11, 250_000), (13, 200_000)),
    *((17, 200_000), (19, 250_000), (22, 150_000), (24, 100_000)),
)


class Client(NamedTuple):
    """A client id.

    Args:
        instances: how many producers it has.
        surge: what it sends to each broker in the hours of the surge in addition, in bytes/s.
    """

    name: str
    instances: int
    surge: int = 0

    def rate(self, at: float) -> float:
        """Return the bytes/s to each broker at this second of the day.

        >>> WEB.rate(0), WEB.rate(SURGE[0]), OTHERS[0].rate(SURGE[0])
        (100000.0, 1050000.0, 200000.0)
        """
        hour = at / HOUR_SECONDS % 24
        before = max(point for point in _HOURS if point[0] <= hour)
        after = min(point for point in _HOURS if point[0] > hour)
        part = (hour - before[0]) / (after[0] - before[0])
        surges = SURGE[0] <= at % DAY_SECONDS < SURGE[1]
        return before[1] + part * (after[1] - before[1]) + surges * self.surge


WEB: Final = Client("web", 4, 850_000)
OTHERS: Final = (Client("orders", 2), Client("metrics", 2))
CLIENTS: Final = (WEB, *OTHERS)
INSTANCES: Final = tuple((client, instance) for client in CLIENTS for instance in range(client.instances))
_MOST: Final = max(rate for _, rate in _HOURS)


def rate(at: float) -> float:
    """Return the bytes/s of all clients to each broker at this second of the day."""
    return sum(client.rate(at) for client in CLIENTS)


def arrivals(client: Client, instance: int, brokers: int) -> Iterator[float]:
    """Yield when the records of an instance are due, in seconds of the first day; it begins a little before."""
    chance = Random(f"{client.name} {instance}")
    share = brokers / RECORD_BYTES / client.instances
    most = _MOST + client.surge
    at = -_WARM_SECONDS
    while True:
        at += chance.expovariate(most * share)
        if chance.random() * most < client.rate(at):
            yield at


def due(brokers: int) -> Iterator[tuple[float, int]]:
    """Yield when each record of all instances is due, in order, and the number of the instance that sends it.

    >>> from itertools import islice
    >>> sorted({number for _, number in islice(due(3), 1000)}) == list(range(len(INSTANCES)))
    True
    """
    return heapq.merge(
        *(
            zip(arrivals(client, instance, brokers), repeat(number))
            for number, (client, instance) in enumerate(INSTANCES)
        )
    )


class Load:
    """All producers, and what became of their records."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.taken: list[tuple[float, float]] = []
        self.sent = 0
        self._topic = topic
        self._partitions = partitions
        own = {"acks": "all", "linger.ms": 0, "max.in.flight.requests.per.connection": 5, "log_level": 0}
        self._producers = [
            Producer({"bootstrap.servers": bootstrap, "client.id": client.name, **own})
            for client, _ in INSTANCES
        ]
        for producer in self._producers:
            producer.list_topics(topic, _READY_SECONDS)

    def run(self, began: float, brokers: int, ended: Callable[[], bool]) -> None:
        """Send each record when it is due."""
        for at, number in due(brokers):
            if ended():
                return
            while (left := began + at - time.monotonic()) > 0:
                for producer in self._producers:
                    producer.poll(0)
                time.sleep(min(left, _PAUSE_SECONDS))
            late = time.monotonic() - began - at
            self._producers[number].produce(
                self._topic,
                bytes(RECORD_BYTES),
                partition=self.sent % self._partitions,
                on_delivery=partial(self._delivered, at, late),
            )
            self.sent += 1

    def _delivered(self, at: float, late: float, problem: KafkaError | None, message: Message) -> None:
        if problem is None:
            self.taken.append((at, late + (message.latency() or 0.0)))
        else:
            print(problem, file=sys.stderr)

    def finish(self, seconds: float) -> None:
        """Wait for what is under way, so long in all."""
        deadline = time.monotonic() + seconds
        for producer in self._producers:
            producer.flush(max(0.0, deadline - time.monotonic()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Produce until standard input says so."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.capacity.day")
    for name in ("--bootstrap", "--topic"):
        parser.add_argument(name, required=True)
    for name in ("--partitions", "--brokers"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args(arguments)
    load = Load(options.bootstrap, options.topic, options.partitions)
    print("ready", flush=True)
    began = float(sys.stdin.readline())
    load.run(began, options.brokers, lambda: bool(select.select([sys.stdin], [], [], 0)[0]))
    load.finish(10.0)
    missing = load.sent - len(load.taken)
    print(json.dumps({"taken": load.taken, "missing": missing}), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # a producer that waits for a broker would take minutes to close
