"""Spark's standalone cluster on loopback, of processes as on machines of their own: from pyspark's own distribution.

A master, and workers that start one executor each. Nothing of this checkout is in their environment, so that executors
have what is sent to them. An executor is killed as a machine dies: with what it was doing, what it kept, and the files
of its shuffles. Spark's event log says afterwards what that cost.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyspark

from offline.schemas import TABLES
from quotas.backtest.compiler import sources_digest
from tests.bench.process import family
from tests.cluster import processes
from tests.cluster.ports import HOST, free_port
from tests.support.proxy_process import ROOT
from tests.support.waiting import until

_SPARK: Final = Path(pyspark.__file__).parent
_DEPLOY: Final = "org.apache.spark.deploy"
_EXECUTOR: Final = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
# What every process of the cluster inherits.
_INHERITED: Final = ("PATH", "JAVA_HOME", "LANG")
# A stage reads and plans before its first job, and a job that runs already gives a stopped executor tasks as well.
_JOB_S_MAX: Final = 10.0
# From then on, long enough that Spark gives it tasks; a stage waits for them, so that it cannot end before the kill.
_STOPPED_S: Final = 2.0
_JOB_STARTS: Final = b'"Event":"SparkListenerJobStart"'
# Lines of `evaluate` begin with other words, too.
_STAGE: Final = re.compile(r"(ingest|demand|backtest|recommend|report|evaluate): ")


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster.

    Attributes:
        master: its address in Spark's notation.
        directory: its files; `events` has an event log for each application.
    """

    master: str
    directory: Path
    _workers: Sequence["subprocess.Popen[bytes]"]

    def driver_environment(self) -> dict[str, str]:
        """Return the environment for a program that uses this cluster."""
        return dict(os.environ) | {"SPARK_CONF_DIR": str(self.directory / "conf"), "SPARK_LOCAL_IP": HOST}

    def executors(self) -> list[int]:
        """Return the process ids of the executors' JVMs, the oldest first."""
        found = [pid for worker in self._workers for pid in family(worker.pid)[1:] if _is_executor(pid)]
        return sorted(found, key=_started)

    def processes(self) -> list[int]:
        """Return the process ids of all workers, executors, and their Python workers."""
        return [pid for worker in self._workers for pid in family(worker.pid)]

    def kill_executor(self) -> None:
        """Stop the oldest executor, let Spark begin a job and give it tasks meanwhile, and kill it (SIGKILL)."""
        until(self.executors, "the cluster has an executor")
        victim = self.executors()[0]
        begun = self._jobs()
        os.kill(victim, signal.SIGSTOP)
        try:
            with suppress(AssertionError):
                until(lambda: self._jobs() > begun, seconds=_JOB_S_MAX)
            time.sleep(_STOPPED_S)
        finally:
            os.kill(victim, signal.SIGKILL)

    def event_log(self) -> Path:
        """Return the event log of the application that began last."""
        return max((self.directory / "events").iterdir(), key=lambda path: path.stat().st_mtime)

    def _jobs(self) -> int:
        """Return how many jobs the application has begun; Spark writes these events at once."""
        return self.event_log().read_bytes().count(_JOB_STARTS)


@contextmanager
def spark_cluster(
    directory: Path, executors: int, *, kept: Path, settings: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Start a cluster whose executors have one core and 1 GiB each; it ends with the block.

    Args:
        directory: for its files.
        kept: what stays from run to run (XDG_CACHE_HOME): numba's compiled code.
        settings: more of Spark's settings for applications.
    """
    for name in ("conf", "events", "logs", "spill", "work"):
        (directory / name).mkdir(parents=True)
    lines = {
        "spark.executor.memory": "1g",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        **(settings or {}),
    }
    text = "".join(f"{name} {value}\n" for name, value in lines.items())
    (directory / "conf" / "spark-defaults.conf").write_text(text)
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
        "SPARK_HOME": str(_SPARK),
        "SPARK_CONF_DIR": str(directory / "conf"),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(directory / "spill"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "XDG_CACHE_HOME": str(kept),
    }
    port, page = free_port(), free_port()
    master = f"spark://{HOST}:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str, *words: str) -> None:
        command = [str(_SPARK / "bin" / "spark-class"), f"{_DEPLOY}.{kind}", "--host", HOST, *words]
        log = directory / "logs" / f"{len(started)}.log"
        started.append(processes.start(command, log=log, env=environment, cwd=directory))

    try:
        start("master.Master", "--port", str(port), "--webui-port", str(page))
        until(lambda: _workers_of(page) is not None, lambda: _logged(directory))
        for number in range(executors):
            work = str(directory / "work" / str(number))
            resources = ("--cores", "1", "--memory", "2g", "--work-dir", work)
            start("worker.Worker", "--port", "0", "--webui-port", "0", *resources, master)
        until(lambda: _workers_of(page) == executors, lambda: _logged(directory))
        yield SparkCluster(master, directory, started[1:])
    finally:
        for child in reversed(started):
            processes.end(child)


def kept_code(directory: Path) -> Path:
    """Copy what this checkout has compiled already to where executors look for it: it takes each half a minute.

    Returns the directory, for `kept` of `spark_cluster`.
    """
    rules = directory / "numba" / f"sluice_{sources_digest()}"
    rules.mkdir(parents=True)
    for file in (ROOT / "quotas" / "backtest" / "__pycache__").glob("compiled_loop.repeat-*.nb[ic]"):
        shutil.copy(file, rules)
    return directory


def _workers_of(page: int) -> int | None:
    """Return how many workers the master on this page has; None while it has no page."""
    try:
        answer = httpx.get(f"http://{HOST}:{page}/json/", timeout=5)
    except httpx.TransportError:
        return None
    return int(answer.json()["aliveworkers"])


def _logged(directory: Path) -> str:
    return "\n".join(path.read_text()[-1500:] for path in sorted((directory / "logs").iterdir()))


def _is_executor(pid: int) -> bool:
    try:
        return _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _started(pid: int) -> int:
    """Return when a process began, in the kernel's ticks; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """One run of `sluice-offline` in a process of its own.

    Attributes:
        seconds: how long it took, with Spark's start.
        began_ms: by stage, when it began, ms since 1970.
        printed: its standard output.
        errors: its standard error.
    """

    seconds: float
    began_ms: dict[str, int]
    printed: str
    errors: str


def run_pipeline(
    capture: Path,
    work: Path,
    master: str,
    *arguments: str,
    command: str = "run",
    environment: Mapping[str, str] | None = None,
    at_stage: Callable[[str], object] = lambda _stage: None,
    started: Callable[[int], object] = lambda _pid: None,
) -> PipelineRun:
    """Run all stages but apply, compare and evaluate.

    Args:
        command: another one that has stages.
        at_stage: called when a stage begins, with its name.
        started: called at the start, with the process id.

    Raises:
        RuntimeError: it failed; the message has what it printed.
    """
    words = [sys.executable, "-m", "offline", command, "--input", str(capture), "--output", str(work)]
    words += ["--master", master, "--no-progress", *arguments]
    begun_s, began_ms = time.monotonic(), dict[str, int]()
    lines: list[str] = []
    errors: list[str] = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None, "it is a pipe"
        assert child.stderr is not None, "it is a pipe"
        reader = threading.Thread(target=lambda stream: errors.append(stream.read()), args=(child.stderr,))
        reader.start()
        try:
            started(child.pid)
            for line in child.stdout:
                lines.append(line)
                stage = _STAGE.match(line)
                if stage and stage[1] not in began_ms:
                    began_ms[stage[1]] = int(time.time() * 1000)
                    at_stage(stage[1])
        except BaseException:
            child.kill()
            raise
        finally:
            reader.join()
    printed, said = "".join(lines), "".join(errors)
    if child.returncode:
        raise RuntimeError(f"the pipeline failed:\n{printed}{said}")
    return PipelineRun(time.monotonic() - begun_s, began_ms, printed, said)


def results(work: Path) -> dict[str, pa.Table | bytes]:
    """Return everything that a run of the pipeline has written, in a form that is equal when the results are.

    Tables have their rows sorted; `backtest/tasks` is left out, which says how long tasks took. Of `evaluate` there is
    something only if it has run.
    """
    evaluated = (work / "evaluate").exists()
    found: dict[str, pa.Table | bytes] = {
        name: _rows(work / name)
        for name in TABLES
        if name != "backtest/tasks" and (evaluated or not name.startswith("evaluate/"))
    }
    for stage in ("ingest", "backtest", "recommend"):
        found[f"{stage}/settings.json"] = (work / stage / "settings.json").read_bytes()
    pages = ("evaluate/evaluation.html",) if evaluated else ()
    for name in ("recommend/quotas.toml", "report/report.html", *pages):
        found[name] = (work / name).read_bytes()
    return found


def _rows(path: Path) -> pa.Table:
    table = ds.dataset(path, format="parquet").to_table()
    return table.sort_by(
        [(field.name, "ascending") for field in table.schema if not pa.types.is_list(field.type)]
    )


@dataclass(frozen=True, slots=True)
class SparkTask:
    """One attempt of one task, from Spark's event log.

    Attributes:
        stage: Spark's stage and its attempt.
        outcome: `Success`, `ExecutorLostFailure`, `FetchFailed`, `Resubmitted` (it had succeeded, and what it had
            shuffled was lost) and others.
        seconds: how long it ran.
        spilled: bytes that it wrote to disk because memory was used up.
        shuffled: bytes that it wrote for other tasks to read.
        read: bytes that it read from files.
    """

    stage: tuple[int, int]
    outcome: str
    launched_ms: int
    seconds: float
    spilled: int
    shuffled: int
    read: int


def stage_tasks(event_log: Path, began_ms: Mapping[str, int]) -> dict[str, list[SparkTask]]:
    """Return all attempts of tasks in an event log of Spark, by the stage of the pipeline that had begun last."""
    found: dict[str, list[SparkTask]] = {stage: [] for stage in began_ms}
    with event_log.open("rb") as lines:
        for line in lines:
            if b'"SparkListenerTaskEnd"' not in line[:60]:
                continue
            task = _task(msgspec.json.decode(line))
            begun = [stage for stage, at_ms in began_ms.items() if at_ms <= task.launched_ms]
            if begun:
                found[begun[-1]].append(task)
    return found


def _task(event: dict[str, Any]) -> SparkTask:
    info = event["Task Info"]
    figures: dict[str, Any] = event.get("Task Metrics") or {}
    return SparkTask(
        stage=(event["Stage ID"], event["Stage Attempt ID"]),
        outcome=event["Task End Reason"]["Reason"],
        launched_ms=info["Launch Time"],
        seconds=(info["Finish Time"] - info["Launch Time"]) / 1000,
        spilled=figures.get("Disk Bytes Spilled", 0),
        shuffled=figures.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0),
        read=figures.get("Input Metrics", {}).get("Bytes Read", 0),
    )
