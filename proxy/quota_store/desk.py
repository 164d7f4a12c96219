"""The event loop's side of the quota store: one thread does everything that reads, alters or describes quotas.

One thread, so alterations are serialised and nothing there needs a lock. Requests wait in its queue, at most
REQUESTS_MAX of them with BYTES_MAX bytes; a connection with a further one is ended (`quota_requests_max`), and
a client that connects again asks again. Each connection has one request under way at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from weakref import WeakValueDictionary

from protocol.errors import WireError
from proxy.channel import PeerError, Question, Shared
from proxy.config import QuotaSettings, unenforced
from proxy.files import Signature
from proxy.quota_store.answers import Answer, Unread, answer
from proxy.quota_store.pace import paced
from proxy.quota_store.permissions import Permissions
from proxy.quota_store.store import QuotaStore
from proxy.stats import Stats
from quotas.alterations import Parts
from quotas.definitions import Definitions

__all__ = ["QuotaDesk"]

REQUESTS_MAX: Final = 1000
BYTES_MAX: Final = 64 * 1024**2

logger = logging.getLogger(__name__)


class QuotaDesk:
    """Takes requests on the loop, and has them answered away from it.

    Args:
        loop: the loop that asks and is told.
        store: the quotas; from now on the desk's thread alone uses it.
        altered: called on the loop when the quotas have changed, before who changed them is answered.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: QuotaStore,
        settings: QuotaSettings,
        stats: Stats,
        altered: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self._stats = stats
        self._altered = altered
        self._thread = ThreadPoolExecutor(1, "quotas")
        self._permissions = _permissions(settings)
        self._requests = 0
        self._bytes = 0
        self._unread: Unread = WeakValueDictionary()

    @property
    def seen(self) -> Signature:
        """The quotas file as it was last read or written by us."""
        return self._store.seen

    def ask(
        self, question: Question, answered: Callable[[bytes | bytearray | Shared | Exception], None]
    ) -> None:
        """Have a request answered; `answered` is called on the loop, later."""
        size = len(question.frame)
        if self._requests >= REQUESTS_MAX or self._bytes + size > BYTES_MAX:
            error = PeerError("quota_requests_max", f"{self._requests} quota requests wait already")
            self._loop.call_soon(answered, error)
            return
        self._requests += 1
        self._bytes += size
        work = self._loop.run_in_executor(
            self._thread, answer, self._store, self._permissions, question, self._unread
        )
        work.add_done_callback(lambda done: self._done(done, size, answered))

    async def read(self, settings: QuotaSettings) -> tuple[Definitions, list[str]]:
        """Take new settings and read the file if it has changed; give the quotas, and what has no effect among them.

        Raises:
            ConfigError: the file can not be read, or a definition can not be; everything is as it was.
        """
        found = await self._loop.run_in_executor(self._thread, self._read, settings)
        self._permissions = _permissions(settings)
        return found

    async def mirror(self, entries: Iterable[tuple[Parts, Mapping[str, float]]]) -> bool:
        """Have the quotas be those of the brokers; tell whether anything differed."""
        differs = await self._loop.run_in_executor(self._thread, self._store.mirror, entries)
        if differs:
            self._altered()
        return differs

    def close(self) -> None:
        """Take no more; what is being written is written to its end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read(self, settings: QuotaSettings) -> tuple[Definitions, list[str]]:
        definitions = self._store.read(settings)
        return definitions, unenforced(paced(definitions.entries()))

    def _done(
        self,
        work: asyncio.Future[Answer],
        size: int,
        answered: Callable[[bytes | bytearray | Shared | Exception], None],
    ) -> None:
        self._requests -= 1
        self._bytes -= size
        if work.cancelled():
            return  # the process ends
        error = work.exception()
        if error is not None:
            if not isinstance(error, WireError):
                logger.error("a bug of ours fails a quota request", exc_info=error)
            self._stats.quota_requests["malformed" if isinstance(error, WireError) else "failed"] += 1
            answered(error if isinstance(error, Exception) else RuntimeError(str(error)))
            return
        frame, result, altered = work.result()
        self._stats.quota_requests[result] += 1
        try:
            if altered:
                self._altered()
        finally:  # it is altered, on the disk and in force, whatever that leads to here
            answered(frame)


def _permissions(settings: QuotaSettings) -> Permissions:
    return Permissions(frozenset(settings.alter_principals), frozenset(settings.describe_principals))
