"""Delays Ctrl-C until Spark's JVM has started: PySpark leaves the JVM running if its start is interrupted."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["held_interrupt"]


@contextmanager
def held_interrupt() -> Iterator[None]:
    """Hold the first Ctrl-C back until the block ends; a second one acts at once.

    A handler that the block installs stays: PySpark installs its own as soon as there is a JVM that it can stop.

    Raises:
        KeyboardInterrupt: at the end of the block, if there was an interrupt in it.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    held = False

    def hold(_number: int, _frame: FrameType | None) -> None:
        nonlocal held
        held = True
        signal.signal(signal.SIGINT, before)
        sys.stderr.write("sluice-offline: ending once Spark has started; Ctrl-C again ends at once\n")

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is hold:
            signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt
