"""A quota topic in memory, for the store."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from proxy.control.quotas.store import QuotaStore
from proxy.events import Event
from proxy.topics.records import AppendError, Portion, Problem, Record

TOPIC_ID: Final = bytes(range(16))


class Inbox:
    """What the topic delivers."""

    def __init__(self) -> None:
        self.portions: deque[Portion] = deque()

    def take(self, seconds: float = 0) -> Portion | None:
        return self.portions.popleft() if self.portions else None


class FakeLog:
    """A topic in memory: what is appended comes back, unless `mute`."""

    def __init__(self) -> None:
        self.topic = "__sluice-quotas"
        self.topic_id = b""
        self.inbox = Inbox()
        self.problem: Problem | None = None
        self.write_problem: Problem | None = None
        self.end = 0
        self.appended: list[list[Record]] = []
        self.error: AppendError | None = None
        self.mute = False
        self.wanted: Callable[[Record], bool] | None = None

    def append(self, records: list[Record]) -> "Future[int]":
        found: Future[int] = Future()
        if self.error is not None:
            found.set_exception(self.error)
            return found
        self.appended.append(records)
        self.deliver(*records)
        found.set_result(self.end)
        return found

    def deliver(
        self, *records: Record, begins: bool = False, complete: bool = True, topic_id: bytes = TOPIC_ID
    ) -> None:
        placed = [record._replace(offset=self.end + index) for index, record in enumerate(records)]
        self.end += len(records)
        self.topic_id = topic_id
        if not self.mute:
            kept = [record for record in placed if self.wanted is None or self.wanted(record)]
            dropped = len(placed) - len(kept)
            self.inbox.portions.append(Portion(kept, self.end, begins, complete, topic_id, dropped))


def told_by(store: QuotaStore) -> list[tuple[object, ...]]:
    """What a store tells of each change: entity, old and new value, who and from where, and whether it has a line."""
    found: list[tuple[object, ...]] = []

    def tell(event: Event) -> None:
        said = [event.fields[name] for name in ("entity", "old", "new", "by", "from")]
        found.append((*said, bool(event.line)))

    store.tell = tell
    return found
