"""Completion: a script that the shell takes, with what the help has."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commandline.completion import SHELLS
from offline.cli import main as offline
from proxy.cli import main as proxy


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


def test_bash_takes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It completes a command, an option's choice, and no hidden option."""
    bash = shutil.which("bash")
    assert bash is not None
    proxy(["completion", "bash"])
    script = capsys.readouterr().out
    (tmp_path / "script").write_text(script)
    function = next(
        line.split("()")[0] for line in script.splitlines() if line.endswith("() {") and "sluice" in line
    )
    assert "'--json'" not in script, function
    words = ("quotas", "show", "--format", "")
    program = (
        f'source "{tmp_path}/script"; COMP_WORDS=(sluice {" ".join(words[:-1])} ""); COMP_CWORD={len(words)}; '
        "$(complete -p sluice | sed 's/.*-F \\([^ ]*\\).*/\\1/') sluice '' --format; echo \"${COMPREPLY[@]}\""
    )
    done = subprocess.run([bash, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["table", "json"], done.stderr


def test_missing_shtab_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert proxy(["completion", "bash"]) == 1
    assert capsys.readouterr().err == (
        "sluice: shtab is not installed: Sluice's extra `completion` brings it\n"
    )
