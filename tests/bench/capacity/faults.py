"""Faults of a fleet of 2 × 2 whose clients share a capacity: what they get meanwhile, and the bound.

`a` is away, so that more than half of the capacity is lent; the others want all of it. The bound is that of a quota,
with the capacity in its place, and in addition what is lent, for LOAN_MS: a process that is cut off uses its loans for
as long, while others have them already.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from quotas.definitions.classes import SHARED_BURST_SECONDS
from quotas.sharing.lease_values import LOAN_MS
from tests.bench.capacity.classes import CAPACITY, RECORD_BYTES, B, C, settings
from tests.bench.clients import complaints
from tests.bench.figures import Event
from tests.bench.fleet.bound import Bound, Life, Worst, below, rate, worst
from tests.bench.fleet.faults import Fault, suspended
from tests.bench.fleet.rig import Member, Rig, rig
from tests.bench.process import Child, module_process
from tests.bench.report import Bar, Outcome, tabulate

LEAST: Final = 0.97
MEMBERS: Final = 2
WORKERS: Final = 2
CLIENTS: Final = (B._replace(connections=16), C._replace(connections=24))
_DIRECTION: Final = "produce"
_LENT: Final = 1 - sum(each.rate for each in CLIENTS) / CAPACITY  # of the capacity
_SETTLE_SECONDS: Final = 8.0
_TICK_SECONDS: Final = 0.25
_BACK_SECONDS: Final = 5.0
_PAUSED_SECONDS: Final = 10.0


def _none(_: Rig) -> Iterator[float]:
    yield 10.0


def _worker(running: Rig) -> Iterator[float]:
    running.other().kill_worker(0)
    yield 10.0


def _killed(running: Rig, choose: Callable[[Rig], Member]) -> Iterator[float]:
    member = choose(running)
    member.kill()
    yield _BACK_SECONDS
    member.start()
    yield 20.0


_STOPPED: Final = partial(suspended, seconds=_PAUSED_SECONDS, after=10.0)
FAULTS: Final = (
    Fault("none", "none", _none),
    Fault("worker", "a worker is killed", _worker),
    Fault(
        "member",
        f"a member is killed, and starts again after {_BACK_SECONDS:g} s",
        partial(_killed, choose=Rig.other),
    ),
    Fault("holder", "the same with the holder", partial(_killed, choose=Rig.holder)),
    Fault(
        "pause",
        f"the holder's control process is stopped for {_PAUSED_SECONDS:g} s",
        partial(_STOPPED, workers=False),
    ),
    Fault(
        "suspend",
        f"the holder and its workers are stopped for {_PAUSED_SECONDS:g} s",
        partial(_STOPPED, workers=True),
    ),
)


@dataclass(frozen=True, slots=True)
class Played:
    """A run; times are in seconds since it began.

    Attributes:
        marks: each fault, when it began, and when the next did.
        let_through: of each client, when the first byte of each request passed, when the last, and its size.
        seen: what clients complained about.
    """

    marks: Sequence[tuple[Fault, float, float]]
    lives: Sequence[Life]
    let_through: Mapping[str, Sequence[tuple[float, float, int]]]
    seen: Counter[str]

    def starts(self) -> list[Event]:
        """Return when a process decided on each request, or soon after that."""
        return [(first, size) for noted in self.let_through.values() for first, _, size in noted]

    def passed(self, *names: str) -> list[Event]:
        """Return when the requests of these clients had passed."""
        return [(last, size) for name in names for _, last, size in self.let_through[name]]


def play(faults: Sequence[Fault], console: Console) -> Played:
    """Play the faults in their order."""
    with (
        tempfile.TemporaryDirectory(prefix="sluice-capacity-") as name,
        rig(Path(name), members=MEMBERS, workers=WORKERS, **settings()) as running,
        ExitStack() as stack,
    ):
        running.settle()
        running.create_topic(_DIRECTION, copies=1)
        children = [stack.enter_context(child) for child in _clients(running)]
        running.look()
        began = time.monotonic()
        for child in children:
            child.say("go")
        _wait(running, _SETTLE_SECONDS)
        marks = []
        for fault in faults:
            at = time.monotonic() - began
            console.print(f"{at:6.1f} s: {fault.label}")
            for seconds in fault.act(running):
                _wait(running, seconds)
            marks.append((fault, at, time.monotonic() - began))
        seen = complaints(children)
        let_through = {
            each.name: [
                (first - began, last - began, size) for first, last, size in running.events(each.name)
            ]
            for each in CLIENTS
        }
        lives = [(born - began, died - began) for born, died in running.lives()]
        return Played(marks, lives, let_through, seen)


def _clients(running: Rig) -> Iterator[AbstractContextManager[Child]]:
    """Yield the processes of all clients, one of each at each member."""
    for each in CLIENTS:
        for number, member in enumerate(running.members):
            words: list[object] = [_DIRECTION, "--topic", _DIRECTION, "--client-id", each.name]
            words += ["--connections", each.connections // MEMBERS, "--bytes", RECORD_BYTES]
            # Of these a client notes nothing; they make it connect again within a second.
            words += ["--notes", running.directory / f"{each.name}-{number}.notes"]
            words += ["--bootstrap", member.running.bootstrap]
            log = running.directory / f"{each.name}-{number}.log"
            yield module_process("tests.bench.clients", *words, log=log)


def _wait(running: Rig, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        running.look()
        time.sleep(_TICK_SECONDS)


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault made of the capacity; the excess in seconds of it."""

    fault: Fault
    seconds: float
    together: float
    rates: Mapping[str, float]
    below: float
    excess: Worst


_COLUMNS: Final[Mapping[str, Callable[[Row], object]]] = {
    "fault": lambda row: row.fault.label,
    "seconds": lambda row: f"{row.seconds:.0f}",
    "let through / capacity": lambda row: f"{row.together:.3f}",
    **{
        f"{each.name} / its rate": lambda row, name=each.name: f"{row.rates[name]:.2f}"  # type: ignore[misc]  # default
        for each in CLIENTS
    },
    f"below {LEAST:g} for": lambda row: f"{row.below:.1f} s",
    "nearest to the bound": lambda row: (
        f"{row.excess.excess:+.2f} s in {row.excess.ended - row.excess.began:.0f} s"
    ),
}


def rows(played: Played) -> list[Row]:
    """Return a row for each fault."""
    starts, names = played.starts(), [each.name for each in CLIENTS]
    limit = Bound(CAPACITY, SHARED_BURST_SECONDS + _LENT * LOAN_MS / 1000, max(size for _, size in starts))
    found = []
    for fault, began, ended in played.marks:
        farthest = worst(starts, played.lives, limit, began, ended)
        found.append(
            Row(
                fault=fault,
                seconds=ended - began,
                together=rate(played.passed(*names), began, ended) / CAPACITY,
                rates={
                    each.name: rate(played.passed(each.name), began, ended) / each.rate for each in CLIENTS
                },
                below=below(played.passed(*names), LEAST * CAPACITY, began, ended),
                excess=Worst(farthest.excess / CAPACITY, farthest.began, farthest.ended),
            )
        )
    return found


def report(played: Played) -> Outcome:
    """Return the table and the bars."""
    found = rows(played)
    title = f"Faults, 2 × 2, a capacity of {CAPACITY / 1e6:g} MB/s, {_LENT:.0%} of it lent, requests of 50 kB"
    seen = ", ".join(f"{count} × {name}" for name, count in sorted(played.seen.items())) or "nothing"
    note = f"In windows of two seconds. What clients reported: {seen}."
    excess = max(row.excess.excess for row in found)
    bars = [
        Bar("capacity, all faults: above the bound", max(0.0, excess), 0.0, "s"),
        Bar("capacity, all faults: fatal errors", float(played.seen["fatal"]), 0.0, ""),
    ]
    return Outcome([tabulate(title, found, _COLUMNS, note)], bars)
