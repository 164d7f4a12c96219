"""The command line: parses arguments and runs a command. No logic of the proxy.

Exit codes are those of `commandline.program`; what the commands do is in `proxy.commands`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from commandline import arguments as completion
from commandline.arguments import Parser, add_format, warn_old_spelling
from commandline.program import FAILED, USAGE, run_quietly
from proxy.commands import capture, check, console, enforcement, explain, fleet, quotas, reassign, serve, top
from proxy.config import (
    LOG_FORMATS,
    LOG_LEVELS,
    OLD_SCOPE,
    AdminOptions,
    LogOptions,
    ProcessOptions,
    QuotaSettings,
)
from proxy.system.errors import SluiceError, UsageError, sluice_version
from quotas.options import Mode, Policy, Scope

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the console script's entry point."""
    return run_quietly(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    command: Command = options.command
    try:
        return command(options)
    except UsageError as error:
        print(f"sluice: {error}; see {options.program} --help", file=sys.stderr)
        return USAGE
    except SluiceError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return FAILED


def parser() -> argparse.ArgumentParser:
    """Create the parser of all commands."""
    program = Parser(prog="sluice", description="A Kafka proxy that throttles clients to their quotas.")
    program.add_argument("--version", action="version", version=f"sluice {sluice_version()}")
    commands = program.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="run the proxy", description=serve.DESCRIPTION))
    _add_check(commands.add_parser("check", help="validate a configuration", description=check.DESCRIPTION))
    quotas.add_arguments(
        commands.add_parser("quotas", help="show and change quotas", description=quotas.DESCRIPTION)
    )
    capture.add_arguments(
        commands.add_parser("capture", help="inspect and record captures", description=capture.DESCRIPTION)
    )
    reassign.add_arguments(
        commands.add_parser("reassign", help="plan and watch reassignments", description=reassign.DESCRIPTION)
    )
    fleet.add_arguments(
        commands.add_parser("fleet", help="show a fleet's members and shares", description=fleet.DESCRIPTION)
    )
    explain.add_arguments(
        commands.add_parser("explain", help="show why a client waits", description=explain.DESCRIPTION)
    )
    enforcement.add_arguments(
        commands.add_parser(
            "enforcement", help="switch all enforcement off or on", description=enforcement.DESCRIPTION
        )
    )
    console.add_arguments(
        commands.add_parser("console", help="show clients on a web page", description=console.DESCRIPTION)
    )
    top.add_arguments(
        commands.add_parser("top", help="show all clients in the terminal, live", description=top.DESCRIPTION)
    )
    completion.add_command(commands, program, "command")
    return program


def _add_serve(parser: argparse.ArgumentParser) -> None:
    quota, process, admin, log = QuotaSettings(), ProcessOptions(), AdminOptions(), LogOptions()
    parser.set_defaults(command=serve.run)
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration, TOML")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", help="the brokers (cluster.bootstrap)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the bootstrap port; broker N is then at PORT + 1 + N; replaces [[listeners]]",
    )
    parser.add_argument(
        "--advertised-host",
        metavar="HOST",
        help="the host that clients connect to (default: the host of --listen)",
    )
    parser.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="ENTITY,KEY=VALUE",
        help="a quota, for example client-id=a,producer_byte_rate=2000000; <default> names the default entity; "
        "may be repeated",
    )
    parser.add_argument(
        "--quotas-file",
        type=Path,
        metavar="FILE",
        help="the quotas, TOML; kafka-configs --alter changes this file (quotas.file)",
    )
    for option, choices, text, key, default in (
        ("--policy", get_args(Policy), "how quotas are measured", "quotas.policy", quota.policy),
        ("--mode", get_args(Mode), "whether quotas are enforced", "quotas.mode", quota.mode),
        (
            "--scope",
            get_args(Scope),
            "where a quota holds: at each broker, or once",
            "quotas.scope",
            "cluster",
        ),
        ("--log-level", LOG_LEVELS, "the least that is logged", "log.level", log.level),
        ("--log-format", LOG_FORMATS, "how it is written", "log.format", log.format),
    ):
        kind = _scope if option == "--scope" else str
        parser.add_argument(option, type=kind, choices=choices, help=f"{text} ({key}; default: {default})")
    for option, metavar, text, key, bare in (
        ("--workers", "NUMBER", "processes that relay, or auto", "process.workers", process.workers),
        ("--admin", "HOST:PORT", 'address of /metrics; "" for none', "admin.bind", admin.bind),
    ):
        parser.add_argument(option, metavar=metavar, help=f"{text} ({key}; default: {bare})")


def _scope(text: str) -> str:
    """Return the present name of a scope; print a warning for the name of an earlier release."""
    if text != OLD_SCOPE:
        return text
    warn_old_spelling("sluice serve", f"--scope {OLD_SCOPE}", "--scope cluster")
    return "cluster"


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=check.run)
    parser.add_argument("--config", type=Path, metavar="FILE", required=True, help="the configuration, TOML")
    parser.add_argument(
        "--offline",
        action="store_true",
        help="judge the files alone: do not connect to the cluster or the fleet, resolve names, or try ports",
    )
    parser.add_argument(
        "--admin",
        metavar="HOST:PORT",
        help="the admin port of a member of the fleet, or its URL (default: admin.bind of the configuration)",
    )
    add_format(parser)
