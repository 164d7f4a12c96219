"""tests.cluster.processes: a child never outlives the program that started it."""

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import until

PROGRAM = """
import time
from tests.cluster import processes
print(processes.start(["sleep", "100"]).pid, flush=True)
time.sleep(100)
"""


def test_child_ends_with_the_program_that_started_it() -> None:
    root = Path(__file__).resolve().parents[3]
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=root, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until(lambda: not lives(child), "the child has ended", 10)


def lives(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
