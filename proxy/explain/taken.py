"""What one client takes of each kind of quota, counted at visits, and since when it waits."""

from typing import Final, NamedTuple

from proxy.explain.rates import KEYS
from proxy.explain.rules import Rule
from proxy.explain.windows import LONG_SLOTS_MS, Windows
from quotas.throttles.client import ClientQuota
from quotas.throttles.request import MICROSECONDS_PER_PERCENT

_PAUSE_MS: Final = 30_000  # a client whose waits are further apart begins anew
_BROKERS_MAX: Final = 64  # of one client; what it takes at further ones is not counted
_COUNT_MS: Final = 50
_MS_PER_SECOND: Final = 1000.0
_PER_UNIT: Final = (1.0, 1.0, float(MICROSECONDS_PER_PERCENT), 1.0)  # of the counters, in the order of KEYS
_MUTATIONS: Final = 3


class Waiting(NamedTuple):
    """Since when a client has waited again and again for quotas of one key.

    Args:
        last_ms: the last time.
    """

    since_ms: int
    last_ms: int


class Taken:
    """What one client takes, by index of KEYS, in the unit of the quota.

    Attributes:
        waiting: since when it waits, by key; a pause of 30 s begins anew, and so does another limit.
    """

    __slots__ = ("_limits", "_mutations", "_read", "_windows", "waiting")

    def __init__(self) -> None:
        self._windows: Windows | None = None
        self._read: dict[
            int, tuple[ClientQuota, int, tuple[int, ...]]
        ] = {}  # by broker: when, and the counters
        self._mutations = 0  # counted once for all brokers
        self._limits: dict[Rule, float | None] = {}
        self.waiting: dict[str, Waiting] = {}

    def count(self, quota: ClientQuota, now_ms: int) -> None:
        """Count what it has taken since the last visit of any of its connections to the same broker.

        What it took before the first visit is not known.
        """
        broker = quota.produce.broker
        before = self._read.get(broker)
        if before is None:
            if len(self._read) < _BROKERS_MAX:
                counts = quota.taken()
                self._read[broker] = quota, now_ms, counts
                self._mutations = max(self._mutations, counts[_MUTATIONS])
            return
        known, at_ms, earlier = before
        if known is quota and now_ms - at_ms < _COUNT_MS:
            return
        counts = quota.taken()
        self._read[broker] = quota, now_ms, counts
        if counts == earlier:
            return
        if known is not quota:  # the engine had removed it, with its counters
            earlier = (0,) * len(KEYS)
        grown = [count - last for count, last in zip(counts, earlier, strict=True)]
        grown[_MUTATIONS] = max(0, counts[_MUTATIONS] - self._mutations)
        self._mutations = max(self._mutations, counts[_MUTATIONS])
        if self._windows is None:
            self._windows = Windows(len(KEYS), "f")
        for index, amount in enumerate(grown):
            if amount:
                self._windows.add(index, float(amount), now_ms)

    def waits(self, rule: Rule, limit: float | None, now_ms: int) -> None:
        """Note that it waits for a rule with this limit."""
        before = self.waiting.get(rule.key)
        known = self._limits.setdefault(rule, limit)
        if before is None or now_ms - before.last_ms > _PAUSE_MS or known != limit:
            self._limits[rule] = limit
            self.waiting[rule.key] = Waiting(now_ms, now_ms)
        else:
            self.waiting[rule.key] = before._replace(last_ms=now_ms)

    def forget(self, rule: Rule) -> None:
        """Forget a rule's limit."""
        self._limits.pop(rule, None)

    def amount(self, index: int, window: int, now_ms: int, since_ms: int = 0) -> float:
        """Return what it took in the slots of a window that begin at `since_ms` or later."""
        if self._windows is None:
            return 0.0
        found = sum(slot[index] for slot in self._windows.slots(window, now_ms, since_ms))
        return max(0.0, found) / _PER_UNIT[index]

    def highest(self, index: int, window: int, now_ms: int) -> float:
        """Return the highest rate per second of a window's complete slots that are 10 s or longer; 0 without any."""
        if self._windows is None:
            return 0.0
        rates = [0.0]
        for ring, slot_ms in LONG_SLOTS_MS:
            if ring <= window:
                complete = list(self._windows.slots(ring, now_ms))[1:]
                rates += [slot[index] * _MS_PER_SECOND / slot_ms for slot in complete]
        return max(rates) / _PER_UNIT[index]
