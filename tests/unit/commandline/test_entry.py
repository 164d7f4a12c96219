"""The console scripts: what happens before there is a command line."""

import sys
from types import ModuleType

import pytest

from offline import __main__ as offline
from proxy import __main__ as proxy


class Interrupted(ModuleType):
    """A module whose loading is interrupted."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


@pytest.mark.parametrize("entry", [proxy, offline], ids=["sluice", "sluice-offline"])
def test_ctrl_c_while_modules_are_loaded_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, entry: ModuleType
) -> None:
    monkeypatch.setenv("SLUICE_PURE", "1")  # this process has the modules already
    package = entry.__name__.partition(".")[0]
    monkeypatch.setitem(sys.modules, f"{package}.cli", Interrupted(f"{package}.cli"))
    assert entry.main() == 130


@pytest.mark.parametrize(("entry", "program"), [(proxy, "sluice"), (offline, "sluice-offline")])
def test_command_line_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], entry: ModuleType, program: str
) -> None:
    monkeypatch.setenv("SLUICE_PURE", "1")
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert (ended.value.code, capsys.readouterr().out.split()[1]) == (0, program)
