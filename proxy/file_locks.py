"""Exclusive locks on files between processes (flock): the kernel releases them when the process ends in any way.

All of it blocks for a moment, and is called off the loop. On file systems without locks each call raises OSError.
"""

import fcntl
import time
from typing import Final

_STEP_SECONDS: Final = 0.005


def try_lock(descriptor: int) -> bool:
    """Lock an open file if no other process has locked it; return whether it is locked now.

    Raises:
        OSError: it cannot be locked.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(descriptor: int, seconds: float, problem: str) -> None:
    """Lock an open file, after waiting while another process has it locked.

    Args:
        seconds: how long to wait.
        problem: the message of the TimeoutError; the time is added.

    Raises:
        TimeoutError: another process has it locked for longer.
        OSError: it cannot be locked.
    """
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{problem} for {seconds:g} s")
        time.sleep(_STEP_SECONDS)
