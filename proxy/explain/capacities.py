"""Capacities over time, in the process that divides them: what has kept each class from using more, and events. Pure.

Once a second the present division is sampled. Of a class that waits, sums over the windows of `parts` are kept: how
often each level has kept it from using more, and what it had meanwhile. A class that does not wait costs nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from math import inf
from typing import Final

from proxy.events.kinds import (
    CapacityNotUsedUp,
    CapacityUsedUp,
    Event,
    PromisesExceedCapacity,
    PromisesFitCapacity,
)
from proxy.explain.documents import CAPACITIES_MAX, CLASSES_MAX, CapacityRow, ClassRow, Level
from proxy.explain.parts import QUARTER, Windows
from quotas.definitions.alterations import text_of
from quotas.definitions.classes import NEWCOMERS, REPLICATION_BUCKET, UNPROMISED
from quotas.definitions.entities import BucketKey, Entity
from quotas.definitions.kinds import FOLLOWER_RATE, FOLLOWER_UNTHROTTLED, LEADER_RATE, LEADER_UNTHROTTLED
from quotas.sharing.capacities import CapacityState, ClassState

UNPROMISED_TEXT: Final = "clients without a limit"
_REPLICATION_TEXTS: Final = {
    FOLLOWER_RATE: "follower replication",
    LEADER_RATE: "leader replication",
    FOLLOWER_UNTHROTTLED: "follower replication, not throttled",
    LEADER_UNTHROTTLED: "leader replication, not throttled",
}
SAMPLE_MS: Final = 1000
SAMPLED_MAX: Final = 2_000  # classes that wait; about 1 KB each
# What differs by less than this part is equal: loans are not changed for less.
_EQUAL_PART: Final = 0.02
RATE: Final = "rate"
CEILING: Final = "ceiling"
CAPACITY: Final = "capacity"
SHRUNK: Final = "shrunk"
_LEVELS: Final = (RATE, CEILING, CAPACITY, SHRUNK)
# Beside the number of samples of each level: what the class had of its rate, its loan, what was left for all loans, and
# the part of its rate.
_SUMS: Final = len(_LEVELS) + 4


# ----------------------------------------------------------------------------------------------------
# One moment.


def class_text(bucket: BucketKey | None, quota_key: str = "") -> str:
    """Return a class as text for people.

    Args:
        quota_key: of its rate; needed for replication alone.

    >>> class_text(BucketKey("ann", None)), class_text(BucketKey(None, None, "web")), class_text(None)
    ("user 'ann'", "group 'web'", 'a class with a long name')
    >>> class_text(BucketKey(None, None), "follower.replication.throttled.rate")
    'follower replication'
    """
    if quota_key in _REPLICATION_TEXTS:
        return _REPLICATION_TEXTS[quota_key]
    if bucket is None:
        return "a class with a long name"
    if bucket == UNPROMISED:
        return UNPROMISED_TEXT
    if bucket == NEWCOMERS:
        return "new names below a default"
    return text_of(Entity(bucket.user, bucket.client_id, group=bucket.group))


def waits(one: ClassState) -> bool:
    """Whether a class could use more than it has, or has all that its ceiling lets it have."""
    return bool(_binds(one, 1.0, inf))


def _binds(one: ClassState, shrunk: float, capacity: float) -> str:
    """Return the level that keeps a class from using more; "" if it has what it wants.

    A ceiling that is not below the capacity keeps no class from anything: then it is the capacity.
    """
    has, terms = one.rate + one.lent, one.terms
    if terms.exempt or not one.demand:
        return ""
    if one.demand > has * (1 + _EQUAL_PART):
        return SHRUNK if shrunk < 1 - _EQUAL_PART and one.demand > one.rate else CAPACITY
    if terms.ceiling > terms.rate:
        if one.demand < min(terms.ceiling, capacity) * (1 - _EQUAL_PART):
            return ""
        return CEILING if terms.ceiling < capacity else CAPACITY
    return RATE if one.demand >= terms.rate * (1 - _EQUAL_PART) else ""


def row_of(state: CapacityState) -> CapacityRow:
    """Return a capacity as a row of `/v1/capacities`, with the classes that have or want the most."""
    shown = nlargest(CLASSES_MAX, state.classes, key=lambda one: (one.rate + one.lent, one.demand))
    return CapacityRow(
        key=state.quota_key,
        broker=state.broker,
        value=state.rate,
        promised=round(sum(one.rate for one in state.classes), 3),
        lent=round(sum(one.lent for one in state.classes), 3),
        left=round(state.left, 3),
        shrunk=round(state.shrunk, 4),
        classes_total=len(state.classes),
        waiting=sum(map(waits, state.classes)),
        classes=tuple(map(_class_row, shown)),
    )


def rows_of(states: Iterable[CapacityState]) -> tuple[CapacityRow, ...]:
    """Return the capacities as rows of `/v1/capacities`: what brokers take first, then by broker."""
    found = sorted(states, key=lambda one: (one.quota_key != "producer_byte_rate", one.broker))
    return tuple(map(row_of, found[:CAPACITIES_MAX]))


def _class_row(one: ClassState) -> ClassRow:
    return ClassRow(
        entity=class_text(one.bucket, one.quota_key),
        key=one.quota_key,
        broker=one.broker,
        rate=round(one.terms.rate, 3),
        ceiling=round(one.terms.ceiling, 3),
        weight=one.terms.weight,
        exempt=one.terms.exempt,
        has=round(one.rate, 3),
        lent=round(one.lent, 3),
        demand=round(one.demand, 3),
        waits=waits(one),
    )


# ----------------------------------------------------------------------------------------------------
# Over time.


class CapacityWatch:
    """Samples how capacities are divided; afterwards says for any class what has kept it from using more."""

    def __init__(self) -> None:
        # By class (quota key, its broker, bucket), in the order in which they last waited; each with the rate and the
        # broker of its capacity.
        self._classes: dict[
            tuple[str, int, BucketKey | None], tuple[Windows, ClassState, tuple[float, int], int]
        ] = {}
        self._promises: dict[tuple[str, int], _Condition] = {}
        self._use: dict[tuple[str, int], _Condition] = {}

    def sample(self, states: Sequence[CapacityState], now_ms: int) -> Iterator[None]:
        """Sample all classes that wait; the work is done while the caller iterates."""
        for state in states:
            spare = state.left + sum(one.lent for one in state.classes)
            for one in state.classes:
                binds = _binds(one, one.shrunk, state.rate)
                if binds:
                    self._add(state, one, binds, spare, now_ms)
                yield
        self._expire(now_ms)

    def judge(self, states: Sequence[CapacityState], now_ms: int) -> Iterator[Event]:
        """Yield an event for each capacity that begins or ends to be used up, or to be less than is promised of it."""
        known = {(one.quota_key, one.broker): one for one in states}
        for place in self._promises.keys() | self._use.keys() | known.keys():
            yield from self._judge(place, known.get(place), now_ms)

    def forget(self) -> None:
        """Forget everything, since another process divides the capacities now."""
        self._classes.clear()
        self._promises.clear()
        self._use.clear()

    def level(
        self, key: str, bucket: BucketKey, broker: int | None, window: int, now_ms: int
    ) -> Level | None:
        """Return what has kept a class from using more over a window; None if it has not waited.

        Where quotas are counted for each broker, it is that of the broker at which the class has waited longest.

        Args:
            key: the quota key.
            broker: of a class of replication; None for a class of clients.
        """
        best: Level | None = None
        most = 0.0
        for (own_key, at, one), (windows, state, (capacity, place), _) in self._classes.items():
            if own_key != key or one != bucket or broker not in (None, at):
                continue
            sums = windows.sums(window, now_ms)
            counts, (has, lent, spare, shrunk) = sums[: len(_LEVELS)], sums[len(_LEVELS) :]
            samples = sum(counts)
            if samples <= most:
                continue
            most = samples
            best = Level(
                binds=_LEVELS[counts.index(max(counts))],
                entity=class_text(bucket, key),
                shared=bucket.client_id is None and bucket != REPLICATION_BUCKET,
                broker=place,
                capacity=capacity,
                rate=state.terms.rate,
                ceiling=state.terms.ceiling,
                has=round(has / samples, 3),
                lent=round(lent / samples, 3),
                spare=round(spare / samples, 3),
                shrunk=round(shrunk / samples, 4),
            )
        return best

    def _add(self, state: CapacityState, one: ClassState, binds: str, spare: float, now_ms: int) -> None:
        key = one.quota_key, one.broker, one.bucket
        found = self._classes.pop(key, None)
        if found is None and len(self._classes) >= SAMPLED_MAX:
            oldest = next(iter(self._classes))
            if self._classes[oldest][3] >= now_ms:
                return  # all that are kept wait now: the same ones stay, with all of their samples
            del self._classes[oldest]
        windows = Windows(_SUMS, "f") if found is None else found[0]
        self._classes[key] = windows, one, (state.rate, state.broker), now_ms
        windows.add(_LEVELS.index(binds), 1.0, now_ms)
        for index, amount in enumerate((one.rate, one.lent, spare, one.shrunk), start=len(_LEVELS)):
            windows.add(index, amount, now_ms)

    def _expire(self, now_ms: int) -> None:
        """Remove the classes that have not waited for a quarter of an hour."""
        since_ms = now_ms - Windows.length_ms(QUARTER, now_ms)
        while self._classes:
            key = next(iter(self._classes))
            if self._classes[key][3] >= since_ms:
                return
            del self._classes[key]

    def _judge(self, place: tuple[str, int], state: CapacityState | None, now_ms: int) -> Iterator[Event]:
        key, broker = place
        capacity = 0.0 if state is None else state.rate
        shrunk = 1.0 if state is None else state.shrunk
        promises = self._promises.setdefault(place, _Condition())
        if promises.changes(shrunk < 1 - _EQUAL_PART, now_ms):
            yield (
                PromisesExceedCapacity(key, broker, capacity, round(shrunk, 3))
                if promises.holds
                else PromisesFitCapacity(key, broker)
            )
        used_up = state is not None and any(_binds(one, 1.0, state.rate) == CAPACITY for one in state.classes)
        use = self._use.setdefault(place, _Condition())
        if use.changes(used_up, now_ms):
            waiting = 0 if state is None else sum(map(waits, state.classes))
            yield (
                CapacityUsedUp(key, broker, capacity, waiting)
                if use.holds
                else CapacityNotUsedUp(key, broker)
            )
        if state is None and not promises.holds and not use.holds:
            del self._promises[place], self._use[place]


# So long it has to be so without a pause that it counts as begun, or as ended: loans change several times a second.
_BEGINS_MS: Final = 5_000
_ENDS_MS: Final = 15_000


class _Condition:
    """Whether something holds, for longer than a moment."""

    __slots__ = ("_since_ms", "holds")

    def __init__(self) -> None:
        self.holds = False
        self._since_ms = -1  # since when it is otherwise; -1: it is not

    def changes(self, now: bool, now_ms: int) -> bool:
        """Take what is so now; returns whether `holds` has changed."""
        if now == self.holds:
            self._since_ms = -1
            return False
        if self._since_ms < 0:
            self._since_ms = now_ms
        if now_ms < self._since_ms + (_BEGINS_MS if now else _ENDS_MS):
            return False
        self.holds, self._since_ms = now, -1
        return True
