"""Runs a command in the time that everything else leaves: `python -m tests.beside COMMAND...`.

`nice` alone does not: Linux divides time among sessions first (sched_autogroup_enabled), and each broker and each proxy
of a test is a session. So the command gets one of its own, which counts as one process of nice 19. What takes it longer
is no fault: a test may take ten minutes.
"""

import contextlib
import os
import sys
from pathlib import Path

from tests.cluster import processes


def main(words: list[str]) -> int:
    """Return the command's exit code."""
    processes.exit_on_signals()
    os.nice(19)
    os.environ.setdefault("PYTEST_TIMEOUT", "600")
    child = processes.start(words, log=sys.stdout.buffer)
    with contextlib.suppress(OSError):  # a kernel without it
        Path(f"/proc/{child.pid}/autogroup").write_text("19")
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
