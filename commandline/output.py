"""Run a command so that an interrupt and a closed pipe end it quietly, as they end other Unix tools."""

import os
import select
import sys
from collections.abc import Callable
from typing import TextIO

from commandline.exit_codes import INTERRUPTED, PIPE_CLOSED

__all__ = ["run_quietly"]


def run_quietly(command: Callable[[], int]) -> int:
    """Run a command and return its exit code.

    Python ignores SIGPIPE, so that a peer that hangs up is an exception and not the end of the process. What is
    printed after `| head` has gone is therefore a BrokenPipeError here, on print or when the buffer is flushed.
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
