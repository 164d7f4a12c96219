"""Brokers' response times, by requests and by time.

A broker that stands still for 5 s and handles thousands of requests in the next second is fast by requests: its p99 is
low. By time it is slow: five sixths of the time that requests were at it belong to the requests of 5 s. Both are
reported.

Times are counted in classes, each a quarter of a power of two wide, so a percentile is at most 19 % too high. A request
counts with its weight: one that was chosen with a probability of a sixteenth stands for sixteen. At most BROKERS_MAX
brokers are kept; a client cannot name one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import msgspec

from proxy.channel import Muting
from proxy.explain.parts import QUARTER, Windows, summed
from proxy.explain.rules import Rule, rule_of
from quotas.limiters.virtual_time import ConnectionTime

_NS_PER_MS: Final = 1_000_000


BROKERS_MAX: Final = 1000
CLASSES: Final = 96  # of a quarter of a power of two: 16 us to 268 s
_FIRST_US: Final = 16
_TIMED: Final = CLASSES  # the place of the number of requests that were timed, whatever their weight
_MS: Final = CLASSES + 1  # of their time


class Times(NamedTuple):
    """One broker's response times.

    Args:
        classes: the number of requests (by weight) in each class of durations (`class_of`).
        timed: the number of timed requests, without their weights.
        ms: the time of all requests together, in ms.
    """

    classes: list[float]
    timed: int
    ms: float


class Latencies:
    """The response times of all brokers, by id.

    >>> from proxy.explain.parts import MINUTE
    >>> latencies = Latencies()
    >>> for took_ms in [1] * 98 + [80, 80]:
    ...     latencies.add(3, took_ms * 1_000_000, now_ms=0)
    >>> found = latencies.times(3, MINUTE, 0)
    >>> found.timed, percentile_ms(found.classes, 0.5) < 1.2, percentile_ms(found.classes, 0.99) > 80, found.ms
    (100, True, True, 258.0)
    """

    def __init__(self) -> None:
        self._brokers: dict[int, Windows] = {}

    def add(self, broker: int, took_ns: int, now_ms: int, weight: float = 1.0) -> None:
        """Count one response, which took `took_ns`; `weight`: how many requests it stands for."""
        found = self._brokers.get(broker)
        if found is None:
            if len(self._brokers) >= BROKERS_MAX:
                return
            found = self._brokers[broker] = Windows(CLASSES + 2, "f")
        found.add(class_of(took_ns // 1000), weight, now_ms)
        found.add(_TIMED, 1.0, now_ms)
        found.add(_MS, weight * took_ns / _NS_PER_MS, now_ms)

    def times(self, broker: int, window: int, now_ms: int) -> Times:
        """Return a broker's response times over a window; zeros if it has not responded."""
        found = self._brokers.get(broker)
        if found is None:
            return Times([0.0] * CLASSES, 0, 0.0)
        sums = found.sums(window, now_ms)
        return Times(sums[:CLASSES], int(sums[_TIMED]), sums[_MS])

    def brokers(self) -> list[int]:
        """The ids of the brokers that have responded."""
        return sorted(self._brokers)


def percentile_ms(classes: Sequence[float], part: float) -> float:
    """Return the time that a share `part` (0 to 1) of the requests did not exceed, in ms; 0 without any."""
    left = part * sum(classes)
    if not left:
        return 0.0
    for index, count in enumerate(classes):
        left -= count
        if left <= 1e-6:
            return _upper_us(index) / 1000
    return _upper_us(CLASSES - 1) / 1000


def time_percentile_ms(classes: Sequence[float], part: float) -> float:
    """Return the percentile by time, in ms: requests that took no longer have a share `part` (0 to 1) of all time.

    All time is the sum of the durations of all requests.

    >>> classes = [0.0] * CLASSES
    >>> classes[class_of(1_000)], classes[class_of(1_000_000)] = 1000, 2  # 1 s in all, and 2 s
    >>> percentile_ms(classes, 0.5) < 1.2, time_percentile_ms(classes, 0.5) > 1000
    (True, True)
    """
    return percentile_ms([count * _upper_us(index) for index, count in enumerate(classes)], part)


def slowest_ms(classes: Sequence[float]) -> float:
    """Return the time of the slowest request, in ms; 0 without any."""
    return max((_upper_us(index) / 1000 for index, count in enumerate(classes) if count), default=0.0)


def class_of(us: int) -> int:
    """Return the index of the class of durations that a time in µs belongs to.

    >>> class_of(0), class_of(16), class_of(32), class_of(10**12)
    (0, 0, 4, 95)
    """
    if us <= _FIRST_US:
        return 0
    power = us.bit_length() - _FIRST_US.bit_length()
    quarter = ((us << 2) >> (us.bit_length() - 1)) & 3
    return min(CLASSES - 1, 4 * power + quarter)


def _upper_us(index: int) -> float:
    """Return the upper bound of a class, in µs.

    >>> _upper_us(class_of(20)) >= 20, _upper_us(class_of(1000)) >= 1000
    (True, True)
    """
    power, quarter = divmod(index, 4)
    return float(_FIRST_US * 2**power * (5 + quarter) / 4)


# ----------------------------------------------------------------------------------------------------
# Sluice's own CPU time and delays: how busy its loop is, how long bytes wait for it, and the cost of a request.
#
# A visit cannot see the microseconds that relaying takes. Figures of the whole process, taken at each tick, show
# whether Sluice is the cause of a delay: its CPU time, the number of its requests, and the length of a full turn of
# its loop, which is the time that newly arrived bytes wait. It is waited for twice: by a request, and by its
# response.


_TURNS: Final = CLASSES
_CPU_MS: Final = CLASSES
_REQUESTS: Final = CLASSES + 1
_ELAPSED_MS: Final = CLASSES + 2


class OwnReport(msgspec.Struct, frozen=True, array_like=True):
    """Sluice's own CPU time and the turns of its event loop, of one process or of several, over a window.

    Args:
        turns: the number of turns of the loop in each class of durations (`class_of`).
        cpu_ms: the CPU time of the process, in ms.
        requests: the number of requests that it has relayed in this time.
        busy: the CPU time as a share (0 to 1) of the whole time; for several processes that of the busiest.
    """

    turns: tuple[float, ...]
    cpu_ms: float
    requests: float
    busy: float

    @property
    def cpu_ms_per_request(self) -> float:
        """The CPU time of the process, for all of its work, divided by its requests, in ms; 0 without requests."""
        return self.cpu_ms / self.requests if self.requests else 0.0

    def turn_ms(self, part: float) -> float:
        """The time in ms that a share `part` (0 to 1) of the turns did not exceed."""
        return percentile_ms(self.turns, part)


class OwnTime:
    """Measures the CPU time of one process, and how long the turns of its event loop take.

    >>> from proxy.explain.parts import MINUTE
    >>> own = OwnTime()
    >>> own.tick(turn_ns=20_000, cpu_ns=0, requests=0, now_ms=0)
    >>> own.tick(turn_ns=20_000, cpu_ns=25_000_000, requests=500, now_ms=100)
    >>> found = own.report(MINUTE, 100)
    >>> found.busy, found.cpu_ms_per_request, found.turn_ms(0.99) < 0.025
    (0.25, 0.05, True)
    """

    def __init__(self) -> None:
        self._windows = Windows(CLASSES + 3)
        self._last: tuple[int, int, int] | None = None

    def tick(self, *, turn_ns: int, cpu_ns: int, requests: int, now_ms: int) -> None:
        """Count one turn of the event loop, and the CPU time and requests since the last call."""
        windows, last = self._windows, self._last
        self._last = cpu_ns, requests, now_ms
        windows.add(class_of(turn_ns // 1000), 1.0, now_ms)
        if last is not None:
            windows.add(_CPU_MS, (cpu_ns - last[0]) / _NS_PER_MS, now_ms)
            windows.add(_REQUESTS, requests - last[1], now_ms)
            windows.add(_ELAPSED_MS, now_ms - last[2], now_ms)

    def report(self, window: int, now_ms: int) -> OwnReport:
        """Return the CPU time, the requests, and the measured turns over a window that ends at `now_ms`.

        A turn is one pass of the event loop through all callbacks that are ready; each call of `tick` adds one.

        Args:
            window: the length: TEN_SECONDS, MINUTE or QUARTER (`proxy.explain.parts`).
        """
        sums = self._windows.sums(window, now_ms)
        cpu_ms, ms = sums[_CPU_MS], sums[_ELAPSED_MS]
        return OwnReport(tuple(sums[:_TURNS]), cpu_ms, sums[_REQUESTS], cpu_ms / ms if ms else 0.0)


def merge_own(reports: Iterable[OwnReport | None]) -> OwnReport | None:
    """Add up the figures of several processes, except `busy`, the largest of them; None if there are none."""
    found = [one for one in reports if one is not None]
    if not found:
        return None
    return OwnReport(
        tuple(map(sum, zip(*(one.turns for one in found), strict=True))),
        sum(one.cpu_ms for one in found),
        sum(one.requests for one in found),
        max(one.busy for one in found),
    )


# ----------------------------------------------------------------------------------------------------
# The waits of connections with enforcement, over the last 10 s, minute and quarter of an hour.
#
# `quotas.limiters.virtual_time` counts the waits in virtual time, which is real time plus the lag. The part of a
# connection's time that it would wait is the waits divided by the virtual time that has passed.


RULES_MAX: Final = 16  # of one client


class Predicted(msgspec.Struct, frozen=True, array_like=True):
    """The waits that one client would have if quotas were enforced, over a window.

    Args:
        part: the share of time (0 to 1) that its most waiting connection would wait.
        waits: the time in ms of all connections together, by rule.
    """

    part: float
    waits: tuple[tuple[Rule, float], ...]


NOTHING_PREDICTED: Final = Predicted(0.0, ())


class PredictedWaits:
    """The waits that one connection would have if quotas were enforced, over the last 10 s to 15 minutes."""

    __slots__ = ("_lag_ms", "_waited_ms", "_windows")

    def __init__(self) -> None:
        self._windows = Windows(2)  # waits, and the time that passes for them
        self._waited_ms = self._lag_ms = 0

    def update(self, time: ConnectionTime, elapsed_ms: int, now_ms: int) -> int:
        """Add the waits that the connection would have had since the last call, and return them in ms.

        Args:
            time: the estimate for this connection: how long it would have waited so far, and how much later its
                requests would have come.
            elapsed_ms: the time since the last call.
        """
        waited_ms, self._waited_ms = time.waited_ms - self._waited_ms, time.waited_ms
        lag_ms, self._lag_ms = time.lag_ms - self._lag_ms, time.lag_ms
        self._windows.add(0, float(waited_ms), now_ms)
        self._windows.add(1, float(elapsed_ms + lag_ms), now_ms)
        return waited_ms

    def part(self, window: int, now_ms: int) -> float:
        """Return the share of the time (0 to 1) over a window that the connection would wait."""
        waited_ms, whole_ms = self._windows.sums(window, now_ms)
        return min(1.0, waited_ms / whole_ms) if whole_ms > 0 else 0.0


class Predictions:
    """The waits that one client would have if quotas were enforced.

    Attributes:
        rules: by rule, windows with the waiting time in ms at index 0.
    """

    __slots__ = ("rules",)

    def __init__(self) -> None:
        self.rules: dict[Rule, Windows] = {}

    def add(self, time: ConnectionTime, waited_ms: int, now_ms: int) -> None:
        """Add `waited_ms` to the rule that one of its connections would wait for now (`time.waiting_for`), if any."""
        if waited_ms <= 0 or time.waiting_for is None:
            return
        rule = rule_of(cast(Muting, time.waiting_for))  # a throttle that has counted a wait may mute
        found = self.rules.get(rule)
        if found is None:
            if len(self.rules) >= RULES_MAX:
                del self.rules[min(self.rules, key=lambda rule: self.rules[rule].sums(QUARTER, now_ms)[0])]
            found = self.rules[rule] = Windows(1)
        found.add(0, float(waited_ms), now_ms)

    def report(self, parts: Iterable[float], window: int, now_ms: int) -> Predicted:
        """Return the client's waits over a window, if quotas were enforced.

        Args:
            parts: for each connection the share of time (0 to 1) that it would wait.
        """
        waits = ((rule, sums.sums(window, now_ms)[0]) for rule, sums in self.rules.items())
        return Predicted(max(parts, default=0.0), tuple((rule, ms) for rule, ms in waits if ms > 0))


def merge_predicted(some: Iterable[Predicted]) -> Predicted:
    """Merge several processes' predictions for one client: the largest share of time, and the sums of the waits.

    >>> rule = Rule("produce", "producer_byte_rate")
    >>> found = merge_predicted([Predicted(0.5, ((rule, 10.0),)), Predicted(0.2, ((rule, 5.0),))])
    >>> found.part, dict(found.waits)[rule]
    (0.5, 15.0)
    """
    found = list(some)
    waits = summed(wait for one in found for wait in one.waits)
    return Predicted(max((one.part for one in found), default=0.0), tuple(waits.items()))


def main_rule(predicted: Predicted) -> Rule | None:
    """Return the rule that the client would wait for most; None if it would not wait."""
    return max(predicted.waits, key=lambda wait: wait[1])[0] if predicted.waits else None


def open_loop(rate: float, limit: float, total: float, backlog: float) -> tuple[float, float]:
    """Return the rate (bytes/s) that would pass if quotas were enforced, and the bytes that would be left to send.

    Both are of one client that keeps sending at its rate, even while it would be throttled.

    Args:
        rate: the client's rate, in bytes/s.
        limit: the limit of its budget, in bytes/s.
        total: the rate of all clients that share the budget, in bytes/s.
        backlog: the bytes that all of these clients together would have left to send.

    >>> open_loop(3e6, 2e6, 4e6, 12e6)
    (1500000.0, 9000000.0)
    """
    part = rate / total if total > 0 else 0.0
    admitted = min(rate, limit * part) if backlog > 0 else rate
    return round(admitted, 3), round(backlog * part, 0)


# ----------------------------------------------------------------------------------------------------
# The time that a client has waited for quotas since it was first seen: sums that never decrease, for metrics.
#
# There are two sums for each kind of quota. One adds up all connections of the client: ten connections that wait for
# a second at once have waited ten seconds. The other adds up, for each minute, the wait of the connection that waited
# longest in it; it grows by at most a second per second, so its growth is a share of time.


SPAN_MS: Final = 60_000


class Waited(NamedTuple):
    """The time that a client has waited for one kind of quota.

    Args:
        all_ms: the waits of all connections together, in ms.
        longest_ms: the sum of each minute's longest wait, in ms: that of the connection that waited longest in it.
    """

    kind: str
    all_ms: float
    longest_ms: float


class ConnectionWaits:
    """The time that one connection has waited in the present minute, by kind."""

    __slots__ = ("_by_kind", "_span")

    def __init__(self) -> None:
        self._span = 0
        self._by_kind: dict[str, float] = {}

    def add(self, kind: str, ms: float, span: int) -> float:
        """Add a wait in the minute with the number `span`; return the kind's sum in it, at most 60,000 ms."""
        if span != self._span:
            self._span = span
            self._by_kind.clear()
        waited_ms = min(self._by_kind.get(kind, 0.0) + ms, SPAN_MS)
        self._by_kind[kind] = waited_ms
        return waited_ms


@dataclass(slots=True)
class _Sum:
    """The sums of one kind of quota, from which its `Waited` is made."""

    all_ms: float = 0.0
    before_ms: float = 0.0  # the longest waits of all earlier minutes together
    span: int = 0
    span_ms: float = 0.0  # the longest wait of the present minute


class Waits:
    """The time that one client has waited since it was first seen, by kind of quota; it never decreases.

    >>> waits, one, other = Waits(), ConnectionWaits(), ConnectionWaits()
    >>> for connection, ms in ((one, 30_000), (other, 20_000), (one, 5_000)):
    ...     waits.add("fetch", connection, ms, now_ms=60_000)
    >>> waits.add("fetch", other, 1_000, now_ms=120_000)
    >>> list(waits)
    [Waited(kind='fetch', all_ms=56000.0, longest_ms=36000.0)]
    """

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[str, _Sum] = {}

    def add(self, kind: str, connection: ConnectionWaits, ms: float, now_ms: int) -> None:
        """Add a wait, in ms, of one of the client's connections, whose own waits are in `connection`."""
        found = self._by_kind.get(kind)
        if found is None:
            found = self._by_kind[kind] = _Sum()
        found.all_ms += ms
        span = now_ms // SPAN_MS
        if span != found.span:
            found.before_ms += found.span_ms
            found.span, found.span_ms = span, 0.0
        found.span_ms = max(found.span_ms, connection.add(kind, ms, span))

    def __iter__(self) -> Iterator[Waited]:
        """Yield the waits of each kind of quota that it has waited for."""
        for kind, found in self._by_kind.items():
            yield Waited(kind, found.all_ms, found.before_ms + found.span_ms)
