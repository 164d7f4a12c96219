"""The event loop's side of quotas in a topic: applies what arrives, says when quotas are there, saves snapshots.

log's thread ─ arrived ─► event loop ─► quotas' thread: TopicStore.drain ─► event loop: the engine takes them over
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from proxy.quota_api.service import QuotaService
from proxy.quota_api.topic_store import TopicStore
from proxy.topics.records import Problem

_SAVE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.05


class FollowedLog(Protocol):
    """The topic, as far as its problems go."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def tried(self) -> bool:
        """Whether reading has begun, or failed once."""

    @property
    def problem(self) -> Problem | None:
        """The reason why it cannot be read; None if it can."""


class TopicFollower:
    """Follows one topic.

    Args:
        loop: the event loop.
        service: has the quotas' thread.
        store: the quotas.
        log: the topic.
        once: runs a coroutine in the background.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: QuotaService,
        store: TopicStore,
        log: FollowedLog,
        once: Callable[[str, Coroutine[Any, Any, object]], object],
    ) -> None:
        self._loop = loop
        self._service = service
        self._store = store
        self._log = log
        self._once = once
        self._due = False

    @property
    def not_ready(self) -> str:
        """The reason why there are no quotas yet; "" if there are."""
        if self._store.ready:
            return ""
        problem = self._log.problem
        if problem is not None:
            return f"quotas: {problem.text}"
        return f"quotas: topic {self._log.topic} is being read"

    def arrived(self) -> None:
        """Records have arrived: called in the log's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._soon)

    async def wait(self, stopping: asyncio.Event) -> None:
        """Wait until quotas were read, from the topic or, if it cannot be read, from the snapshot; or for the end."""
        while not self._store.ready and not stopping.is_set():
            if self._log.tried and self._log.problem is not None:
                await self._service.change(self._store.use_snapshot)
            await asyncio.sleep(_LOOK_SECONDS)

    async def run(self) -> None:
        """Save snapshots, until cancelled."""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            await self._service.change(self._store.keep)
            await self._service.change(self._store.save)

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            self._once("quota_topic", self._drain())

    async def _drain(self) -> None:
        self._due = False
        await self._service.change(self._store.drain)
