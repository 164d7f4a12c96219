"""Completion: a script that the shell takes, with what the help has."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commandline.arguments import SHELLS, not_installed
from offline.cli import main as offline
from proxy.cli import main as proxy
from tests.support.command_line import Sluice


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("main", "option"), [(proxy, "--bootstrap-server"), (offline, "--capacity-in")])
def test_script_has_options_and_no_old_spelling(
    shell: str, main: object, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main)
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert option.lstrip("-") in script
    assert "old spelling" not in script


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        (("quotas", "show", "--format"), ["table", "json"]),
        (("serve", "--policy"), ["schedule", "kip13"]),
        (("serve", "--mode"), ["enforce", "observe"]),
        (("serve", "--scope"), ["broker", "cluster"]),
    ],
    ids=" ".join,
)
def test_bash_takes_the_script(
    tmp_path: Path, sluice: Sluice, words: tuple[str, ...], choices: list[str]
) -> None:
    """It completes a command, an option's choice, and no hidden option."""
    bash = shutil.which("bash")
    assert bash is not None
    script = sluice("completion", "bash")
    (tmp_path / "script").write_text(script)
    function = next(
        line.split("()")[0] for line in script.splitlines() if line.endswith("() {") and "sluice" in line
    )
    assert "'--json'" not in script, function
    program = (
        f'source "{tmp_path}/script"; COMP_WORDS=(sluice {" ".join(words)} ""); COMP_CWORD={len(words) + 1}; '
        f"$(complete -p sluice | sed 's/.*-F \\([^ ]*\\).*/\\1/') sluice '' {words[-1]}; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == choices, done.stderr


def test_script_is_written_to_a_file_in_a_new_directory(tmp_path: Path, sluice: Sluice) -> None:
    path = tmp_path / "completions" / "sluice"
    printed = sluice("completion", "bash")
    assert sluice("completion", "bash", "--output", path) == ""
    assert path.read_text() == printed


def test_missing_shtab_is_one_line_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sluice: Sluice
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    for words in ((), ("--output", tmp_path / "completions" / "sluice")):
        assert sluice("completion", "bash", *words, code=1) == ""
        assert sluice.err == f"sluice: {not_installed('shtab', 'operator')}\n"
    assert list(tmp_path.iterdir()) == []


def test_file_that_cannot_be_written_is_one_line(tmp_path: Path, sluice: Sluice) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "sluice"
    sluice("completion", "bash", "--output", path, code=1)
    assert sluice.err.startswith(f"sluice: {path}: cannot be written: ")
