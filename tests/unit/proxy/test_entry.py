"""The console script: what happens before there is a command line."""

import sys
from types import ModuleType

import pytest

from proxy import __main__


class Interrupted(ModuleType):
    """A module whose loading is interrupted."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_ctrl_c_while_modules_are_loaded_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxy.cli", Interrupted("proxy.cli"))
    assert __main__.main() == 130


def test_command_line_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sluice", "--version"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert (ended.value.code, capsys.readouterr().out.split()[0]) == (0, "sluice")
