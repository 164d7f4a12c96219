"""Has topics' names found out before rows that have only ids are written (KIP-516): waits a little, and not for ever.

Every id without a name is asked for with every batch it is in, for it may be of a topic that was just made, or the
cluster could not be asked; how often that becomes a question is `quotas.topic_names`'s business. Waiting is another
matter: only for ids that were not waited for lately, only while no rows pile up, and after it was in vain not again for
a while. So whoever names topics that are not there costs others nothing but names in their rows.
"""

import time
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, Protocol

from proxy.capture.recorder import Batch
from proxy.capture.tables import unnamed
from quotas.topic_names import ASKED_AT_ONCE_MAX

__all__ = ["Ask", "Naming", "Topics"]

_SECONDS_MAX: Final = 2.0
_STEP_SECONDS: Final = 0.05
_VAIN_SECONDS: Final = 30.0
_WAITED_MAX: Final = 10_000
# More batches than these wait: the writer is behind already.
_BACKLOG_MAX: Final = 4

Ask = Callable[[Collection[bytes]], None]
"""Has names asked for, by their ids; on the loop."""


class Topics(Protocol):
    """What is known of topics' ids."""

    def known(self, topic_id: bytes) -> str | None:
        """A topic's name."""


class Naming:
    """Finds names of topics.

    Args:
        waiting: how many batches wait to be written.
    """

    def __init__(self, topics: Topics, ask: Ask, waiting: Callable[[], int]) -> None:
        self._topics = topics
        self._ask = ask
        self._waiting = waiting
        self._waited: dict[bytes, None] = {}  # for these; the oldest makes room
        self._not_before = 0.0

    def find(self, batch: Batch) -> None:
        """Have names asked for that are not known, and give the answer a moment, where that is worth while."""
        missing = unnamed(batch, self._topics.known)
        if not missing:
            return
        self._ask(list(islice(missing, ASKED_AT_ONCE_MAX)))
        now = time.monotonic()
        new = missing.difference(self._waited)
        if not new or now < self._not_before:
            return
        until = now + _SECONDS_MAX
        while new and now < until and self._waiting() <= _BACKLOG_MAX:
            time.sleep(_STEP_SECONDS)
            new = {topic_id for topic_id in new if self._topics.known(topic_id) is None}
            now = time.monotonic()
        if new:
            self._not_before = now + _VAIN_SECONDS
            self._remember(new)

    def _remember(self, topic_ids: set[bytes]) -> None:
        for topic_id in topic_ids:
            self._waited[topic_id] = None
        for topic_id in list(islice(self._waited, max(0, len(self._waited) - _WAITED_MAX))):
            del self._waited[topic_id]
