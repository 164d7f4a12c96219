"""A log over a topic: reads it from the beginning, follows it, appends to it, and recovers from problems.

    session    look at the topic ─► connect ─► read to the end ─► follow, and look again every CHECK_SECONDS

Any problem ends the session. It is logged once, and `problem` has it while it lasts; nothing is read or appended until
the next session, which begins after a pause. A session reads on where the last one stopped, unless that was more than
RESUME_SECONDS_MAX ago or the offset is gone: then everything is read again from the beginning, since the topic's
tombstones may have been removed in the meantime.

A topic is created only by a process that has not read one of that name before. If it is deleted or replaced by another
one of the same name, the problem lasts until the process is started again; the records read so far stay valid.

All of it runs in the thread of a `LoopThread`, except the methods that say "in any thread".
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from typing import Final

from proxy.system.clock import clock_ns
from proxy.system.errors import reason
from proxy.system.logs import event
from proxy.topics.clients import Reader, Writer, open_reader, open_writer
from proxy.topics.records import AppendError, Portion, Problem, Record
from proxy.topics.topic import Access, LoopThread, ProblemError, TopicSpec, create, find, log_problem

# The bounded queue of portions between the log's event loop and the reader's thread.
#
# The log stops reading while PORTIONS_MAX portions are not taken; further records stay in Kafka.


PORTIONS_MAX: Final = 4


class Inbox:
    """The bounded queue of portions (records read together) from the log's event loop to the thread that uses them.

    Attributes:
        arrived: called in the log's thread after each portion is added; to be set before the log starts.
    """

    def __init__(self) -> None:
        self.arrived: Callable[[], None] = _nothing
        self._portions: deque[Portion] = deque()
        self._changed = threading.Condition()
        self._room: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def put(self, portion: Portion) -> None:
        """Add a portion, after waiting until fewer than PORTIONS_MAX are in the queue."""
        if self._room is None:
            self._room = (asyncio.get_running_loop(), asyncio.Event())
        room = self._room[1]
        while True:
            with self._changed:
                if len(self._portions) < PORTIONS_MAX:
                    self._portions.append(portion)
                    self._changed.notify()
                    break
                room.clear()
            await room.wait()
        self.arrived()

    @property
    def empty(self) -> bool:
        """Whether no portion waits to be taken. Any thread may ask."""
        return not self._portions

    def take(self, seconds: float = 0) -> Portion | None:
        """Remove and return the oldest portion, in the thread that uses them; None if none arrives within `seconds`."""
        with self._changed:
            if not self._portions and not self._changed.wait_for(lambda: bool(self._portions), seconds):
                return None
            portion = self._portions.popleft()
            room = self._room
        if room is not None:
            loop, event = room
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
        return portion


def _nothing() -> None: ...


CHECK_SECONDS: Final = 5.0
PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 5.0
RESUME_SECONDS_MAX: Final = 3600.0  # far below a topic's delete.retention.ms, a day by default
_CREATED_LOOKS_MAX: Final = 20
_CREATED_PAUSE_SECONDS: Final = 0.25

logger = logging.getLogger(__name__)


class _RestartError(Exception):
    """The session ends without a problem, and another one begins."""


class TopicLog:
    """A topic that is read from its beginning to its end and then followed, and may be appended to.

    Problems end a session of reading; it is begun again after a pause (see the module).

    Args:
        thread: the thread in which the log runs.
        access: brokers, login and TLS of the topic's cluster.
        spec: the name of the topic and its required properties.
        committed: whether records are appended in transactions, by `proxy.topics.writers`. Then only committed records
            are read, and this log cannot append any.
        paced: whether the log pauses between portions, so that the event loop has half of the processor. It is asked
            after each portion, in the log's thread; False as long as no client is served, so that a start is short.

    Attributes:
        inbox: the queue of the portions that were read.
        problem: why the topic cannot be read; None if it can, or while `tried` is False.
        tried: whether the first session has read records or failed. Any thread may ask.
        wanted: called in the log's thread with each record; a record for which it returns False is counted, but not
            delivered. None: all records are delivered. Any thread may set it.
    """

    def __init__(
        self,
        thread: LoopThread,
        access: Access,
        spec: TopicSpec,
        *,
        committed: bool = False,
        paced: Callable[[], bool] = lambda: True,
    ) -> None:
        self.inbox = Inbox()
        self.problem: Problem | None = None
        self.topic = spec.name
        self.wanted: Callable[[Record], bool] | None = None
        self.tried = False
        self._committed = committed
        self._paced = paced
        self._thread = thread
        self._access = access
        self._spec = spec
        self._topic_id = b""  # of the topic that is read
        self._seen_id = b""
        self._write_problem: Problem | None = None
        self._writer: Writer | None = None
        self._broken = asyncio.Event()
        self._position: int | None = None
        self._first = 0  # the offset at which the topic began when it was last read from there
        self._complete = False
        self._current_at = 0.0  # when the end was last known to be reached
        self._running: Future[None] | None = None

    @property
    def topic_id(self) -> bytes:
        """The topic's id (16 bytes), even if it cannot be read; empty before it was seen. Any thread may ask."""
        return self._topic_id or self._seen_id

    @property
    def write_problem(self) -> Problem | None:
        """The reason why records cannot be appended; None if they can. Any thread may ask."""
        if self.problem is not None:
            return self.problem
        if self._write_problem is None and self._writer is None and not self._committed:
            return Problem("unreachable", f"topic {self.topic} is being connected to")
        return self._write_problem

    def start(self) -> None:
        """Begin to read the topic; portions then arrive in `inbox`. Any thread may call it."""
        self._running = self._thread.submit(self._run())

    def append(self, records: Sequence[Record]) -> "Future[int]":
        """Append records as one batch; the future has the offset after them, or an AppendError.

        Any thread may call it.
        """
        return self._thread.submit(self._append(records))

    async def _run(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while True:
            began = time.monotonic()
            try:
                await self._session()
            except _RestartError:
                continue
            except ProblemError as error:
                self._seen_id = error.topic_id or self._seen_id
                self._report(error.problem)
            except Exception as error:
                cause = _innermost(error)
                logger.debug("a session ended", exc_info=cause)
                self._report(Problem("failed", f"{type(cause).__name__}: {reason(cause)}"))
            self.tried = True
            if time.monotonic() - began > CHECK_SECONDS:
                pause = PAUSE_SECONDS_MIN
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _session(self) -> None:
        self._take_look(await self._existing())
        self._broken.clear()
        access, name = self._access, self._spec.name
        async with AsyncExitStack() as stack:
            reader = await stack.enter_async_context(open_reader(access, name, committed=self._committed))
            begins, end = await self._seek(reader)
            # A producer without the permission does not start.
            if self._write_problem is None and not self._committed:
                self._writer = await stack.enter_async_context(open_writer(access, name))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._follow(reader, end, begins=begins))
                    group.create_task(self._watch(reader))
            except BaseExceptionGroup as errors:
                raise _innermost(errors) from None
            finally:
                self._writer = None

    async def _existing(self) -> bytes:
        """Find the topic, or create it; return its id."""
        found = await find(self._access, self._spec)
        if found is None:
            if self._topic_id:
                raise self._deleted()
            await create(self._access, self._spec)
            for _ in range(_CREATED_LOOKS_MAX):  # it is known to all brokers a moment later
                found = await find(self._access, self._spec)
                if found is not None:
                    break
                await asyncio.sleep(_CREATED_PAUSE_SECONDS)
            else:
                raise ProblemError("unreachable", f"topic {self.topic} was created, and is not there yet")
        self._write_problem = found.write_problem
        if found.differences and not self.tried:
            event(
                logger,
                logging.WARNING,
                "topic differs from those that Sluice creates",
                topic=self.topic,
                detail="; ".join(found.differences),
            )
        return found.topic_id

    def _deleted(self) -> ProblemError:
        return ProblemError(
            "missing", f"topic {self.topic} was deleted; Sluice creates it when it is started"
        )

    def _take_look(self, topic_id: bytes) -> None:
        if self._topic_id and topic_id != self._topic_id:
            text = f"topic {self.topic} was deleted and created again; Sluice reads the new one when it is started"
            raise ProblemError("recreated", text)
        self._topic_id = topic_id

    async def _seek(self, reader: Reader) -> tuple[bool, int]:
        """Seek to where reading continues; return whether that is the beginning, and the present end offset."""
        first, end = await reader.bounds()
        position = self._position
        away = clock_ns() / 1e9 - self._current_at
        if self._complete and position is not None and first <= position <= end and away < RESUME_SECONDS_MAX:
            reader.seek(position)
            return False, end
        if self._complete:
            event(logger, logging.WARNING, "topic is read again from its beginning", topic=self.topic)
        self._complete = False
        self._position = first
        reader.seek(first)
        return True, end

    async def _follow(self, reader: Reader, end: int, *, begins: bool) -> None:
        if begins:
            await self._deliver((), begins=True, complete=False)
        while True:
            assert self._position is not None, "a session seeks first"
            if self._position >= end:
                if not self._complete:
                    self._complete = True
                    await self._deliver((), begins=False, complete=True)
                self._current_at = clock_ns() / 1e9
                self._works()
            records, self._position = await reader.read()
            if records:
                began = time.monotonic()
                wanted = self.wanted
                kept = records if wanted is None else [record for record in records if wanted(record)]
                dropped = len(records) - len(kept)
                await self._deliver(kept, begins=False, complete=self._complete, dropped=dropped)
                if self._paced():
                    # As long as it has worked, so that the proxy's own loop has half of the processor.
                    await asyncio.sleep(min(time.monotonic() - began, 0.005) + 0.001)

    async def _deliver(
        self, records: Sequence[Record], *, begins: bool, complete: bool, dropped: int = 0
    ) -> None:
        assert self._position is not None, "a session seeks first"
        await self.inbox.put(Portion(records, self._position, begins, complete, self._topic_id, dropped))

    async def _watch(self, reader: Reader) -> None:
        """Check every CHECK_SECONDS whether the topic is unchanged, and whether reading makes progress."""
        position = self._position
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._broken.wait()
                raise _RestartError
            found = await find(self._access, self._spec)
            if found is None:
                raise self._deleted()
            self._take_look(found.topic_id)
            if (found.write_problem is None) != (self._write_problem is None):
                raise _RestartError
            behind = await reader.end() > (self._position or 0)
            if behind and self._position == position and self.inbox.empty:
                raise ProblemError("unreachable", f"the brokers of topic {self.topic} deliver nothing")
            position = self._position

    async def _append(self, records: Sequence[Record]) -> int:
        problem = self.write_problem
        writer = self._writer
        if problem is not None or writer is None:
            raise AppendError("" if problem is None else problem.text)
        try:
            return await writer.append(records)
        except AppendError as error:
            if error.unknown:
                # What the library still has must not arrive after it was reported as failed.
                self._broken.set()
            raise

    def _report(self, problem: Problem) -> None:
        if problem != self.problem:
            log_problem(logger, self.topic, problem)
        self.problem = problem

    def _works(self) -> None:
        self.tried = True
        if self.problem is not None:
            event(logger, logging.INFO, "topic can be used again", topic=self.topic)
            self.problem = None


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
