"""Child processes that never outlive the process that started them.

Each runs in a session of its own, so that a whole group can be ended.
The kernel kills it when the *thread* that started it ends (PR_SET_PDEATHSIG), whatever ended that thread: start
children from the main thread, or from one that lives as long as they shall.
At a normal exit they are ended by `atexit`.
"""

import atexit
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_children: Final[dict[int, "subprocess.Popen[Any]"]] = {}


def start(
    arguments: Sequence[str],
    *,
    log: Path | IO[bytes] | int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a child in its own session, its output appended to `log` (nowhere without one)."""
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("ab")) if isinstance(log, Path) else log
        child: subprocess.Popen[bytes] = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if out is None else out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Only prctl and getppid run there: no lock, no allocation that another thread could hold up.
            preexec_fn=_die_with_parent,  # noqa: PLW1509
            env=None if env is None else dict(env),
            cwd=cwd,
        )
    _children[child.pid] = child
    return child


def end(child: "subprocess.Popen[Any]", *, seconds: float = 20.0) -> int:
    """Ask a child's group to end, insist after `seconds`, and return its exit code."""
    if child.poll() is None:
        _signal_group(child, signal.SIGTERM)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            return kill(child)
    return _forget(child)


def kill(child: "subprocess.Popen[Any]") -> int:
    """End a child's group at once (kill -9) and return its exit code."""
    _signal_group(child, signal.SIGKILL)
    child.wait()
    return _forget(child)


def end_all() -> None:
    """End every child that is left, all at once rather than one after the other."""
    left = [child for child in _children.values() if child.poll() is None]
    for child in left:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + 10.0
    for child in left:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, deadline - time.monotonic()))
    for child in list(_children.values()):
        kill(child)


def exit_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into SystemExit, so that `finally` and `atexit` run; for programs, not libraries."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, _frame: sys.exit(128 + signum))


def _die_with_parent() -> None:
    # Between fork and exec. A parent that is already gone cannot send the signal any more, hence the second line.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(1)


def _signal_group(child: "subprocess.Popen[Any]", number: signal.Signals) -> None:
    # The group may outlive its leader: signalled even when the leader is gone.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _forget(child: "subprocess.Popen[Any]") -> int:
    _children.pop(child.pid, None)
    return child.returncode if child.returncode is not None else child.wait()


atexit.register(end_all)
