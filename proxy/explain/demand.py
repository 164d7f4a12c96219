"""What a client takes, and the most that it would take without a limit, as far as that can be known.

A client that sends the next request when it has the response to the last one takes what it takes in the time that it
does not wait, and without a limit it would take as much in each such time: `taken / (span - waited)`. Amounts and waits
are of the same span, so this holds over any one, whatever the limit was meanwhile. Of several connections, the one with
the least time beside its waits makes the bound of all.

A Fetch above its quota is responded to without records, to tell the throttle time, and asked again after it. The way
of that response and of the next Fetch brings nothing, so its time counts as a wait (`ConnectionTime.told_ms`).

The span begins anew when the client begins to wait: with enforcement, with another limit, or when it asks for more than
before. Until the span is long enough, and of a client that waits nearly all of its time, the most is not known. What it
was seen to take is a lower bound in any case.
"""

from typing import Final

from proxy.explain import parts
from proxy.explain.rates import KEYS
from proxy.explain.wants import Demand
from proxy.explain.watch import Client, Meter
from proxy.explain.windows import Windows
from quotas.definitions.definitions import CONSUMER_BYTE_RATE

_KNOWN_MS_MIN: Final = 5_000
_FREE_MIN: Final = 0.1  # with less, the bound is more than ten times what it takes, which says nothing
_MS_PER_SECOND: Final = 1000.0
_FETCH: Final = KEYS.index(CONSUMER_BYTE_RATE)


class DemandSum:
    """A client's demand, from its connections, which are added one by one."""

    def __init__(self, client: Client, window: int, now_ms: int) -> None:
        self._taken, self._window, self._now_ms = client.taken, window, now_ms
        began = (client.taken.waiting.get(key) for key in KEYS)
        self._since_ms = [0 if one is None else one.since_ms for one in began]
        # Of connections that were not idle all of the time: the least time beside waits, and the longest time.
        self._free_ms: list[float | None] = [None] * len(KEYS)
        self._spans_ms = [0.0] * len(KEYS)

    def add(self, meter: Meter) -> None:
        """Add a connection."""
        if meter.windows is None:
            return
        spans = {since_ms: self._span(meter.windows, since_ms) for since_ms in set(self._since_ms)}
        for index, since_ms in enumerate(self._since_ms):
            whole, free_ms = spans[since_ms]
            if not whole:
                continue
            if index == _FETCH and meter.told is not None:
                free_ms -= sum(ms for (ms,) in meter.told.slots(self._window, self._now_ms, since_ms))
            before = self._free_ms[index]
            self._free_ms[index] = free_ms if before is None else min(before, free_ms)
            self._spans_ms[index] = max(self._spans_ms[index], whole)

    def _span(self, windows: Windows, since_ms: int) -> tuple[float, float]:
        """Return a connection's time, and that beside its waits; zeros if it has been idle."""
        slots = windows.slots(self._window, self._now_ms, since_ms)
        times: tuple[float, ...] = tuple(map(sum, zip(*slots, strict=True)))
        whole = sum(times)
        if not whole or times[parts.IDLE] >= whole:
            return 0.0, 0.0
        return whole, whole - times[parts.HELD] - times[parts.MUTED]

    def demands(self) -> tuple[Demand, ...]:
        """Return the demand of each kind, in the order of KEYS."""
        return tuple(map(self._demand, range(len(KEYS))))

    def _demand(self, index: int) -> Demand:
        taken, window, now_ms, since_ms = self._taken, self._window, self._now_ms, self._since_ms[index]
        window_ms = Windows.length_ms(window, now_ms)
        rate = taken.amount(index, window, now_ms) * _MS_PER_SECOND / window_ms
        highest = max(rate, taken.highest(index, window, now_ms))
        steady = Windows.length_ms(window, now_ms, since_ms) == window_ms
        free_ms, span_ms = self._free_ms[index], self._spans_ms[index]
        if free_ms is None:
            return Demand(rate, highest, None if since_ms else highest, steady)
        if span_ms < _KNOWN_MS_MIN or free_ms < _FREE_MIN * span_ms:
            return Demand(rate, highest, None, steady)
        most = taken.amount(index, window, now_ms, since_ms) * _MS_PER_SECOND / free_ms
        return Demand(rate, highest, most, steady)
