"""`python -m tests.bench.offline`: what the pipeline costs: decisions a second, one core against two, many requests.

Captures are made up (`tests.support.synthetic`), so every run works on the same rows. The pipeline runs as its own
process, as an operator runs it; memory is what it and its children have resident together, read twice a second. Writes
docs/benchmarks.md between the markers `offline` where it is a whole run.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import Recording, recording_of
from quotas.options import EngineOptions, Policy
from tests.bench import machine, report
from tests.bench.process import family, own_kib
from tests.bench.report import Bar, Outcome, tabulate
from tests.support.synthetic import fleet, write_capture

_BUILD: Final = Path("build")
_DRIVER_MEMORY: Final = "3g"
_POLICIES: Final[tuple[Policy, ...]] = ("kip13", "schedule")
CANDIDATES: Final = 20
REQUESTS: Final = 100_000_000
_LOOP_REQUESTS: Final = 1_000_000
_REQUEST_BYTES: Final = 16_384
_HOG_SHARE: Final = 0.5
_CLIENTS: Final = 300
_REQUESTS_A_SECOND: Final = 2800
_DONE: Final = re.compile(
    r"^(\w+): done in (?:(\d+) h ?)?(?:(\d+) min ?)?(?:([\d.]+) s)?(?:(\d+) ms)?$", re.MULTILINE
)


@dataclass(slots=True)
class Measured:
    """One run of the pipeline."""

    requests: int
    cores: int
    seconds: float = 0.0
    memory_bytes: int = 0
    stages: dict[str, float] = field(default_factory=dict)


_COLUMNS: Final[Mapping[str, Callable[[Measured], object]]] = {
    "requests": lambda run: f"{run.requests:,}",
    "cores": lambda run: run.cores,
    "seconds": lambda run: f"{run.seconds:,.0f}",
    "memory, GiB": lambda run: f"{run.memory_bytes / 2**30:.1f}",
    "ingest, rows/s": lambda run: f"{run.requests / run.stages['ingest']:,.0f}",
    "seconds by stage": lambda run: ", ".join(f"{name} {spent:.0f}" for name, spent in run.stages.items()),
}


@dataclass(frozen=True, slots=True)
class Speed:
    """The compiled loop with one policy, direction and number of connections.

    Attributes:
        decided: requests x candidates a second, in millions.
        asked: questions a second, in millions.
        throttled: the part of the requests that had to wait.
    """

    policy: Policy
    consumes: bool
    channels: int
    decided: float
    asked: float
    throttled: float


_SPEED: Final[Mapping[str, Callable[[Speed], object]]] = {
    "policy": lambda one: one.policy,
    "direction": lambda one: "fetch" if one.consumes else "produce",
    "connections": lambda one: one.channels,
    "requests × candidates, M/s": lambda one: f"{one.decided:.1f}",
    "questions, M/s": lambda one: f"{one.asked:.1f}",
    "throttled": lambda one: f"{one.throttled:.0%}",
}


def recording(channels: int, *, consumes: bool) -> Recording:
    """A million requests of one client, at an even rate."""
    rng = np.random.default_rng(1)
    connection = np.sort(rng.integers(0, channels, _LOOP_REQUESTS))
    starts = np.flatnonzero(np.diff(connection, prepend=-1))
    at_us = np.cumsum(rng.integers(1000, 9000, _LOOP_REQUESTS))
    at_us -= np.repeat(at_us[starts], np.diff(np.append(starts, _LOOP_REQUESTS)))
    return recording_of(
        connection=connection,
        at_us=at_us,
        sizes=rng.integers(1000, 60_000, _LOOP_REQUESTS),
        service_us=rng.integers(200, 900, _LOOP_REQUESTS),
        consumes=consumes,
    )


def decide(policy: Policy, channels: int, *, consumes: bool) -> Speed:
    """How fast the compiled loop is, by itself, on one core."""
    made = recording(channels, consumes=consumes)
    seconds = int(made.gap_us.sum() / 1e6 / channels) + 2
    rate = float(made.sizes.sum()) / seconds
    # From a third of the demand to three times as much: about a third of the requests have to wait.
    limits = [rate * share for share in np.geomspace(0.3, 3, CANDIDATES)]
    options = EngineOptions(policy=policy)
    backtest(made, limits[:1], options, start_s=0, seconds=seconds)
    begun_s = time.process_time()
    found = backtest(made, limits, options, start_s=0, seconds=seconds).each
    spent_s = time.process_time() - begun_s
    decided, asked = len(made) * CANDIDATES, sum(outcome.decisions for outcome in found)
    throttled = sum(outcome.throttled for outcome in found) / decided
    return Speed(policy, consumes, channels, decided / spent_s / 1e6, asked / spent_s / 1e6, throttled)


def decisions(console: Console) -> Outcome:
    """The compiled loop with each policy, direction and some numbers of connections."""
    speeds = []
    for policy, consumes, channels in product(_POLICIES, (False, True), (1, 5, 50)):
        speeds.append(decide(policy, channels, consumes=consumes))
        console.print(speeds[-1])
    note = f"One core; {_LOOP_REQUESTS:,} requests, {CANDIDATES} candidates from 0.3 to 3 times the demand."
    bars = []
    for policy in _POLICIES:
        slowest = min(one.decided for one in speeds if one.policy == policy)
        bars.append(Bar(f"backtest, {policy}: slowest", slowest, 2, "M/s", at_least=True))
    return Outcome([tabulate("The compiled loop", speeds, _SPEED, note)], bars)


def run_pipeline(capture: Path, requests: int, cores: int) -> Measured:
    """All stages but apply, in a process of their own."""
    found = Measured(requests, cores)
    with tempfile.TemporaryDirectory(prefix="sluice-offline-", dir=capture.parent) as directory:
        # One core is one core: with local[1] alone the JVM and the Python worker would still run on two.
        usable = sorted(os.sched_getaffinity(0))[:cores]
        command = [
            "taskset",
            "--cpu-list",
            ",".join(map(str, usable)),
            sys.executable,
            "-m",
            "offline",
            "run",
        ]
        command += ["--input", str(capture), "--output", f"{directory}/work", "--spill", f"{directory}/spill"]
        command += ["--master", f"local[{cores}]", "--driver-memory", _DRIVER_MEMORY, "--no-progress"]
        command += ["--candidates", str(CANDIDATES), "--policy", "kip13", "--scope", "broker"]
        begun_s = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(child.pid, found, done), daemon=True)
        watcher.start()
        said, _ = child.communicate()
        found.seconds = time.monotonic() - begun_s
        done.set()
        watcher.join()
        if child.returncode:
            raise RuntimeError(f"the pipeline failed:\n{said}")
    found.stages = stage_seconds(said)
    return found


def stage_seconds(said: str) -> dict[str, float]:
    """Return the time of each stage in seconds, from the lines that the pipeline prints."""
    return {
        name: int(h or 0) * 3600 + int(m or 0) * 60 + float(s or 0) + int(ms or 0) / 1000
        for name, h, m, s, ms in _DONE.findall(said)
    }


def _watch(pid: int, found: Measured, done: threading.Event) -> None:
    while not done.wait(0.5):
        found.memory_bytes = max(found.memory_bytes, 1024 * sum(map(own_kib, family(pid))))


def pipeline(directory: Path, requests: int, console: Console) -> Outcome:
    """The whole pipeline: a hundredth, a tenth, all on two cores; a tenth on one.

    Three hundred clients, one of which has half of the traffic; the more requests, the longer it took.
    """
    runs: list[Measured] = []
    for part, cores in ((100, 2), (10, 1), (10, 2), (1, 2)):
        with tempfile.TemporaryDirectory(dir=directory) as name:
            clients = fleet(_CLIENTS, _REQUESTS_A_SECOND * _REQUEST_BYTES, hog_share=_HOG_SHARE)
            count = write_capture(Path(name) / "capture", clients, requests // part / _REQUESTS_A_SECOND)
            runs.append(run_pipeline(Path(name) / "capture", count, cores))
        console.print(runs[-1])
    _, single, tenth, whole = runs
    made = f"{_CLIENTS + 1} clients at three brokers, {_REQUESTS_A_SECOND:,} requests/s, half of them one client's"
    scaling = (
        f"One core took {single.seconds / tenth.seconds:.2f} times as long as two, and for the backtest alone"
    )
    note = f"{made}. {CANDIDATES} candidates. {scaling} {_ratio(single, tenth):.2f} times."
    bars = [
        Bar("time of the largest run", whole.seconds / 60, 8, "min"),
        Bar("memory of the largest run", whole.memory_bytes / 2**30, 5.8, "GiB"),
        Bar("backtest: one core's time against two cores'", _ratio(single, tenth), 1.7, at_least=True),
        Bar("ten times the requests: time of all stages", whole.seconds / tenth.seconds, 11),
        Bar("ten times the requests: backtest's time", _ratio(whole, tenth), 11),
    ]
    return Outcome([tabulate("The pipeline", runs, _COLUMNS, note)], bars)


def _ratio(one: Measured, other: Measured) -> float:
    """Of the backtest's time."""
    return one.stages["backtest"] / max(other.stages["backtest"], 1e-9)


def main(console: Console) -> bool:
    """Measure; return whether every bar is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.offline", description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of the largest run (100 million)")
    parser.add_argument("--decisions", action="store_true", help="only the compiled loop; writes nothing")
    options = parser.parse_args()
    outcome = decisions(console)
    whole = options.requests == REQUESTS and not options.decisions
    if not options.decisions:
        _BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir=_BUILD) as directory:
            outcome.add(pipeline(Path(directory).resolve(), options.requests, console))
    facts = [*machine.describe("none: captures are made up"), ("cores used", f"{os.cpu_count()}")]
    return report.publish(console, facts, outcome, "offline" if whole else "")


if __name__ == "__main__":
    sys.exit(report.run(main))
