"""What several workers cost: CPU per small request, and memory, of all processes of one `sluice serve`.

The broker is a scripted one (`quick_broker`), which keeps nothing, so that it takes as little of the machine as it can.
All proxies run side by side and take turns, each with a generator of its own whose connections stay. Full: each
connection has one request under way, and the next follows at once, as in `make bench`; the bar is for this. Paced: a
fixed rate, far below what one process can do; there what the processes do without a request counts most (`idle`).
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench.figures import bootstrap_interval, median
from tests.bench.lanes import NODE, sluice_command, wait_for
from tests.bench.process import Child, child_process, cpu_nanoseconds, family, python
from tests.bench.results import MISSING, Bar, Outcome, Table
from tests.cluster import HOST, free_ports, processes

__all__ = ["LIMIT", "Figures", "measure", "report"]

LIMIT: Final = 1.05
_TOPIC: Final = "small"
_BYTES: Final = 100
_CONNECTIONS: Final = 16
_DEPTH: Final = 30  # max.in.flight.requests.per.connection of Java's producer
_ROUNDS: Final = 12
_PACED_SECONDS: Final = 1.5
_FULL_SECONDS: Final = 2.0
_WARM_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 5.0
_RATE: Final = 2500
_RATE_NEVER_REACHED: Final = 100_000_000_000
_MICRO: Final = 1e-3  # of a nanosecond


@dataclass(slots=True)
class Figures:
    """One proxy's figures.

    Attributes:
        paced: CPU µs per request, one a turn.
        full: the same, at full load.
        per_second: requests at full load.
        idle: CPU without requests, as a part of one core.
        memory: of its processes in MiB, control first.
    """

    paced: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    idle: float = 0.0
    memory: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Side:
    """A proxy and its generator."""

    pid: int
    generator: Child
    figures: Figures = field(default_factory=Figures)


def measure(counts: Sequence[int], console: Console, rounds: int = _ROUNDS) -> dict[int, Figures]:
    """Let the proxies take turns."""
    with tempfile.TemporaryDirectory(prefix="sluice-workers-") as name, _sides(counts, Path(name)) as sides:
        for side in sides.values():
            _ordered(side, f"closed {_WARM_SECONDS}")
        _idle(list(sides.values()))
        for number in range(rounds):
            order = list(sides.values())
            order = order[number % len(order) :] + order[: number % len(order)]
            for side in order:
                _turn(side)
        for count, side in sides.items():
            side.figures.memory = [_memory(pid) for pid in family(side.pid)]
            console.print(
                f"{count}: {median(side.figures.paced):.1f} CPU µs, {median(side.figures.per_second):.0f}/s"
            )
        return {count: side.figures for count, side in sides.items()}


def _idle(sides: Sequence[Side]) -> None:
    before = [_cpu(side) for side in sides]
    time.sleep(_IDLE_SECONDS)
    for side, used in zip(sides, before, strict=True):
        side.figures.idle = (_cpu(side) - used) / (_IDLE_SECONDS * 1e9)


def _turn(side: Side) -> None:
    before = _cpu(side)
    answer = _ordered(side, f"open {_PACED_SECONDS} {_RATE}")
    side.figures.paced.append((_cpu(side) - before) * _MICRO / answer["count"])
    before = _cpu(side)
    answer = _ordered(side, f"closed {_FULL_SECONDS}")
    side.figures.full.append((_cpu(side) - before) * _MICRO / answer["requests"])
    side.figures.per_second.append(answer["requests"] / answer["seconds"])


def _ordered(side: Side, order: str) -> dict[str, float]:
    side.generator.say(order)
    answer: dict[str, float] = json.loads(side.generator.hear())
    return answer


def _cpu(side: Side) -> int:
    return sum(cpu_nanoseconds(pid) for pid in family(side.pid))


def _memory(pid: int) -> float:
    """Return the resident memory of a process in MiB, its part of what it shares with others."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"the kernel does not tell the memory of process {pid}")


@contextmanager
def _sides(counts: Sequence[int], directory: Path) -> Iterator[dict[int, Side]]:
    port = free_ports(1)[0]
    with ExitStack() as stack:
        broker = [python(), "-m", "tests.bench.fleet.quick_broker", str(port), _TOPIC]
        _start(stack, broker, port, directory / "broker.log")
        sides = {}
        for count in counts:
            first = free_ports(3)[0]
            config = directory / f"{count}.toml"
            config.write_text(_configuration(port, first, count, directory))
            pid = _start(stack, sluice_command(config), first + 1 + NODE, directory / f"{count}.log")
            arguments = ["--port", str(first + 1 + NODE), "--topic", _TOPIC, "--size", str(_BYTES)]
            arguments += ["--connections", str(_CONNECTIONS), "--depth", str(_DEPTH)]
            command = [python(), "-m", "tests.bench.generator", *arguments]
            generator = stack.enter_context(child_process(command, directory / "generator.log"))
            generator.hear()  # "ready"
            sides[count] = Side(pid, generator)
        yield sides


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
        f'[quotas]\nfile = "{quotas}"\nscope = "cluster"\n\n[admin]\nbind = ""\n\n[process]\nworkers = {count}\n'
    )


def report(found: dict[int, Figures]) -> Outcome:
    """Return the table and the bar; the first of the counts is what the others are compared with."""
    base = next(iter(found.values()))
    rows = []
    bars = []
    for count, each in found.items():
        full, paced = _ratios(each.full, base.full), _ratios(each.paced, base.paced)
        low, high = bootstrap_interval(full)
        control, *workers = each.memory
        rows.append(
            (
                *(str(count), f"{median(each.full):.1f}", f"{median(full):.3f} ({low:.3f} … {high:.3f})"),
                *(f"{median(each.per_second):.0f}", f"{median(each.paced):.1f}", f"{median(paced):.3f}"),
                *(f"{each.idle:.1%}", f"{control:.0f}", f"{median(workers):.0f}" if workers else MISSING),
                f"{sum(each.memory):.0f}",
            )
        )
        if each is not base:
            name = f"CPU per small request, {count} workers / {next(iter(found))}"
            bars.append(Bar(name, median(full), LIMIT))
    columns = (
        *("workers", "CPU µs/request", "× one (95 % interval)", "requests/s", f"CPU µs/request at {_RATE}/s"),
        *("× one", "CPU idle", "control MiB", "worker MiB", "all MiB"),
    )
    title = f"Workers: Produce of {_BYTES} bytes, {_CONNECTIONS} connections, a scripted broker, {os.cpu_count()} cores"
    note = "Memory is the proportional set size; with one worker there is no control process."
    return Outcome([Table(title, columns, tuple(rows), note)], bars)


def _ratios(mine: Sequence[float], base: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(mine, base, strict=True)]
