"""`completion SHELL`: print a script with which a shell completes the commands and options of a parser.

shtab makes the script, which is static: completing a word starts no Python. shtab is Sluice's extra `completion`.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

from commandline.exit_codes import FAILED, OK

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

    def run(options: argparse.Namespace) -> int:
        try:
            print(script(parser, options.shell))
        except ModuleNotFoundError as error:
            print(
                f"{parser.prog}: {error.name} is not installed: Sluice's extra `completion` brings it",
                file=sys.stderr,
            )
            return FAILED
        return OK

    command.set_defaults(**{destination: run})


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Make the script.

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
