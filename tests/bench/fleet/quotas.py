"""How soon a quota that is altered through one member holds at the other, and how soon a member starts with many.

2 members x 2 workers whose quotas are in a topic on three brokers. A quota is altered through the first member, and
described at the second until it is there; each is asked over a connection of its own, as a tool does.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from quotas.definitions.entities import Entity
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from quotas.definitions.records import Author, key_of, value_of
from tests.bench.figures import median, percentile
from tests.bench.process import resident_kib
from tests.bench.report import Bar, Outcome, Table
from tests.cluster import HOST, Cluster, ClusterOptions, free_ports
from tests.support.proxy_process import SluiceProcess
from tests.support.quota_client import describe, set_rates
from tests.support.topic_quotas import Topic, rate_of
from tests.support.waiting import until

SEEN_SECONDS_MAX: Final = 1.0
START_SECONDS_MAX: Final = 10.0
_ALTERATIONS: Final = 200
_ENTITIES: Final = 100_000
_WORKERS: Final = 2
_MEMBERS_MAX: Final = 4
_FOLLOWED_SECONDS_MAX: Final = 120.0
_AUTHOR: Final = Author("bench", "127.0.0.1:1", "2026-01-31T12:00:00.000Z")


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; times are in seconds.

    Attributes:
        acknowledged: of each alteration, from the request to the response of the first member.
        seen: of the same, from that response until the second member described it.
        entities: how many limits the topic had when a member was started.
        start: from the start of its process until `/readyz` said 200.
        memory: of all its processes then, in MiB.
    """

    acknowledged: Sequence[float]
    seen: Sequence[float]
    entities: int
    start: float
    memory: float


def measure(console: Console, alterations: int = _ALTERATIONS, entities: int = _ENTITIES) -> Figures:
    """Alter quotas, fill the topic, and start another member."""
    with (
        Cluster(ClusterOptions()) as cluster,
        tempfile.TemporaryDirectory(prefix="sluice-quotas-") as name,
        Topic(cluster.bootstrap(), Path(name)) as topic,
    ):
        first, second = (_member(topic, member) for member in ("first", "second"))
        _altered(first, second, 0)  # the first alteration connects a producer
        pairs = [_altered(first, second, number) for number in range(1, alterations + 1)]
        console.print(
            f"{alterations} alterations: seen after {max(seen for _, seen in pairs) * 1000:.0f} ms at most"
        )
        topic.produce(_records(entities))
        until(lambda: rate_of(first, _name(entities - 1)) is not None, "they are read", _FOLLOWED_SECONDS_MAX)
        began = time.monotonic()
        third = _member(topic, "third")
        start = time.monotonic() - began
        there = len(describe(third.bootstrap))
        assert there == entities + 1, f"{there} of {entities + 1} entities are there"
        console.print(f"{entities:,} entities: ready after {start:.1f} s")
        acknowledged, seen = zip(*pairs, strict=True)
        return Figures(acknowledged, seen, entities, start, resident_kib(third.process_id) / 1024)


def _member(topic: Topic, name: str) -> SluiceProcess:
    fleet: dict[str, object] = {"name": name, "members_max": _MEMBERS_MAX, "group": topic.name}
    fleet["bind"] = f"{HOST}:{free_ports(1)[0]}"
    return topic.start(name, sections={"fleet": fleet, "process": {"workers": _WORKERS}})


def _altered(first: SluiceProcess, second: SluiceProcess, number: int) -> tuple[float, float]:
    """Alter a quota; return how long the response took, and how long after it the other member had the quota."""
    value = 1_000_000.0 + number
    began = time.monotonic()
    assert set_rates(first.bootstrap, altered=value) == [(0, "")], "it is altered"
    acknowledged = time.monotonic()
    until(lambda: rate_of(second, "altered") == value, "it follows", _FOLLOWED_SECONDS_MAX, pause=0.0)
    return acknowledged - began, time.monotonic() - acknowledged


def _name(number: int) -> str:
    return f"client-{number}"


def _records(entities: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(entities):
        entity = Entity(client_id=_name(number))
        yield key_of(entity, PRODUCER_BYTE_RATE), value_of(1000.0 + number, _AUTHOR)


def report(found: Figures) -> Outcome:
    """Return the tables and the bars."""
    bars = [
        Bar("altered through one member, at the other: longest", max(found.seen), SEEN_SECONDS_MAX, "s"),
        Bar(f"start with {found.entities:,} entities", found.start, START_SECONDS_MAX, "s"),
    ]
    columns = ("from", "to", "median ms", "p99 ms", "longest ms")
    rows = (
        ("alteration at one member", "its response", *_milliseconds(found.acknowledged)),
        ("its response", "described by the other member", *_milliseconds(found.seen)),
    )
    title = f"Quotas in a topic: {len(found.seen)} alterations, one after the other, 2 × {_WORKERS}"
    note = "The first alteration of a process, which connects its producer, is not among them."
    started = Table(
        f"Quotas in a topic: start of a member with {_WORKERS} workers",
        ("entities", "s to /readyz", "resident MiB, all processes"),
        ((f"{found.entities:,}", f"{found.start:.1f}", f"{found.memory:.0f}"),),
    )
    return Outcome([Table(title, columns, rows, note), started], bars)


def _milliseconds(seconds: Sequence[float]) -> Iterator[str]:
    ordered = sorted(seconds)
    for value in (median(ordered), percentile(ordered, 99), ordered[-1]):
        yield f"{1000 * value:.1f}"
