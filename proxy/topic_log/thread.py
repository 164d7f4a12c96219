"""The thread with its own event loop in which all use of aiokafka runs.

aiokafka decodes responses and record batches on its event loop; on the proxy's own loop that would delay clients.
Python's threads share one interpreter lock, so the code that runs here works in small portions.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END_SECONDS_MAX: Final = 5.0


logger = logging.getLogger(__name__)


class LoopThread:
    """A daemon thread that starts when it is created; it does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_ignored)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the thread; the future may be waited for in any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel all coroutines, wait for their end for a bounded time, and end the thread. Blocks."""
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
    """Ignore the loop's report of an exception in a cancelled task of aiokafka; Sluice's own tasks catch all theirs."""
    logger.debug(
        "the topics' event loop reports: %s", context.get("message"), exc_info=context.get("exception")
    )
