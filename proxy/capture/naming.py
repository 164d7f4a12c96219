"""Resolves topic ids to names before rows are written (KIP-516), with a bounded wait.

Every batch asks for its ids without a name, since a topic may be new, or the cluster may have been unreachable;
`quotas.throttles.topic_names` bounds the requests to the cluster. The writer waits only for ids that it has not waited
for lately, only while no rows pile up, and not again for a while after a wait without a result. So requests for topics
that do not exist cost other clients at most the names in their rows.
"""

import time
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, Protocol

from proxy.capture.records import Batch
from proxy.capture.tables import ids_without_name
from quotas.throttles.topic_names import ASKED_AT_ONCE_MAX

SECONDS_MAX: Final = 2.0
STEP_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 30.0
AWAITED_MAX: Final = 10_000
# With more waiting batches than these the writer is behind, and does not wait for names.
BACKLOG_MAX: Final = 4

Ask = Callable[[Collection[bytes]], None]
"""Requests the names of topic ids; runs on the event loop."""


class Topics(Protocol):
    """The known names of topic ids."""

    def known(self, topic_id: bytes) -> str | None:
        """A topic's name."""


class Naming:
    """Resolves topic ids.

    Args:
        waiting: returns the number of batches that wait to be written.
    """

    def __init__(self, topics: Topics, ask: Ask, waiting: Callable[[], int]) -> None:
        self._topics = topics
        self._ask = ask
        self._waiting = waiting
        self._awaited: dict[bytes, None] = {}  # ids waited for recently; the oldest is removed first
        self._next_wait_at = 0.0

    def resolve(self, batch: Batch) -> None:
        """Ask for unknown names, and wait a moment for the result if that is worthwhile."""
        missing = ids_without_name(batch, self._topics.known)
        if not missing:
            return
        self._ask(list(islice(missing, ASKED_AT_ONCE_MAX)))
        now = time.monotonic()
        new = missing.difference(self._awaited)
        if not new or now < self._next_wait_at:
            return
        until = now + SECONDS_MAX
        while new and now < until and self._waiting() <= BACKLOG_MAX:
            time.sleep(STEP_SECONDS)
            new = {topic_id for topic_id in new if self._topics.known(topic_id) is None}
            now = time.monotonic()
        if new:
            self._next_wait_at = now + RETRY_SECONDS
            self._note_awaited(new)

    def _note_awaited(self, topic_ids: set[bytes]) -> None:
        for topic_id in topic_ids:
            self._awaited[topic_id] = None
        for topic_id in list(islice(self._awaited, max(0, len(self._awaited) - AWAITED_MAX))):
            del self._awaited[topic_id]
