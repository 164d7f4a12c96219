"""The arguments of the stages of `sluice-offline`, their defaults and their validation."""

import argparse
from collections.abc import Callable
from typing import Final

from offline.options import BY, Goal, IngestOptions, current_scope
from quotas.definitions.toml_file import parse_limit
from quotas.errors import DefinitionError
from quotas.options import EngineOptions


def spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for Spark's master and resources; every stage except `apply` has them."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", default="local[*]", help="where Spark runs; local[*] is all cores here")
    group.add_argument("--driver-memory", default="2g", help="memory of the JVM; Python's own is not in it")
    group.add_argument(
        "--partitions", type=_count, default=0, help="partitions of shuffles; by default four a core"
    )
    group.add_argument(
        "--spill", default="", metavar="DIR", help="where shuffles spill to (default: Spark's)"
    )
    group.add_argument(
        "--jars", default="", metavar="DIR", help="jars of Spark's Kafka source (make spark-jars)"
    )
    group.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, help="progress bars; by default on a terminal"
    )
    group.add_argument(
        "--verbose", action="store_true", help="also show what Java and Spark log, not only errors"
    )


def _work_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs=1, metavar="DIR", help="work directory with the previous stages")
    parser.add_argument(
        "--output", default="", metavar="DIR", help="work directory to write to; by default that of --input"
    )


def _ingest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs="+", metavar="CAPTURE", help="capture directories or files")
    parser.add_argument("--output", required=True, metavar="DIR", help="work directory")
    parser.add_argument("--kafka", default="", metavar="HOST:PORT", help="brokers, to read a topic instead")
    parser.add_argument("--topic", default="", help="the topic: each record is one row as JSON")
    parser.add_argument("--by", choices=BY, default="client-id", help="quota entity that makes a client")
    parser.add_argument(
        "--lenient", action="store_true", help="leave out files and rows that cannot be read, and name them"
    )
    parser.add_argument(
        "--exclude", default=IngestOptions().exclude, metavar="REGEX", help="client ids to leave out"
    )


def _backtest_options(parser: argparse.ArgumentParser) -> None:
    defaults = EngineOptions()
    # The first choice is the default, and a gateway's.
    for name, value, text in (
        ("--policy", ("schedule", "kip13"), "quota policy to replay the requests through"),
        ("--scope", ("cluster", "broker"), "whether a quota holds over all brokers, or at each of them"),
    ):
        parser.add_argument(name, choices=value, type=current_scope, default=value[0], help=text)
    parser.add_argument(
        "--candidates", type=_candidates, default=20, help="number of quotas to try for each direction"
    )
    for name in ("produce", "fetch"):
        parser.add_argument(
            f"--{name}-quotas",
            default="",
            metavar="RATE,...",
            help=f"{name} quotas to try, instead of candidates",
        )
    parser.add_argument(
        "--heavy", type=_count, default=10, help="number of the busiest clients that may get an override"
    )
    for name, seconds, text in (
        ("--burst-seconds", defaults.burst_seconds, "burst of the policy schedule, in seconds of quota"),
        ("--hold-seconds-max", defaults.hold_seconds_max, "longest hold of a request"),
        ("--mute-seconds-max", defaults.mute_seconds_max, "longest mute of a connection"),
    ):
        parser.add_argument(name, type=_positive, default=seconds, metavar="SECONDS", help=text)


def _recommend_options(parser: argparse.ArgumentParser) -> None:
    goal = Goal()
    for name, text in (
        ("--capacity-in", "bytes/s that a broker can take from clients"),
        ("--capacity-out", "bytes/s that a broker can send to clients"),
        ("--network", "network bandwidth of a broker, for the replication throttle"),
    ):
        parser.add_argument(name, type=_rate, metavar="RATE", help=text)
    for name, kind, default, metavar, text in (
        (
            "--throttled-share",
            _share,
            goal.throttled_share,
            "SHARE",
            "share of the clients that may be throttled",
        ),
        ("--overrides", _count, goal.overrides, "NUMBER", "largest number of overrides"),
        ("--headroom", _positive, goal.headroom, "FACTOR", "quota in proportion to what a client needs"),
        ("--tolerance", _share, goal.tolerance, "SHARE", "share of the time that counts as no throttling"),
        ("--replication-factor", _positive, goal.replication_factor, "NUMBER", "replicas of the topics"),
        ("--sample", _sample, goal.sample, "SHARE", "share of the connections that was captured"),
    ):
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)


def _backtest_arguments(parser: argparse.ArgumentParser) -> None:
    _work_arguments(parser)
    _backtest_options(parser)


def _recommend_arguments(parser: argparse.ArgumentParser) -> None:
    _work_arguments(parser)
    _recommend_options(parser)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _ingest_arguments(parser)
    _backtest_options(parser)
    _recommend_options(parser)


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", required=True, metavar="DIR", help="work directory with a recommendation")
    parser.add_argument(
        "--quotas-file", default="", metavar="FILE", help="quotas file of the proxy to change"
    )
    parser.add_argument(
        "--bootstrap-server",
        default="",
        metavar="HOST:PORT",
        help="Sluice or brokers, to change by AlterClientQuotas",
    )
    parser.add_argument("--ca-file", default="", metavar="FILE", help="certificates to trust, for TLS")
    parser.add_argument("--dry-run", action="store_true", help="show the difference and change nothing")
    parser.add_argument(
        "--steps",
        type=_count,
        default=1,
        help="number of steps from what clients use today to the recommendation",
    )
    parser.add_argument("--step", type=_count, default=0, help="the step to take; by default the last")


ARGUMENTS: Final[dict[str, Callable[[argparse.ArgumentParser], None]]] = {
    "ingest": _ingest_arguments,
    "demand": _work_arguments,
    "backtest": _backtest_arguments,
    "recommend": _recommend_arguments,
    "report": _work_arguments,
    "apply": _apply_arguments,
    "run": _run_arguments,
}


def _rate(text: str) -> float:
    try:
        found = parse_limit(text, "")
    except DefinitionError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 50M") from error
    if found <= 0:
        raise argparse.ArgumentTypeError("a rate must be above 0")
    return found


def _share(text: str) -> float:
    found = float(text)
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text} must be between 0 and 1")
    return found


def _sample(text: str) -> float:
    found = _share(text)
    if not found:
        raise argparse.ArgumentTypeError("a sample must be above 0")
    return found


def _positive(text: str) -> float:
    found = float(text)
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"{text} must not be below 0")
    return found


def _count(text: str) -> int:
    found = int(text)
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text} must not be below 0")
    return found


def _candidates(text: str) -> int:
    found = int(text)
    if not 2 <= found <= 200:
        raise argparse.ArgumentTypeError(f"{text} must be between 2 and 200")
    return found
