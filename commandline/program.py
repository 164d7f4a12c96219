"""Run a command so that an interrupt and a closed pipe end it quietly, as they end other Unix tools."""

import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Final, TextIO

# ----------------------------------------------------------------------------------------------------
# Exit codes of both command lines: one meaning each, the same in every command. docs/commands.md says which.


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


def run_quietly(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; Ctrl-C and a closed pipe end it with theirs, without a traceback.

    Python ignores SIGPIPE, so printing after the reader (as in `| head`) has exited raises BrokenPipeError, either on
    print or when the buffer is flushed.
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed(stream)]
        if not closed:
            raise  # of a connection, not of the output: a bug
        return PIPE_CLOSED


def _is_closed(stream: TextIO) -> bool:
    """Return whether a stream's reader has closed it; if so, drop the buffered output."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # replaced by something that is no file
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # what it reports is reported without being asked for
    closed = any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    if closed:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    return closed
