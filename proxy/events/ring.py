"""The last events, encoded as JSON, with bounds for each kind of its own: one noisy source displaces only its own kind.

A kind keeps its last KIND_EVENTS_MAX events, of KIND_BYTES_MAX together. It takes BURST events at once and PER_SECOND
after that; those above are left out and counted.
"""

import json
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain, islice, takewhile
from threading import Lock
from typing import Final, NamedTuple

from proxy.events.kinds import Event
from proxy.system.clock import now_ms
from proxy.system.logs import AUDIT, event

KIND_EVENTS_MAX: Final = 500
KIND_BYTES_MAX: Final = 128 * 1024
BURST: Final = 100
PER_SECOND: Final = 2
FIELD_CHARACTERS_MAX: Final = 300
TEXT_CHARACTERS_MAX: Final = 1000
_MS_PER_SECOND: Final = 1000


class Portion(NamedTuple):
    """The events that a reader gets, and how many it does not get.

    Args:
        last: the id of the latest event of all; 0 before the first.
        lost: how many events after the reader's id are no longer kept.
        left_out: by kind, how many events were not kept, since too many of their kind came.
        events: the events as JSON objects, in the order of their ids.
    """

    last: int
    lost: int
    left_out: dict[str, int]
    events: list[str]


class _Kind:
    """The events of one kind, and what it may add now."""

    __slots__ = ("events", "filled_ms", "room", "size")

    def __init__(self, now_ms: int) -> None:
        self.events: deque[tuple[int, str]] = deque()
        self.size = 0
        self.room = float(BURST)
        self.filled_ms = now_ms

    def admits(self, now_ms: int) -> bool:
        """Return whether one more event may be added now, and if so, count it as added."""
        gained = max(0, now_ms - self.filled_ms) * PER_SECOND / _MS_PER_SECOND
        self.room = min(float(BURST), self.room + gained)
        self.filled_ms = now_ms
        if self.room < 1:
            return False
        self.room -= 1
        return True

    def later(self, number: int) -> Iterator[tuple[int, str]]:
        """Return the events after an id, the latest first."""
        return takewhile(lambda event: event[0] > number, reversed(self.events))

    def add(self, number: int, text: str) -> None:
        """Add an event, and drop the oldest ones beyond the bounds."""
        self.events.append((number, text))
        self.size += len(text)
        while len(self.events) > KIND_EVENTS_MAX or self.size > KIND_BYTES_MAX:
            self.size -= len(self.events.popleft()[1])


class Ring:
    """The last events of each kind as JSON, numbered from 1.

    Attributes:
        last: the id of the latest event; 0 before the first.
    """

    def __init__(self) -> None:
        self.last = 0
        self._kinds: dict[str, _Kind] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, event: Event, at: float, now_ms: int) -> bool:
        """Add an event; False if too many of its kind come, so that this one is left out.

        Args:
            at: the time of day, in seconds since the epoch.
            now_ms: the time of a monotonic clock, for the bound of events per second.
        """
        kind = self._kinds.get(event.kind)
        if kind is None:
            kind = self._kinds[event.kind] = _Kind(now_ms)
        if not kind.admits(now_ms):
            self._left_out[event.kind] += 1
            return False
        self.last += 1
        document = {
            "id": self.last,
            "at": iso_ms(at),
            "kind": event.kind,
            "text": event.text[:TEXT_CHARACTERS_MAX],
        }
        for name, value in event.fields.items():
            document[name] = value[:FIELD_CHARACTERS_MAX] if isinstance(value, str) else value
        kind.add(self.last, json.dumps(document))
        return True

    def after(self, number: int | None, limit: int) -> Portion:
        """Return at most `limit` events after the id `number`, the earliest first; with None the latest events.

        An id that is larger than `last` belongs to an earlier start of the process, and counts as 0.
        """
        if number is None:
            latest = chain.from_iterable(
                islice(reversed(kind.events), limit) for kind in self._kinds.values()
            )
            chosen, lost = sorted(latest)[-limit:], 0
        else:
            first = number if number <= self.last else 0
            later = sorted(chain.from_iterable(kind.later(first) for kind in self._kinds.values()))
            chosen, lost = later[:limit], self.last - first - len(later)
        return Portion(self.last, lost, dict(self._left_out), [text for _, text in chosen])


def iso_ms(seconds: float) -> str:
    """Return a time of day in ISO 8601, UTC, to the millisecond.

    >>> iso_ms(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ----------------------------------------------------------------------------------------------------
# Counts, logs and keeps events. Any thread may tell one: quotas change in a thread of their own.


_RUN_BYTES: Final = 8

logger = logging.getLogger(__name__)
_audit: Final = logging.getLogger(AUDIT)


class Events:
    """Counts, logs and keeps the events of this process since its start.

    Args:
        counts: counts all events by kind, also those that are left out.
        clock: returns the time of day, in seconds since the epoch.

    Attributes:
        run: a random text that identifies this start of the process; event ids begin with 1 at each start.
    """

    def __init__(self, counts: Counter[str], clock: Callable[[], float] = time.time) -> None:
        self.run = secrets.token_hex(_RUN_BYTES)
        self._counts = counts
        self._clock = clock
        self._lock = Lock()
        self._ring = Ring()

    def tell(self, happened: Event) -> None:
        """Count and keep an event, and log it if its kind has a log line; any thread may call it."""
        with self._lock:
            self._counts[happened.kind] += 1
            kept = self._ring.add(happened, self._clock(), now_ms())
        if kept and happened.line:
            level = logging.WARNING if happened.warning else logging.INFO
            event(_audit if happened.audit else logger, level, happened.line, **happened.fields)

    def after(self, number: int | None, limit: int) -> Portion:
        """Return at most `limit` events after the id `number`; with None the latest events."""
        with self._lock:
            return self._ring.after(number, limit)
