"""Idle connections: resident memory of each, CPU while they do nothing, and that none is lost."""

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.bench.lanes import HAPROXY, SLUICE, Lane
from tests.bench.process import Child, cpu_seconds, resident_kib
from tests.bench.report import Bar, Outcome, tabulate
from tests.bench.stage import Stage

KIB_LIMIT: Final = 6.0
BUSY_LIMIT: Final = 5.0
"""Of one core: what "no busy CPU" is taken to mean with all connections idle."""
_STEP: Final = 1000
_DESCRIPTORS_SPARE: Final = 400
_SETTLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """What holding connections cost one proxy."""

    proxy: str
    start_kib: int
    first_kib: float
    each_kib: float
    idle_percent: float
    held: int
    lost: int
    open_seconds: float


def run(stage: Stage) -> Outcome:
    """Open connections in steps of 1000, each with one record produced, and watch the proxy while all are idle."""
    count = connections(stage.options.idle_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    stage.create_topic("idle")
    found: list[Held] = []
    for name in stage.lanes.usable(HAPROXY, SLUICE):
        with (
            stage.lanes.open(name) as (lane,),
            stage.generator(lane.port, "idle", size=100, connections=0) as generator,
        ):
            mine = _hold(stage, lane, generator, count)
            found.append(mine)
            stage.say(
                f"idle {name}: {mine.held} held, {mine.each_kib:.1f} KiB each, {mine.idle_percent:.1f} % CPU"
            )
    stage.delete_topic("idle")
    return _report(found, stage.options.idle_connections)


def connections(wanted: int, descriptors: int) -> int:
    """Return how many connections can be held: each is two descriptors in a proxy.

    >>> connections(10_000, 65_536), connections(10_000, 20_000)
    (10000, 9800)
    """
    return min(wanted, (descriptors - _DESCRIPTORS_SPARE) // 2)


def _hold(stage: Stage, lane: Lane, generator: Child, count: int) -> Held:
    assert lane.pid is not None, "there is a process to measure"
    options = stage.options
    time.sleep(_SETTLE_SECONDS)
    start = resident_kib(lane.pid)
    first = 0.0
    began = time.monotonic()
    held = 0
    while held < count:
        held = int(generator.ask(f"hold {min(_STEP, count - held)}")["held"])
        first = first or (resident_kib(lane.pid) - start) / held
    opened = time.monotonic() - began
    time.sleep(_SETTLE_SECONDS)
    each = (resident_kib(lane.pid) - start) / held
    before = cpu_seconds(lane.pid)
    time.sleep(options.idle_watch_seconds)
    percent = (cpu_seconds(lane.pid) - before) / options.idle_watch_seconds * 100
    lost = int(generator.ask("lost")["lost"])
    return Held(lane.name, start, first, each, percent, held, lost, opened)


_COLUMNS: Final[Mapping[str, Callable[[Held], object]]] = {
    "proxy": lambda held: held.proxy,
    "MiB at start": lambda held: f"{held.start_kib / 1024:.1f}",
    "MiB for the first 1000": lambda held: f"{held.first_kib * 1000 / 1024:.1f}",
    "held": lambda held: held.held,
    "KiB each": lambda held: f"{held.each_kib:.1f}",
    "CPU % while idle": lambda held: f"{held.idle_percent:.1f}",
    "lost": lambda held: held.lost,
    "opened/s": lambda held: f"{held.held / held.open_seconds:.0f}",
}


def _report(found: list[Held], wanted: int) -> Outcome:
    note = "Resident memory of the process. Each connection has spoken ApiVersions and produced one record, then stays."
    mine = next((held for held in found if held.proxy == SLUICE), None)
    if mine and mine.held < wanted:
        note += f" {wanted:,} were wanted; this machine's hard limit of descriptors allows {mine.held:,}."
    bars = [
        Bar("idle connections: memory each", mine.each_kib if mine else None, KIB_LIMIT, "KiB"),
        Bar("idle connections: CPU of one core", mine.idle_percent if mine else None, BUSY_LIMIT, "%"),
        Bar("idle connections: lost", float(mine.lost) if mine else None, 0.0, ""),
    ]
    return Outcome([tabulate("Idle connections", found, _COLUMNS, note)], bars)
