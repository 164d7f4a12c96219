"""What Java and Spark print while they start: warnings of the JVM and notes about log levels, which are left out.

Errors pass. Both are written to the JVM's standard error before any setting of theirs is read, so what it inherits
there is a pipe, and a thread copies the other lines.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["is_noise", "without_noise"]

_STDERR: Final = 2
_NOISE: Final = (
    b"WARNING: ",  # the JVM's own: incubator modules, restricted methods
    b"NOTE: Picked up ",  # options from the environment, which each JVM repeats
    b"Picked up ",
    b"Setting default log level to ",
    b"Setting Spark log level to ",
    b"To adjust logging level use ",
    b"Using Spark's default log4j profile",
    b"SLF4J",
)


def is_noise(line: bytes) -> bool:
    """Whether a line of the JVM's is nothing that an operator has to know.

    >>> is_noise(b"WARNING: Using incubator modules: jdk.incubator.vector"), is_noise(b"12:00:00 ERROR Disk: full")
    (True, False)
    """
    return line.startswith(_NOISE)


@contextmanager
def without_noise() -> Iterator[None]:
    """Whatever is started in this block writes to a standard error that leaves noise out, for as long as it runs."""
    reading, writing = os.pipe()
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_copy, args=(reading, os.dup(kept)), name="stderr", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, _STDERR)
        os.close(kept)


def _copy(reading: int, target: int) -> None:
    """Copy the lines that are no noise, until every writer is gone."""
    with os.fdopen(reading, "rb") as source, os.fdopen(target, "wb", buffering=0) as out:
        for line in source:
            if not is_noise(line):
                out.write(line)
