"""The waits of connections with enforcement, over the last 10 s, minute and quarter of an hour.

`quotas.limiters.virtual_time` counts the waits in virtual time, which is real time plus the lag. The part of a
connection's time that it would wait is the waits divided by the virtual time that has passed.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

from proxy.channel import Muting
from proxy.explain.rules import Rule, rule_of
from proxy.explain.windows import QUARTER, Windows
from quotas.limiters.virtual_time import ConnectionTime

RULES_MAX: Final = 16  # of one client


class Predicted(NamedTuple):
    """The waits that one client would have with enforcement.

    Args:
        part: the part of its time that the connection that would wait longest would wait.
        waits: the time in ms of all connections together, by rule.
    """

    part: float
    waits: tuple[tuple[Rule, float], ...]


NOTHING_PREDICTED: Final = Predicted(0.0, ())


class PredictedWaits:
    """The waits that one connection would have with enforcement."""

    __slots__ = ("_lag_ms", "_waited_ms", "_windows")

    def __init__(self) -> None:
        self._windows = Windows(2)  # waits, and the time that passes for them
        self._waited_ms = self._lag_ms = 0

    def update(self, time: ConnectionTime, elapsed_ms: int, now_ms: int) -> int:
        """Add the waits and the lag since the last call, `elapsed_ms` ago; returns the waits in ms."""
        waited_ms, self._waited_ms = time.waited_ms - self._waited_ms, time.waited_ms
        lag_ms, self._lag_ms = time.lag_ms - self._lag_ms, time.lag_ms
        self._windows.add(0, float(waited_ms), now_ms)
        self._windows.add(1, float(elapsed_ms + lag_ms), now_ms)
        return waited_ms

    def part(self, window: int, now_ms: int) -> float:
        """Return the part of its time over a window that the connection would wait."""
        waited_ms, whole_ms = self._windows.sums(window, now_ms)
        return min(1.0, waited_ms / whole_ms) if whole_ms > 0 else 0.0


class Predictions:
    """The waits that one client would have with enforcement, by rule."""

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
        """The rules that the client would wait for."""
        return list(self._rules)

    def report(self, parts: Iterable[float], window: int, now_ms: int) -> Predicted:
        """Return the prediction over a window.

        Args:
            parts: the part of its time that each connection would wait.
        """
        waits = ((rule, sums.sums(window, now_ms)[0]) for rule, sums in self._rules.items())
        return Predicted(max(parts, default=0.0), tuple((rule, ms) for rule, ms in waits if ms > 0))


def merge_predicted(some: Iterable[Predicted]) -> Predicted:
    """Add up several processes' predictions for one client.

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
    """Return the rate and the backlog of a client with enforcement, if it kept its rate although it is throttled.

    Args:
        rate: the client's rate, in bytes/s.
        limit: the limit of its budget, in bytes/s.
        total: the rate of all clients that share the budget, in bytes/s.
        backlog: the backlog of all of them, in bytes.

    >>> open_loop(3e6, 2e6, 4e6, 12e6)
    {'admitted_rate': 1500000.0, 'backlog_bytes': 9000000.0}
    """
    part = rate / total if total > 0 else 0.0
    admitted = min(rate, limit * part) if backlog > 0 else rate
    return {"admitted_rate": round(admitted, 3), "backlog_bytes": round(backlog * part, 0)}
