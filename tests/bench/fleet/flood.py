"""What a flood of forged records in the quota topic costs: alterations, followers, clients, and the next start.

Two members whose quotas are in a topic on three brokers; a client beside Sluice writes records with valid keys of their
own there, as fast as in an attack. Quotas are altered through the first member all the time; ApiVersions is asked at
the second, which reads the same flood, as a client whose requests it delays would.
"""

import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench.figures import percentile
from tests.bench.process import resident_kib
from tests.bench.report import Bar, Outcome, tabulate
from tests.cluster import Cluster, ClusterOptions
from tests.support import record_flood
from tests.support.proxy_process import SluiceProcess, fleet_secret
from tests.support.quota_client import set_rates
from tests.support.topic_quotas import Topic, rate_of
from tests.support.waiting import until

RECORDS: Final = 1_070_000
PER_SECOND: Final = 71_000
ALTERED_SECONDS_MAX: Final = 2.0
_FOLLOWED_SECONDS_MAX: Final = 300.0
_PAUSE_SECONDS: Final = 0.1
# ApiVersions, version 0, correlation id 1, client id "p".
_PING: Final = bytes.fromhex("0000000b 0012 0000 00000001 0001 70".replace(" ", ""))


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; times are in seconds.

    Attributes:
        what: the case.
        flooded: how long the flood took.
        altered: of each alteration meanwhile, until its response.
        pings: of each ApiVersions at the other member meanwhile; `quiet`: before.
        followed: from the end of the flood until the other member had the last alteration.
        start: of a third member, until it is ready.
        memory: of the second member at the end, and `before`, in MiB.
    """

    what: str
    flooded: float
    altered: Sequence[float]
    pings: Sequence[float]
    quiet: Sequence[float]
    followed: float
    start: float
    memory: float
    before: float


def measure(console: Console, records: int = RECORDS) -> list[Figures]:
    """Flood a topic of signed records, and one of a process without a secret."""
    with Cluster(ClusterOptions()) as cluster:
        found = []
        for what, signed in (("signed", True), ("without a secret", False)):
            try:
                found.append(_flood(cluster, what, records, signed=signed))
            except TimeoutError:  # without a secret these are a million limits, as docs/security.md says
                console.print(f"{what}: an alteration got no response within a minute")
                continue
            console.print(
                f"{what}: altered within {max(found[-1].altered):.2f} s, ready after {found[-1].start:.1f} s"
            )
        return found


def _flood(cluster: Cluster, what: str, records: int, *, signed: bool) -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="sluice-flood-") as name,
        Topic(cluster.bootstrap(), Path(name)) as topic,
    ):
        sections = {"fleet": {"secret_file": fleet_secret(Path(name))}} if signed else {}
        first, second = (topic.start(member, sections=sections) for member in ("first", "second"))
        assert set_rates(first.bootstrap, altered=1.0) == [(0, "")]
        until(lambda: rate_of(second, "altered") == 1.0, "it follows")
        quiet = [_ping(second) for _ in range(100)]
        before = resident_kib(second.process_id) / 1024
        altered, pings = [], []
        value = 1.0
        with record_flood.begin(cluster.bootstrap(), topic.name, records, PER_SECOND) as flood:
            while flood.poll() is None:
                value += 1.0
                altered.append(_alter(first, value))
                pings.append(_ping(second))
                time.sleep(_PAUSE_SECONDS)
            assert flood.stdout is not None
            flooded = float(flood.stdout.read())
        value += 1.0
        altered.append(_alter(first, value))
        followed = until(
            lambda: rate_of(second, "altered") == value, "it follows", _FOLLOWED_SECONDS_MAX, pause=0.05
        )
        began = time.monotonic()
        third = topic.start("third", sections=sections, ready=False)
        third.wait_ready(_FOLLOWED_SECONDS_MAX)
        start = time.monotonic() - began
        assert rate_of(third, "altered") == value
        memory = resident_kib(second.process_id) / 1024
        return Figures(what, flooded, altered, pings, quiet, followed, start, memory, before)


def _alter(process: SluiceProcess, value: float) -> float:
    began = time.monotonic()
    assert set_rates(process.bootstrap, altered=value) == [(0, "")], "it is altered"
    return time.monotonic() - began


def _ping(process: SluiceProcess) -> float:
    host, _, port = process.bootstrap.partition(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        began = time.monotonic()
        sock.sendall(_PING)
        assert sock.recv(65536)
        return time.monotonic() - began


def _ms(seconds: Sequence[float], percent: float, digits: int = 0) -> str:
    return f"{1000 * percentile(sorted(seconds), percent):.{digits}f}"


_COLUMNS: Final[Mapping[str, Callable[[Figures], object]]] = {
    "topic": lambda one: one.what,
    "flood s": lambda one: f"{one.flooded:.1f}",
    "alterations": lambda one: len(one.altered),
    "p50 ms": lambda one: _ms(one.altered, 50),
    "longest ms": lambda one: _ms(one.altered, 100),
    "ApiVersions p99 ms before": lambda one: _ms(one.quiet, 99, 1),
    "meanwhile": lambda one: _ms(one.pings, 99, 1),
    "followed after s": lambda one: f"{one.followed:.1f}",
    "start s": lambda one: f"{one.start:.1f}",
    "MiB before": lambda one: f"{one.before:.0f}",
    "after": lambda one: f"{one.memory:.0f}",
}


def report(found: Sequence[Figures]) -> Outcome:
    """Return the table and the bars."""
    bars = [
        Bar(f"flood, {one.what}: longest alteration", max(one.altered), ALTERED_SECONDS_MAX, "s")
        for one in found
    ]
    title = f"Quotas in a topic: {RECORDS:,} forged records with keys of their own at {PER_SECOND:,}/s"
    note = (
        "Alterations one after the other through one member; the other one follows and answers ApiVersions."
    )
    return Outcome([tabulate(title, found, _COLUMNS, note)], bars)
