"""Counts, logs and keeps events. Any thread may tell one: quotas change in a thread of their own."""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Final

from proxy.clock import now_ms
from proxy.events.event import Event
from proxy.events.ring import Portion, Ring
from proxy.logs import AUDIT, event

_RUN_BYTES: Final = 8

logger = logging.getLogger(__name__)
_audit: Final = logging.getLogger(AUDIT)


class Events:
    """The events of one start of the process.

    Args:
        counts: counts all events by kind, also those that are left out.
        clock: returns the time of day, in seconds since the epoch.

    Attributes:
        run: identifies this start; ids begin anew with each.
    """

    def __init__(self, counts: Counter[str], clock: Callable[[], float] = time.time) -> None:
        self.run = secrets.token_hex(_RUN_BYTES)
        self._counts = counts
        self._clock = clock
        self._lock = Lock()
        self._ring = Ring()

    def tell(self, happened: Event) -> None:
        """Count an event, keep it, and log it unless another line says it."""
        with self._lock:
            self._counts[happened.kind] += 1
            kept = self._ring.add(happened, self._clock(), now_ms())
        if kept and happened.line:
            level = logging.WARNING if happened.warning else logging.INFO
            event(_audit if happened.audit else logger, level, happened.line, **happened.fields)

    def after(self, number: int | None, limit: int) -> Portion:
        """Return the events after an id; with None the latest ones."""
        with self._lock:
            return self._ring.after(number, limit)
