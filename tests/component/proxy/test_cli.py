"""The command line: exit codes, one line on standard error, no traceback."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.commands import serve
from proxy.system.errors import ConfigError, StartError, UsageError
from tests.support.command_line import Sluice


def test_version_is_printed(sluice: Sluice) -> None:
    assert sluice("--version").startswith("sluice ")


@pytest.mark.parametrize("arguments", ["", "nonsense", "serve --nonsense", "check", "serve --conf x"])
def test_wrong_arguments_are_a_usage_error(arguments: str, sluice: Sluice) -> None:
    sluice(*arguments.split(), code=2)
    assert "usage: sluice" in sluice.err


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
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["configuration", "start", "usage", "interrupt"],
)
def test_expected_failure_is_one_line(
    monkeypatch: pytest.MonkeyPatch, sluice: Sluice, error: BaseException, code: int, line: str
) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(serve, "run", fail)
    assert (sluice("serve", "--config", "x", code=code), sluice.err) == ("", line)


def test_command_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch, sluice: Sluice) -> None:
    monkeypatch.setattr(serve, "run", lambda options: 7 if options.quota == ["a", "b"] else 0)
    sluice("serve", "--quota", "a", "--quota", "b", code=7)


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
