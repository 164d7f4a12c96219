"""What several workers cost: CPU per small request, and memory, of all processes of one `sluice serve`.

The broker is a scripted one (`quick_broker`), which keeps nothing, so that it takes as little of the machine as it can.
All proxies run side by side and take turns, each with generators of its own whose connections stay.

    alone   one connection with one request under way: each request wakes each process on its way twice, whatever their
            number, so what differs is what the other processes cost meanwhile
    many    16 connections with five requests each, as Java's producer: what a process finds when it wakes it handles
            at once, so one process that has them all is woken less often for the same requests than four

On two cores generator and broker are what limits `many`: a proxy costs less than either.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from tests.bench.figures import bootstrap_interval, median
from tests.bench.lanes import NEVER_HELD, NODE, listening, sluice_command
from tests.bench.process import Child, family, family_nanoseconds, module_process, own_kib
from tests.bench.report import MISSING, Bar, Outcome, tabulate
from tests.cluster import HOST, free_port
from tests.support.proxy_process import SluiceSettings

COUNTS: Final = (1, 2, 4)
LIMITS: Final = {"alone": 1.05, "many": 1.15}
_TOPIC: Final = "small"
_BYTES: Final = 100
_ROUNDS: Final = 16
_TURN_SECONDS: Final = 0.6
_WARM_SECONDS: Final = 1.0
_LEAD_SECONDS: Final = 2.2
_IDLE_SECONDS: Final = 5.0


class Load(NamedTuple):
    """Connections, and the requests under way on each."""

    connections: int
    depth: int


ALONE: Final = Load(1, 1)
MANY: Final = Load(16, 5)  # max.in.flight.requests.per.connection of Java's producer


@dataclass(slots=True)
class Side:
    """A proxy, its generators, and its figures; the first two have one figure a turn.

    Attributes:
        cost: CPU µs per request.
        per_second: requests.
        idle: CPU without requests, as a part of one core.
        memory: of its processes in MiB, control first.
    """

    workers: int
    pid: int
    generators: dict[Load, Child]
    cost: dict[Load, list[float]] = field(default_factory=dict)
    per_second: dict[Load, list[float]] = field(default_factory=dict)
    idle: float = 0.0
    memory: list[float] = field(default_factory=list)

    def cpu(self) -> int:
        """Return the CPU time of all processes in ns."""
        return family_nanoseconds(self.pid)

    def ordered(self, load: Load, seconds: float) -> dict[str, float]:
        """Let a generator send for so long; return requests and seconds."""
        return self.generators[load].ask(f"closed {seconds}")

    def turn(self, load: Load) -> None:
        """Measure one turn."""
        if load is MANY:  # a worker adapts its scheduling policy each second
            self.ordered(load, _LEAD_SECONDS)
        before = self.cpu()
        done = self.ordered(load, _TURN_SECONDS)
        self.cost.setdefault(load, []).append((self.cpu() - before) / 1000 / done["requests"])
        self.per_second.setdefault(load, []).append(done["requests"] / done["seconds"])


def measure(console: Console, counts: Sequence[int] = COUNTS, rounds: int = _ROUNDS) -> list[Side]:
    """Let the proxies take turns."""
    with tempfile.TemporaryDirectory(prefix="sluice-workers-") as name, ExitStack() as stack:
        sides = _sides(counts, Path(name), stack)
        for side in sides:
            for load in (ALONE, MANY):
                side.ordered(load, _WARM_SECONDS)
        before = [side.cpu() for side in sides]
        time.sleep(_IDLE_SECONDS)
        for side, used in zip(sides, before, strict=True):
            side.idle = (side.cpu() - used) / (_IDLE_SECONDS * 1e9)
        for number in range(rounds):
            first = number % len(sides)
            for load in (ALONE, MANY):
                for side in (*sides[first:], *sides[:first]):
                    side.turn(load)
        for side in sides:
            side.memory = [own_kib(pid) / 1024 for pid in family(side.pid)]
            console.print(f"{side.workers}: {median(side.cost[ALONE]):.1f} CPU µs, {side.idle:.2%} idle")
        return sides


def _sides(counts: Sequence[int], directory: Path, stack: ExitStack) -> list[Side]:
    port = free_port()
    log = directory / "broker.log"
    stack.enter_context(module_process("tests.bench.fleet.quick_broker", port, _TOPIC, log=log))
    sides = []
    for count in counts:
        (directory / str(count)).mkdir()
        settings = SluiceSettings(
            f"{HOST}:{port}",
            quotas={"scope": "cluster"},
            client_quotas=NEVER_HELD,
            listener={"broker_id_max": NODE},
            sections={"admin": {"bind": ""}, "process": {"workers": count}},
        )
        command = sluice_command(settings.write(directory / str(count)))
        served = settings.ports.first_broker + NODE
        child = stack.enter_context(listening(command, served, directory / f"{count}.log"))
        generators = {}
        for load in (ALONE, MANY):
            words = ["--port", served, "--topic", _TOPIC, "--size", _BYTES]
            words += ["--connections", load.connections, "--depth", load.depth]
            process = module_process("tests.bench.generator", *words, log=directory / "generator.log")
            generators[load] = stack.enter_context(process)
        sides.append(Side(count, child.pid, generators))
    return sides


def report(found: Sequence[Side]) -> Outcome:
    """Return the table and the bars; the first is what the others are compared with."""
    base = found[0]

    def ratios(side: Side, load: Load) -> list[float]:
        return [mine / other for mine, other in zip(side.cost[load], base.cost[load], strict=True)]

    def interval(side: Side) -> str:
        low, high = bootstrap_interval(ratios(side, ALONE))
        return f"{median(ratios(side, ALONE)):.3f} ({low:.3f} … {high:.3f})"

    columns: dict[str, Callable[[Side], object]] = {
        "workers": lambda side: side.workers,
        "alone: CPU µs/request": lambda side: f"{median(side.cost[ALONE]):.1f}",
        "× one (95 % interval)": interval,
        "many: CPU µs/request": lambda side: f"{median(side.cost[MANY]):.1f}",
        "× one": lambda side: f"{median(ratios(side, MANY)):.3f}",
        "requests/s": lambda side: f"{median(side.per_second[MANY]):.0f}",
        "CPU idle": lambda side: f"{side.idle:.2%}",
        "control MiB": lambda side: f"{side.memory[0]:.0f}",
        "worker MiB": lambda side: f"{median(side.memory[1:]):.0f}" if side.memory[1:] else MISSING,
        "all MiB": lambda side: f"{sum(side.memory):.0f}",
    }
    title = f"Workers: Produce of {_BYTES} bytes, a scripted broker, {os.cpu_count()} cores"
    note = (
        f"Alone: one connection, one request under way. Many: {MANY.connections} connections with {MANY.depth} each;"
        " what a process finds when it wakes it handles at once, so the same requests wake several processes more often"
        " than one. Memory is the proportional set size; with one worker there is no control process."
    )
    bars = []
    for side in found[1:]:
        name = f"CPU per small request, {side.workers} workers / {base.workers}"
        bars.append(Bar(f"{name}: one at a time", median(ratios(side, ALONE)), LIMITS["alone"]))
        under_way = f"{MANY.connections * MANY.depth} under way"
        bars.append(Bar(f"{name}: {under_way}", median(ratios(side, MANY)), LIMITS["many"]))
    return Outcome([tabulate(title, found, columns, note)], bars)
