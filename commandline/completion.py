"""`completion SHELL`: make a script with which a shell completes the commands and options of a parser.

shtab makes the script, which is static: completing a word starts no Python. shtab is Sluice's extra `completion`.
With `--output` the file is written only when there is a script; a shell's `>` leaves an empty file where there is none.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from commandline.exit_codes import FAILED, OK
from commandline.extras import not_installed

__all__ = ["SHELLS", "add_command", "script"]

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
_HELP: Final = "print a script that completes commands and options in a shell"
_FILES: Final = ("FILE", "PATH", "CAPTURE")
_DIRECTORIES: Final = ("DIR",)


def add_command(
    commands: "argparse._SubParsersAction[Any]", parser: argparse.ArgumentParser, destination: str
) -> None:
    """Add the command `completion`.

    Args:
        parser: what is completed: the whole command line.
        destination: the name under which a command's function is in the options.
    """
    command = commands.add_parser("completion", help=_HELP, description=f"{_HELP.capitalize()}.")
    command.add_argument("shell", choices=SHELLS, help="the shell")
    command.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write the script to this file, and make its directory; by default it is printed",
    )

    def run(options: argparse.Namespace) -> int:
        problem = _complete(parser, options.shell, options.output)
        if problem:
            print(f"{parser.prog}: {problem}", file=sys.stderr)
        return FAILED if problem else OK

    command.set_defaults(**{destination: run})


def _complete(parser: argparse.ArgumentParser, shell: str, output: Path | None) -> str:
    """Print or write the script; return why that failed, or ""."""
    try:
        text = script(parser, shell)
    except ModuleNotFoundError:
        return not_installed("shtab", "completion")
    if output is None:
        print(text)
        return ""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        return f"{output}: cannot be written: {error.strerror or error}"
    return ""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script.

    Raises:
        ModuleNotFoundError: shtab is not installed.
    """
    import shtab

    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
        elif action.metavar in _DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # as above
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
