"""Starts the only SparkSession, and keeps the terminal clean while it works.

PySpark's workers use the running interpreter; by default they would use any `python3` on the PATH, which may lack
packages. In local mode Spark listens on loopback only. On a cluster Sluice's packages are sent along, so that its
workers need only pyarrow, numpy and numba; PYSPARK_PYTHON names their interpreter where its path is another there.

Only errors of Java and Spark are shown, unless `verbose` is set. The JVM writes warnings to its standard error before
it reads any settings. So it inherits a pipe as standard error, and a thread copies all other lines from it. Progress
bars are drawn by a thread that polls Spark's status tracker.

Ctrl-C is delayed until the JVM has started: PySpark leaves the JVM running if its start is interrupted.
"""

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession
from tqdm import tqdm

from offline.errors import SetupError, reason
from offline.options import SparkOptions

_PACKAGES: Final = ("protocol", "quotas", "offline")
_ROOT: Final = Path(__file__).resolve().parent.parent
_PARTITIONS_A_CORE: Final = 4
_LOG4J: Final = Path(__file__).parent / "log4j2.properties"
_JVM_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_STDERR: Final = 2
# Of the JVM itself (incubator modules, restricted methods; options from the environment), of Spark and its log.
_NOISE: Final = tuple(
    b"WARNING: |NOTE: Picked up |Picked up |Setting default log level to |Setting Spark log level to |"
    b"To adjust logging level use |Using Spark's default log4j profile|SLF4J".split(b"|")
)
_PROGRESS_SECONDS: Final = 0.3


@contextmanager
def spark_session(options: SparkOptions) -> Iterator[SparkSession]:
    """Start Spark, and stop it when the block ends; yields the session."""
    _check_java()
    if not options.verbose:
        logging.getLogger().addFilter(is_not_py4j)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    local = options.master == "local" or options.master.startswith("local[")
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    # Python workers are started by the JVM, which does not know this interpreter's path.
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(options.master).appName("sluice-offline")
    for key, value in _settings(options, local=local).items():
        builder = builder.config(key, value)
    try:
        with held_interrupt(), nullcontext() if options.verbose else without_noise():
            spark = builder.getOrCreate()
    except Exception as error:
        raise SetupError(f"Spark does not start with master {options.master}: {reason(error)}") from error
    with tempfile.TemporaryDirectory(prefix="sluice-offline-") as directory:
        try:
            if not local:
                spark.sparkContext.addPyFile(str(_packed(Path(directory))))
                spark.range(1).count()  # which waits for the first executor
            set_partitions(spark, options)
            yield spark
        finally:
            spark.stop()


def set_partitions(spark: SparkSession, options: SparkOptions) -> None:
    """Set the number of shuffle partitions by the cores that Spark has now.

    A cluster's executors register one after the other, after the session's start; until then few cores are known.
    """
    if not options.partitions:
        spark.conf.set("spark.sql.shuffle.partitions", str(_PARTITIONS_A_CORE * cores(spark)))


def cores(spark: SparkSession) -> int:
    """Return the number of tasks that run simultaneously."""
    return max(1, int(spark.sparkContext.defaultParallelism))


def java_options(environment: Mapping[str, str], *, local: bool, verbose: bool) -> list[str]:
    """Return the options of the driver's JVM.

    In local mode, where the driver does all of the work, they select the parallel garbage collector, with which a stage
    takes a tenth less time than with the default, G1. They do not if `environment` selects a collector already: with
    two, the JVM does not start.

    >>> java_options({}, local=True, verbose=True)
    ['-XX:+UseParallelGC']
    >>> java_options({"JAVA_TOOL_OPTIONS": "-Xss1m -XX:+UseZGC"}, local=True, verbose=True)
    []
    """
    found = [] if verbose else [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"]
    chosen = any(_COLLECTOR.search(environment.get(name, "")) for name in _JVM_VARIABLES)
    if local and not chosen:
        found.append("-XX:+UseParallelGC")
    return found


def _settings(options: SparkOptions, *, local: bool) -> dict[str, str]:
    found = {
        "spark.driver.memory": options.driver_memory,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Rows that go to Python in one batch: large enough that the batch's own cost does not count.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN" if options.verbose else "ERROR",
    }
    java = java_options(os.environ, local=local, verbose=options.verbose)
    if java:
        found["spark.driver.extraJavaOptions"] = " ".join(java)
    if local:
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if options.partitions:
        found["spark.sql.shuffle.partitions"] = str(options.partitions)
    if options.spill:
        found["spark.local.dir"] = options.spill
    if options.jars:
        jars = sorted(str(jar) for jar in Path(options.jars).glob("*.jar"))
        if not jars:
            raise SetupError(f"{options.jars} has no jars: run `make spark-jars`")
        found["spark.jars"] = ",".join(jars)
    return found


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise SetupError(f"JAVA_HOME is {home}, and there is no bin/java: Spark needs Java 17 or newer")
    if not home and shutil.which("java") is None:
        raise SetupError("java is not on the PATH and JAVA_HOME is not set: Spark needs Java 17 or newer")


def _packed(directory: Path) -> Path:
    """Write Sluice's packages to an archive; workers fetch it at their start, so it must stay as long as Spark runs."""
    archive = directory / "sluice-offline.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for package in _PACKAGES:
            for file in sorted((_ROOT / package).rglob("*.py")):
                packed.write(file, file.relative_to(_ROOT))
    return archive


@contextmanager
def held_interrupt() -> Iterator[None]:
    """Delay the first Ctrl-C until the block ends; a second one interrupts immediately.

    A handler that the block installs stays: PySpark installs its own as soon as there is a JVM that it can stop.

    Raises:
        KeyboardInterrupt: at the end of the block, if there was an interrupt in it.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    held = False

    def hold(_number: int, _frame: FrameType | None) -> None:
        nonlocal held
        held = True
        signal.signal(signal.SIGINT, before)
        sys.stderr.write("sluice-offline: ending once Spark has started; Ctrl-C again ends at once\n")

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is hold:
            signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def is_noise(line: bytes) -> bool:
    """Whether a line that the JVM logs is of no use to an operator, so that it is not shown.

    >>> is_noise(b"WARNING: Using incubator modules: jdk.incubator.vector"), is_noise(b"12:00:00 ERROR Disk: full")
    (True, False)
    """
    return line.startswith(_NOISE)


def is_not_py4j(record: logging.LogRecord) -> bool:
    """Return False for py4j's log records: a logging filter, since py4j also raises each error that it logs."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def without_noise() -> Iterator[None]:
    """Drop irrelevant lines (`is_noise`) from the standard error of processes started in this block, while they run."""
    reading, writing = os.pipe()
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_copy, args=(reading, os.dup(kept)), name="stderr", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, _STDERR)
        os.close(kept)


def _copy(reading: int, target: int) -> None:
    """Copy the relevant lines until the last writer has closed the pipe."""
    with os.fdopen(reading, "rb") as source, os.fdopen(target, "wb", buffering=0) as out:
        for line in source:
            if not is_noise(line):
                out.write(line)


@contextmanager
def progress(context: SparkContext, stage: str, *, wanted: bool | None) -> Iterator[None]:
    """Show a progress bar of Spark's tasks while the block runs.

    Args:
        stage: the name of the stage, to show beside the bar.
        wanted: whether to show it; None for only on a terminal.
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_watch, args=(context, stage, done), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=5)


def _watch(context: SparkContext, stage: str, done: threading.Event) -> None:
    tracker = context.statusTracker()
    tasks: dict[int, tuple[int, int]] = {}  # by Spark stage: finished, altogether
    with tqdm(desc=stage, unit="task", leave=False, dynamic_ncols=True) as bar:
        while not done.wait(_PROGRESS_SECONDS):
            for number in tracker.getActiveStageIds():
                info = tracker.getStageInfo(number)
                if info is not None:
                    tasks[number] = (info.numCompletedTasks, info.numTasks)
            active = set(tracker.getActiveStageIds())
            for number, (_, total) in tasks.items():
                if number not in active:
                    tasks[number] = (total, total)
            bar.total = sum(total for _, total in tasks.values()) or None
            bar.n = sum(finished for finished, _ in tasks.values())
            bar.refresh()
        bar.n = bar.total or 0
        bar.refresh()
