"""One thread beside the event loop, for what takes longer than a turn of it: reading a peer's large frame.

Python's threads take turns. While a job runs, they are shorter (`sys.setswitchinterval`), so that the loop, which gives
the interpreter away at every system call, has it back within TURN_SECONDS; and after each job the thread rests for as
long as it has worked, so that no stream of large frames has more than half of the processor. Jobs can not pause by
themselves, as loops of ours do (`proxy.quota_store.pace`): they are functions of packages that know no clock.

Addresses take turns, whatever each of them has waiting. Of too many, or too large ones, those go that came last of the
address whose jobs have most bytes.
"""

import logging
import sys
from asyncio import AbstractEventLoop, to_thread
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Lock, Thread
from time import sleep, thread_time
from typing import Any, Final, NamedTuple, TypeVar

__all__ = ["AT_ONCE_BYTES_MAX", "BYTES_MAX", "JOBS_MAX", "TURN_SECONDS", "Worker", "decoded"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.0002
JOBS_MAX: Final = 256
BYTES_MAX: Final = 64 * 1024 * 1024  # of the frames that wait: each is kept by its connection as well
# An answer to a question of Sluice's own that is larger is not read on the loop.
AT_ONCE_BYTES_MAX: Final = 16 * 1024


class _Turns:
    """The switch interval, shortened while anything runs beside the loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = 0
        self._before = 0.0

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """Shorten the turns for as long as the block takes."""
        with self._lock:
            now = sys.getswitchinterval()
            if not self._running:
                self._before = now
            sys.setswitchinterval(min(now, TURN_SECONDS))
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    sys.setswitchinterval(self._before)


_TURNS: Final = _Turns()


class _Task(NamedTuple):
    size: int
    run: Callable[[], None]
    done: Callable[[bool], None]


class Worker:
    """Runs jobs one after the other; the thread begins with the first one.

    Args:
        loop: where it is told that a job is done.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = Condition()
        self._waiting: OrderedDict[str, deque[_Task]] = (
            OrderedDict()
        )  # the address whose turn is next comes first
        self._count = 0
        self._bytes = 0
        self._closed = False
        self._thread: Thread | None = None

    def submit(self, whose: str, size: int, run: Callable[[], None], done: Callable[[bool], None]) -> None:
        """Have `run` called in the thread, then `done` on the loop: with True, or with False where it never will be.

        Args:
            run: raises nothing.
            whose: the address that it is for.
            size: bytes that it keeps.
        """
        dropped: list[_Task] = []
        with self._changed:
            self._waiting.setdefault(whose, deque()).append(_Task(size, run, done))
            self._count += 1
            self._bytes += size
            while self._count > JOBS_MAX or (self._bytes > BYTES_MAX and self._count > 1):
                dropped.append(self._drop())
            self._changed.notify()
        for task in dropped:
            self._loop.call_soon(task.done, False)
        if self._thread is None:
            thread = Thread(target=self._work, name="worker", daemon=True)
            thread.start()  # or there is none, and the next job tries again
            self._thread = thread

    def close(self) -> None:
        """Begin no further job; nothing more is told."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._count = self._bytes = 0
            self._changed.notify()

    def _drop(self) -> _Task:
        """Take away the last job of the address whose jobs have most bytes."""
        whose = max(self._waiting, key=self._bytes_of)
        tasks = self._waiting[whose]
        dropped = tasks.pop()
        self._count -= 1
        self._bytes -= dropped.size
        if not tasks:
            del self._waiting[whose]
        return dropped

    def _bytes_of(self, whose: str) -> int:
        return sum(task.size for task in self._waiting[whose])

    def _next(self) -> _Task | None:
        """Wait for a job and take it; None at the end."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            whose, tasks = self._waiting.popitem(last=False)
            task = tasks.popleft()
            self._count -= 1
            self._bytes -= task.size
            if tasks:
                self._waiting[whose] = tasks
            return task

    def _work(self) -> None:
        while (task := self._next()) is not None:
            began = thread_time()
            ran = True
            try:
                with _TURNS.shortened():
                    task.run()
            except Exception:  # the edge of the thread: the next jobs are done all the same
                logger.exception("a bug of ours: a job has failed")
                ran = False
            spent = thread_time() - began
            try:
                self._loop.call_soon_threadsafe(task.done, ran)
            except RuntimeError:  # the loop has ended
                return
            del task
            sleep(spent)


async def decoded(function: Callable[..., T], frame: bytes, *arguments: Any) -> T:
    """What a pure function makes of an answer to one of Sluice's own questions, on the loop only where it is small.

    Raises:
        WireError: the function raised it.
    """
    if len(frame) <= AT_ONCE_BYTES_MAX:
        return function(frame, *arguments)
    return await to_thread(_quickly, function, frame, *arguments)


def _quickly(function: Callable[..., T], *arguments: Any) -> T:
    with _TURNS.shortened():
        return function(*arguments)
