"""`make latency`: how long a request takes for a client that sends when it wants to, not when a response lets it.

    python -m tests.bench.latency [--quick] [--rounds N] [--seconds N] [--write]

The two ends are those of `make saturate`: one core has the generator and a broker that only responds, the other one the
proxy. First each proxy passes what it can with one request under way on each connection: this is 100 %. Then the
generator is an open loop: requests are due at the times of a Poisson process, on connections chosen at random, and each
is sent when it is due, whatever has come back. A latency counts from when the request was due, so that a lane that
stops for a while pays for all that were due meanwhile (no coordinated omission).

Every lane has the same rates, 30 and 70 % of what Sluice passes, and the same schedules; HAProxy also 30 and 70 % of
what it passes itself. Lanes take turns; a figure is the median of the rounds. How late the generator sent is reported
beside, and is part of each latency. What a real broker adds is not measured: `make bench` has one.

Exit code 2 when something that it needs is missing.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tests.bench import machine, report
from tests.bench.figures import median, percentile
from tests.bench.lanes import DIRECT
from tests.bench.options import DOCUMENT
from tests.bench.picture import Ranges, draw_ranges
from tests.bench.process import raise_descriptor_limit
from tests.bench.report import Outcome, tabulate
from tests.bench.saturate.__main__ import HAPROXY, SLUICE, Bench, Lane, Shape, build
from tests.cluster import MissingPrerequisiteError
from tests.support.proxy_process import ROOT

CONNECTIONS: Final = (10, 100, 1000)
SHARES: Final = (0.3, 0.7)
RECORD_BYTES: Final = 100
SETTLE_SECONDS: Final = 0.3
_SEED: Final = 31
_PICTURE: Final = DOCUMENT.with_name("latency.svg")
_TRIAL_PICTURE: Final = ROOT / "build" / "latency.svg"

# As peers.c has them.
DUE: Final = np.dtype([("at", "f8"), ("connection", "u4"), ("unused", "u4")])
FOUND: Final = np.dtype([("due", "f4"), ("late", "f4"), ("latency", "f4")])


class Load(NamedTuple):
    """What one lane is given: a share of what the proxy `whose` passes with a full core."""

    lane: str
    share: float
    whose: str

    @property
    def name(self) -> str:
        """Return how tables and the picture name the lane."""
        return self.lane if self.whose == SLUICE else f"{self.lane}, share of its own"


LOADS: Final = [
    Load(lane, share, whose)
    for share in SHARES
    for lane, whose in ((SLUICE, SLUICE), (HAPROXY, SLUICE), (DIRECT, SLUICE), (HAPROXY, HAPROXY))
]


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles in ms."""

    p50: float
    p99: float
    p999: float

    @classmethod
    def of(cls, seconds: NDArray[Any]) -> Self:
        """Return those of some times in seconds, in any order."""
        ordered = np.sort(seconds).tolist()
        return cls(*(percentile(ordered, percent) * 1000 for percent in (50, 99, 99.9)))


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of one lane.

    Args:
        latency: from when a request was due to its response.
        late: from when it was due to when the generator sent it.
        busy: the share of its core that the proxy used.
        ends: the share of theirs that generator and broker used.
    """

    latency: Times
    late: Times
    busy: float
    ends: float


@dataclass(frozen=True, slots=True)
class Found:
    """All turns of one lane with one load; `rate` is in requests/s."""

    tls: bool
    connections: int
    load: Load
    rate: float
    turns: Sequence[Turn]

    @property
    def latency(self) -> Times:
        """Return the medians of the rounds' percentiles."""
        each = [turn.latency for turn in self.turns]
        return Times(*(median(getattr(one, name) for one in each) for name in ("p50", "p99", "p999")))


@dataclass(frozen=True, slots=True)
class Full:
    """What a lane passes with one request under way on each connection; `busy` and `ends` as those of a turn."""

    tls: bool
    connections: int
    lane: str
    per_second: float
    busy: float
    ends: float


def schedule(rate: float, connections: int, seconds: float, seed: int) -> NDArray[Any]:
    """Return when requests are due, and on which connections: a Poisson process of `rate` requests/s."""
    chance = np.random.default_rng(seed)
    at = np.cumsum(chance.exponential(1 / rate, round(rate * seconds * 1.5) + 100))
    at = at[at < seconds]
    due = np.zeros(len(at), DUE)
    due["at"], due["connection"] = at, chance.integers(connections, size=len(at))
    return due


def judge(found: NDArray[Any]) -> tuple[Times, Times]:
    """Return the percentiles of latency and of lateness, without requests that were due before all had settled."""
    kept = found[found["due"] >= SETTLE_SECONDS]
    return Times.of(kept["latency"]), Times.of(kept["late"])


def play(lane: Lane, due: NDArray[Any], directory: Path) -> Turn:
    """Let the generator of a lane keep a schedule."""
    asked, found = directory / "schedule", directory / "found"
    due.tofile(asked)
    before = lane.cpu()
    elapsed_ns = lane.generator.ask(f"{asked} {found}")["seconds"] * 1e9
    busy, ends = (now - then for now, then in zip(lane.cpu(), before, strict=True))
    return Turn(*judge(np.fromfile(found, FOUND)), busy / elapsed_ns, ends / elapsed_ns)


def saturate(bench: Bench, tls: bool, connections: int, seconds: float) -> list[Full]:
    """Return what each lane passes when its core is full; of the two ends alone it is theirs."""
    shape = Shape("produce", RECORD_BYTES, connections, in_flight=1, tls=tls)
    found = []
    with bench.opened(shape, [*bench.lanes(shape), DIRECT]) as lanes:
        for name, lane in lanes.items():
            lane.turn(0.5)
            began, (_, before) = time.monotonic(), lane.cpu()
            turn = lane.turn(seconds)
            ends = (lane.cpu()[1] - before) / 1e9 / (time.monotonic() - began)
            found.append(Full(tls, connections, name, turn.per_second, turn.busy, ends))
    return found


def measure(bench: Bench, full: Sequence[Full], rounds: int, seconds: float, directory: Path) -> list[Found]:
    """Measure all lanes with one kind of connection, in turns; `full` is what they pass."""
    tls, connections = full[0].tls, full[0].connections
    rates = {each.lane: each.per_second for each in full}
    loads = [load for load in LOADS if {load.lane, load.whose} <= rates.keys()]
    turns: dict[Load, list[Turn]] = {load: [] for load in loads}
    shape = Shape("produce", RECORD_BYTES, connections, in_flight=0, tls=tls)
    with bench.opened(shape, list(rates)) as lanes:
        for lane in lanes.values():
            play(lane, schedule(SHARES[0] * rates[SLUICE], connections, 2 * SETTLE_SECONDS, _SEED), directory)
        for number in range(rounds):
            for load in loads[number % len(loads) :] + loads[: number % len(loads)]:
                rate = load.share * rates[load.whose]
                due = schedule(rate, connections, SETTLE_SECONDS + seconds, _SEED + number)
                turns[load].append(play(lanes[load.lane], due, directory))
    return [
        Found(tls, connections, load, load.share * rates[load.whose], each) for load, each in turns.items()
    ]


def _encryption(tls: bool) -> str:
    return "TLS" if tls else "plaintext"


_FULL_COLUMNS: Final[Mapping[str, Callable[[Full], object]]] = {
    "connections": lambda each: f"{each.connections:,}",
    "clients": lambda each: _encryption(each.tls),
    "lane": lambda each: each.lane,
    "requests/s": lambda each: f"{each.per_second:,.0f}",
    "proxy busy": lambda each: f"{each.busy:.0%}",
    "ends busy": lambda each: f"{each.ends:.0%}",
}
_COLUMNS: Final[Mapping[str, Callable[[Found], object]]] = {
    "connections": lambda each: f"{each.connections:,}",
    "load": lambda each: f"{each.load.share:.0%}",
    "lane": lambda each: each.load.name,
    "requests/s": lambda each: f"{each.rate:,.0f}",
    "p50 ms": lambda each: f"{each.latency.p50:.2f}",
    "p99 ms": lambda each: f"{each.latency.p99:.2f}",
    "p99.9 ms": lambda each: f"{each.latency.p999:.2f}",
    "p99.9 of each round": lambda each: " ".join(
        f"{one:.2f}" for one in sorted(turn.latency.p999 for turn in each.turns)
    ),
    "sent late, p50 ms": lambda each: f"{median(turn.late.p50 for turn in each.turns):.2f}",
    "p99": lambda each: f"{median(turn.late.p99 for turn in each.turns):.2f}",
    "p99.9": lambda each: f"{median(turn.late.p999 for turn in each.turns):.2f}",
    "proxy busy": lambda each: f"{median(turn.busy for turn in each.turns):.0%}",
    "ends busy": lambda each: f"{median(turn.ends for turn in each.turns):.0%}",
}


def outcome_of(full: Sequence[Full], found: Sequence[Found]) -> Outcome:
    """Return the tables: what 100 % is, and the latencies without and with TLS."""
    note = "Produce of 100 bytes, one request under way on each connection."
    tables = [tabulate("Latency: what a full core passes, 100 %", full, _FULL_COLUMNS, note)]
    for tls in (False, True):
        rows = [each for each in found if each.tls == tls]
        tables.append(tabulate(f"Latency, open loop, {_encryption(tls)}", rows, _COLUMNS))
    return Outcome(tables)


def draw(found: Sequence[Found], path: Path) -> None:
    """Draw the latencies: a row of charts for plaintext and one for TLS, a column for each load."""
    panels = []
    for tls in (False, True):
        row = []
        for share in SHARES:
            groups: dict[str, dict[str, Sequence[float]]] = {}
            for each in found:
                if (each.tls, each.load.share) == (tls, share):
                    latency = each.latency
                    values = (latency.p50, latency.p99, latency.p999)
                    groups.setdefault(f"{each.connections:,} connections", {})[each.load.name] = values
            row.append(Ranges(f"{_encryption(tls)}, {share:.0%}: ms", groups))
        panels.append(row)
    draw_ranges(path, panels, {"p50": "o", "p99": "s", "p99.9": "^"}, (10, 8))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return how long is measured, and whether it is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.latency", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one turn")
    parser.add_argument("--quick", action="store_true", help="one round of one second")
    parser.add_argument(
        "--write", action="store_true", help=f"write the tables into {DOCUMENT}, and the picture"
    )
    return parser.parse_args(arguments)


def run(given: argparse.Namespace, console: Console) -> bool:
    """Measure, print, draw, write; there is no bar to miss."""
    if len(os.sched_getaffinity(0)) < 2:  # one for the proxy, one for the two ends
        raise MissingPrerequisiteError("two cores are needed")
    raise_descriptor_limit()
    build()
    rounds, seconds = (1, 1.0) if given.quick else (max(1, given.rounds), given.seconds)
    full: list[Full] = []
    found: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="sluice-latency-") as name:
        directory = Path(name)
        bench = Bench(directory)
        for tls in (False, True):
            for connections in CONNECTIONS:
                # No progress bar: it would take time of both cores while they are measured.
                console.print(f"{_encryption(tls)}, {connections} connections")
                passed = saturate(bench, tls, connections, seconds)
                full += passed
                found += measure(bench, passed, rounds, seconds, directory)
    picture, extra = _TRIAL_PICTURE, ""
    if given.write:
        picture, extra = _PICTURE, f"\n![p50, p99 and p99.9 of each lane]({_PICTURE.name})\n"
    draw(found, picture)
    console.print(f"drawn: {picture}")
    facts = [
        *(fact for fact in machine.describe() if fact[0] != "Kafka"),
        ("amounts", f"{rounds} rounds of {seconds:g} s"),
    ]
    return report.publish(console, facts, outcome_of(full, found), "latency" if given.write else "", extra)


def main() -> int:
    """Run with the arguments of the command line."""
    given = parse()
    return report.run(lambda console: run(given, console))


if __name__ == "__main__":
    sys.exit(main())
