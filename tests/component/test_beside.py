"""tests.beside: a command in a session of least weight, with its own exit code and output."""

import subprocess
import sys
from pathlib import Path

from tests.support.proxy_process import ROOT

AUTOGROUP = Path("/proc/self/autogroup")


def test_command_gives_way_to_all_sessions() -> None:
    looks = "nice; test ! -e /proc/self/autogroup || cat /proc/self/autogroup; exit 3"
    line = [sys.executable, "-m", "tests.beside", "sh", "-c", looks]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    nice, *autogroup = done.stdout.splitlines()
    assert (done.returncode, nice) == (3, "19")
    if AUTOGROUP.exists():
        own = AUTOGROUP.read_text().split()[0]
        assert autogroup[0].endswith(" nice 19")
        assert not autogroup[0].startswith(f"{own} ")
