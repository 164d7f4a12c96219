"""Arguments that behave alike in every command: help shows defaults, and an old spelling works with a warning."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["FORMATS", "OldSpelling", "Parser", "add_format", "add_old_json", "warn_old_spelling"]

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
    """A parser of a command or of a subcommand: no abbreviations, defaults in its help.

    `program` in the parsed options is the command as typed, without its arguments, for a hint at `--help`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **options})
        self.set_defaults(program=self.prog)


class OldSpelling(argparse.Action):
    """An option of an earlier release: not in the help, and it warns.

    Args:
        const: the value of the new option.
        instead: the new spelling.
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
    """Print a warning with the new spelling on standard error."""
    print(f"{program}: warning: {old} is an old spelling: use {instead}", file=sys.stderr)


def add_format(parser: argparse.ArgumentParser, *, json_was: bool = False) -> None:
    """Add `--format table|json`; `json_was`: an earlier release spelled the second one `--json`."""
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="format of the output")
    if json_was:
        add_old_json(parser)


def add_old_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, the spelling of `--format json` in an earlier release."""
    parser.add_argument("--json", action=OldSpelling, dest="format", const="json", instead="--format json")
