"""Appends to a topic by one process at a time: the last one that opens a writer fences all before it.

The fence is a transactional id: Kafka refuses transactions of every producer of this id but the last one. A writer is
not opened again automatically after a problem; otherwise a process that was fenced would fence its successor. The
caller opens it again, after it has checked that it may.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack

from proxy.topic_log.access import Access
from proxy.topic_log.clients import FencedWriter, open_fenced_writer
from proxy.topic_log.records import AppendError, Problem, Record
from proxy.topic_log.thread import LoopThread
from proxy.topic_log.topic import ProblemError

_CLOSED = "this process does not write to it any more"

logger = logging.getLogger(__name__)


class FencedLog:
    """The writer of one topic.

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
        """Whether this process may append, as far as it knows. In any thread."""
        return self._writer is not None

    def begin(self) -> "Future[None]":
        """Fence every other writer and open this one; the future has an AppendError if that fails. In any thread."""
        return self._thread.submit(self._begin())

    def append(self, records: Sequence[Record]) -> "Future[int]":
        """Append records, all or none; the result is the offset after them, or an AppendError. In any thread.

        After an error the writer is closed.
        """
        return self._thread.submit(self._append(records))

    def end(self) -> "Future[None]":
        """Close the writer. In any thread."""
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
