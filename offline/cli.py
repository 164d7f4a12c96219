"""`sluice-offline STAGE`: arguments to options, one line for an error, exit codes; no logic.

Stages run in this order, separately or all by `run`; their results are in a work directory. Exit codes are those of
`commandline.program`; an error is one line on standard error.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from commandline.amounts import duration
from commandline.arguments import Parser, add_command, add_format, not_installed
from commandline.program import FAILED, NEGATIVE, OK, run_quietly
from offline.errors import InputError, OfflineError, SetupError, reason
from offline.imports import add_parser as add_import
from offline.options import (
    ENGINE_ARGUMENTS,
    ENGINE_DEFAULTS,
    ApplyOptions,
    BacktestOptions,
    CompareOptions,
    EvaluateOptions,
    Goal,
    IngestOptions,
    SparkOptions,
    add_argument,
    add_arguments,
    options_of,
)
from offline.replay import add_parser as add_replay
from quotas.errors import DefinitionError
from quotas.options import EngineOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from offline.store import Store

    Work = Callable[[SparkSession, Store, Store], list[str]]
    """A stage, with the store that it reads and the store that it writes; returns lines for the operator."""

_DESCRIPTION: Final = "From captured traffic to quotas (docs/offline.md)."
_STAGES: Final = {
    "ingest": "read captures",
    "demand": "measure the demand of each client",
    "backtest": "replay the recording through candidate quotas",
    "recommend": "recommend quotas",
    "report": "write a page with the evidence",
    "apply": "write the recommendation to a quotas file or a cluster",
    "compare": "compare the quotas in force with the recommendation; exit code 3 if there is anything to change",
    "run": "run all stages except evaluate, apply and compare",
    "evaluate": "score the advice, and others, on days that they have not seen",
}
_OPTIONS: Final[dict[str, tuple[type, ...]]] = {
    "ingest": (IngestOptions,),
    "backtest": (BacktestOptions,),
    "recommend": (Goal,),
    "apply": (ApplyOptions,),
    "compare": (CompareOptions,),
    "run": (IngestOptions, BacktestOptions, Goal),
    "evaluate": (EvaluateOptions,),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return run_quietly(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        options = parser().parse_args(arguments)
        work: Callable[[argparse.Namespace], int] = options.work
        return work(options)
    except (OfflineError, DefinitionError) as error:
        print(f"sluice-offline: {error}", file=sys.stderr)
        return FAILED
    except Exception as error:
        # Spark's own failures (a disk that is full, memory, a lost executor) are classes that need Spark to be named.
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        print(f"sluice-offline: Spark failed: {reason(error)}", file=sys.stderr)
        return FAILED


def parser() -> argparse.ArgumentParser:
    """Return the parser of `sluice-offline`, with all its commands."""
    program = Parser(prog="sluice-offline", description=_DESCRIPTION)
    commands = program.add_subparsers(required=True, metavar="STAGE")
    for name, text in _STAGES.items():
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        _add_directories(command, name)
        for kind in _OPTIONS.get(name, ()):
            add_arguments(command, kind)
            if kind in (BacktestOptions, EvaluateOptions):
                for field, argument in ENGINE_ARGUMENTS.items():
                    add_argument(command, field, argument, getattr(ENGINE_DEFAULTS, field))
        if name == "compare":
            add_format(command)
        if name in _WITHOUT_SPARK:
            command.set_defaults(work=_WITHOUT_SPARK[name])
        elif name == "evaluate":
            command.set_defaults(work=_evaluate)
            add_arguments(command.add_argument_group("Spark"), SparkOptions)
        else:
            command.set_defaults(work=_run_stages, stage=name)
            add_arguments(command.add_argument_group("Spark"), SparkOptions)
    add_import(commands)
    add_replay(commands)
    add_command(commands, program, "work")
    return program


def _add_directories(command: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments for a stage's work directories."""
    if name in _WITHOUT_SPARK:
        text = "work directory with a recommendation"
        command.add_argument("--input", required=True, metavar="DIR", help=text)
    elif name == "evaluate":
        text = (
            "directory with a recording in each subdirectory: capture files, or a work directory with demand"
        )
        command.add_argument("--input", required=True, metavar="DIR", help=text)
        command.add_argument("--output", required=True, metavar="DIR", help="work directory")
    elif name in ("ingest", "run"):
        command.add_argument("--output", required=True, metavar="DIR", help="work directory")
    else:
        text = "work directory with the previous stages"
        command.add_argument("--input", nargs=1, metavar="DIR", help=text)
        text = "work directory to write to; by default that of --input"
        command.add_argument("--output", default="", metavar="DIR", help=text)


def _run_stages(options: argparse.Namespace) -> int:
    try:
        from offline import inputs
        from offline.session import progress, set_partitions, spark_session
        from offline.store import Store
    except ImportError as error:
        raise _not_installed(error) from error
    names = list(_STAGES)[:5] if options.stage == "run" else [options.stage]
    source_path = options.output if names[0] == "ingest" else (options.input or [options.output])[0]
    if not source_path:
        raise InputError("no work directory is given: use --input DIR")
    # Errors in arguments, directories and files are reported before Spark starts, which takes ten seconds.
    if names[0] == "ingest":
        inputs.check_captures(options.inputs, options.kafka, options.topic)
    else:
        inputs.check_stages(options.stage, source_path)
    inputs.check_output(options.output or source_path)
    works = {name: _work(name, options) for name in names}
    if names[0] == "ingest" and not options.lenient:
        inputs.check_footers(options.inputs)
    spark_options = options_of(SparkOptions, options)
    print(f"starting Spark with master {spark_options.master}", flush=True)
    with spark_session(spark_options) as spark:
        for name, work in works.items():
            print(f"{name}: {_STAGES[name]}", flush=True)
            set_partitions(spark, spark_options)
            source, store = Store(spark, source_path), Store(spark, options.output or source_path)
            begun_s = time.monotonic()
            with progress(spark.sparkContext, name, wanted=spark_options.progress):
                said = work(spark, source, store)
            for line in said:
                print(f"{name}: {line}")
            print(f"{name}: done in {duration(time.monotonic() - begun_s)}", flush=True)
    return OK


def _work(name: str, options: argparse.Namespace) -> "Work":
    """Return a stage with its options; its module is imported now, before Spark starts."""
    if name == "ingest":
        from offline.jobs import ingest

        captures = options_of(IngestOptions, options)
        return lambda spark, _, store: ingest.run(spark, captures, store)
    if name == "backtest":
        from offline.jobs import backtest

        engine = _engine(options)
        headroom = getattr(options, "headroom", Goal().headroom)
        day = getattr(options, "day", Goal().day)
        heavy = max(options.heavy, getattr(options, "overrides", 0))
        wanted = options_of(BacktestOptions, options, engine=engine, headroom=headroom, day=day, heavy=heavy)
        return lambda spark, source, store: backtest.run(spark, wanted, source, store)
    if name == "recommend":
        from offline.jobs import recommend
        from offline.jobs.apply import read_file

        goal = options_of(Goal, options)
        current = read_file(Path(goal.quotas_file))[1] if goal.quotas_file else {}
        return lambda spark, source, store: recommend.run(spark, goal, source, store, current)
    run: Work = importlib.import_module(f"offline.jobs.{name}").run
    return run


def _engine(options: argparse.Namespace) -> EngineOptions:
    return EngineOptions(**{field: getattr(options, field) for field in ENGINE_ARGUMENTS})


def _evaluate(options: argparse.Namespace) -> int:
    try:
        from offline import inputs
        from offline.jobs import evaluate
        from offline.jobs.apply import read_file
        from offline.jobs.capacity import stated
        from offline.session import progress, spark_session
        from offline.store import Store
    except ImportError as error:
        raise _not_installed(error) from error
    spark_options = options_of(SparkOptions, options)
    wanted = options_of(EvaluateOptions, options, engine=_engine(options))
    current = read_file(Path(wanted.quotas_file))[1] if wanted.quotas_file else {}
    quotas = stated(current, Goal(quotas_file=wanted.quotas_file), wanted.engine)
    recordings = inputs.recordings(options.input)
    inputs.check_output(options.output)
    print(f"starting Spark with master {spark_options.master}", flush=True)
    with spark_session(spark_options) as spark:
        print(f"evaluate: {_STAGES['evaluate']}", flush=True)
        begun_s = time.monotonic()
        with progress(spark.sparkContext, "evaluate", wanted=spark_options.progress):
            said = evaluate.run(spark, wanted, recordings, Store(spark, options.output), quotas)
        for line in said:
            print(line)
        print(f"evaluate: done in {duration(time.monotonic() - begun_s)}", flush=True)
    return OK


def _apply(options: argparse.Namespace) -> int:
    try:
        from offline.jobs import apply
    except ImportError as error:
        raise _not_installed(error) from error
    for line in apply.run(options_of(ApplyOptions, options), options.input):
        print(line)
    return OK


def _compare(options: argparse.Namespace) -> int:
    try:
        from offline.jobs import compare
    except ImportError as error:
        raise _not_installed(error) from error
    wanted = options_of(CompareOptions, options)
    lines, changes = compare.run(wanted, options.input, as_json=options.format == "json")
    print("\n".join(lines))
    return NEGATIVE if changes else OK


_WITHOUT_SPARK: Final = {"apply": _apply, "compare": _compare}


def _not_installed(error: ImportError) -> SetupError:
    return SetupError(not_installed(error.name or "a package", "offline"))
