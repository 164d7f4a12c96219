"""The command line: parses arguments and runs a command. No logic of the proxy.

Exit codes are those of `commandline.program`; what the commands do is in `proxy.commands`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from commandline import arguments
from commandline.arguments import Parser
from commandline.program import FAILED, USAGE, run_quietly
from proxy.commands import (
    capture,
    check,
    console,
    enforcement,
    explain,
    fleet,
    quotas,
    reassign,
    serve,
    size,
    top,
)
from proxy.system.errors import SluiceError, UsageError, sluice_version

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; return its exit code.

    Args:
        argv: the arguments; None for those of the process.
    """
    return run_quietly(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    options = parser().parse_args(argv)
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
    """Create the parser of `sluice`, with all of its commands and their arguments."""
    program = Parser(prog="sluice", description="A Kafka proxy that throttles clients to their quotas.")
    program.add_argument("--version", action="version", version=f"sluice {sluice_version()}")
    commands = program.add_subparsers(required=True, metavar="COMMAND")
    for name, module, text in (
        ("serve", serve, "run the proxy"),
        ("check", check, "validate a configuration"),
        ("quotas", quotas, "show and change quotas"),
        ("capture", capture, "inspect and record captures"),
        ("reassign", reassign, "plan and watch reassignments"),
        ("fleet", fleet, "show a fleet's members and shares"),
        ("explain", explain, "show why a client waits"),
        ("enforcement", enforcement, "switch all enforcement off or on"),
        ("console", console, "show clients on a web page"),
        ("top", top, "show all clients in the terminal, live"),
        ("size", size, "estimate what a load needs"),
    ):
        module.add_arguments(commands.add_parser(name, help=text, description=module.DESCRIPTION))
    arguments.add_command(commands, program, "command")
    return program
