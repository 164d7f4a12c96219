"""`make saturate`: requests/s and CPU per request when one core is all that a proxy has, beside HAProxy.

    python -m tests.bench.saturate [--only WORDS] [--before REV] [--quick] [--profile] [--kafka-proxy BINARY] [--write]

Both ends are one C program (`peers.c`): a generator that only asks, and a broker that only responds. They share a core,
the proxy is pinned to another. `make bench` measures what a proxy costs beside a real broker, whose work leaves a proxy
one or two ready sockets a wake-up; here a wake-up carries dozens, as in a gateway that is full.

Lanes take turns of a few seconds, for several rounds; a figure is the median of its rounds, a ratio that of the rounds'
ratios. `busy` is how much of its core a proxy used: below 95 % it waited for the two ends, and its CPU per request
says more than its requests/s.

Exit code 0 even when a bar is missed, 2 when something that it needs is missing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from tests.bench import machine, report
from tests.bench.figures import median
from tests.bench.lanes import DIRECT, NODE, find_haproxy, haproxy_command, sluice_command, wait_for
from tests.bench.options import DOCUMENT
from tests.bench.price.checkouts import checkout, environment
from tests.bench.process import Child, family_nanoseconds, raise_descriptor_limit
from tests.bench.report import Bar, Outcome, Table
from tests.bench.saturate import canned, profile
from tests.cluster import HOST, MissingPrerequisiteError, free_ports, processes
from tests.support.certificates import Authority, Certificate
from tests.support.proxy_process import ROOT, SluicePorts, SluiceSettings

HAPROXY: Final = "HAProxy"
SLUICE: Final = "Sluice"
BEFORE: Final = "Sluice, before"
KAFKA_PROXY: Final = "kafka-proxy"
_PROXY_CORE: Final = "0"
_PEERS_CORE: Final = "1"
_UNDER_WAY_BYTES_MAX: Final = 256 * 1024**2
_KIB: Final = 1024
_BUSY: Final = 0.95
_WINDOWS: Final = 3  # of a second: a near quota acts after as many
_UNLIMITED: Final = 10**11  # bytes/s: every byte is counted, and none is held back
_SOURCE: Final = Path(__file__).with_name("peers.c")
PROGRAM: Final = ROOT / "build" / "saturate" / "peers"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked, and by how many at once.

    Args:
        size: bytes of a Produce's record, or of a Fetch response's records.
        in_flight: requests under way on each connection; 0 for an open loop.
        variant: of the Sluice that is measured: "" for a quota far off; other names are in `VARIANTS`.
        near: the quota as a multiple of what an unlimited Sluice passes; 0 for a quota far off.
    """

    api: str
    size: int
    connections: int
    in_flight: int
    tls: bool = False
    variant: str = ""
    near: float = 0.0

    @property
    def name(self) -> str:
        """Return how tables and `--only` name it."""
        size = f"{self.size // _KIB} KiB" if self.size >= _KIB else f"{self.size} B"
        words = [self.api, size, f"{self.connections} x {self.in_flight}"]
        return ", ".join(words + ["TLS"] * self.tls + [self.variant] * bool(self.variant))


_PLAIN: Final = [
    Shape(api, size, connections, in_flight)
    for api in ("produce", "fetch")
    for size in (100, 16 * _KIB, 128 * _KIB)
    for connections in (1, 64, 1000)
    for in_flight in (1, 4, 16)
    if connections * in_flight * size <= _UNDER_WAY_BYTES_MAX
]
_TLS: Final = [
    Shape(api, size, 64, in_flight, tls=True)
    for api, size in (("produce", 100), ("produce", 16 * _KIB), ("fetch", 128 * _KIB))
    for in_flight in (1, 4)
]
_DECISIONS: Final = [
    Shape("produce", 100, 64, in_flight, variant=variant, near=near)
    for in_flight in (1, 4)
    for variant, near in (("schedule", 0), ("near", 1.3), ("throttled", 0.5), ("capture", 0))
]
SHAPES: Final = [*_PLAIN, *_TLS, *_DECISIONS]
BARS: Final = {
    "produce, 100 B, 64 x 1": 0.75,
    "produce, 100 B, 64 x 4": 0.6,
    "produce, 16 KiB, 64 x 1": 0.9,
    "fetch, 128 KiB, 64 x 1": 1.2,
    "produce, 16 KiB, 64 x 1, TLS": 0.8,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of one proxy."""

    per_second: float
    cpu_us: float
    busy: float
    p99_us: float


class Bench:
    """The broker and the proxies of one shape at a time, each proxy pinned to one core.

    Args:
        directory: for configurations and logs.
        kafka_proxy: the program of grepplabs/kafka-proxy; "" without.
        before: the tree of another revision, whose Sluice is measured as well; None without.

    Attributes:
        profiled: whether Sluice runs interpreted, and samples itself.
    """

    def __init__(self, directory: Path, kafka_proxy: str = "", before: Path | None = None) -> None:
        self._directory = directory
        self._kafka_proxy = kafka_proxy
        self._before = before
        self.profiled = False
        self._papers: Certificate | None = None

    def lanes(self, shape: Shape) -> list[str]:
        """Return the proxies that a shape is measured with."""
        names = [HAPROXY] * (find_haproxy() is not None) + [SLUICE] + [BEFORE] * (self._before is not None)
        return names + [KAFKA_PROXY] * bool(self._kafka_proxy and not shape.tls and not shape.variant)

    @contextmanager
    def opened(self, shape: Shape, lanes: Sequence[str], rate: float = 0.0) -> Iterator[dict[str, "Lane"]]:
        """Start the broker, the proxies, and a generator for each; `rate` is a quota in bytes/s, 0: unlimited."""
        with ExitStack() as stack:
            broker, broker_pid = self._broker(stack, shape)
            opened = {}
            for name in lanes:
                if name == DIRECT:
                    port, pid = self._broker(stack, shape, tls=True) if shape.tls else (broker, broker_pid)
                    opened[name] = lane = Lane(0, pid, self._generator(shape, port))
                    stack.callback(lane.generator.stop)
                    continue
                command, port = self._command(name, shape, broker, rate or _UNLIMITED)
                log = self._directory / f"{name}.log"
                tree = self._before if name == BEFORE and self._before else ROOT
                words = ["taskset", "-c", _PROXY_CORE, *command]
                env = environment(tree) | ({"SLUICE_PURE": "1"} if self.profiled else {})
                proxy = processes.start(words, log=log, cwd=tree, env=env)
                stack.callback(processes.end, proxy)
                wait_for(port, proxy, log)
                opened[name] = lane = Lane(proxy.pid, broker_pid, self._generator(shape, port))
                stack.callback(lane.generator.stop)
            yield opened

    def _broker(self, stack: ExitStack, shape: Shape, *, tls: bool = False) -> tuple[int, int]:
        """Start a broker; return its port and process id."""
        port = free_ports(1)[0]
        file = self._directory / "responses"
        canned.write(file, canned.responses(port, shape.size if shape.api == "fetch" else 0))
        log = self._directory / "broker.log"
        words = [str(port), str(file), *[str(self._certificate().store_file)] * tls]
        child = processes.start(["taskset", "-c", _PEERS_CORE, str(PROGRAM), "broker", *words], log=log)
        stack.callback(processes.end, child)
        wait_for(port, child, log)
        return port, child.pid

    def _generator(self, shape: Shape, port: int) -> Child:
        file = self._directory / "requests"
        canned.write(file, canned.requests(shape.api, shape.size))
        words = [str(port), str(file), str(shape.connections), str(shape.in_flight), *["tls"] * shape.tls]
        command = ["taskset", "-c", _PEERS_CORE, str(PROGRAM), "generator", *words]
        child = Child(command, self._directory / "generator.log")
        child.hear()
        return child

    def _command(self, name: str, shape: Shape, broker: int, rate: float) -> tuple[list[str], int]:
        ports = SluicePorts.free()
        store = self._certificate().store_file if shape.tls else None
        if name == HAPROXY:
            binary = find_haproxy()
            assert binary is not None, "the lane is opened only where it is usable"
            port = ports.bootstrap
            return haproxy_command(binary, self._directory, port, broker, 20_000, store), port
        if name == KAFKA_PROXY:
            mapping = f"{HOST}:{broker},{HOST}:{ports.bootstrap}"
            return [self._kafka_proxy, "server", "--bootstrap-server-mapping", mapping], ports.bootstrap
        directory = self._directory / f"{name}-files"
        directory.mkdir(exist_ok=True)
        sections: dict[str, Mapping[str, object]] = {
            "limits": {"connections_max": 20_000},
            "admin": {"bind": ""},
        }
        if store:
            sections["listeners.tls"] = {"cert_file": str(store)}
        if shape.variant == "capture":
            sections["capture"] = {"directory": str(directory / "capture"), "rotate_seconds": 5}
        path = SluiceSettings(
            f"{HOST}:{broker}",
            ports,
            quotas={
                "policy": "schedule" if shape.variant == "schedule" else "kip13",
                "scope": None,
                "window_samples": _WINDOWS,
            },
            client_quotas={
                "<default>": dict.fromkeys(("producer_byte_rate", "consumer_byte_rate"), round(rate))
            },
            listener={"broker_id_max": NODE},
            sections=sections,
        ).write(directory)
        return (
            profile.command(path, self._directory) if self.profiled else sluice_command(path)
        ), ports.address(NODE)[1]

    def _certificate(self) -> Certificate:
        if self._papers is None:
            self._papers = Authority.make(self._directory).issue("lane", rsa_bits=2048)
        return self._papers


@dataclass(frozen=True, slots=True)
class Lane:
    """A running proxy, its generator and its broker.

    Args:
        pid: of the proxy; 0 where the generator asks the broker.
        broker: its process id.
    """

    pid: int
    broker: int
    generator: Child

    def cpu(self) -> tuple[int, int]:
        """Return the CPU time of the proxy, and of the two ends, in ns."""
        ends = family_nanoseconds(self.broker) + family_nanoseconds(self.generator.pid)
        return family_nanoseconds(self.pid) if self.pid else 0, ends

    def turn(self, seconds: float) -> Turn:
        """Measure for some seconds."""
        self.generator.say(f"{seconds:g}")
        self.generator.hear()
        before, _ = self.cpu()
        found = json.loads(self.generator.hear())
        cpu_ns = self.cpu()[0] - before
        count = max(1, found["responses"])
        elapsed = found["seconds"]
        return Turn(count / elapsed, cpu_ns / 1000 / count, cpu_ns / 1e9 / elapsed, found["p99_us"])


@dataclass(frozen=True, slots=True)
class Found:
    """All turns of one proxy with one shape."""

    shape: Shape
    lane: str
    turns: list[Turn]
    base: list[Turn]

    @property
    def per_second(self) -> float:
        """Return the median of the requests/s."""
        return median(turn.per_second for turn in self.turns)

    @property
    def ratio(self) -> float | None:
        """Return the median of the rounds' ratios to HAProxy's requests/s."""
        if not self.base:
            return None
        return median(
            own.per_second / base.per_second for own, base in zip(self.turns, self.base, strict=True)
        )

    def row(self) -> tuple[str, ...]:
        """Return the table's row."""
        ratio = self.ratio
        cpu_us = median(turn.cpu_us for turn in self.turns)
        base_us = median(turn.cpu_us for turn in self.base) if self.base else None
        busy = median(turn.busy for turn in self.turns)
        return (
            self.shape.name,
            self.lane,
            f"{self.per_second:,.0f}",
            report.MISSING if ratio is None else f"{ratio:.2f}",
            f"{cpu_us:.1f}",
            report.MISSING if base_us is None else f"{cpu_us / base_us:.2f}",
            f"{busy:.0%}" + ("" if busy >= _BUSY else " *"),
            f"{median(turn.p99_us for turn in self.turns) / 1000:.2f}",
        )


def measure(bench: Bench, shape: Shape, rounds: int, seconds: float) -> list[Found]:
    """Measure one shape with all its lanes, in turns; a near quota is set by a short run without one."""
    rate = 0.0
    if shape.near:
        with bench.opened(shape, [SLUICE]) as lanes:
            lanes[SLUICE].turn(0.5)
            rate = (
                shape.near
                * lanes[SLUICE].turn(1.0).per_second
                * len(canned.requests(shape.api, shape.size)[-1][2])
            )
    turns: dict[str, list[Turn]] = {}
    with bench.opened(shape, bench.lanes(shape), rate) as lanes:
        names = list(lanes)
        for name in names:
            lanes[name].turn(2.0 * _WINDOWS if shape.near else 0.5)
        for number in range(rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                turns.setdefault(name, []).append(lanes[name].turn(seconds))
    base = turns.get(HAPROXY, [])
    return [Found(shape, name, found, base) for name, found in turns.items()]


def profiles(bench: Bench, shape: Shape, directory: Path) -> list[Table]:
    """Return where Sluice's time goes: by function of an interpreted one, by symbol and call of one as it runs."""
    bench.profiled = True
    with bench.opened(shape, [SLUICE]) as lanes:
        lane = lanes[SLUICE]
        tables = [profile.by_function(shape.name, lane.pid, lane.turn, directory)]
    bench.profiled = False
    with bench.opened(shape, [SLUICE]) as lanes:
        lane = lanes[SLUICE]
        tables.append(profile.by_symbol(shape.name, lane.pid, lane.turn, directory))
        tables.append(profile.by_call(shape.name, lane.pid, lane.turn))
    return tables


def build() -> None:
    """Compile the two ends.

    Raises:
        MissingPrerequisiteError: there is no C compiler, or no OpenSSL to compile with.
    """
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-O2", "-Wall", "-Wextra", "-Werror"]
    try:
        subprocess.run(["cc", *flags, "-o", str(PROGRAM), str(_SOURCE), "-lssl", "-lcrypto"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = f"peers.c cannot be compiled (a C compiler and OpenSSL's headers): {error}"
        raise MissingPrerequisiteError(why) from error


def outcome_of(found: Sequence[Found]) -> Outcome:
    """Return the table of all rows, and the bars."""
    columns = ("requests", "proxy", "requests/s", "× HAProxy", "CPU µs", "× HAProxy", "busy", "p99 ms")
    note = "\\* the proxy waited for the two ends, which were full before it was."
    table = Table("One core, saturated", columns, tuple(each.row() for each in found), note)
    ratios = {each.shape.name: each.ratio for each in found if each.lane == SLUICE}
    bars = [
        Bar(f"saturated: {name}: requests/s against HAProxy", ratios[name], limit, at_least=True)
        for name, limit in BARS.items()
        if name in ratios
    ]
    return Outcome([table], bars)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what is measured, and for how long."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.saturate", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], help='shapes whose name holds this, as "100 B, 64 x"'
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn")
    parser.add_argument("--quick", action="store_true", help="one round of one second")
    parser.add_argument(
        "--profile", action="store_true", help="where Sluice's time goes, in place of the figures"
    )
    parser.add_argument(
        "--kafka-proxy", default="", metavar="BINARY", help="measure grepplabs/kafka-proxy as well"
    )
    parser.add_argument("--before", default="", metavar="REV", help="measure Sluice of this revision as well")
    parser.add_argument("--write", action="store_true", help=f"write the table into {DOCUMENT}")
    return parser.parse_args(arguments)


def run(given: argparse.Namespace, console: Console) -> bool:
    """Measure, print, write; True also when bars are missed."""
    if len(os.sched_getaffinity(0)) < 2:  # one for the proxy, one for the two ends
        raise MissingPrerequisiteError("two cores are needed")
    raise_descriptor_limit()
    build()
    before = checkout(given.before, ROOT / "build" / "saturate" / "before") if given.before else None
    shapes = [
        shape
        for shape in SHAPES
        if not given.only or any(word in shape.name or word == "=" + shape.name for word in given.only)
    ]
    rounds, seconds = (1, 1.0) if given.quick else (max(1, given.rounds), given.seconds)
    found: list[Found] = []
    with (
        tempfile.TemporaryDirectory(prefix="sluice-saturate-") as name,
        Progress(console=console) as progress,
    ):
        bench = Bench(Path(name), given.kafka_proxy, before)
        task = progress.add_task("shapes", total=len(shapes))
        for shape in shapes:
            progress.update(task, description=shape.name)
            if given.profile:
                report.show(progress.console, [], Outcome(profiles(bench, shape, Path(name))))
            else:
                found += measure(bench, shape, rounds, seconds)
            progress.advance(task)
    if found:
        facts = [*machine.describe(), ("amounts", f"{rounds} rounds of {seconds:g} s")]
        report.publish(console, facts, outcome_of(found), "saturate" if given.write else "")
    return True


def main() -> int:
    """Run with the arguments of the command line."""
    given = parse()
    return report.run(lambda console: run(given, console))


if __name__ == "__main__":
    sys.exit(main())
