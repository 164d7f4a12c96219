"""The command that installs a missing package."""

import shlex
import sys
from pathlib import Path

import pytest

from commandline.arguments import not_installed

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("extra", ["capture", "completion", "offline", "yaml"])
def test_command_names_this_python_and_a_lock_that_is_there(extra: str) -> None:
    said, _, command = not_installed("numba", extra).partition(": ")
    assert said == "numba is not installed; in Sluice's checkout"
    words = shlex.split(command)
    assert words[:-1] == [sys.executable, "-m", "pip", "install", "--require-hashes", "-r"]
    assert (ROOT / words[-1]).is_file()


def test_path_with_a_space_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    assert "'/my env/bin/python' -m pip install " in not_installed("numba", "offline")
