"""What a replay asks of its own process: as many open files as it may have, and to be told when it is to stop."""

import asyncio
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["raise_open_files", "stopping"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def raise_open_files() -> None:
    """Every connection is a file, and 1024 is what many systems begin with."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS refuses its own "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Have Ctrl-C and SIGTERM call `stop`; gives the list that they are noted in. What they did before is put back."""
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
