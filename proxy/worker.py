"""A thread beside the event loop that parses peers' large frames, which would block the loop for too long.

Python's threads take turns. While a job runs, they are shorter (`sys.setswitchinterval`), so that the loop, which gives
the interpreter away at every system call, has it back within TURN_SECONDS; and after each job the thread rests for as
long as it has worked, so that no stream of large frames has more than half of the processor. Jobs can not pause by
themselves, as loops of ours do (`proxy.quota_api.cooperative`): they are functions of packages that know no clock.

The garbage collector is off meanwhile: a job makes up to a million objects, and each full collection visits all of
them without giving the interpreter away (0.3 s were measured; `python -m tests.bench.beside_loop`).

Jobs wait in an `AddressQueue`: a large one of one address waits for the small ones of others, and above the maximum the
last one of the address with the most is dropped. A job that has begun is not interrupted: so another address's job
waits for at most one job and the rest after it.

Non-obvious:

- The switch interval is short only while a frame is read in the thread. A function of `protocol` cannot pause,
  since it knows no clock; so the loop gets the interpreter back after 0.2 ms, and after each job the thread rests
  for as long as it has worked. The garbage collector is off meanwhile: a full collection frees nothing before it
  has visited every object that the job has made.
"""

import gc
import logging
import sys
from asyncio import AbstractEventLoop, Future, to_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Condition, Lock, Thread
from time import sleep, thread_time
from typing import Any, Final, TypeVar

from proxy.address_queue import AddressQueue

T = TypeVar("T")

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.0002
JOBS_MAX: Final = 256
# Of the frames that wait, each of which counts as 256 KiB at least, and is kept by its connection as well.
BYTES_MAX: Final = 64 * 1024 * 1024
# A larger response to a request of Sluice's own is not parsed on the loop.
AT_ONCE_BYTES_MAX: Final = 16 * 1024


class OverloadError(Exception):
    """Too many jobs wait, and this one was dropped."""


class _SwitchInterval:
    """Shortens Python's switch interval and stops the garbage collector while a job runs in a thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = 0
        self._before = 0.0
        self._collects = False

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """Shorten the interval during the block; blocks may overlap."""
        with self._lock:
            now = sys.getswitchinterval()
            if not self._running:
                self._before = now
                self._collects = gc.isenabled()
                gc.disable()
            sys.setswitchinterval(min(now, TURN_SECONDS))
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    sys.setswitchinterval(self._before)
                    if self._collects:
                        gc.enable()


_SWITCH_INTERVAL: Final = _SwitchInterval()


class _Task:
    """A job; jobs are compared by identity."""

    __slots__ = ("done", "run")

    def __init__(self, run: Callable[[], None], done: Callable[[bool], None]) -> None:
        self.run = run
        self.done = done


class Worker:
    """Runs jobs one after the other; the thread starts with the first one.

    Args:
        loop: the event loop, on which `done` is called.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = Condition()
        self._waiting = AddressQueue[_Task](BYTES_MAX, JOBS_MAX)
        self._closed = False
        self._thread: Thread | None = None

    def submit(
        self, address: str, size: int, run: Callable[[], None], done: Callable[[bool], None]
    ) -> Callable[[], None]:
        """Call `run` in the thread, then `done` on the loop: with True, or with False if the job was dropped.

        Returns a function that cancels the job if it has not begun; `done` is not called then.

        Args:
            run: must not raise.
            address: the client's address.
            size: the bytes that the job keeps in memory.
        """
        task = _Task(run, done)
        with self._changed:
            dropped = self._waiting.add(address, size, task)
            self._changed.notify()
        for other in dropped:
            self._loop.call_soon(other.done, False)
        if self._thread is None:
            thread = Thread(target=self._work, name="worker", daemon=True)
            thread.start()  # or there is none, and the next job tries again
            self._thread = thread
        return partial(self._cancel, task)

    async def call(self, address: str, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the thread and return its result; other arguments as in `submit`.

        Raises:
            OverloadError: the job was dropped.
            Exception: the function's own exception.
        """
        done: Future[bool] = self._loop.create_future()
        found: list[T | Exception] = []

        def run() -> None:
            try:
                found.append(function(*arguments))
            except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
                found.append(error)

        def tell(ran: bool) -> None:
            if not done.done():
                done.set_result(ran)

        cancel = self.submit(address, size, run, tell)
        try:
            if not await done:
                raise OverloadError("too many large frames are waiting to be parsed")
        finally:
            cancel()
        result = found.pop()
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        """Start no further job; no more callbacks are called."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()

    def _cancel(self, task: _Task) -> None:
        with self._changed:
            self._waiting.discard(task)

    def _next(self) -> _Task | None:
        """Wait for the next job and remove it from the queue; None after `close`."""
        with self._changed:
            while not self._closed:
                task = self._waiting.next()
                if task is not None:
                    return task
                self._changed.wait()
            return None

    def _work(self) -> None:
        while (task := self._next()) is not None:
            began = thread_time()
            ran = True
            try:
                with _SWITCH_INTERVAL.shortened():
                    task.run()
            except Exception:  # the edge of the thread: the next jobs are done all the same
                logger.exception("internal error: a job failed")
                ran = False
            spent = thread_time() - began
            try:
                self._loop.call_soon_threadsafe(task.done, ran)
            except RuntimeError:  # the loop has ended
                return
            del task
            sleep(spent)


async def parse_response(function: Callable[..., T], frame: bytes, *arguments: Any) -> T:
    """Parse a response to one of Sluice's own requests: on the loop if it is small, else in a thread.

    Raises:
        WireError: the function raised it.
    """
    if len(frame) <= AT_ONCE_BYTES_MAX:
        return function(frame, *arguments)
    return await run_in_thread(function, frame, *arguments)


async def run_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread while the switch interval is short: for Sluice's own work, of any size."""
    return await to_thread(_with_short_interval, function, *arguments)


def _with_short_interval(function: Callable[..., T], *arguments: Any) -> T:
    with _SWITCH_INTERVAL.shortened():
        return function(*arguments)
