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
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from tests.bench.figures import bootstrap_interval, median
from tests.bench.lanes import NODE, sluice_command, wait_for
from tests.bench.process import Child, cpu_nanoseconds, family, module_process, own_kib
from tests.bench.report import MISSING, Bar, Outcome, Table
from tests.cluster import HOST, free_ports, processes

LIMIT: Final = 1.05
_TOPIC: Final = "small"
_BYTES: Final = 100
_ROUNDS: Final = 24
_TURN_SECONDS: Final = 0.6
_WARM_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 5.0
_RATE_NEVER_REACHED: Final = 100_000_000_000


class Load(NamedTuple):
    """Connections, and the requests under way on each."""

    connections: int
    depth: int


ALONE: Final = Load(1, 1)
MANY: Final = Load(16, 5)  # max.in.flight.requests.per.connection of Java's producer


@dataclass(slots=True)
class Figures:
    """One proxy's figures; the first two have one figure a turn.

    Attributes:
        cost: CPU µs per request.
        per_second: requests.
        idle: CPU without requests, as a part of one core.
        memory: of its processes in MiB, control first.
    """

    cost: dict[Load, list[float]] = field(default_factory=dict)
    per_second: dict[Load, list[float]] = field(default_factory=dict)
    idle: float = 0.0
    memory: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Side:
    """A proxy and its generators."""

    pid: int
    generators: dict[Load, Child]
    figures: Figures = field(default_factory=Figures)


def measure(counts: Sequence[int], console: Console, rounds: int = _ROUNDS) -> dict[int, Figures]:
    """Let the proxies take turns."""
    with tempfile.TemporaryDirectory(prefix="sluice-workers-") as name, _sides(counts, Path(name)) as sides:
        for side in sides.values():
            for load in (ALONE, MANY):
                _ordered(side, load, _WARM_SECONDS)
        _idle(list(sides.values()))
        for number in range(rounds):
            order = list(sides.values())
            order = order[number % len(order) :] + order[: number % len(order)]
            for load in (ALONE, MANY):
                for side in order:
                    _turn(side, load)
        for count, side in sides.items():
            side.figures.memory = [own_kib(pid) / 1024 for pid in family(side.pid)]
            cost = median(side.figures.cost[ALONE])
            console.print(f"{count}: {cost:.1f} CPU µs, {side.figures.idle:.2%} idle")
        return {count: side.figures for count, side in sides.items()}


def _idle(sides: Sequence[Side]) -> None:
    before = [_cpu(side) for side in sides]
    time.sleep(_IDLE_SECONDS)
    for side, used in zip(sides, before, strict=True):
        side.figures.idle = (_cpu(side) - used) / (_IDLE_SECONDS * 1e9)


def _turn(side: Side, load: Load) -> None:
    before = _cpu(side)
    requests, seconds = _ordered(side, load, _TURN_SECONDS)
    side.figures.cost.setdefault(load, []).append((_cpu(side) - before) / 1000 / requests)
    side.figures.per_second.setdefault(load, []).append(requests / seconds)


def _ordered(side: Side, load: Load, seconds: float) -> tuple[float, float]:
    done = side.generators[load].ask(f"closed {seconds}")
    return done["requests"], done["seconds"]


def _cpu(side: Side) -> int:
    return sum(cpu_nanoseconds(pid) for pid in family(side.pid))


@contextmanager
def _sides(counts: Sequence[int], directory: Path) -> Iterator[dict[int, Side]]:
    port = free_ports(1)[0]
    with ExitStack() as stack:
        broker = [sys.executable, "-m", "tests.bench.fleet.quick_broker", str(port), _TOPIC]
        _start(stack, broker, port, directory / "broker.log")
        sides = {}
        for count in counts:
            first = free_ports(3)[0]
            config = directory / f"{count}.toml"
            config.write_text(_configuration(port, first, count, directory))
            pid = _start(stack, sluice_command(config), first + 1 + NODE, directory / f"{count}.log")
            generators = {
                load: _generator(stack, first + 1 + NODE, load, directory) for load in (ALONE, MANY)
            }
            sides[count] = Side(pid, generators)
        yield sides


def _generator(stack: ExitStack, port: int, load: Load, directory: Path) -> Child:
    words: list[object] = ["--port", port, "--topic", _TOPIC, "--size", _BYTES]
    words += ["--connections", load.connections, "--depth", load.depth]
    process = module_process("tests.bench.generator", *words, log=directory / "generator.log")
    return stack.enter_context(process)


def _start(stack: ExitStack, command: list[str], port: int, log: Path) -> int:
    child = processes.start(command, log=log)
    stack.callback(processes.end, child)
    wait_for(port, child, log)
    return child.pid


def _configuration(broker: int, first: int, count: int, directory: Path) -> str:
    quotas = directory / "quotas.toml"
    rate = _RATE_NEVER_REACHED
    quotas.write_text(
        f'[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = {rate}\nconsumer_byte_rate = {rate}\n'
    )
    return (
        f'[cluster]\nbootstrap = "{HOST}:{broker}"\n\n[[listeners]]\nname = "clients"\nbind = "{HOST}"\n'
        f"bootstrap_port = {first}\nfirst_broker_port = {first + 1}\nbroker_id_max = {NODE}\n\n"
        f'[quotas]\nfile = "{quotas}"\npolicy = "kip13"\nscope = "cluster"\n\n'
        f'[admin]\nbind = ""\n\n[process]\nworkers = {count}\n'
    )


def report(found: dict[int, Figures]) -> Outcome:
    """Return the table and the bars; the first of the counts is what the others are compared with."""
    base = next(iter(found.values()))
    rows = []
    bars = []
    for count, each in found.items():
        alone, many = (_ratios(each.cost[load], base.cost[load]) for load in (ALONE, MANY))
        low, high = bootstrap_interval(alone)
        control, *workers = each.memory
        rows.append(
            (
                *(str(count), f"{median(each.cost[ALONE]):.1f}"),
                f"{median(alone):.3f} ({low:.3f} … {high:.3f})",
                *(f"{median(each.cost[MANY]):.1f}", f"{median(many):.3f}"),
                *(f"{median(each.per_second[MANY]):.0f}", f"{each.idle:.2%}"),
                *(
                    f"{control:.0f}",
                    f"{median(workers):.0f}" if workers else MISSING,
                    f"{sum(each.memory):.0f}",
                ),
            )
        )
        if each is not base:
            name = f"CPU per small request, {count} workers / {next(iter(found))}"
            bars.append(Bar(f"{name}: one at a time", median(alone), LIMIT))
            bars.append(Bar(f"{name}: {MANY.connections * MANY.depth} under way", median(many), LIMIT))
    columns = (
        *("workers", "alone: CPU µs/request", "× one (95 % interval)"),
        *("many: CPU µs/request", "× one", "requests/s", "CPU idle", "control MiB", "worker MiB", "all MiB"),
    )
    title = f"Workers: Produce of {_BYTES} bytes, a scripted broker, {os.cpu_count()} cores"
    note = (
        f"Alone: one connection, one request under way. Many: {MANY.connections} connections with {MANY.depth} each;"
        " what a process finds when it wakes it handles at once, so the same requests wake several processes more often"
        " than one. Memory is the proportional set size; with one worker there is no control process."
    )
    return Outcome([Table(title, columns, tuple(rows), note)], bars)


def _ratios(mine: Sequence[float], base: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(mine, base, strict=True)]
