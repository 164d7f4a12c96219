"""One client id through members and workers that share its quota, beside one process.

All bytes pass one broker behind a relay that counts them, as in `make accuracy`. Half of the connections go to each
member; the kernel spreads those of a member over its workers.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench.accuracy import clients, judge
from tests.bench.accuracy.__main__ import CONSUMED, LISTENER, PRODUCED, Bench
from tests.bench.accuracy.judge import SCHEDULE, Options
from tests.bench.accuracy.relay import read_events
from tests.bench.lanes import NODE, sluice_command
from tests.bench.report import Bar, Outcome, Table
from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_ports, tools

QUOTA: Final = 4_000_000
CONNECTIONS: Final = {"produce": 24, "consume": 12}
STEADY_MIN, STEADY_MAX, JAIN_MIN = 0.97, 1.01, 0.95
# By then a holder has learned who its members are, and workers and members have their shares.
_SETTLE_SECONDS: Final = 22
_GRACE_SECONDS: Final = 90


@dataclass(frozen=True, slots=True)
class Shape:
    """How many processes share the quota."""

    members: int
    workers: int

    def __str__(self) -> str:
        return f"{self.members} × {self.workers}"


class FleetBench(Bench):
    """Members and workers in front of the counted broker."""

    @contextmanager
    def fleet(self, shape: Shape) -> Iterator[list[str]]:
        """Start all members; gives their bootstrap servers."""
        holder = free_ports(1)[0]
        bootstraps = []
        with ExitStack() as stack:
            for number in range(shape.members):
                first = free_ports(3)[0]
                config = self.directory / f"{shape.members}-{shape.workers}-{number}.toml"
                text = self.configuration(SCHEDULE, first)
                if shape.workers > 1:
                    text += f"\n[process]\nworkers = {shape.workers}\n"
                if shape.members > 1:
                    text += f'\n[fleet]\nname = "m{number}"\nmembers_max = {shape.members}\n'
                    text += f'holder = "{HOST}:{holder}"\n' + (
                        "" if number else f'bind = "{HOST}:{holder}"\n'
                    )
                config.write_text(text)
                stack.enter_context(self.process(sluice_command(config), config.stem, first + 1 + NODE))
                bootstraps.append(f"{HOST}:{first}")
            time.sleep(_SETTLE_SECONDS if shape.members > 1 else 2)
            yield bootstraps

    def row(self, shape: Shape, direction: str, bootstraps: Sequence[str]) -> judge.Figures:
        """Let the clients run, the same number at each member, and judge what passed."""
        client_id = f"fleet-{shape.members}-{shape.workers}-{direction}"
        each = CONNECTIONS[direction] // len(bootstraps)
        running = []
        for number, bootstrap in enumerate(bootstraps):
            command = [
                sys.executable,
                "-m",
                "tests.bench.accuracy.clients",
                direction,
                "--bootstrap",
                bootstrap,
            ]
            command += ["--topic", PRODUCED if direction == "produce" else CONSUMED, "--client-id", client_id]
            command += ["--connections", str(each), "--seconds", str(self.options.seconds + 1)]
            with (self.directory / f"{client_id}-{number}.log").open("wb") as sink:
                running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink))
        tally: Counter[str] = Counter()
        for process in running:
            output, _ = process.communicate(timeout=self.options.seconds + _GRACE_SECONDS)
            tally.update(json.loads(output))
        run = (SCHEDULE, direction, CONNECTIONS[direction])
        return judge.judge(run, read_events(self.events, client_id), tally, self.options)


def measure(
    options: Options, shapes: Sequence[Shape], console: Console
) -> dict[tuple[Shape, str], judge.Figures]:
    """Run all shapes in both directions."""
    relay_port = free_ports(1)[0]
    wanted = ClusterOptions(nodes=1, listeners=(Listener(LISTENER, advertised=((HOST, relay_port),)),))
    found = {}
    with tempfile.TemporaryDirectory(prefix="sluice-fleet-") as name, Cluster(wanted) as cluster:
        bench = FleetBench(options, cluster, relay_port, Path(name))
        for topic in (PRODUCED, CONSUMED):
            tools.create_topic(cluster.bootstrap(), topic)
        if "consume" in options.directions:
            clients.fill(cluster.bootstrap(), CONSUMED, 2 * options.quota * (options.seconds + 15))
        with bench.relay():
            for shape in shapes:
                with bench.fleet(shape) as bootstraps:
                    for direction in options.directions:
                        figures = found[shape, direction] = bench.row(shape, direction, bootstraps)
                        console.print(
                            f"{shape} {direction}: steady {figures.steady:.3f}, Jain {figures.jain:.3f}"
                        )
    return found


def report(found: dict[tuple[Shape, str], judge.Figures], options: Options) -> Outcome:
    """Return the table and the bars."""
    columns = (
        *("members × workers", "direction", "connections", "first second / quota"),
        *(f"steady after {options.steady_after:.3g} s", "largest second", "Jain index", "timeouts"),
    )
    rows = tuple(
        (
            str(shape),
            direction,
            str(each.connections),
            *(f"{each.first:.2f}", f"{each.steady:.3f}", f"{each.largest:.2f}", f"{each.jain:.3f}"),
            str(each.timeouts),
        )
        for (shape, direction), each in found.items()
    )
    title = f"One quota of {options.quota / 1e6:g} MB/s over several processes, requests of 1 MB, {options.seconds} s"
    bars = []
    for (shape, direction), each in found.items():
        name = f"{shape}, {direction}"
        bars += [
            Bar(f"{name}: steady at least", each.steady, STEADY_MIN, "", at_least=True),
            Bar(f"{name}: steady at most", each.steady, STEADY_MAX, ""),
            Bar(f"{name}: Jain index", each.jain, JAIN_MIN, "", at_least=True),
        ]
    return Outcome([Table(title, columns, rows)], bars)
