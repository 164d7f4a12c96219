"""Arguments that behave alike in every command: help shows defaults, and an old spelling works with a warning."""

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from commandline.program import FAILED, OK

FORMATS: Final = ("table", "json")


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Adds the default to the help of each option that takes a value, unless the help names it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        if not action.option_strings or action.nargs == 0 or action.required or "default" in text:
            return text
        if action.default is argparse.SUPPRESS:
            return text
        is_none = action.default is None or action.default in ("", [], ())
        return f"{text} (default: {'none' if is_none else '%(default)s'})"


class Parser(argparse.ArgumentParser):
    """The parser of a command or subcommand: options cannot be abbreviated, and the help shows their defaults.

    `program` in the parsed options is the command as typed, without its arguments, for messages that name `--help`.
    Unknown arguments are reported with the usage of that command; argparse itself shows the whole program's.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **options})
        self.set_defaults(program=self.prog)

    def parse_args(  # type: ignore[override]  # argparse overloads it for namespaces of other classes
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse the arguments; print the usage of the command and exit if one is unknown."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = next(one for one in commands(self) if one.prog == options.program)
            command.error(f"unknown arguments: {' '.join(unknown)}{_guess(command, unknown)}")
        return options


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser, then those of its subcommands, of their subcommands, and so on."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from commands(command)


def _guess(command: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Return a hint at the option that is most like the first unknown one; "" if none is."""
    known = [
        option
        for action in command._actions
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    ]
    first = next((argument for argument in unknown if argument.startswith("--")), "")
    close = get_close_matches(first.partition("=")[0], known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


class OldSpelling(argparse.Action):
    """An option as an earlier release spelled it: it sets the new option, warns, and is not in the help.

    Args:
        const: the value that it gives to the new option.
        instead: the new spelling, for the warning.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, *, const: object, instead: str) -> None:
        super().__init__(
            option_strings, dest, nargs=0, const=const, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        self._instead = instead

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: object,
        option_string: str | None = None,
    ) -> None:
        """Store the new option's value, and print a warning."""
        warn_old_spelling(parser.prog, option_string or "", self._instead)
        setattr(namespace, self.dest, self.const)


def warn_old_spelling(program: str, old: str, instead: str) -> None:
    """Print on standard error that `old` is an old spelling, and that `instead` is the new one."""
    print(f"{program}: warning: {old} is an old spelling: use {instead}", file=sys.stderr)


def add_format(parser: argparse.ArgumentParser, *, json_was: bool = False) -> None:
    """Add `--format table|json`; with `json_was` also `--json`, the old spelling of `--format json`."""
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="format of the output")
    if json_was:
        add_old_json(parser)


def print_result(form: str, document: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print a command's result: the document if `form` (the value of `--format`) is "json", else the lines."""
    if form == "json":
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(lines))


def add_old_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, the spelling of `--format json` in an earlier release."""
    parser.add_argument("--json", action=OldSpelling, dest="format", const="json", instead="--format json")


# ----------------------------------------------------------------------------------------------------
# The message about a missing package of one of Sluice's extras. Each extra of pyproject.toml, other than earlier names,
# has a lock file of its name under requirements/, which holds what the proxy needs too.


def not_installed(package: str, extra: str) -> str:
    """Return the message that a package is missing, with the commands that install its extra, alone or by a lock.

    Args:
        package: its name on the package index.
        extra: the optional dependency group (extra) of Sluice that contains it.
    """
    pip = f"{shlex.quote(sys.executable)} -m pip"
    return (
        f"{package} is not installed; it is in Sluice's extra {extra}: {pip} install 'kafka-sluice[{extra}]', "
        f"or in the directory of a release: {pip} install -r requirements-{extra}.txt, "
        f"or in a checkout: {pip} install --require-hashes -r requirements/{extra}.txt"
    )


# ----------------------------------------------------------------------------------------------------
# `completion SHELL`: make a script with which a shell completes the commands and options of a parser. shtab, which is
# in Sluice's extra `operator`, makes the script, which is static: completing a word starts no Python. With `--output`
# the file is written only when there is a script; a shell's `>` leaves an empty file where there is none.


SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
_HELP: Final = "print a script that completes commands and options in a shell"
_FILES: Final = ("FILE", "PATH", "CAPTURE")
_DIRECTORIES: Final = ("DIR",)


def add_command(
    commands: "argparse._SubParsersAction[Any]", parser: argparse.ArgumentParser, destination: str
) -> None:
    """Add the command `completion`, which prints or writes a shell's completion script.

    Args:
        parser: the parser of the whole command line.
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
    """Print the completion script, or write it to a file; returns why that failed, or ""."""
    try:
        text = script(parser, shell)
    except ModuleNotFoundError:
        return not_installed("shtab", "operator")
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
    """Return the completion script of a shell.

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
