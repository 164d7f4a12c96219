"""`sluice-offline STAGE`: arguments to options, one line for an error, exit codes; no logic.

Stages run in this order, separately or all by `run`; their results are in a work directory. Exit codes are those of
`commandline.program`; an error is one line on standard error.
"""

import argparse
import importlib
import importlib.util
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from commandline import arguments as completion
from commandline.amounts import duration
from commandline.arguments import Parser, not_installed
from commandline.program import FAILED, OK, run_quietly
from offline.arguments import ARGUMENTS, spark_arguments
from offline.errors import InputError, OfflineError, SetupError, reason
from offline.noise import is_not_py4j
from offline.options import ApplyOptions, BacktestOptions, Goal, IngestOptions, SparkOptions
from quotas.definitions.toml_file import parse_limit
from quotas.errors import DefinitionError
from quotas.options import EngineOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from offline.store import Store


_DESCRIPTION: Final = "From captured traffic to quotas (docs/offline.md)."
_STAGES: Final = {
    "ingest": "read captures",
    "demand": "measure the demand of each client",
    "backtest": "replay the recording through candidate quotas",
    "recommend": "recommend quotas",
    "report": "write a page with the evidence",
    "apply": "write the recommendation to a quotas file or a cluster",
    "run": "run all stages except apply",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return run_quietly(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    try:
        work: Callable[[argparse.Namespace], int] = options.work
        return work(options)
    except OfflineError as error:
        print(f"sluice-offline: {error}", file=sys.stderr)
        return FAILED
    except DefinitionError as error:
        print(f"sluice-offline: {error}", file=sys.stderr)
        return FAILED
    except Exception as error:
        # Spark's own failures (a disk that is full, memory, a lost executor) are classes that need Spark to be named.
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        print(f"sluice-offline: Spark failed: {reason(error)}", file=sys.stderr)
        return FAILED


def parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    program = Parser(prog="sluice-offline", description=_DESCRIPTION)
    commands = program.add_subparsers(required=True, metavar="STAGE")
    for name, text in _STAGES.items():
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        ARGUMENTS[name](command)
        if name == "apply":
            command.set_defaults(work=_apply)
        else:
            command.set_defaults(work=_run_stages, stage=name)
            spark_arguments(command)
    _add_replay(commands)
    completion.add_command(commands, program, "work")
    return program


def _add_replay(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add `replay`, which has its own arguments and does not need Spark."""
    if importlib.util.find_spec("offline.replay") is not None:
        replay = importlib.import_module("offline.replay")
        replay.add_parser(commands).set_defaults(work=replay.main)


def _run_stages(options: argparse.Namespace) -> int:
    try:
        from offline import preflight
        from offline.progress import shown
        from offline.session import spark_session
        from offline.store import Store
    except ImportError as error:
        raise _not_installed(error) from error
    names = list(_STAGES)[:5] if options.stage == "run" else [options.stage]
    # Errors in arguments, directories and files are reported before Spark starts, which takes ten seconds.
    if names[0] == "ingest":
        preflight.check_captures(options.input or (), options.kafka, options.topic)
    else:
        preflight.check_stages(options.stage, _source(options))
    preflight.check_output(options.output or _source(options))
    works = {name: _WORK[name](options) for name in names}
    if names[0] == "ingest" and not options.lenient:
        preflight.check_footers(options.input or ())
    logging.getLogger("py4j").setLevel(logging.ERROR)
    if not options.verbose:
        logging.getLogger().addFilter(is_not_py4j)
    spark_options = _spark_options(options)
    print(f"starting Spark with master {spark_options.master}", flush=True)
    with spark_session(spark_options) as spark:
        for name, work in works.items():
            print(f"{name}: {_STAGES[name]}", flush=True)
            source, store = Store(spark, _source(options)), Store(spark, options.output or _source(options))
            begun_s = time.monotonic()
            with shown(spark.sparkContext, name, wanted=spark_options.progress):
                said = work(spark, source, store)
            for line in said:
                print(f"{name}: {line}")
            print(f"{name}: done in {duration(time.monotonic() - begun_s)}", flush=True)
    return OK


def _source(options: argparse.Namespace) -> str:
    """The work directory that a stage reads; for a stage that reads captures, the one that it writes."""
    directories = [] if options.stage in ("ingest", "run") else options.input or []
    found: str = (directories or [options.output])[0]
    if not found:
        raise InputError("no work directory is given: use --input DIR")
    return found


def _ingest(options: argparse.Namespace) -> "Work":
    from offline.jobs import ingest

    wanted = IngestOptions(
        inputs=tuple(options.input or ()),
        kafka=options.kafka,
        topic=options.topic,
        by=options.by,
        lenient=options.lenient,
        exclude=options.exclude,
    )
    return lambda spark, _, store: ingest.run(spark, wanted, store)


def _demand(options: argparse.Namespace) -> "Work":  # noqa: ARG001 - every stage is called alike
    from offline.jobs import demand

    return demand.run


def _backtest(options: argparse.Namespace) -> "Work":
    from offline.jobs import backtest

    engine = EngineOptions(
        policy=options.policy,
        scope=options.scope,
        burst_seconds=options.burst_seconds,
        hold_seconds_max=options.hold_seconds_max,
        mute_seconds_max=options.mute_seconds_max,
    )
    wanted = BacktestOptions(
        engine=engine,
        candidates=options.candidates,
        produce=_rates(options.produce_quotas, "--produce-quotas"),
        fetch=_rates(options.fetch_quotas, "--fetch-quotas"),
        headroom=getattr(options, "headroom", Goal().headroom),
        heavy=max(options.heavy, getattr(options, "overrides", 0)),
    )
    return lambda spark, source, store: backtest.run(spark, wanted, source, store)


def _recommend(options: argparse.Namespace) -> "Work":
    from offline.jobs import recommend

    goal = Goal(
        capacity_in=options.capacity_in,
        capacity_out=options.capacity_out,
        throttled_share=options.throttled_share,
        overrides=options.overrides,
        headroom=options.headroom,
        tolerance=options.tolerance,
        network=options.network,
        replication_factor=options.replication_factor,
        sample=options.sample,
    )
    return lambda spark, source, store: recommend.run(spark, goal, source, store)


def _report(options: argparse.Namespace) -> "Work":  # noqa: ARG001 - every stage is called alike
    from offline.jobs import report

    return report.run


def _apply(options: argparse.Namespace) -> int:
    try:
        from offline.jobs import apply
    except ImportError as error:
        raise _not_installed(error) from error
    wanted = ApplyOptions(
        quotas_file=options.quotas_file,
        bootstrap=options.bootstrap_server,
        dry_run=options.dry_run,
        step=options.step or options.steps,
        steps=options.steps,
        ca_file=options.ca_file,
    )
    if not 1 <= wanted.step <= wanted.steps:
        raise InputError(f"--step must be between 1 and {wanted.steps}, not {wanted.step}")
    for line in apply.run(wanted, options.input):
        print(line)
    return OK


def _not_installed(error: ImportError) -> SetupError:
    return SetupError(not_installed(error.name or "a package", "offline"))


Work = Callable[["SparkSession", "Store", "Store"], list[str]]
_WORK: Final[dict[str, Callable[[argparse.Namespace], Work]]] = {
    "ingest": _ingest,
    "demand": _demand,
    "backtest": _backtest,
    "recommend": _recommend,
    "report": _report,
}


def _spark_options(options: argparse.Namespace) -> SparkOptions:
    return SparkOptions(
        master=options.master,
        driver_memory=options.driver_memory,
        partitions=options.partitions,
        local_directory=options.spill,
        jars=options.jars,
        progress=sys.stderr.isatty() if options.progress is None else options.progress,
        verbose=options.verbose,
    )


def _rates(text: str, path: str) -> tuple[float, ...]:
    found = tuple(sorted({parse_limit(part, path) for part in filter(None, text.split(","))}))
    if any(rate <= 0 for rate in found):
        raise InputError(f"{path}: a quota must be above 0")
    return found
