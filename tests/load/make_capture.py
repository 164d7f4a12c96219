"""`python -m tests.load.make_capture [DIRECTORY]`: writes the synthetic capture that `make load` replays.

Half a minute of a cluster of three brokers, made up with a fixed seed, so that it is the same wherever it is made:

    steady-1…4    each 20 Produce/s of 10 kB in all, spread over six partitions
    bursty        60 Produce/s of 50 kB for 2 s, then 4 s of silence
    hog           30 Produce/s of 100 kB
    bootstrap     reads everything again: 10 Fetch/s of 400 kB for the first 15 s
    reader-1…3    each 10 Fetch/s of 8 kB, a Heartbeat every 3 s, and Metadata every 10 s

No throttling when it was "recorded". 4.8 MB/s are written; 4.6 MB/s are read at first, 0.5 without `bootstrap`.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from protocol.api import API_VERSIONS, FETCH, HEARTBEAT, METADATA, PRODUCE
from tests.support import captures
from tests.support.captures import write

DIRECTORY: Final = Path(__file__).parent / "capture"
FILE: Final = "capture-synthetic-000001.parquet"
SECONDS: Final = 30.0
_SEED: Final = 7
_BROKERS: Final = 3
_PARTITIONS: Final = 6
_WALL_MS: Final = 1_790_000_000_000  # some day in 2026
_MONO_US: Final = 1_000_000_000
_RECORD_BYTES: Final = 500


@dataclass(slots=True)
class _Client:
    """One client: a connection to each broker."""

    name: str
    first_connection: int
    random: random.Random
    seqs: dict[int, int] = field(default_factory=dict)

    def row(self, at: float, broker: int, api_key: int, version: int, **more: Any) -> dict[str, Any]:
        connection = self.first_connection + broker
        seq = self.seqs[connection] = self.seqs.get(connection, -1) + 1
        at_us = int(at * 1e6)
        own = captures.row(
            seq,
            wall_ms=_WALL_MS + at_us // 1000,
            mono_us=_MONO_US + at_us,
            process="synthetic",
            connection=connection,
            client_id=self.name,
            broker=broker,
            api_key=api_key,
            api_version=version,
            request_bytes=60,
            upstream_us=int(self.random.lognormvariate(7.0, 0.5)),  # about 1.1 ms
        )
        return own | more

    def produce(self, at: float, topic: str, size: int) -> dict[str, Any]:
        """One Produce to all partitions of the topic that one broker leads."""
        broker = self.random.randint(1, _BROKERS)
        led = [index for index in range(_PARTITIONS) if 1 + index % _BROKERS == broker]
        each = int(size * self.random.uniform(0.7, 1.3)) // len(led)
        parts = [
            {"topic": topic, "partition": index, "bytes": each, "records": max(1, each // _RECORD_BYTES)}
            for index in led
        ]
        total = each * len(led) + 80
        return self.row(at, broker, PRODUCE, 12, request_bytes=total, response_bytes=90, partitions=parts)

    def fetch(self, at: float, topic: str, size: int) -> dict[str, Any]:
        """One Fetch of one partition."""
        index = self.random.randrange(_PARTITIONS)
        total = int(size * self.random.uniform(0.7, 1.3))
        part = {"topic": topic, "partition": index, "bytes": total, "records": -1}
        broker = 1 + index % _BROKERS
        return self.row(
            at, broker, FETCH, 12, request_bytes=120, response_bytes=total + 70, partitions=[part]
        )

    def hello(self) -> Iterator[dict[str, Any]]:
        for broker in range(1, _BROKERS + 1):
            yield self.row(0.0, broker, API_VERSIONS, 3, response_bytes=700)


def _times(source: random.Random, rate: float, begin: float = 0.0, end: float = SECONDS) -> Iterator[float]:
    """When requests come that do so at random, `rate` a second."""
    at = begin
    while True:
        at += source.expovariate(rate)
        if at >= end:
            return
        yield at


def rows() -> list[dict[str, Any]]:
    """All rows, in order of their times."""
    source = random.Random(_SEED)
    names = [
        *(f"steady-{n}" for n in range(1, 5)),
        "bursty",
        "hog",
        "bootstrap",
        *(f"reader-{n}" for n in range(1, 4)),
    ]
    clients = {name: _Client(name, 10 * number, source) for number, name in enumerate(names)}
    plan: list[tuple[float, str, str]] = []
    for number in range(1, 5):
        plan += [(at, f"steady-{number}", "steady") for at in _times(source, 20)]
    for begin in range(0, int(SECONDS), 6):
        plan += [(at, "bursty", "bursty") for at in _times(source, 60, begin, begin + 2.0)]
    plan += [(at, "hog", "hog") for at in _times(source, 30)]
    plan += [(at, "bootstrap", "bootstrap") for at in _times(source, 10, end=SECONDS / 2)]
    for number in range(1, 4):
        name = f"reader-{number}"
        plan += [(at, name, "reader") for at in _times(source, 10)]
        plan += [(float(at), name, "heartbeat") for at in range(1, int(SECONDS), 3)]
        plan += [(float(at), name, "metadata") for at in range(0, int(SECONDS), 10)]
    found = [row for client in clients.values() for row in client.hello()]
    found += [_row(clients[name], what, at) for at, name, what in sorted(plan)]
    return found


def _row(client: _Client, what: str, at: float) -> dict[str, Any]:
    if what == "heartbeat":
        return client.row(at, 1, HEARTBEAT, 4, request_bytes=110, response_bytes=15)
    if what == "metadata":
        return client.row(at, 1, METADATA, 12, request_bytes=80, response_bytes=2000)
    sizes = {"steady": 10_000, "bursty": 50_000, "hog": 100_000, "bootstrap": 400_000, "reader": 8_000}
    if what in ("bootstrap", "reader"):
        return client.fetch(at, "load-hog" if what == "bootstrap" else "load-steady", sizes[what])
    return client.produce(at, f"load-{what}", sizes[what])


def main(directory: Path = DIRECTORY) -> Path:
    """Write the file."""
    directory.mkdir(exist_ok=True)
    return write(directory / FILE, rows())


if __name__ == "__main__":
    print(main(*map(Path, sys.argv[1:2])))
