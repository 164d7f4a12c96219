"""Filters the output of Java and Spark: warnings of the JVM and notes about log levels at its start, py4j's tracebacks.

Errors are not filtered. The JVM writes these lines to its standard error before it reads any settings. So it inherits a
pipe as standard error, and a thread copies all other lines from it.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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
    """Whether a line of the JVM is irrelevant for an operator.

    >>> is_noise(b"WARNING: Using incubator modules: jdk.incubator.vector"), is_noise(b"12:00:00 ERROR Disk: full")
    (True, False)
    """
    return line.startswith(_NOISE)


def is_not_py4j(record: logging.LogRecord) -> bool:
    """Filter for the root logger: py4j logs a traceback there of each failed or interrupted call, and raises it too."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def without_noise() -> Iterator[None]:
    """Filter the standard error of processes that are started in this block, for as long as they run."""
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
    """Copy the relevant lines until the last writer has closed the pipe."""
    with os.fdopen(reading, "rb") as source, os.fdopen(target, "wb", buffering=0) as out:
        for line in source:
            if not is_noise(line):
                out.write(line)
