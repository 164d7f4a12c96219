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

    `program` in what it parses is the command as it is typed, without its arguments: whose `--help` says more.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **options})
        self.set_defaults(program=self.prog)


class OldSpelling(argparse.Action):
    """An option of an earlier release: not in the help, and it warns.

    Args:
        const: what it stands for.
        instead: how it is spelled now.
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
        """Take it for what it stands for."""
        warn_old_spelling(parser.prog, option_string or "", self._instead)
        setattr(namespace, self.dest, self.const)


def warn_old_spelling(program: str, old: str, instead: str) -> None:
    """Say on standard error how an option is spelled now."""
    print(f"{program}: warning: {old} is an old spelling: use {instead}", file=sys.stderr)


def add_format(parser: argparse.ArgumentParser, *, json_was: bool = False) -> None:
    """Add `--format table|json`; `json_was`: an earlier release spelled the second one `--json`."""
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="format of the output")
    if json_was:
        add_old_json(parser)


def add_old_json(parser: argparse.ArgumentParser) -> None:
    """Take `--json`, which was how an earlier release spelled `--format json`."""
    parser.add_argument("--json", action=OldSpelling, dest="format", const="json", instead="--format json")
