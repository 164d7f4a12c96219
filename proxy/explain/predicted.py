"""What connections would wait for if quotas were enforced, over the last 10 s, minute and quarter of an hour.

`quotas.limiters.virtual_time` has the waits, in time that runs on while they last: their part of it is the share.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

from proxy.channel import Muting
from proxy.explain.rules import Rule, rule_of
from proxy.explain.windows import QUARTER, Windows
from quotas.limiters.virtual_time import ConnectionTime

__all__ = [
    "NOTHING_PREDICTED",
    "Predicted",
    "PredictedWaits",
    "Predictions",
    "main_rule",
    "merge_predicted",
    "open_loop",
]

RULES_MAX: Final = 16  # of one client


class Predicted(NamedTuple):
    """What one client would wait for.

    Args:
        part: of its time, of the connection that would wait longest.
        waits: the time in ms by rule, of all connections.
    """

    part: float
    waits: tuple[tuple[Rule, float], ...]


NOTHING_PREDICTED: Final = Predicted(0.0, ())


class PredictedWaits:
    """One connection's waits that would have been."""

    __slots__ = ("_lag_ms", "_waited_ms", "_windows")

    def __init__(self) -> None:
        self._windows = Windows(2)  # waits, and the time that passes for them
        self._waited_ms = self._lag_ms = 0

    def update(self, time: ConnectionTime, elapsed_ms: int, now_ms: int) -> int:
        """Take over what was added in the last so many ms; returns the waits among it."""
        waited_ms, self._waited_ms = time.waited_ms - self._waited_ms, time.waited_ms
        lag_ms, self._lag_ms = time.lag_ms - self._lag_ms, time.lag_ms
        self._windows.add(0, float(waited_ms), now_ms)
        self._windows.add(1, float(elapsed_ms + lag_ms), now_ms)
        return waited_ms

    def part(self, window: int, now_ms: int) -> float:
        """Return the part of its time over a window."""
        waited_ms, whole_ms = self._windows.sums(window, now_ms)
        return min(1.0, waited_ms / whole_ms) if whole_ms > 0 else 0.0


class Predictions:
    """One client's waits that would have been, by rule."""

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: dict[Rule, Windows] = {}

    def add(self, time: ConnectionTime, waited_ms: int, now_ms: int) -> None:
        """Add the waits of one of its connections."""
        if waited_ms <= 0 or time.waiting_for is None:
            return
        rule = rule_of(cast(Muting, time.waiting_for))  # a throttle that has counted a wait may mute
        found = self._rules.get(rule)
        if found is None:
            if len(self._rules) >= RULES_MAX:
                del self._rules[min(self._rules, key=lambda rule: self._rules[rule].sums(QUARTER, now_ms)[0])]
            found = self._rules[rule] = Windows(1)
        found.add(0, float(waited_ms), now_ms)

    @property
    def rules(self) -> list[Rule]:
        """The rules."""
        return list(self._rules)

    def report(self, parts: Iterable[float], window: int, now_ms: int) -> Predicted:
        """Return what was predicted over a window; `parts` are the connections'."""
        waits = ((rule, sums.sums(window, now_ms)[0]) for rule, sums in self._rules.items())
        return Predicted(max(parts, default=0.0), tuple((rule, ms) for rule, ms in waits if ms > 0))


def merge_predicted(some: Iterable[Predicted]) -> Predicted:
    """Add up what several processes predict of one client.

    >>> rule = Rule("produce", "producer_byte_rate")
    >>> found = merge_predicted([Predicted(0.5, ((rule, 10.0),)), Predicted(0.2, ((rule, 5.0),))])
    >>> found.part, dict(found.waits)[rule]
    (0.5, 15.0)
    """
    found = list(some)
    waits: dict[Rule, float] = {}
    for rule, ms in (wait for one in found for wait in one.waits):
        waits[rule] = waits.get(rule, 0.0) + ms
    return Predicted(max((one.part for one in found), default=0.0), tuple(waits.items()))


def main_rule(predicted: Predicted) -> Rule | None:
    """Return the rule that the client would wait for most; None if it would not wait."""
    return max(predicted.waits, key=lambda wait: wait[1])[0] if predicted.waits else None


def open_loop(rate: float, limit: float, total: float, backlog: float) -> Mapping[str, float]:
    """Return what would pass of a client that sends at its rate whatever happens, and what would be left.

    Args:
        rate: the client's.
        limit: the budget's.
        total: the rate of all clients that share the budget.
        backlog: of all of them, in bytes.

    >>> open_loop(3e6, 2e6, 4e6, 12e6)
    {'admitted_rate': 1500000.0, 'backlog_bytes': 9000000.0}
    """
    part = rate / total if total > 0 else 0.0
    admitted = min(rate, limit * part) if backlog > 0 else rate
    return {"admitted_rate": round(admitted, 3), "backlog_bytes": round(backlog * part, 0)}
