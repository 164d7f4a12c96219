"""The command line: exit codes, one line on standard error, no traceback."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import cli
from proxy.commands import check, serve
from proxy.system.errors import ConfigError, StartError, UsageError


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("sluice ")


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["serve", "--nonsense"], ["check"], ["serve", "--conf", "x"]]
)
def test_wrong_arguments_are_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: sluice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            ConfigError("admin.bind", "must be host:port", "x"),
            1,
            "sluice: admin.bind: must be host:port (got 'x')\n",
        ),
        (StartError("port 1 is in use"), 1, "sluice: port 1 is in use\n"),
        (UsageError("say more"), 2, "sluice: say more; see sluice serve --help\n"),
    ],
)
def test_expected_failure_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    line: str,
) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(serve, "run", fail)
    assert cli.main(["serve", "--config", "x"]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line)


def test_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", interrupt)
    assert cli.main(["check", "--config", "x"]) == 130


def test_command_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "run", lambda options: 7 if options.quota == ["a", "b"] else 0)
    assert cli.main(["serve", "--quota", "a", "--quota", "b"]) == 7


def test_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "check", "--config", "/nonexistent/sluice.toml"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 1
    assert done.stderr == "sluice: /nonexistent/sluice.toml: cannot be read: No such file or directory\n"
