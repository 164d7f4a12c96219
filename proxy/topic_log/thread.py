"""One thread with an event loop of its own, for all that runs on aiokafka.

aiokafka decodes responses and record batches on its event loop; on the proxy's own loop that would delay clients.
Python's threads still share the processor, so what runs here does its work in small portions.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")

_END_SECONDS_MAX: Final = 5.0


logger = logging.getLogger(__name__)


class LoopThread:
    """Starts with its creation, as a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_ignored)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the thread; the future may be waited for in any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel all that runs, wait for its end for a bounded time, and end the thread. Blocks."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2 * _END_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS_MAX))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


def _ignored(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Take what tasks of the library leave behind when they are cancelled; tasks of Sluice's own catch everything."""
    logger.debug(
        "the topics' event loop reports: %s", context.get("message"), exc_info=context.get("exception")
    )
