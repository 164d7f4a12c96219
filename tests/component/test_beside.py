"""tests.beside: a command in a session of least weight, with its own exit code and output."""

import subprocess
import sys
from pathlib import Path

from tests.support.proxy_process import ROOT

AUTOGROUP = Path("/proc/self/autogroup")


def test_command_gives_way_to_all_sessions() -> None:
    looks = "nice; cat /proc/self/autogroup 2>/dev/null; exit 3"
    line = [sys.executable, "-m", "tests.beside", "sh", "-c", looks]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    nice, *autogroup = done.stdout.splitlines()
    assert (done.returncode, nice) == (3, "19")
    # Empty where the machine divides no time among sessions: a kernel without them, a container in the root group.
    for group in autogroup:
        name, weight = group.split(" ", 1)
        assert weight == "nice 19"
        assert not AUTOGROUP.read_text().startswith(f"{name} ")
