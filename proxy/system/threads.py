"""What the event loop does not do at once: work in a thread beside it, and long work of its own in turns.

    Worker           one thread that parses peers' large frames, which would block the loop for too long
    run_in_thread    the same for Sluice's own work, in any thread
    in_turns         long work on the loop, where traffic goes first

Python's threads take turns. While a job runs, they are shorter (`sys.setswitchinterval`), so that the loop, which gives
the interpreter away at every system call, has it back within TURN_SECONDS; and after each job the worker's thread rests
for as long as it has worked, so that no stream of large frames has more than half of the processor. Jobs can not pause
by themselves, as loops of ours do (`proxy.control.quotas.store`): they are functions of packages that know no clock.

The garbage collector is off meanwhile: a job makes up to a million objects, and each full collection visits all of
them, and frees nothing, without giving the interpreter away (0.3 s were measured; `python -m tests.bench.beside_loop`).

Jobs wait in an `AddressQueue`: a large one of one address waits for the small ones of others, and above the maximum the
last one of the address with the most is dropped. A job that has begun is not interrupted: so another address's job
waits for at most one job and the rest after it.
"""

import asyncio
import gc
import logging
import sys
from asyncio import AbstractEventLoop, Future, to_thread
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, itemgetter
from threading import Condition, Lock, Thread
from time import monotonic_ns, sleep, thread_time
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


class AddressQueue(Generic[T]):
    """A bounded queue that is fair between addresses: jobs of one client do not delay those of others for long.

    Items are distinguished by hash and equality; each is in the queue once.

    Every item has a weight: its bytes, but at least a minimum, so that small items count too. All rules use the weight:

        bound      of all items, and of one address's items with `address_bytes_max`
        overload   the newest item of the address with most weight is dropped; of equal ones that of the newcomer
        order      the item with the lowest tag is next (self-clocked fair queueing). A tag is a start plus the item's
                   weight. The start is the tag of the address's item before it; without one, of the item served last

    So addresses with a permanent backlog are served equal weights: a small item precedes the large ones of other
    addresses, and a large one waits for at most its own weight of each of them. An address without items needs no
    memory. The queue is pure; threads are the caller's.

    Args:
        bytes_max: the bound of the weight of all items.
        count_max: how many of the smallest items fit into `bytes_max`; so it sets the minimum weight.
        address_bytes_max: the bound of one address's weight; 0 for none.

    >>> queue = AddressQueue[str](bytes_max=1000, count_max=10)
    >>> queue.add("192.0.2.1", 600, "large"), queue.add("192.0.2.1", 1, "small")
    ([], [])
    >>> queue.add("192.0.2.2", 350, "other")  # 600 + 100 + 350
    ['small']
    >>> queue.next(), queue.next(), queue.next()
    ('other', 'large', None)
    """

    def __init__(self, bytes_max: int, count_max: int, address_bytes_max: int = 0) -> None:
        self._bytes_max = bytes_max
        self._item_bytes_min = bytes_max // count_max
        self._address_bytes_max = address_bytes_max
        self._by_address: dict[str, _AddressItems[T]] = {}  # addresses that have items
        self._address_of: dict[T, str] = {}
        self._virtual = 0  # the tag of the item that was served last
        self.bytes = 0  # the weight of all items

    def __len__(self) -> int:
        """The number of items."""
        return len(self._address_of)

    @property
    def addresses(self) -> int:
        """The number of addresses with items."""
        return len(self._by_address)

    def add(self, address: str, size: int, item: T) -> list[T]:
        """Add an item of `size` bytes; return the items that are dropped for lack of room, maybe the new one itself."""
        assert item not in self._address_of, "an item is taken once"
        items_of_address = self._by_address.setdefault(address, _AddressItems())
        weight = max(size, self._item_bytes_min)
        items_of_address.add(item, weight, self._virtual)
        self._address_of[item] = address
        self.bytes += weight
        dropped = []
        if self._address_bytes_max and items_of_address.bytes > self._address_bytes_max:
            dropped.append(self._drop(items_of_address))
        while self.bytes > self._bytes_max:
            dropped.append(self._drop(self._heaviest(items_of_address)))
        return dropped

    def next(self) -> T | None:
        """Remove and return the next item; None if the queue is empty."""
        if not self._by_address:
            return None
        item, self._virtual = min((items.first() for items in self._by_address.values()), key=itemgetter(1))
        self.discard(item)
        return item

    def discard(self, item: T) -> None:
        """Remove an item; no effect if it is not in the queue."""
        address = self._address_of.pop(item, None)
        if address is None:
            return
        items_of_address = self._by_address[address]
        self.bytes -= items_of_address.remove(item)
        if not items_of_address.items:
            del self._by_address[address]

    def clear(self) -> None:
        """Remove all items."""
        self._by_address.clear()
        self._address_of.clear()
        self.bytes = 0

    def _drop(self, items_of_address: "_AddressItems[T]") -> T:
        item = items_of_address.last()
        self.discard(item)
        return item

    def _heaviest(self, newcomer: "_AddressItems[T]") -> "_AddressItems[T]":
        """Return the address with the most weight; of equal ones the newcomer's."""
        return max(newcomer, *self._by_address.values(), key=attrgetter("bytes"))  # of equal ones the first


@dataclass(slots=True, eq=False)
class _AddressItems(Generic[T]):
    """The items of one address, in the order in which they came, each with its weight and its tag."""

    items: dict[T, tuple[int, int]] = field(default_factory=dict)
    bytes: int = 0

    def add(self, item: T, weight: int, virtual: int) -> None:
        """Append an item with its weight.

        Args:
            virtual: the queue's virtual time: the tag of the item that was served last.
        """
        start = self.items[self.last()][1] if self.items else virtual
        self.items[item] = weight, start + weight
        self.bytes += weight

    def remove(self, item: T) -> int:
        """Remove an item; returns its weight."""
        weight, _ = self.items.pop(item)
        self.bytes -= weight
        return weight

    def first(self) -> tuple[T, int]:
        """Return the oldest item and its tag."""
        item, (_, tag) = next(iter(self.items.items()))
        return item, tag

    def last(self) -> T:
        """Return the newest item."""
        return next(reversed(self.items))


logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.0002
JOBS_MAX: Final = 256
# Of the frames that wait, each of which counts as 256 KiB at least, and is kept by its connection as well.
BYTES_MAX: Final = 64 * 1024 * 1024
# A larger response to a request of Sluice's own is not parsed on the loop.
AT_ONCE_BYTES_MAX: Final = 16 * 1024


class OverloadError(Exception):
    """A job was dropped, since too many wait for the thread."""


class _Settings:
    """The interpreter's switch interval, and whether it collects garbage, while they are changed for a while."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = self._pauses = 0
        self._interval = 0.0
        self._collects = False

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """Shorten the interpreter's switch interval and collect no garbage during the block; blocks may overlap."""
        with self.without_collections():
            with self._lock:
                now = sys.getswitchinterval()
                if not self._running:
                    self._interval = now
                sys.setswitchinterval(min(now, TURN_SECONDS))
                self._running += 1
            try:
                yield
            finally:
                with self._lock:
                    self._running -= 1
                    if not self._running:
                        sys.setswitchinterval(self._interval)

    @contextmanager
    def without_collections(self) -> Iterator[None]:
        """Collect no garbage during the block; blocks may overlap, in several threads."""
        with self._lock:
            if not self._pauses:
                self._collects = gc.isenabled()
                gc.disable()
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                if not self._pauses and self._collects:
                    gc.enable()


_SETTINGS: Final = _Settings()


@dataclass(slots=True, eq=False)
class _Task:
    """A job that waits for the thread, or runs; jobs are compared by identity."""

    run: Callable[[], None]
    done: Callable[[bool], None]


class Worker:
    """Runs jobs one after the other in one thread, which starts with the first job.

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
        """Call `run` in the thread, then `done` on the loop: with True, or with False if the job was dropped or failed.

        Returns a function that cancels the job if it has not begun; `done` is not called then.

        Args:
            address: the client's address, for fairness between addresses.
            run: must not raise.
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
        """Drop all waiting jobs, and start no further one; no more callbacks are called."""
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
                with _SETTINGS.shortened():
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
    """Call a function in a thread and return its result: for Sluice's own work, of any size.

    Meanwhile the interpreter switches threads more often, so that the event loop goes on.
    """
    return await to_thread(_SETTINGS.shortened()(function), *arguments)


TURN_NS: Final = 1_000_000
_LONG_TURN_NS: Final = 3_000_000
_PART: Final = 8  # of the time that everything else has just taken


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items in short turns; after each turn the event loop does everything else that is due.

    A thread would not do: it keeps the interpreter for 5 ms at a time (`sys.getswitchinterval`), and for the whole of
    one call into C, such as that of `json.dumps` for 10,000 clients.

    A turn takes TURN_NS. If everything else takes more than eight times as long, as with much traffic, the next turn
    takes an eighth of that time, at most _LONG_TURN_NS. Otherwise work of 100 ms would take seconds.

    Args:
        items: making and handling one of them takes much less than a turn.
    """
    until_ns = monotonic_ns() + TURN_NS
    for item in items:
        yield item
        ended_ns = monotonic_ns()
        if ended_ns > until_ns:
            await asyncio.sleep(0)
            now_ns = monotonic_ns()
            until_ns = now_ns + min(max(TURN_NS, (now_ns - ended_ns) // _PART), _LONG_TURN_NS)


def without_collections() -> AbstractContextManager[None]:
    """Pause Python's collection of cycles: one that looks at a list of 10,000 clients holds the loop for 15 ms.

    Such a list has no cycles, and is freed without it. Pauses may overlap, also with jobs in threads.
    """
    return _SETTINGS.without_collections()
