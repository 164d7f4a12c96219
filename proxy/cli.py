"""The command line: arguments -> a command and its options; exit codes. No logic of the proxy's.

    0   all is well: `serve` was told to stop and drained, `check` found nothing wrong
    1   something is wrong, in one line on standard error
    2   the arguments are wrong
    3   `quotas diff` found a difference; `reassign plan` one that would not end

What the commands do is in `proxy.commands`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from proxy.commands import capture, check, quotas, reassign, serve
from proxy.errors import SluiceError, UsageError
from proxy.version import sluice_version

OK: Final = 0
WRONG: Final = 1
USAGE: Final = 2

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the console script's entry point."""
    options = _parser().parse_args(arguments)
    command: Command = options.command
    try:
        return command(options)
    except UsageError as error:
        print(f"sluice: {error}; see sluice --help", file=sys.stderr)
        return USAGE
    except SluiceError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:  # before signals are handled, or in `check`
        return WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice",
        description="A Kafka proxy that throttles clients to their quotas.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sluice {sluice_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(
        commands.add_parser("serve", help="run the proxy", description=serve.DESCRIPTION, allow_abbrev=False)
    )
    _add_check(
        commands.add_parser(
            "check", help="judge a configuration", description=check.DESCRIPTION, allow_abbrev=False
        )
    )
    quotas.add_arguments(
        commands.add_parser(
            "quotas", help="show and change quotas", description=quotas.DESCRIPTION, allow_abbrev=False
        )
    )
    capture.add_arguments(
        commands.add_parser(
            "capture", help="look into captures", description=capture.DESCRIPTION, allow_abbrev=False
        )
    )
    reassign.add_arguments(
        commands.add_parser(
            "reassign", help="plan reassignments", description=reassign.DESCRIPTION, allow_abbrev=False
        )
    )
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=serve.run)
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration, TOML")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", help="the brokers (cluster.bootstrap)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the bootstrap port; broker N is then at PORT + 1 + N; instead of [[listeners]]",
    )
    parser.add_argument(
        "--advertised-host",
        metavar="HOST",
        help="the host clients connect to, where it is not that of --listen",
    )
    parser.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="ENTITY,KEY=VALUE",
        help="a quota, as client-id=a,producer_byte_rate=2000000; <default> for all others; may be repeated",
    )
    parser.add_argument(
        "--quotas-file",
        type=Path,
        metavar="FILE",
        help="the quotas, TOML; kafka-configs --alter changes this file (quotas.file)",
    )
    parser.add_argument("--policy", metavar="NAME", help="kip13 or schedule (quotas.policy)")
    parser.add_argument("--mode", metavar="NAME", help="enforce or observe (quotas.mode)")
    parser.add_argument("--scope", metavar="NAME", help="broker or gateway (quotas.scope)")
    parser.add_argument("--admin", metavar="HOST:PORT", help='where /metrics is (admin.bind); "" for nowhere')
    parser.add_argument("--log-level", metavar="NAME", help="debug, info, warning or error (log.level)")
    parser.add_argument("--log-format", metavar="NAME", help="text or json (log.format)")


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=check.run)
    parser.add_argument("--config", type=Path, metavar="FILE", required=True, help="the configuration, TOML")
    parser.add_argument("--offline", action="store_true", help="do not try to reach the cluster")
