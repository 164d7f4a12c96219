"""Settings of the replay's own process: the limit of open files, and signals that stop it."""

import asyncio
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["raise_open_files", "stopping"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def raise_open_files() -> None:
    """Raise the limit of open files: every connection is a file, and many systems' default is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS refuses its own "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Call `stop` at Ctrl-C and SIGTERM in this block; yields the list of received signals."""
    loop = asyncio.get_running_loop()
    caught: list[int] = []

    def on_signal(number: int) -> None:
        caught.append(number)
        stop()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield caught
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
