"""Appends events to a topic that this process does not read: later, in order, each at least once.

While the topic cannot be appended to, at most EVENTS_MAX events wait in memory; further ones are dropped, which is
counted and logged once. Waiting events are lost when the process is killed.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from proxy.logs import event
from proxy.topic_log.access import Access
from proxy.topic_log.clients import open_writer
from proxy.topic_log.records import AppendError, Problem, Record
from proxy.topic_log.thread import LoopThread
from proxy.topic_log.topic import ProblemError, TopicSpec, create, find, log_problem

EVENTS_MAX: Final = 20_000
_BATCH_BYTES_MAX: Final = (
    512 * 1024
)  # below the brokers' default of max.message.bytes; a single event may be larger
_RECORD_BYTES: Final = 32  # of a record's head
_PAUSE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 60.0
_CREATED_PAUSE_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class EventLog:
    """Appends events to one topic.

    Attributes:
        problem: the reason why events wait; None if they do not.
        dropped: the number of events for which there was no room.
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
        """The number of waiting events; in any thread."""
        return len(self._waiting)

    def add(self, records: Sequence[Record]) -> None:
        """Queue records to be appended later. In any thread; does not block."""
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
        """Return the oldest events, as many as one batch takes."""
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
