"""Appends to a topic by one process at a time: the last one that opens a writer fences all before it.

The fence is a transactional id: Kafka refuses transactions of every producer of this id but the last one. A writer is
not opened again automatically after a problem; otherwise a process that was fenced would fence its successor. The
caller opens it again, after it has checked that it may.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Final

from proxy.system.logs import event
from proxy.topics.clients import FencedWriter, open_fenced_writer, open_writer
from proxy.topics.records import AppendError, Problem, Record
from proxy.topics.topic import Access, LoopThread, ProblemError, TopicSpec, create, find, log_problem

logger = logging.getLogger(__name__)


_CLOSED = "this process does not write to it any more"


class FencedLog:
    """Appends to a topic that one process at a time may write to, with transactions.

    After `begin` this process may append, until another process opens a writer with the same transactional id.

    Args:
        thread: the thread in which the writer runs.
        fence: the transactional id.

    Attributes:
        problem: why the last attempt to open the writer failed; None if it succeeded, or before the first.
    """

    def __init__(self, thread: LoopThread, access: Access, topic: str, fence: str) -> None:
        self._thread = thread
        self._access = access
        self._topic = topic
        self._fence = fence
        self._writer: FencedWriter | None = None
        self.problem: Problem | None = None
        self._stack = AsyncExitStack()

    @property
    def open(self) -> bool:
        """Whether this process may append: `begin` has succeeded and no append has failed since. For any thread."""
        return self._writer is not None

    def begin(self) -> "Future[None]":
        """Open the writer, and fence all others with this transactional id; the future has an AppendError if it fails.

        Any thread may call it.
        """
        return self._thread.submit(self._begin())

    def append(self, records: Sequence[Record]) -> "Future[int]":
        """Append records, all or none; the future has the offset after them, or an AppendError.

        After an error the writer is closed. Any thread may call it.
        """
        return self._thread.submit(self._append(records))

    def end(self) -> "Future[None]":
        """Close the writer; this process then appends nothing until the next `begin`. Any thread may call it."""
        return self._thread.submit(self._end())

    async def _begin(self) -> None:
        await self._end()
        opened = open_fenced_writer(self._access, self._topic, self._fence)
        try:
            self._writer = await self._stack.enter_async_context(opened)
            self.problem = None
        except ProblemError as error:
            self.problem = error.problem
            raise AppendError(f"topic {self._topic}: {error.problem.text}") from error

    async def _append(self, records: Sequence[Record]) -> int:
        writer = self._writer
        if writer is None:
            raise AppendError(_CLOSED)
        try:
            return await writer.append(records)
        except BaseException:
            await self._end()
            raise

    async def _end(self) -> None:
        self._writer = None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        except Exception as error:  # noqa: BLE001 - what a writer that is thrown away says is of no use
            logger.debug("a writer did not close: %s", error)


# Appends events to a topic that this process does not read: later, in order, each at least once.
#
# While the topic cannot be appended to, at most EVENTS_MAX events wait in memory; further ones are dropped, which is
# counted and logged once. Waiting events are lost when the process is killed.


EVENTS_MAX: Final = 20_000
# Below the brokers' default of max.message.bytes; a single event may be larger.
_BATCH_BYTES_MAX: Final = 512 * 1024
_RECORD_BYTES: Final = 32  # of a record's head
_PAUSE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 60.0
_CREATED_PAUSE_SECONDS: Final = 0.5


class EventLog:
    """Appends events, such as those of the audit topic, to a topic in the background; no caller waits for it.

    Attributes:
        problem: why waiting events cannot be appended now; None if they can.
        dropped: the number of events that were lost because too many were waiting.
    """

    def __init__(self, thread: LoopThread, access: Access, spec: TopicSpec) -> None:
        self.problem: Problem | None = None
        self.dropped = 0
        self.appended = 0
        self.topic = spec.name
        self._access = access
        self._spec = spec
        self._waiting: deque[Record] = deque()
        self._arrived = asyncio.Event()
        self._thread = thread
        thread.submit(self._run())

    @property
    def waiting(self) -> int:
        """The number of events that are not appended yet. Any thread may ask."""
        return len(self._waiting)

    def add(self, records: Sequence[Record]) -> None:
        """Queue records to be appended soon, or drop them if too many wait. Any thread may call it; does not block."""
        self._thread.submit(self._add(records))

    async def _add(self, records: Sequence[Record]) -> None:
        room = max(0, EVENTS_MAX - len(self._waiting))
        self._waiting.extend(records[:room])
        if room < len(records):
            if not self.dropped:
                event(logger, logging.ERROR, "events dropped", topic=self.topic, waiting=len(self._waiting))
            self.dropped += len(records) - room
        self._arrived.set()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            try:
                await self._session()
            except ProblemError as error:
                self._report(error.problem)
            except AppendError as error:
                self._report(Problem("failed", str(error)))
            except Exception as error:  # noqa: BLE001 - the edge of a task that must go on
                self._report(Problem("failed", f"{type(error).__name__}: {error}"))
            else:
                continue
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _session(self) -> None:
        """Append all waiting events; end when none has waited for _IDLE_SECONDS."""
        if await find(self._access, self._spec) is None:
            await create(self._access, self._spec)
            await asyncio.sleep(_CREATED_PAUSE_SECONDS)
        async with open_writer(self._access, self.topic) as writer:
            while self._waiting:
                records = self._next()
                await writer.append(records)
                for _ in records:
                    self._waiting.popleft()
                self.appended += len(records)
                if self.problem is not None:
                    event(logger, logging.INFO, "topic can be used again", topic=self.topic)
                    self.problem = None
                if not self._waiting:
                    self._arrived.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_IDLE_SECONDS):
                            await self._arrived.wait()

    def _next(self) -> list[Record]:
        """Return the oldest waiting events, at most as many as one batch takes."""
        records: list[Record] = []
        left = _BATCH_BYTES_MAX
        for record in self._waiting:
            left -= len(record.value or b"") + _RECORD_BYTES
            if records and left < 0:
                break
            records.append(record)
        return records

    def _report(self, problem: Problem) -> None:
        if problem != self.problem:
            log_problem(logger, self.topic, problem)
        self.problem = problem
