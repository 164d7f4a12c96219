"""`make spark-cluster`: the pipeline on Spark's standalone cluster, with lost executors and with one large client.

    python -m tests.bench.cluster [two] [four] [kill] [skew]

`two`, `four`: all stages of `sluice-offline run`, and `evaluate`, on executors of one core and 1 GiB each: seconds, CPU
and memory by stage, and whether every row of every table and every byte of the pages and of `quotas.toml` is that of a
run with `local[*]`. `kill`: the same on two executors, of which the older is killed (SIGKILL) in each stage, and what
was done again. `skew`: one client has 60 % of the requests, at a tenth of `--skewed` and at all of them: what is
shuffled and spilled, and the longest task beside the median; and what follows for 10^10 requests.

Captures are made up (`tests.support.synthetic`). Tasks, shuffles and spills are those of Spark's event log; CPU and
memory those of all processes of driver and cluster, read twice a second. All parts together are written into
docs/benchmarks.md, a smaller choice only with `--write`.
"""

import argparse
import contextlib
import hashlib
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, Self

import numpy as np
import pyarrow as pa
from rich.console import Console

from offline.transforms.backtest import ORDERED_AS_DECIDED, chunks_of
from tests.bench import machine, report
from tests.bench.offline import CANDIDATES, stage_seconds
from tests.bench.options import check_known
from tests.bench.process import family, own_kib, parse_stat_cpu_ticks
from tests.bench.report import Bar, Outcome, Table, tabulate
from tests.support.proxy_process import ROOT
from tests.support.spark_cluster import (
    PipelineRun,
    SparkCluster,
    SparkTask,
    kept_code,
    results,
    run_pipeline,
    spark_cluster,
    stage_tasks,
)
from tests.support.synthetic import fleet, write_capture

_EXECUTORS: Final = {"two": 2, "four": 4, "kill": 2}
_PARTS: Final = (*_EXECUTORS, "skew")
_LOCAL: Final = "local[*]"
_REQUESTS: Final = 2_000_000
_SKEWED: Final = 20_000_000
_SKEW: Final = 0.6  # of the requests, which all have the same size: one client's
_CLIENTS: Final = 300
_REQUESTS_A_SECOND: Final = 2800
_REQUEST_BYTES: Final = 16_384
_ARGUMENTS: Final = ("--driver-memory", "2g", "--policy", "kip13", "--scope", "broker")
_DAYS: Final = 11  # into which `evaluate` divides a recording
_LOOK_S: Final = 0.5
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_SMALLER: Final = 10  # the first run of `skew` has a tenth
# The estimate.
_MANY: Final = 10**10
_CORES: Final = 100
_TASK_BYTES: Final = 24  # that a task of the backtest keeps of a request (docs/offline.md)


@dataclass(slots=True)
class Use:
    """What one stage has used: CPU, and the most memory at any time."""

    cpu_s: float = 0.0
    memory_bytes: int = 0


class Watch:
    """Reads CPU and memory of processes for the time of a `with` block, by the stage that has begun last.

    Args:
        processes: returns the ids of the processes beside the driver and its children.
    """

    def __init__(self, processes: Callable[[], Sequence[int]]) -> None:
        self.stages: dict[str, Use] = {}
        self._processes = processes
        self._driver = 0
        self._ticks: dict[int, int] = {}
        self._use = Use()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def started(self, driver: int) -> None:
        """Take note of the driver's process id; what it uses until a stage begins is not counted."""
        self._driver = driver
        self._use = Use()

    def at_stage(self, stage: str) -> None:
        """Count what is used from now on for this stage."""
        self._look()
        self._use = self.stages.setdefault(stage, Use())

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        with self._lock:
            pids = [*self._processes(), *(family(self._driver) if self._driver else ())]
            for pid in pids:
                with contextlib.suppress(OSError, ValueError):  # it may have ended
                    ticks = parse_stat_cpu_ticks(Path(f"/proc/{pid}/stat").read_text())
                    self._use.cpu_s += (ticks - self._ticks.get(pid, 0)) / _TICKS_A_SECOND
                    self._ticks[pid] = ticks
            self._use.memory_bytes = max(self._use.memory_bytes, 1024 * sum(map(own_kib, pids)))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the pipeline.

    Attributes:
        where: what it ran on, in words.
        seconds: by stage, without Spark's start.
        total_s: with it.
        losses: how many executors the driver has lost.
        tasks: by stage, all attempts of tasks; none of a local run.
        digests: by result, its SHA-256; none where results are not compared.
    """

    where: str
    requests: int
    seconds: Mapping[str, float]
    total_s: float
    losses: int
    uses: Mapping[str, Use]
    tasks: Mapping[str, Sequence[SparkTask]]
    digests: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The beginning of the digest of all results."""
        return _sha256(repr(sorted(self.digests.items())).encode())[:16]


def _sha256(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def digest(result: pa.Table | bytes) -> str:
    """Return the SHA-256 of a file, or of a table's rows in Arrow's form.

    >>> rows = pa.table({"a": [1, 2, 3]})
    >>> parts = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    >>> digest(rows) == digest(parts), digest(rows) == digest(rows.slice(1))
    (True, False)
    """
    if isinstance(result, bytes):
        return _sha256(result)
    table = result.replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return _sha256(memoryview(sink.getvalue()))


def _write(directory: Path, requests: int, share: float) -> tuple[Path, int]:
    """Write a capture of about so many requests, of which one client has a share; return it with its number."""
    clients = fleet(_CLIENTS, _REQUESTS_A_SECOND * _REQUEST_BYTES, hog_share=share)
    capture = directory / f"capture-{requests}-{share}"
    rate = _REQUESTS_A_SECOND * _REQUEST_BYTES
    stated = f'[[capacity]]\nscope = "broker"\nin = {rate}\nout = {rate}\n'
    Path(f"{capture}.toml").write_text(stated)
    return capture, write_capture(capture, clients, requests / _REQUESTS_A_SECOND)


class Bench:
    """Runs the pipeline on captures in one directory, and shows each run when it has ended."""

    def __init__(self, directory: Path, console: Console) -> None:
        self.directory = directory
        self.console = console
        self._number = 0

    def run_locally(self, capture: Path, requests: int) -> Run:
        """Run it with Spark in one JVM: what the others are compared with."""
        with Watch(list) as watch, self._work() as work:
            spill = ("--spill", str(work.with_name("spill")))
            play = partial(run_pipeline, at_stage=watch.at_stage, started=watch.started)
            runs = [
                play(*words, *spill, command=command)
                for command, words in _commands(capture, requests, work, _LOCAL)
            ]
            return self._shown(_run(_LOCAL, requests, runs, watch, {}, _digests(work)))

    def run_on_cluster(
        self,
        executors: int,
        capture: Path,
        requests: int,
        *,
        at_stage: Callable[[SparkCluster], object] | None = None,
        compared: bool = True,
        memory: str = "1g",
    ) -> Run:
        """Run it on a new cluster.

        Args:
            at_stage: what happens at the beginning of each stage.
            compared: whether to read the results.
            memory: of each executor.
        """
        with self._work() as work:
            settings = {"spark.executor.memory": memory}
            directory, kept = work.with_name("cluster"), kept_code(work.with_name("kept"))
            runs: list[PipelineRun] = []
            tasks: dict[str, list[SparkTask]] = {}
            with (
                spark_cluster(directory, executors, kept=kept, settings=settings) as cluster,
                Watch(cluster.processes) as watch,
            ):

                def begin(stage: str) -> None:
                    watch.at_stage(stage)
                    if at_stage is not None:
                        at_stage(cluster)

                play = partial(
                    run_pipeline,
                    environment=cluster.driver_environment(),
                    at_stage=begin,
                    started=watch.started,
                )
                for command, words in _commands(capture, requests, work, cluster.master):
                    runs.append(play(*words, command=command))
                    tasks |= stage_tasks(cluster.event_log(), runs[-1].began_ms)
            digests = _digests(work) if compared else {}
            where = (
                f"{executors} executors with {memory} each{', one killed in each stage' if at_stage else ''}"
            )
            return self._shown(_run(where, requests, runs, watch, tasks, digests))

    @contextmanager
    def _work(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.directory) as name:
            yield Path(name) / "work"

    def _shown(self, run: Run) -> Run:
        self.console.print(f"{run.where}: {run.requests:,} requests in {run.total_s:.0f} s", highlight=False)
        return run


def _commands(
    capture: Path, requests: int, work: Path, master: str
) -> list[tuple[str, tuple[Path, Path, str, *tuple[str, ...]]]]:
    """Return the commands that have all stages on Spark: `run`, and `evaluate` of what that has measured."""
    day_s = max(10, requests // _REQUESTS_A_SECOND // _DAYS)
    # A capacity is there with the policy schedule alone.
    shared = ("--policy", "schedule", "--quotas-file", f"{capture}.toml")
    return [
        ("run", (capture, work, master, *_ARGUMENTS, "--candidates", str(CANDIDATES))),
        ("evaluate", (work, work, master, *_ARGUMENTS, *shared, "--day", str(day_s))),
    ]


def _run(
    where: str,
    requests: int,
    runs: Sequence[PipelineRun],
    watch: Watch,
    tasks: Mapping[str, Sequence[SparkTask]],
    digests: Mapping[str, str],
) -> Run:
    seconds = {stage: spent for run in runs for stage, spent in stage_seconds(run.printed).items()}
    losses = sum(run.errors.count("Lost executor") for run in runs)
    return Run(
        where, requests, seconds, sum(run.seconds for run in runs), losses, watch.stages, tasks, digests
    )


def _digests(work: Path) -> dict[str, str]:
    return {name: digest(result) for name, result in results(work).items()}


def same_results(bench: Bench, parts: Sequence[str], requests: int) -> Outcome:
    """Return what the parts `two`, `four` and `kill` cost, beside a local run, and whether their results are its."""
    capture, count = _write(bench.directory, requests, 0.5)
    local = bench.run_locally(capture, count)
    runs: dict[str, Run] = {}
    for part in parts:
        lose = SparkCluster.kill_executor if part == "kill" else None
        runs[part] = bench.run_on_cluster(_EXECUTORS[part], capture, count, at_stage=lose)
    outcome = Outcome()
    for part, run in runs.items():
        differing = [name for name, found in local.digests.items() if run.digests[name] != found]
        for name in differing:
            bench.console.print(f"[red]{part}: {name} differs[/red]")
        outcome.bars.append(Bar(f"{part}: results that differ from {_LOCAL}'s", len(differing), 0, ""))
    made = f"{count:,} requests of {_CLIENTS + 1} clients, half of them one client's; {CANDIDATES} candidates"
    outcome.tables.append(_digest_table([local, *runs.values()], made))
    lost = runs.pop("kill", None)
    outcome.tables += [_stage_table(run) for run in (local, *runs.values())]
    if lost:
        struck = sum(any(task.outcome != "Success" for task in tasks) for tasks in lost.tasks.values())
        outcome.bars.append(
            Bar("kill: stages in which tasks were lost", struck, len(lost.tasks), "", at_least=True)
        )
        outcome.tables.append(_lost_table(lost, runs.get("two")))
    return outcome


def _digest_table(runs: Sequence[Run], made: str) -> Table:
    return tabulate(
        "The same result everywhere",
        runs,
        {
            "": lambda run: run.where,
            "seconds, with Spark's start": lambda run: f"{run.total_s:.0f}",
            "executors lost": lambda run: run.losses,
            "results": lambda run: len(run.digests),
            "SHA-256 of all, first 16 digits": lambda run: run.digest,
        },
        f"{made}. Results are all tables, their rows sorted, but `backtest/tasks`, which has times; settings, pages "
        "and `quotas.toml` byte for byte.",
    )


def _stage_table(run: Run) -> Table:
    return tabulate(
        f"By stage: {run.where}",
        run.seconds.items(),
        {
            "": lambda stage: stage[0],
            "seconds": lambda stage: f"{stage[1]:.1f}",
            "CPU, s": lambda stage: f"{run.uses[stage[0]].cpu_s:.1f}",
            "memory, GiB": lambda stage: f"{run.uses[stage[0]].memory_bytes / 2**30:.1f}",
        },
    )


def _lost_table(run: Run, calm: Run | None) -> Table:
    """Return what happened to tasks in each stage, and how much longer it took than without a loss, where known."""

    def happened(tasks: Sequence[SparkTask]) -> str:
        found = Counter(task.outcome for task in tasks if task.outcome != "Success")
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.items())) or "none"

    return tabulate(
        "An executor killed in each stage",
        run.tasks.items(),
        {
            "": lambda stage: stage[0],
            "attempts of tasks": lambda stage: len(stage[1]),
            "not successful": lambda stage: happened(stage[1]),
            "tasks of Spark's stages that ran again": lambda stage: sum(
                task.stage[1] > 0 for task in stage[1]
            ),
            "seconds": lambda stage: f"{run.seconds[stage[0]]:.1f}",
            "without a loss": lambda stage: f"{calm.seconds[stage[0]]:.1f}" if calm else report.MISSING,
        },
        "The older of two executors is stopped for 2 s when a stage begins, so that it is given tasks, and killed. "
        "`Resubmitted` had succeeded, and what it had shuffled was lost with the executor.",
    )


def skew(bench: Bench, requests: int, memory: str) -> Outcome:
    """Return what one client with most of the requests does, and what follows for many more."""
    small, large = (
        bench.run_on_cluster(2, *_write(bench.directory, amount, _SKEW), compared=False, memory=memory)
        for amount in (requests // _SMALLER, requests)
    )
    return Outcome([_skew_table(small), _skew_table(large), *estimate(small, large)])


def _skew_table(run: Run) -> Table:
    return tabulate(
        f"One client with 60 %: {run.requests:,} requests",
        run.tasks.items(),
        {
            "": lambda stage: stage[0],
            "seconds": lambda stage: f"{run.seconds[stage[0]]:.1f}",
            "CPU, s": lambda stage: f"{run.uses[stage[0]].cpu_s:.1f}",
            "tasks": lambda stage: len(stage[1]),
            "read, bytes a request": lambda stage: (
                f"{sum(task.read for task in stage[1]) / run.requests:.1f}"
            ),
            "shuffled, bytes a request": lambda stage: f"{_shuffled(stage[1]) / run.requests:.1f}",
            "spilled, MB": lambda stage: f"{sum(task.spilled for task in stage[1]) / 1e6:.1f}",
            "longest task, s": lambda stage: f"{longest(stage[1])[0]:.1f}",
            "median beside it, s": lambda stage: f"{longest(stage[1])[1]:.2f}",
            "memory, GiB": lambda stage: f"{run.uses[stage[0]].memory_bytes / 2**30:.1f}",
        },
        f"{run.where}. The median is of the tasks of the same stage of Spark as the longest one.",
    )


def _shuffled(tasks: Sequence[SparkTask]) -> int:
    return sum(task.shuffled for task in tasks)


def longest(tasks: Sequence[SparkTask]) -> tuple[float, float]:
    """Return the seconds of the longest task, and the median of the tasks of its stage of Spark.

    >>> one, two = ((0, 0), (1, 0))
    >>> made = [(one, 1.0), (one, 2.0), (one, 9.0), (two, 5.0)]
    >>> longest([SparkTask(stage, "Success", 0, seconds, 0, 0, 0) for stage, seconds in made])
    (9.0, 2.0)
    """
    slowest = max(tasks, key=lambda task: task.seconds)
    return slowest.seconds, median(task.seconds for task in tasks if task.stage == slowest.stage)


def estimate(small: Run, large: Run) -> list[Table]:
    """Return what 10^10 requests would cost, of which one client has 60 %, by two runs of the same shape.

    CPU grows by what it grew between the two runs; bytes by request are those of the large one. A part of the
    backtest, which is some of one client's candidates, reads all requests of that client.
    """
    more = (large.requests - small.requests) / 1e6
    slopes = {
        stage: max(0.0, (large.uses[stage].cpu_s - small.uses[stage].cpu_s) / more) for stage in large.tasks
    }
    shuffled = {stage: _shuffled(tasks) / large.requests for stage, tasks in large.tasks.items()}
    parts, parts_now = parts_of(_MANY, _CORES), parts_of(large.requests, 2)
    # The client's requests are shuffled once for each part.
    shuffled["backtest"] *= (1 - _SKEW + _SKEW * parts) / (1 - _SKEW + _SKEW * parts_now)
    stages = tabulate(
        "Estimate for 10^10 requests",
        slopes.items(),
        {
            "": lambda stage: stage[0],
            "CPU, s a million requests": lambda stage: f"{stage[1]:.2f}",
            "CPU, hours": lambda stage: f"{stage[1] * _MANY / 1e6 / 3600:.1f}",
            f"minutes on {_CORES} cores": lambda stage: f"{stage[1] * _MANY / 1e6 / _CORES / 60:.0f}",
            "shuffled, bytes a request": lambda stage: f"{shuffled[stage[0]]:.1f}",
            "shuffled, GB": lambda stage: f"{shuffled[stage[0]] * _MANY / 1e9:,.0f}",
            "spilled, bytes a request": lambda stage: (
                f"{sum(task.spilled for task in large.tasks[stage[0]]) / large.requests:.2f}"
            ),
        },
        f"Calculated, not run. CPU is that of driver, executors and Python workers, and its growth from "
        f"{small.requests:,} to {large.requests:,} requests; minutes are for work that is evenly divided.",
    )
    hog = _SKEW * _MANY
    took_s = longest(large.tasks["backtest"])[0]
    # The work of one part: its requests, put in order, and decided at its candidates.
    work_now = _SKEW * large.requests * (ORDERED_AS_DECIDED + CANDIDATES / parts_now)
    work_then = hog * (ORDERED_AS_DECIDED + CANDIDATES / parts)
    rows = (
        ("requests of the client at its broker", f"{hog:,.0f}"),
        (f"parts into which its candidates are divided on {_CORES} cores", f"{parts}"),
        ("memory of the task of each part", f"{hog * _TASK_BYTES / 1e9:,.0f} GB"),
        (f"longest task measured, with {_SKEW * large.requests:,.0f} requests", f"{took_s:.1f} s"),
        ("work of a part, against that one", f"× {work_then / work_now:,.0f}"),
        ("time of the task of each part", f"{took_s * work_then / work_now / 60:,.0f} min"),
        ("requests of one client at one broker that 64 GB hold", f"{64e9 / _TASK_BYTES:,.0f}"),
    )
    note = (
        f"{_TASK_BYTES} bytes are kept of each request. Work is requests × ({ORDERED_AS_DECIDED} for putting them in "
        "order + the candidates of a part)."
    )
    return [stages, Table("The largest client of 10^10 requests", ("", "estimate"), rows, note)]


def parts_of(requests: int, cores: int) -> int:
    """Return into how many parts the backtest divides the candidates of the client with 60 % of the requests.

    >>> parts_of(10**10, 100), parts_of(10**7, 2)
    (20, 1)
    """
    rest = np.full(_CLIENTS, int(requests * (1 - _SKEW)) // _CLIENTS)
    counts = np.append(int(requests * _SKEW), rest)
    return int(chunks_of(counts, np.full(len(counts), CANDIDATES), cores)[0])


def main(console: Console) -> bool:
    """Measure; return whether every bar is met."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(_PARTS)}; all")
    parser.add_argument("--requests", type=int, default=_REQUESTS, help="of two, four and kill (2 million)")
    parser.add_argument("--skewed", type=int, default=_SKEWED, help="of skew (20 million)")
    parser.add_argument("--executor-memory", default="1g", help="of skew: 512m to 2g (1g)")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md, whatever the parts")
    given = parser.parse_args()
    check_known(parser, "part", given.parts, _PARTS)
    parts = [part for part in _PARTS if part in (given.parts or _PARTS)]
    outcome = Outcome()
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spark-cluster-", dir=ROOT / "build") as directory:
        bench = Bench(Path(directory), console)
        if compared := [part for part in parts if part != "skew"]:
            outcome.add(same_results(bench, compared, given.requests))
        if "skew" in parts:
            outcome.add(skew(bench, given.skewed, given.executor_memory))
    facts = machine.describe("none: captures are made up")
    written = given.write or len(parts) == len(_PARTS)
    return report.publish(console, facts, outcome, "spark-cluster" if written else "")


if __name__ == "__main__":
    sys.exit(report.run(main))
