"""`python -m tests.soak.crowd`: ten thousand hostile connections of five kinds at once, beside ten honest clients.

    python -m tests.soak.crowd --connections 10000 --seconds 20

One real broker, one proxy. The honest clients (a ping and a Produce, ten times a second each, from a process of their
own) are measured alone first, while the crowd comes, and while it is there; beside them as many that go round the
proxy, which shows what of it is the broker's and the machine's. Kinds: connections that say nothing, half a
header, half a request that is kept until it is whole, requests whose responses are never read, and connections that are
opened and reset twenty times a second.

Prints a table; exit code 1 when a bar is missed: the process ended, honest clients were cut off, descriptors were lost.
Both the crowd and the proxy keep to the limit of descriptors (RLIMIT_NOFILE), which the run raises where it may.
"""

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tests.bench import machine, report
from tests.bench.process import (
    Child,
    cpu_nanoseconds,
    module_process,
    raise_descriptor_limit,
    resident_kib,
    sockets,
)
from tests.bench.report import Bar, Outcome, Table
from tests.cluster import Cluster, ClusterOptions
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import create, describe

CROWD_KINDS: Final = ("idle", "half header", "half frame", "never reading", "storm")
_POLICY: Final = "schedule"
_CALM_SECONDS: Final = 20.0
_COME_SECONDS_MAX: Final = 60.0
_STORM_MAX: Final = 200  # slots: each is a new connection every 50 ms as far as the rate allows
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How large a crowd, and for how long."""

    connections: int = 10_000
    seconds: float = 20.0
    before_seconds: float = 8.0
    opens_per_second: int = 400  # of each kind's process
    honest: int = 10


@dataclass(frozen=True, slots=True)
class Phase:
    """What the honest clients, those that went round the proxy, and the proxy did in one part of the run."""

    name: str
    seconds: float
    honest: Mapping[str, Any]
    direct: Mapping[str, Any]
    resident_kib: int
    sockets: int
    cpu_seconds: float


@dataclass(slots=True)
class Result:
    """The whole run.

    Attributes:
        crowd: the crowd's own counts by kind: open, opened, ended by the proxy, failed.
        sockets_left: sockets of the proxy when the crowd had gone, beyond those at the start.
        alive: the proxy has not ended by itself.
    """

    phases: list[Phase] = field(default_factory=list)
    crowd: dict[str, dict[str, int]] = field(default_factory=dict)
    sockets_left: int = 0
    alive: bool = True


class Watch:
    """Cuts the run into phases."""

    def __init__(self, sluice: SluiceProcess, honest: Child, direct: Child, result: Result) -> None:
        self._sluice, self._honest, self._direct, self._result = sluice, honest, direct, result
        self._began = self._cpu = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin a phase: what was before is forgotten."""
        self._honest.ask()
        self._direct.ask()
        self._began = time.monotonic()
        self._cpu = cpu_nanoseconds(self._sluice.process_id) / 1e9

    def end(self, name: str) -> Phase:
        """End it, and begin the next."""
        pid = self._sluice.process_id
        spent = cpu_nanoseconds(pid) / 1e9 - self._cpu
        seconds = time.monotonic() - self._began
        told = self._honest.ask(), self._direct.ask()
        phase = Phase(name, seconds, *told, resident_kib(pid), sockets(pid), spent)
        self._result.phases.append(phase)
        self.begin()
        return phase


def play(cluster: Cluster, options: Options, directory: Path, say: Say) -> Result:
    """Run all phases against a proxy of its own in front of `cluster`."""
    topic = f"crowd-{secrets.token_hex(4)}"
    create(cluster, topic, partitions=1, replication=1, configs={})
    node = describe(cluster, topic).leaders[0]
    settings = SluiceSettings(cluster.bootstrap(), quotas={"policy": _POLICY, "producer_default": 10**12})
    result = Result()
    sluice = SluiceProcess.configured(settings, directory).wait_ready()
    try:
        port = sluice.ports.first_broker + node
        with (
            _honest(port, topic, options, directory) as honest,
            _honest(cluster.address(node)[1], topic, options, directory) as direct,
        ):
            time.sleep(1.0)  # their connections, and the compiler of the broker
            watch = Watch(sluice, honest, direct, result)
            _phases(sluice, port, watch, options, directory, result, say)
    finally:
        result.alive = sluice.alive()
        code = sluice.stop()
        if code or not result.alive:
            say(f"the proxy ended with {code}: {sluice.log()}")
    return result


def _phases(
    sluice: SluiceProcess,
    port: int,
    watch: Watch,
    options: Options,
    directory: Path,
    result: Result,
    say: Say,
) -> None:
    time.sleep(options.before_seconds)
    before = watch.end("alone").sockets
    each = {kind: options.connections // len(CROWD_KINDS) for kind in CROWD_KINDS}
    each["storm"] = min(each["storm"], _STORM_MAX)
    each["idle"] += options.connections - sum(each.values())
    with ExitStack() as stack:
        crowd = {
            kind: stack.enter_context(_crowd(port, kind, count, options, directory, number))
            for number, (kind, count) in enumerate(each.items())
        }
        _wait_for(crowd, each, say)
        watch.end("while it comes")
        time.sleep(options.seconds)
        watch.end("beside the crowd")
        for child in crowd.values():
            for what, counted in child.ask().items():
                result.crowd.setdefault(what, {}).update(counted)
    deadline = time.monotonic() + _CALM_SECONDS
    while (left := sockets(sluice.process_id) - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    result.sockets_left = left
    watch.begin()
    time.sleep(options.before_seconds)
    watch.end("when it has gone")


def _wait_for(crowd: Mapping[str, Child], wanted: Mapping[str, int], say: Say) -> None:
    deadline = time.monotonic() + _COME_SECONDS_MAX
    while time.monotonic() < deadline:
        there = {kind: child.ask()["open"].get(kind, 0) for kind, child in crowd.items()}
        say(f"{sum(there.values())} of {sum(wanted.values())} hostile connections")
        if all(there[kind] >= 0.9 * wanted[kind] for kind in wanted if kind != "storm"):
            return
        time.sleep(1.0)


def _honest(port: int, topic: str, options: Options, directory: Path) -> AbstractContextManager[Child]:
    words = ("--port", port, "--topic", topic, "--clients", options.honest)
    return module_process("tests.soak.pinger", *words, log=directory / "pinger.log")


def _crowd(
    port: int, kind: str, count: int, options: Options, directory: Path, seed: int
) -> AbstractContextManager[Child]:
    words = ["--port", port, "--kinds", f"{kind}={count}", "--seed", seed]
    words += ["--opens-per-second", options.opens_per_second, "--source", f"127.0.0.{seed + 2}"]
    return module_process("tests.soak.hostile", *words, log=directory / "hostile.log")


_CROWD: Final = {"open": "open", "opened": "opened", "closed by the proxy": "ended", "failed": "failed"}


def outcome(options: Options, result: Result) -> Outcome:
    """Return the tables and the bars."""
    rows = []
    for phase in result.phases:
        cpu = f"{100 * phase.cpu_seconds / phase.seconds:.0f} %"
        process = (f"{phase.resident_kib / 1024:.0f}", str(phase.sockets), cpu)
        for way, told in (("Sluice", phase.honest), ("direct", phase.direct)):
            for what in ("ping", "produce"):
                times = told.get(what)
                figures = [f"{times[name]:.1f}" for name in ("p50", "p99", "max")] if times else ["–"] * 3
                counted = str(times["count"]) if times else "0"
                of_sluice = process if told is phase.honest else ("",) * len(process)
                rows.append((phase.name, way, what, *figures, counted, str(told["broken"]), *of_sluice))
    title = f"{options.connections} hostile connections beside {options.honest} clients"
    columns = ("phase", "way", "honest", "p50 ms", "p99 ms", "max ms")
    more = ("answers", "cut off", "MiB", "sockets", "CPU")
    crowd = tuple(
        (kind, *(str(result.crowd.get(what, {}).get(kind, 0)) for what in _CROWD.values()))
        for kind in CROWD_KINDS
    )
    cut_off = sum(int(phase.honest["broken"]) for phase in result.phases)
    bars = [
        Bar("the proxy lives", float(result.alive), 1.0, "", at_least=True),
        Bar("honest connections cut off", float(cut_off), 0.0, ""),
        Bar("sockets left behind", float(max(0, result.sockets_left)), 0.0, ""),
    ]
    tables = [Table(title, (*columns, *more), tuple(rows)), Table("The crowd", ("kind", *_CROWD), crowd)]
    return Outcome(tables, bars)


def main(console: Console) -> bool:
    """Play and print; return whether every bar is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.crowd", description=__doc__)
    default = Options()
    parser.add_argument("--connections", type=int, default=default.connections)
    parser.add_argument("--seconds", type=float, default=default.seconds, help="beside the whole crowd")
    given = parser.parse_args()
    options = Options(given.connections, given.seconds)
    descriptors = raise_descriptor_limit()
    wanted = ClusterOptions(nodes=1, properties={"socket.listen.backlog.size": "1024"})
    with tempfile.TemporaryDirectory(prefix="sluice-crowd-") as name, Cluster(wanted) as cluster:
        found = outcome(options, play(cluster, options, Path(name), console.print))
    return report.publish(console, [*machine.describe(), ("descriptors", str(descriptors))], found)


if __name__ == "__main__":
    sys.exit(report.run(main))
