"""Exit codes of both command lines: one meaning each, the same in every command (docs/commands.md)."""

import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "MEANINGS",
    "NEGATIVE",
    "OK",
    "PIPE_CLOSED",
    "TERMINATED",
    "USAGE",
    "by_signal",
]

_SIGNALLED: Final = 128  # a shell adds it to the number of the signal


def by_signal(number: int) -> int:
    """Return the exit code of a program that a signal ended, as a shell reports it.

    >>> by_signal(signal.SIGTERM)
    143
    """
    return _SIGNALLED + number


OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NEGATIVE: Final = 3
INTERRUPTED: Final = by_signal(signal.SIGINT)
PIPE_CLOSED: Final = by_signal(signal.SIGPIPE)
TERMINATED: Final = by_signal(signal.SIGTERM)

# The table of docs/commands.md; a test compares them.
MEANINGS: Final[Mapping[int, str]] = MappingProxyType(
    {
        OK: "done",
        FAILED: "failed, or a value is wrong: one line on standard error says why",
        USAGE: "an argument is unknown, missing, or none of its choices: nothing was done",
        NEGATIVE: "done, and the answer is negative",
        INTERRUPTED: "interrupted (SIGINT, Ctrl-C)",
        PIPE_CLOSED: "the reader of the output closed the pipe (SIGPIPE)",
        TERMINATED: "stopped (SIGTERM)",
    }
)
