"""One client id through members and workers that share its quota, beside one process.

All bytes pass one broker behind a relay that counts them, as in `make accuracy`. Half of the connections go to each
member; the kernel spreads those of a member over its workers.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from tests.bench.accuracy.__main__ import Bench, counted
from tests.bench.accuracy.judge import SCHEDULE, Figures, Options
from tests.bench.report import Bar, Outcome, tabulate
from tests.cluster import HOST, free_port

QUOTA: Final = 4_000_000
CONNECTIONS: Final = {"produce": 24, "consume": 12}
STEADY_MIN, STEADY_MAX, JAIN_MIN = 0.97, 1.01, 0.95
# By then a holder has learned who its members are, and workers and members have their shares.
_SETTLE_SECONDS: Final = 22


@dataclass(frozen=True, slots=True)
class Shape:
    """How many processes share the quota."""

    members: int
    workers: int

    def __str__(self) -> str:
        return f"{self.members} × {self.workers}"


@dataclass(frozen=True, slots=True)
class Row:
    """What a shape made of one direction."""

    shape: Shape
    direction: str
    figures: Figures


def measure(options: Options, shapes: Sequence[Shape], console: Console) -> list[Row]:
    """Run all shapes in both directions."""
    found = []
    with counted(options) as bench:
        for shape in shapes:
            with ExitStack() as stack:
                bootstraps = members(bench, shape, stack)
                for direction, connections in CONNECTIONS.items():
                    client_id = f"fleet-{shape.members}-{shape.workers}-{direction}"
                    figures = bench.run((SCHEDULE, direction, connections), bootstraps, client_id)
                    found.append(Row(shape, direction, figures))
                    console.print(
                        f"{shape} {direction}: steady {figures.steady:.3f}, Jain {figures.jain:.3f}"
                    )
    return found


def members(bench: Bench, shape: Shape, stack: ExitStack, **more: Any) -> list[str]:
    """Start all members; return their bootstrap servers. `more` are fields of their settings."""
    holder = f"{HOST}:{free_port()}"
    bootstraps = []
    for number in range(shape.members):
        sections: dict[str, dict[str, object]] = {"process": {"workers": shape.workers}}
        if shape.members > 1:
            fleet: dict[str, object] = {"name": f"m{number}", "members_max": shape.members, "holder": holder}
            sections["fleet"] = fleet | ({} if number else {"bind": holder})
        name = f"{shape.members}-{shape.workers}-{number}"
        bootstraps.append(stack.enter_context(bench.sluice(name, SCHEDULE, sections, **more)))
    time.sleep(_SETTLE_SECONDS if shape.members > 1 else 2)
    return bootstraps


def report(found: Sequence[Row], options: Options) -> Outcome:
    """Return the table and the bars."""
    columns: Mapping[str, Callable[[Row], object]] = {
        "members × workers": lambda row: row.shape,
        "direction": lambda row: row.direction,
        "connections": lambda row: row.figures.connections,
        "first second / quota": lambda row: f"{row.figures.first:.2f}",
        f"steady after {options.steady_after:.3g} s": lambda row: f"{row.figures.steady:.3f}",
        "largest second": lambda row: f"{row.figures.largest:.2f}",
        "Jain index": lambda row: f"{row.figures.jain:.3f}",
        "timeouts": lambda row: row.figures.timeouts,
    }
    title = f"One quota of {options.quota / 1e6:g} MB/s over several processes, requests of 1 MB, {options.seconds} s"
    bars = []
    for row in found:
        name, each = f"{row.shape}, {row.direction}", row.figures
        bars += [
            Bar(f"{name}: steady at least", each.steady, STEADY_MIN, "", at_least=True),
            Bar(f"{name}: steady at most", each.steady, STEADY_MAX, ""),
            Bar(f"{name}: Jain index", each.jain, JAIN_MIN, "", at_least=True),
        ]
    return Outcome([tabulate(title, found, columns)], bars)
