"""Background tasks that survive their own failures: counted by task, logged once for each cause, restarted.

    run_forever  a permanent task: after an exception it is restarted, after a pause that doubles from
                 PAUSE_SECONDS_MIN to PAUSE_SECONDS_MAX; a task that has run for STEADY_SECONDS since has recovered
    run_once     one run in the background: an exception ends this run and nothing else
    attempt      one run with a bounded wait: for work at the start that the process does not depend on
    call         a callback of the event loop without a handler of exceptions around it

No failure of any of them ends the process: errors that prevent it from working are found before it serves
(`StartError`), and from then on its ports are bound and only a signal ends it. A cause is the type of the exception and
the line that raised it; messages may differ.

Non-obvious:

- Only a signal ends a process that serves. Errors that prevent it from working are found before it serves, and are
  an exit code. Later each background task that fails is restarted (`proxy/system/supervisor.py`), each loop over all
  connections skips those that have closed meanwhile, and a callback that raises closes the connection whose frames
  are in its traceback: the loop reports nothing else, and a socket that stays readable would raise it again for
  ever.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from proxy.system.logs import FIELDS, event
from proxy.system.stats import Stats

PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
CAUSES_MAX: Final = 16  # told apart for one task until it works again; further ones are counted alone
_CALLBACK: Final = "callback"  # the name under which the loop's own callbacks are counted

Work = Coroutine[object, object, object]

logger = logging.getLogger(__name__)


class Supervisor:
    """Runs all background tasks of one process, and counts and logs their failures.

    Args:
        loop: the event loop.
        stats: counts failures.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stats: Stats) -> None:
        self._loop = loop
        self._stats = stats
        self._tasks: set[asyncio.Task[object]] = set()
        self._causes: dict[str, set[str]] = {}  # of currently failing tasks
        self._raised: Callable[[BaseException], object] = lambda _: None

    def run_forever(self, name: str, run: Callable[[], Work]) -> asyncio.Task[object]:
        """Run a permanent task in the background; if it fails it is started again, after a pause.

        Args:
            name: the name of the task in logs and metrics.
            run: starts the task.
        """
        return self._start(self._restart_forever(name, run))

    def run_once(self, name: str, work: Work) -> asyncio.Task[object]:
        """Run a task once in the background; a failure is counted and logged."""
        return self._start(self._run_once(name, work))

    async def attempt(self, name: str, work: Work, seconds_max: float) -> None:
        """Run a task once and wait for it, at most `seconds_max`, then cancel it; a failure is counted and logged."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._run_once(name, work)

    def call(self, name: str, act: Callable[[], object]) -> bool:
        """Call a function; return False if it has failed, which is counted and logged."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - the edge of a callback
            self._failed(name, error)
            return False
        self._recovered(name)
        return True

    def watch_callbacks(self, raised: Callable[[BaseException], object]) -> None:
        """Count and log each exception that a callback of the event loop raises, then call `raised` with it.

        So the connection whose callback has failed can be closed.
        """
        self._raised = raised
        self._loop.set_exception_handler(self._callback_failed)

    async def end(self) -> None:
        """Cancel all tasks, and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Work) -> asyncio.Task[object]:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._tasks.discard)
        return task

    async def _restart_forever(self, name: str, run: Callable[[], Work]) -> None:
        pause_seconds = PAUSE_SECONDS_MIN
        while True:
            began = self._loop.time()
            steady = self._loop.call_later(STEADY_SECONDS, self._recovered, name)
            try:
                if await self._run_once(name, run()):
                    return
            finally:
                steady.cancel()
            if self._loop.time() - began >= STEADY_SECONDS:
                pause_seconds = PAUSE_SECONDS_MIN
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)

    async def _run_once(self, name: str, work: Work) -> bool:
        """Run a task; returns False if it raised an exception."""
        try:
            await work
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._failed(name, error)  # what it waited for was cancelled, and not the task itself
            return False
        except Exception as error:  # noqa: BLE001 - the edge of a task
            self._failed(name, error)
            return False
        self._recovered(name)
        return True

    def _failed(self, name: str, error: BaseException) -> None:
        self._stats.task_failures[name] += 1
        causes = self._causes.setdefault(name, set())
        cause = _cause(error)
        if cause in causes or len(causes) >= CAUSES_MAX:
            return
        causes.add(cause)
        logger.error(
            "a background task failed", exc_info=error, extra={FIELDS: {"task": name, "cause": cause}}
        )

    def _recovered(self, name: str) -> None:
        if self._causes.pop(name, None) is not None:
            event(logger, logging.INFO, "a background task recovered", task=name)

    def _callback_failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._failed(_CALLBACK, error)
            try:
                self._raised(error)
            except Exception as further:  # noqa: BLE001 - the edge of the edge
                self._failed(_CALLBACK, further)
            return
        self._stats.task_failures[_CALLBACK] += 1
        event(logger, logging.ERROR, "the event loop reports a problem", problem=str(context.get("message")))


def _cause(error: BaseException) -> str:
    """Return the type of an exception and the line that raised it, as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
    return f"{type(error).__name__}{where}"
