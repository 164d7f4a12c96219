"""Requests that brokers have had for longer than the time between visits: all are counted, timed or not.

Only few requests are timed, and a request without a response never ends. So each visit notes a request that is older
than the time between visits. While it is under way, its age counts among the response times; when it has ended, it
counts as one request, and not again among the timed ones.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from proxy.channel import Probe
from proxy.channel.probe import ANY_WAIT
from proxy.explain.condition import ASKED, Condition

_NS_PER_MS: Final = 1_000_000


class Ended(NamedTuple):
    """A long request that has ended.

    Args:
        took_ns: the time at the broker, without the wait that it asked for.
        probe: its probe; None if it was not timed.
    """

    broker: int
    took_ns: int
    probe: Probe | None


class _Long(NamedTuple):
    broker: int
    since_ms: int
    age_ms: int  # without the wait that it asked for


class UnderWay:
    """The long requests of all connections, at most one for each connection."""

    def __init__(self) -> None:
        self._long: dict[Hashable, _Long] = {}

    def visit(
        self, connection: Hashable, condition: Condition, interval_ms: int, now_ms: int
    ) -> Ended | None:
        """Visit a connection; returns its long request if that has ended since the last visit, else None."""
        age_ms = _age_ms(condition)
        since_ms = now_ms - condition.asked_ms
        last = self._long.get(connection)
        if age_ms >= interval_ms:
            self._long[connection] = _Long(condition.broker, since_ms, age_ms)
        elif last is None:
            return None
        else:
            del self._long[connection]
        if last is None or (age_ms >= interval_ms and last.since_ms == since_ms):
            return None
        for probe in condition.probed.probes:
            if probe.sent_ns // _NS_PER_MS == last.since_ms and probe.took_ns > 0:
                return Ended(last.broker, probe.took_ns - probe.waited_ns, probe)
        # It ended at any time since the last visit.
        return Ended(last.broker, (last.age_ms + interval_ms // 2) * _NS_PER_MS, None)

    def end(self, connection: Hashable) -> None:
        """Forget a connection."""
        self._long.pop(connection, None)

    def ages_ms(self) -> dict[int, list[int]]:
        """Return the ages of the requests under way, by broker, as of the last visits."""
        found: dict[int, list[int]] = {}
        for broker, _, age_ms in self._long.values():
            found.setdefault(broker, []).append(age_ms)
        return found


def _age_ms(condition: Condition) -> int:
    """Return how long the broker has had a request beyond the wait that it asked for; -1 if that is unknown."""
    probe = condition.probe
    if condition.activity != ASKED or probe is None or probe.wait_ns == ANY_WAIT:
        return -1
    return condition.asked_ms - probe.wait_ns // _NS_PER_MS
