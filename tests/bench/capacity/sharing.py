"""Three clients that share a capacity: all want more than there is, then one stops, then it returns.

    all      from `go` until `a` stops; judged from when loans have come
    away     `a` has ended; `b` and `c` have what it leaves
    back     other connections of `a` begin, which were open already; it is to have its rate at once

All bytes pass one broker behind a relay that counts them, as in `make accuracy`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from quotas.definitions.classes import SHARED_BURST_SECONDS
from tests.bench.accuracy.__main__ import Bench, counted
from tests.bench.accuracy.judge import Options
from tests.bench.accuracy.relay import Counted, read_events
from tests.bench.capacity.classes import CAPACITY, CLIENTS, RECORD_BYTES, A, B, C, Client, parts, settings
from tests.bench.clients import complaints
from tests.bench.figures import Event, per_second, steady_rate
from tests.bench.fleet.bound import Bound, Worst, rate, worst
from tests.bench.fleet.shapes import Shape, members
from tests.bench.picture import Panel, draw_panels
from tests.bench.process import Child, module_process
from tests.bench.report import Bar, Outcome, tabulate

SHAPES: Final = (Shape(1, 1), Shape(2, 2))
_DIRECTION: Final = "produce"
# What is left out at the beginning of `all` and of `away`: loans are on their way.
_LOANS_SECONDS: Final = 5.0
_SHARED_AFTER_SECONDS: Final = 2.0
_ALL_SECONDS: Final = 20.0
_AWAY_SECONDS: Final = 14.0
_BACK_SECONDS: Final = 12.0
_BACK_AFTER_SECONDS: Final = 1.0

TOGETHER_MIN, TOGETHER_MAX = 0.97, 1.02
RATE_MIN: Final = 0.97
PART_OFF_MAX: Final = 0.05
BACK_MIN: Final = 0.95


class Marks(NamedTuple):
    """When what happened, in seconds of the relay's clock."""

    began: float
    stopped: float
    returned: float
    ended: float


@dataclass(frozen=True, slots=True)
class Shared:
    """One run.

    Attributes:
        noted: what the relay counted of each client.
        seen: what clients complained about.
    """

    shape: Shape
    marks: Marks
    noted: Mapping[str, Sequence[Counted]]
    seen: Mapping[str, int]

    def events(self, *names: str) -> list[Event]:
        """Return when the requests of these clients had passed, and their sizes."""
        return sorted((each.ended, each.size) for name in names for each in self.noted[name])


def measure(shapes: Sequence[Shape], console: Console) -> list[Shared]:
    """Run all shapes."""
    found = []
    with counted(Options(directions=(_DIRECTION,))) as bench:
        for shape in shapes:
            with ExitStack() as stack:
                bootstraps = members(bench, shape, stack, **settings())
                found.append(_run(bench, shape, bootstraps))
            console.print("; ".join(f"{bar.name} {bar.measured:.3f}" for bar in bars(found[-1])))
    return found


def _run(bench: Bench, shape: Shape, bootstraps: Sequence[str]) -> Shared:
    with ExitStack() as stack:
        running = {
            each.name: stack.enter_context(_connected(bench, shape, each, bootstraps)) for each in CLIENTS
        }
        again = stack.enter_context(_connected(bench, shape, A, bootstraps))
        began = _go(*running.values())
        time.sleep(_ALL_SECONDS)
        seen = complaints(running.pop(A.name))
        stopped = time.monotonic()
        time.sleep(_AWAY_SECONDS)
        returned = _go(again)
        time.sleep(_BACK_SECONDS)
        ended = time.monotonic()
        for children in (again, *running.values()):
            seen.update(complaints(children))
    path = bench.directory / "events.txt"
    noted = {
        each.name: [one for _, one in read_events(path, each.name) if began <= one.ended < ended]
        for each in CLIENTS
    }
    return Shared(shape, Marks(began, stopped, returned, ended), noted, seen)


@contextmanager
def _connected(
    bench: Bench, shape: Shape, client: Client, bootstraps: Sequence[str]
) -> Iterator[list[Child]]:
    """Start a client's processes, one at each member; they are connected, and wait."""
    words: list[object] = [_DIRECTION, "--topic", _DIRECTION, "--client-id", client.name]
    words += ["--bytes", RECORD_BYTES, "--connections", client.connections // len(bootstraps)]
    log = bench.directory / f"{shape.members}-{shape.workers}-{client.name}.log"
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                module_process("tests.bench.clients", *words, "--bootstrap", bootstrap, log=log)
            )
            for bootstrap in bootstraps
        ]


def _go(*clients: Sequence[Child]) -> float:
    """Let clients begin; return when."""
    now = time.monotonic()
    for children in clients:
        for child in children:
            child.say("go")
    return now


class Row(NamedTuple):
    """What one client had in one phase, in bytes/s; `part` is what it is to have."""

    shape: Shape
    phase: str
    client: Client
    part: float
    had: float


def rows(found: Shared) -> list[Row]:
    """Return a row for each phase and client that has part in it."""
    marks = found.marks
    phases = (
        ("all", marks.began + _LOANS_SECONDS, marks.stopped, CLIENTS),
        ("`a` away", marks.stopped + _SHARED_AFTER_SECONDS, marks.returned, (B, C)),
        ("`a` back", marks.returned + _BACK_AFTER_SECONDS, marks.ended, CLIENTS),
    )
    return [
        Row(found.shape, phase, each, part[each.name], steady_rate(found.events(each.name), began, ended))
        for phase, began, ended, clients in phases
        for part in (parts(clients),)
        for each in clients
    ]


def bars(found: Shared) -> list[Bar]:
    """Return the bars of one run."""
    marks, had = found.marks, {(row.phase, row.client.name): row.had for row in rows(found)}
    together = [
        sum(had["all", each.name] for each in CLIENTS),
        had["`a` away", B.name] + had["`a` away", C.name],
    ]
    least = min(had["all", each.name] / each.rate for each in CLIENTS)
    part = parts((B, C))
    off = max(abs(had["`a` away", name] / part[name] - 1) for name in part)
    at_once = rate(found.events(A.name), marks.returned, marks.returned + _BACK_AFTER_SECONDS) / A.rate
    then = had["`a` back", A.name] / A.rate
    return [
        Bar(
            f"{found.shape}: all together at least", min(together) / CAPACITY, TOGETHER_MIN, "", at_least=True
        ),
        Bar(f"{found.shape}: all together at most", max(together) / CAPACITY, TOGETHER_MAX, ""),
        Bar(f"{found.shape}: least of a client's rate", least, RATE_MIN, "", at_least=True),
        Bar(f"{found.shape}: `a` away, part by weight off by", off, PART_OFF_MAX, ""),
        Bar(f"{found.shape}: `a` back, first second / rate", at_once, BACK_MIN, "", at_least=True),
        Bar(f"{found.shape}: `a` back, then / rate", then, RATE_MIN, "", at_least=True),
        Bar(f"{found.shape}: above the bound", max(0.0, nearest(found).excess / CAPACITY), 0.0, "s"),
    ]


def nearest(found: Shared) -> Worst:
    """Return the interval whose bytes are nearest to the bound, or farthest above it."""
    noted = [one for each in found.noted.values() for one in each]
    limit = Bound(CAPACITY, SHARED_BURST_SECONDS, max(one.size for one in noted))
    lives = [(found.marks.began, found.marks.ended)] * (found.shape.members * found.shape.workers)
    return worst([(one.began, one.size) for one in noted], lives, limit)


_COLUMNS: Final[Mapping[str, Callable[[Row], object]]] = {
    "members × workers": lambda row: row.shape,
    "phase": lambda row: row.phase,
    "client": lambda row: row.client.name,
    "connections": lambda row: row.client.connections,
    "rate MB/s": lambda row: f"{row.client.rate / 1e6:g}",
    "weight": lambda row: row.client.weight,
    "part MB/s": lambda row: f"{row.part / 1e6:.2f}",
    "had MB/s": lambda row: f"{row.had / 1e6:.2f}",
    "had / part": lambda row: f"{row.had / row.part:.3f}",
}


def report(found: Sequence[Shared]) -> Outcome:
    """Return the table and the bars."""
    title = f"A capacity of {CAPACITY / 1e6:g} MB/s that three clients share, requests of {RECORD_BYTES // 1000} kB"
    seen = "; ".join(
        f"{each.shape}: {', '.join(f'{count} × {name}' for name, count in each.seen.items()) or 'nothing'}"
        for each in found
    )
    note = f"The part is the rate, and by weight of what the rates leave. What clients reported: {seen}."
    table = tabulate(title, [row for each in found for row in rows(each)], _COLUMNS, note)
    return Outcome([table], [bar for each in found for bar in bars(each)])


def draw(found: Sequence[Shared], path: Path) -> None:
    """Draw what each client had in each second, with the lent part of it shaded: a panel for each shape."""
    panels = []
    for each in found:
        marks = each.marks
        seconds = int(marks.ended - marks.began)
        lines = {
            client.name: [
                (second + 0.5, size / 1e6)
                for second, size in enumerate(per_second(each.events(client.name), marks.began, seconds))
            ]
            for client in CLIENTS
        }
        happened = ((marks.stopped - marks.began, "a stops"), (marks.returned - marks.began, "a returns"))
        floors = {client.name: client.rate / 1e6 for client in CLIENTS}
        panels.append([Panel(f"{each.shape}: MB/s, shaded: lent", lines, happened, CAPACITY / 1e6, floors)])
    draw_panels(path, panels, "s", (10, 7))
