"""What the stages of `sluice-offline` can be told: arguments, their defaults, and what is no value for them."""

import argparse
from collections.abc import Callable
from typing import Final

from offline.options import BY, Goal, IngestOptions
from quotas.definitions_file import parse_amount
from quotas.errors import DefinitionError
from quotas.options import EngineOptions

__all__ = ["ARGUMENTS", "spark_arguments"]


def spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Where Spark runs and what it may take; every stage but `apply` has these."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default="local[*]", help="where it runs (local[*]: all of this machine's cores)"
    )
    group.add_argument("--driver-memory", default="2g", help="of the JVM; Python's own comes on top")
    group.add_argument("--partitions", type=_count, default=0, help="of shuffles; by default four a core")
    group.add_argument("--spill", default="", metavar="DIR", help="where shuffles spill to")
    group.add_argument(
        "--jars", default="", metavar="DIR", help="jars of Spark's Kafka source (make spark-jars)"
    )
    group.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, help="bars; by default on a terminal"
    )
    group.add_argument(
        "--verbose", action="store_true", help="also show what Java and Spark log, not only errors"
    )


def _work_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs=1, metavar="DIR", help="work directory with the stages before")
    parser.add_argument(
        "--output", default="", metavar="DIR", help="work directory to write to; by default the same"
    )


def _ingest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs="+", metavar="CAPTURE", help="capture directories or files")
    parser.add_argument("--output", required=True, metavar="DIR", help="work directory")
    parser.add_argument("--kafka", default="", metavar="HOST:PORT", help="read a topic instead")
    parser.add_argument("--topic", default="", help="one row as JSON in each record")
    parser.add_argument("--by", choices=BY, default="client-id", help="what makes a client: the quota entity")
    parser.add_argument("--lenient", action="store_true", help="leave bad files and rows out, and name them")
    parser.add_argument(
        "--exclude", default=IngestOptions().exclude, metavar="REGEX", help="client ids that are no clients"
    )


def _backtest_options(parser: argparse.ArgumentParser) -> None:
    defaults = EngineOptions()
    parser.add_argument("--policy", choices=("kip13", "schedule"), default="kip13")
    parser.add_argument("--scope", choices=("broker", "gateway"), default="broker")
    parser.add_argument("--candidates", type=_candidates, default=20, help="how many quotas to try each way")
    parser.add_argument("--produce-quotas", default="", metavar="RATE,...", help="try these instead")
    parser.add_argument("--fetch-quotas", default="", metavar="RATE,...", help="try these instead")
    parser.add_argument("--heavy", type=_count, default=10, help="clients that may get an override")
    parser.add_argument("--burst-seconds", type=_positive, default=defaults.burst_seconds)
    parser.add_argument("--hold-seconds-max", type=_positive, default=defaults.hold_seconds_max)
    parser.add_argument("--mute-seconds-max", type=_positive, default=defaults.mute_seconds_max)


def _recommend_options(parser: argparse.ArgumentParser) -> None:
    goal = Goal()
    parser.add_argument(
        "--capacity-in", type=_rate, metavar="RATE", help="what a broker can take from clients"
    )
    parser.add_argument(
        "--capacity-out", type=_rate, metavar="RATE", help="what a broker can give to clients"
    )
    parser.add_argument("--throttled-share", type=_share, default=goal.throttled_share, metavar="SHARE")
    parser.add_argument("--overrides", type=_count, default=goal.overrides, help="at most so many")
    parser.add_argument("--headroom", type=_positive, default=goal.headroom, help="above what a client needs")
    parser.add_argument(
        "--tolerance", type=_share, default=goal.tolerance, help="share of the time that is no throttling"
    )
    parser.add_argument(
        "--network", type=_rate, metavar="RATE", help="of a broker, for the replication throttle"
    )
    parser.add_argument("--replication-factor", type=_positive, default=goal.replication_factor)
    parser.add_argument("--sample", type=_sample, default=goal.sample, help="share of connections captured")


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
    parser.add_argument("--quotas-file", default="", metavar="FILE", help="the proxy's quotas file")
    parser.add_argument("--bootstrap-server", default="", metavar="HOST:PORT", help="by AlterClientQuotas")
    parser.add_argument("--ca-file", default="", metavar="FILE", help="speak TLS, and trust these")
    parser.add_argument("--dry-run", action="store_true", help="show the difference, change nothing")
    parser.add_argument("--steps", type=_count, default=1, help="down from what clients use today")
    parser.add_argument("--step", type=_count, default=0, help="which of them; by default the last")


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
        found = parse_amount(text, "")
    except DefinitionError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 50M") from error
    if found <= 0:
        raise argparse.ArgumentTypeError("a rate is above 0")
    return found


def _share(text: str) -> float:
    found = float(text)
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return found


def _sample(text: str) -> float:
    found = _share(text)
    if not found:
        raise argparse.ArgumentTypeError("a sample is above 0")
    return found


def _positive(text: str) -> float:
    found = float(text)
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return found


def _count(text: str) -> int:
    found = int(text)
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return found


def _candidates(text: str) -> int:
    found = int(text)
    if not 2 <= found <= 200:
        raise argparse.ArgumentTypeError(f"{text} is not between 2 and 200")
    return found
