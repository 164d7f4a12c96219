"""`python -m tests.bench.offline`: what the pipeline costs: decisions a second, one core against two, many requests.

Captures are made up (`tests.support.synthetic`), so every run works on the same rows. The pipeline runs as its own
process, as an operator runs it; memory is what it and its children have resident together, read twice a second. Writes
docs/benchmarks.md between the markers `offline`, unless told to only print.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import Recording, recording_of
from quotas.options import EngineOptions
from tests.bench import machine, report
from tests.bench.process import family, own_kib
from tests.bench.report import Bar, Outcome, Table
from tests.cluster import processes
from tests.support.synthetic import fleet, write_capture

DOCUMENT: Final = Path("docs/benchmarks.md")
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

    def row(self) -> tuple[str, ...]:
        """For the table."""
        ingest = self.requests / self.stages["ingest"] if self.stages.get("ingest") else 0.0
        stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.stages.items())
        return (
            f"{self.requests:,}",
            str(self.cores),
            f"{self.seconds:,.0f}",
            f"{self.memory_bytes / 2**30:.1f}",
            f"{ingest:,.0f}",
            stages,
        )


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


def decisions() -> tuple[Table, list[Bar]]:
    """How fast the compiled loop is, by itself, on one core."""
    rows: list[tuple[str, ...]] = []
    slowest = {"kip13": float("inf"), "schedule": float("inf")}
    for policy in ("kip13", "schedule"):
        for consumes in (False, True):
            for channels in (1, 5, 50):
                made = recording(channels, consumes=consumes)
                seconds = int(made.gap_us.sum() / 1e6 / channels) + 2
                rate = float(made.sizes.sum()) / seconds
                # From a third of the demand to three times as much: about a third of the requests have to wait.
                limits = [rate * share for share in np.geomspace(0.3, 3, CANDIDATES)]
                options = EngineOptions(policy="kip13" if policy == "kip13" else "schedule")
                backtest(made, limits[:1], options, start_s=0, seconds=seconds)
                begun_s = time.process_time()
                found = backtest(made, limits, options, start_s=0, seconds=seconds)
                spent_s = time.process_time() - begun_s
                speed = len(made) * CANDIDATES / spent_s / 1e6
                calls = sum(outcome.decisions for outcome in found.each) / spent_s / 1e6
                waited = sum(outcome.throttled for outcome in found.each) / len(made) / CANDIDATES
                slowest[policy] = min(slowest[policy], speed)
                rows.append(
                    (
                        policy,
                        "fetch" if consumes else "produce",
                        str(channels),
                        f"{speed:.1f}",
                        f"{calls:.1f}",
                        f"{waited:.0%}",
                    )
                )
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    columns = (
        "policy",
        "direction",
        "connections",
        "requests × candidates, M/s",
        "questions, M/s",
        "throttled",
    )
    note = f"One core; {_LOOP_REQUESTS:,} requests, {CANDIDATES} candidates from 0.3 to 3 times the demand."
    table = Table("The compiled loop", columns, tuple(rows), note)
    return table, [
        Bar(f"backtest, {policy}: slowest", speed, 2, "M/s", at_least=True)
        for policy, speed in slowest.items()
    ]


def run_pipeline(capture: Path, requests: int, cores: int, memory: str) -> Measured:
    """All stages but apply, in a process of their own."""
    found = Measured(requests, cores)
    with tempfile.TemporaryDirectory(prefix="sluice-offline-", dir=capture.parent) as directory:
        command = [
            sys.executable,
            "-m",
            "offline",
            "run",
            "--input",
            str(capture),
            "--output",
            f"{directory}/work",
        ]
        command += ["--master", f"local[{cores}]", "--driver-memory", memory, "--spill", f"{directory}/spill"]
        command += [
            "--candidates",
            str(CANDIDATES),
            "--policy",
            "kip13",
            "--scope",
            "broker",
            "--no-progress",
        ]
        begun_s = time.monotonic()
        # One core is one core: with local[1] alone the JVM and the Python worker would still run on two.
        usable = sorted(os.sched_getaffinity(0))[:cores]
        command = ["taskset", "--cpu-list", ",".join(map(str, usable)), *command]
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
    print(" | ".join(found.row()), file=sys.stderr, flush=True)
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


def made_up(directory: Path, requests: int) -> tuple[Path, int]:
    """Three hundred clients, one of which has half of the traffic; the more requests, the longer it took."""
    capture = directory / f"capture-{requests}"
    if capture.exists():
        shutil.rmtree(capture)
    clients = fleet(_CLIENTS, _REQUESTS_A_SECOND * _REQUEST_BYTES, hog_share=_HOG_SHARE)
    return capture, write_capture(capture, clients, requests / _REQUESTS_A_SECOND)


def pipeline(directory: Path, requests: int, memory: str) -> tuple[Table, list[Bar]]:
    """The whole pipeline: a hundredth, a tenth, all on two cores; a tenth on one."""
    runs: list[Measured] = []
    for part, cores in ((100, 2), (10, 1), (10, 2), (1, 2)):
        capture, count = made_up(directory, requests // part)
        runs.append(run_pipeline(capture, count, cores, memory))
        shutil.rmtree(capture)
    _, single, tenth, whole = runs
    columns = ("requests", "cores", "seconds", "memory, GiB", "ingest, rows/s", "seconds by stage")
    clients = f"{_CLIENTS + 1} clients at three brokers, {_REQUESTS_A_SECOND:,} requests/s, half of them one client's"
    scaling = (
        f"One core took {single.seconds / tenth.seconds:.2f} times as long as two, and for the backtest alone"
    )
    note = f"{clients}. {CANDIDATES} candidates. {scaling} {_ratio(single, tenth):.2f} times."
    bars = [
        Bar("time of the largest run", whole.seconds / 60, 8, "min"),
        Bar("memory of the largest run", whole.memory_bytes / 2**30, 5.8, "GiB"),
        Bar("backtest: one core's time against two cores'", _ratio(single, tenth), 1.7, at_least=True),
        Bar("ten times the requests: time of all stages", whole.seconds / tenth.seconds, 11),
        Bar("ten times the requests: backtest's time", _ratio(whole, tenth), 11),
    ]
    return Table("The pipeline", columns, tuple(run.row() for run in runs), note), bars


def _ratio(one: Measured, other: Measured) -> float:
    """Of the backtest's time."""
    return one.stages["backtest"] / max(other.stages["backtest"], 1e-9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.offline", description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of the largest run (100 million)")
    parser.add_argument("--driver-memory", default="3g", help="of the JVM")
    parser.add_argument("--directory", default="build", help="where captures and shuffles go for a while")
    parser.add_argument("--decisions", action="store_true", help="only the compiled loop; writes nothing")
    parser.add_argument("--print", action="store_true", help="write no document")
    options = parser.parse_args(arguments)
    processes.exit_on_signals()
    table, bars = decisions()
    outcome = Outcome([table], bars)
    if not options.decisions:
        Path(options.directory).mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir=options.directory) as directory:
            table, bars = pipeline(Path(directory).resolve(), options.requests, options.driver_memory)
        outcome.tables.append(table)
        outcome.bars += bars
    facts = machine.describe("none: captures are made up")
    facts.append(("cores used", f"{os.cpu_count()}"))
    report.show(report.screen(), facts, outcome)
    if not options.decisions and not options.print:
        report.write(DOCUMENT, "offline", facts, outcome)
    return 0 if all(bar.passed for bar in outcome.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
