"""The event loop's interface to the quota store: one thread reads, alters and describes quotas.

With one thread, alterations are serialised and need no lock. The thread gets one client's request at a time, so the
operator's file, the brokers' quotas and the topic (`read`, `change`) wait for at most one request.

The other requests wait on the loop, in an `AddressQueue`: at most REQUESTS_MAX, BYTES_MAX bytes, and ADDRESS_BYTES_MAX
of one address, where each request counts as at least 64 KiB. Beyond that, a connection of the address with the most is
closed (`quota_requests_max`), and its client can reconnect and ask again. Each connection has one request under way at
a time; when it closes, its waiting request is removed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from protocol.errors import WireError
from proxy.channel import PeerError, Question, SharedResponse
from proxy.config import Config, QuotaSettings, unenforced
from proxy.control.quotas.responses import Permissions, Response, Unread, handle_request
from proxy.control.quotas.store import QuotaStore, with_pauses
from proxy.explain.explanation import Origin
from proxy.system.files import Signature
from proxy.system.logs import event
from proxy.system.stats import Stats
from proxy.system.threads import AddressQueue
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author

REQUESTS_MAX: Final = 1000
TIMES_SECONDS_MAX: Final = 60.0  # between two looks at entries with times, since a clock may be set
BYTES_MAX: Final = 64 * 1024**2
ADDRESS_BYTES_MAX: Final = BYTES_MAX // 8  # 125 small requests, or the two largest

Respond = Callable[[bytes | bytearray | SharedResponse | Exception], None]

logger = logging.getLogger(__name__)


class _Request:
    """A client's request to the quota API that waits for the thread; requests are compared by identity."""

    __slots__ = ("question", "respond")

    def __init__(self, question: Question, respond: Respond) -> None:
        self.question = question
        self.respond = respond


class QuotaService:
    """Takes requests of the quota API on the event loop, and has one thread handle them with the store.

    Args:
        loop: the event loop, on which all callbacks are called.
        store: the quotas; from now on only this object's thread uses them.
        altered: called on the loop when quotas have changed, before the response to the alteration.
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
        self._waiting = AddressQueue[_Request](BYTES_MAX, REQUESTS_MAX, ADDRESS_BYTES_MAX)
        self._busy = False  # the thread has a client's request
        self._unread: Unread = WeakValueDictionary()
        self._changed = asyncio.Event()  # since `keep_times` has looked

    @property
    def file_signature(self) -> Signature:
        """The signature of the quotas file as last read or written here; the reloader does not read this file again."""
        return self._store.file_signature

    def ask(self, question: Question, respond: Respond) -> Callable[[], None]:
        """Queue a request; `respond` is called on the loop with the response frame, or with an exception.

        Returns a function that cancels the request: `respond` is then not called, unless the thread has begun to
        handle it.
        """
        request = _Request(question, respond)
        for dropped in self._waiting.add(question.address, len(question.frame), request):
            error = PeerError(
                "quota_requests_max", f"{len(self._waiting)} quota requests are already waiting"
            )
            self._loop.call_soon(dropped.respond, error)
        self._begin()
        return partial(self._waiting.discard, request)

    async def read(self, settings: QuotaSettings) -> tuple[Definitions, int, list[str]]:
        """Apply new settings and read the file if it has changed.

        Returns: the quotas, the number of changed entities, and warnings about quotas without effect.

        Raises:
            ConfigError: the file cannot be read, or a definition is invalid; nothing has changed.
        """
        found = await self._loop.run_in_executor(self._thread, self._read, settings)
        self._permissions = _permissions(settings)
        self._changed.set()
        return found

    async def keep_times(self) -> None:
        """Put entries with times in force as they begin and end; runs until it is cancelled."""
        while True:
            self._changed.clear()
            if await self.change(self._store.elapse):
                event(logger, logging.INFO, "quotas of certain times have begun or ended")
            seconds = await self._loop.run_in_executor(self._thread, self._store.next_change)
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._changed.wait(),
                    TIMES_SECONDS_MAX if seconds is None else min(seconds, TIMES_SECONDS_MAX),
                )

    async def change(self, work: Callable[..., bool], *arguments: object) -> bool:
        """Run a function that may change quotas in the store's thread, and return its result.

        Args:
            work: returns whether any quota has changed; then `altered` is called.
        """
        differs = await self._loop.run_in_executor(self._thread, work, *arguments)
        if differs:
            self._changed.set()
            self._altered()
        return differs

    def close(self) -> None:
        """Drop the waiting requests and take no more; the thread finishes the request that it handles."""
        self._waiting.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read(self, settings: QuotaSettings) -> tuple[Definitions, int, list[str]]:
        before = self._store.version
        definitions = self._store.read(settings)
        warnings = unenforced(with_pauses(definitions.entries()), settings.file)
        return definitions, self._store.version - before, warnings

    def _begin(self) -> None:
        """Give the thread the next request, unless it has one."""
        if self._busy:
            return
        request = self._waiting.next()
        if request is None:
            return
        work = self._loop.run_in_executor(
            self._thread, handle_request, self._store, self._permissions, request.question, self._unread
        )
        self._busy = True
        work.add_done_callback(partial(self._done, request.respond))

    def _done(self, respond: Respond, work: asyncio.Future[Response]) -> None:
        self._busy = False
        if work.cancelled():
            return  # the process ends
        self._begin()
        error = work.exception()
        if error is not None:
            if not isinstance(error, WireError):
                logger.error("internal error: quota request failed", exc_info=error)
            self._stats.quota_requests["malformed" if isinstance(error, WireError) else "failed"] += 1
            respond(error if isinstance(error, Exception) else RuntimeError(str(error)))
            return
        frame, result, altered = work.result()
        self._stats.quota_requests[result] += 1
        try:
            if altered:
                self._changed.set()
                self._altered()
        finally:  # it is altered, on the disk and in force, whatever that leads to here
            respond(frame)


def _permissions(settings: QuotaSettings) -> Permissions:
    return Permissions(frozenset(settings.alter_principals), frozenset(settings.describe_principals))


# Who has set a limit, and when, as far as it is known: for explanations (`proxy.explain`).


ALTERED_MAX: Final = 10_000  # entities; the one altered longest ago is forgotten first


class Origins:
    """Finds out who has set a limit and when, for explanations.

    That is the author of the entity's last alteration, if it was seen by this process; otherwise the place where
    quotas are kept, such as the file. Any thread may call it.
    """

    def __init__(self, config: Config) -> None:
        self._settings = config.quotas
        self._config_name = "" if config.source.path is None else config.source.path.name
        self._altered: OrderedDict[Entity, Origin] = OrderedDict()

    def note(self, entity: Entity, author: Author) -> None:
        """Store the author of an entity's last alteration; an author without a time gets the current time."""
        altered = self._altered
        host = author.address.rpartition(":")[0] or author.address
        by = f"{author.principal}{f' from {host}' if host else ''}"
        altered[entity] = Origin(by, author.at or iso(datetime.now(UTC).timestamp()))
        altered.move_to_end(entity)
        while len(altered) > ALTERED_MAX:
            altered.popitem(last=False)

    def __call__(self, entity: Entity | None, setting: str) -> Origin:
        """Return the origin of an entity's limit, or of a setting of `[quotas]`."""
        if setting:
            return Origin(f"quotas.{setting} in {self._config_name or 'the command line'}", "")
        found = None if entity is None else self._altered.get(entity)
        if found is not None:
            return found
        settings = self._settings
        if settings.store == "cluster":
            return Origin("the brokers' own quotas", "")
        if settings.store == "topic":
            return Origin(f"topic {settings.topic}", "")
        if settings.file is None:
            return Origin("the command line", "")
        try:
            changed = iso(settings.file.stat().st_mtime)
        except OSError:
            changed = ""
        return Origin(settings.file.name, changed)


def iso(seconds: float) -> str:
    """Return a time in ISO 8601, UTC, to the second.

    >>> iso(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
