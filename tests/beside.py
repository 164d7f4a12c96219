"""Runs a command in the time that everything else leaves: `python -m tests.beside COMMAND...`.

`nice` alone does not: Linux divides time among sessions first (sched_autogroup_enabled), and each broker and each proxy
of a test is a session. So the command gets one of its own, which counts as one process of nice 19. What takes it longer
is no fault: a test may take ten minutes. Its output is printed when it ends, so that it is not mixed with the others'.
"""

import os
import shutil
import sys
import tempfile
from typing import Final

from tests.cluster import processes

# The child weighs itself down before it becomes the command, which then never runs with more; a kernel may lack it.
_LIGHTEN: Final = '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec "$@"'


def main(words: list[str]) -> int:
    """Return the command's exit code."""
    processes.exit_on_signals()
    os.nice(19)
    os.environ.setdefault("PYTEST_TIMEOUT", "600")
    with tempfile.TemporaryFile() as output:
        code = processes.start(["sh", "-c", _LIGHTEN, "sh", *words], log=output).wait()
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout.buffer)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
