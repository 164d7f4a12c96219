"""Arguments that every command has alike: defaults in the help, and old spellings."""

import argparse
import re
import shlex
import sys
from pathlib import Path

import pytest

from commandline.arguments import Parser, add_format, commands, not_installed
from offline.cli import parser as offline_parser
from proxy.cli import parser as proxy_parser
from release.build import LOCKS

ALL = [*commands(proxy_parser()), *commands(offline_parser())]


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.prog)
def test_help_has_a_text_and_the_default_of_each_option(parser: argparse.ArgumentParser) -> None:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        text = formatter._expand_help(action)
        assert text, action
        if action.option_strings and action.nargs != 0 and not action.required:
            assert "default" in text, action.option_strings


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.prog)
def test_options_of_one_name_take_the_same_everywhere(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if "--admin" in action.option_strings:
            assert action.metavar == "HOST:PORT"
        if "--format" in action.option_strings and not parser.prog.endswith("export"):
            assert action.metavar in (None, "{table,json}")
            assert list(action.choices or ())[:2] == ["table", "json"]


def options(*arguments: str) -> argparse.Namespace:
    parser = Parser(prog="tool")
    parser.add_argument("--size", default=3, help="of it")
    parser.add_argument("--name", help="of it")
    parser.add_argument("--other", default=4, help="by default as large")
    add_format(parser, json_was=True)
    return parser.parse_args(arguments)


def test_default_is_added_unless_the_text_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--help")
    shown = capsys.readouterr().out
    assert "of it (default: 3)" in shown
    assert "of it (default: none)" in shown
    assert "by default as large\n" in shown
    assert "--json" not in shown


def test_old_spelling_works_and_warns(capsys: pytest.CaptureFixture[str]) -> None:
    assert options("--json").format == "json"
    assert capsys.readouterr().err == "tool: warning: --json is an old spelling: use --format json\n"
    assert options().format == "table"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("parser", "arguments", "usage", "error"),
    [
        (proxy_parser(), ["check", "--config", "f", "--oflline"], "sluice check", "--oflline; did you mean --offline?"),
        (proxy_parser(), ["reassign", "status", "--adim"], "sluice reassign status", "--adim; did you mean --admin?"),
        (proxy_parser(), ["quotas", "show", "--bootstrap-server", "h:1", "more"], "sluice quotas show", "more"),
        (offline_parser(), ["demand", "--zzz"], "sluice-offline demand", "--zzz"),
    ],
    ids=["one word", "two words", "positional", "offline"],
)  # fmt: skip
def test_unknown_argument_shows_the_usage_of_its_command(
    parser: argparse.ArgumentParser,
    arguments: list[str],
    usage: str,
    error: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(arguments)
    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert shown.startswith(f"usage: {usage} [-h]")
    assert shown.endswith(f"{usage}: error: unknown arguments: {error}\n")


def test_guess_at_an_option_is_none_that_the_help_hides(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--jso")
    assert capsys.readouterr().err.endswith("error: unknown arguments: --jso\n")


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("extra", ["capture", "fleet", "offline", "operator"])
def test_commands_name_this_python_the_extra_and_a_lock_that_is_there(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    said, *commands = not_installed("numba", extra).split(": ")
    assert said == f"numba is not installed; it is in Sluice's extra {extra}"
    index, released, words = (shlex.split(re.split(", or in (?:a|the) ", command)[0]) for command in commands)
    pip = [sys.executable, "-m", "pip", "install"]
    assert index == [*pip, f"kafka-sluice[{extra}]"]
    assert released == [*pip, "-r", f"requirements-{extra}.txt"]
    assert extra in LOCKS
    assert words[:-1] == [*pip, "--require-hashes", "-r"]
    assert (ROOT / words[-1]).is_file()
