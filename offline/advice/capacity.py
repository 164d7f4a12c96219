"""A capacity that clients share: which rate, ceiling and weight each client should have, and why. Pure.

- *Rate*: what the client needs nearly always, in `ALWAYS` of the minutes, with its margin; at least what one large
  request needs (`DEFAULT_MIN`), if it ever sends so much. If the rates exceed the capacity together, margins are cut
  first, and then what was needed, each to a common level (max-min fairness): small ones stay whole.
- *Ceiling*: one of the peaks over 60, 10 and 1 s with the margin, or the capacity: the smallest up to which borrowing
  shortens the client's waits in the recording. At least four times its highest peak, since its application may change;
  what is further above its other days the forecast takes for a mistake. A client with such days borrows no more than
  its quota would be.
- *Weight*: 1, or in proportion to what each may borrow, if clients then wait for less time together.

The margin is that of the forecasts, or the headroom. How long clients wait comes from a simulation of the recording
(`quotas.backtest.capacity`). A client that is not among the heaviest has the default and borrows nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from commandline.amounts import duration, rate
from offline.advice.explain import KEYS, Line
from offline.advice.forecast import BURST
from offline.advice.limits import DEFAULT_MIN, Client
from quotas.definitions.classes import Terms
from quotas.definitions.kinds import CEILINGS, WEIGHT
from quotas.sharing.capacities import fill

ALWAYS: Final = 0.95
_WEIGHTS_MAX: Final = 100.0
_BETTER: Final = 0.95  # weights are advised if clients wait for less than this part of the time


class Demand(NamedTuple):
    """What one client needs in one direction, in bytes/s, with its margin.

    Args:
        steady: in `ALWAYS` of the minutes.
        peaks: over 60, 10 and 1 s.
        margin: by which factor these are more than what was recorded; below 1 if the highest days are left out.
    """

    steady: float
    peaks: Sequence[float]
    margin: float = 1.0

    @property
    def rate(self) -> float:
        """What it should be promised."""
        return max(self.steady, min(DEFAULT_MIN, self.peaks[-1]))

    @property
    def needed(self) -> float:
        """What it should be promised at least: its rate without a margin."""
        return self.rate / max(1.0, self.margin)

    def ceilings(self, promised: float, capacity: float) -> list[float]:
        """Return the ceilings to try, ascending: the promised rate itself, the peaks, and the capacity."""
        most = capacity if self.margin >= 1 else max(self.peaks)
        return [min(max(promised, one), capacity) for one in (promised, *self.peaks, most)]

    def ceiling(self, tried: float, capacity: float) -> float:
        """Return the ceiling to advise.

        Args:
            tried: the smallest up to which borrowing shortens its waits in the recording.

        >>> steady, mistaken = Demand(1e6, [2e6] * 3, 1.25), Demand(1e6, [2e6] * 3, 0.1)
        >>> steady.ceiling(1e6, 20e6), steady.ceiling(1e6, 5e6), mistaken.ceiling(1e6, 20e6)
        (8000000.0, 5000000.0, 1000000.0)
        """
        further = BURST * max(self.peaks) if self.margin >= 1 else 0.0
        return min(max(tried, self.rate, further), capacity)


CEILINGS_TRIED: Final = 5


def rates(demands: Mapping[Client, Demand], room: float) -> dict[Client, float]:
    """Return the rates to promise, together at most `room`, the capacity without what others are promised.

    >>> day, night = Demand(8e6, [9e6] * 3), Demand(1e6, [9e6] * 3)
    >>> rates({("", "a"): day, ("", "b"): night}, 10e6)
    {('', 'a'): 8000000.0, ('', 'b'): 1000000.0}
    >>> rates({("", "a"): day, ("", "b"): night, ("", "c"): day}, 10e6)  # 1, and half of the other 9
    {('', 'a'): 4500000.0, ('', 'b'): 1000000.0, ('', 'c'): 4500000.0}
    >>> twice = Demand(8e6, [9e6] * 3, margin=2.0)
    >>> rates({("", "a"): twice, ("", "b"): night, ("", "c"): twice}, 10e6)  # 4 + 1 + 4, and half of the last 1
    {('', 'a'): 4500000.0, ('', 'b'): 1000000.0, ('', 'c'): 4500000.0}
    >>> rates({("", "a"): twice, ("", "b"): night, ("", "c"): Demand(6e6, [6e6] * 3)}, 11.5e6)  # margins are cut first
    {('', 'a'): 4500000.0, ('', 'b'): 1000000.0, ('', 'c'): 6000000.0}
    """
    wanted = [one.rate for one in demands.values()]
    needed = [one.needed for one in demands.values()]
    alike, left = [1.0] * len(wanted), room - sum(needed)
    if sum(wanted) <= room:
        found = wanted
    elif left >= 0:
        margins = fill([more - least for more, least in zip(wanted, needed, strict=True)], alike, left)
        found = [least + more for least, more in zip(needed, margins, strict=True)]
    else:
        found = fill(needed, alike, max(0.0, room))
    return dict(zip(demands, map(float, map(int, found)), strict=True))


def shortest(waited_ms: Sequence[int], tolerated_ms: float) -> int:
    """Return the first of several ceilings, ascending, with which a client waits hardly longer than with the last.

    >>> shortest([90_000, 400, 30, 0], 100.0), shortest([50, 20, 0, 0], 100.0)
    (2, 0)
    """
    return next(place for place, one in enumerate(waited_ms) if one <= waited_ms[-1] + tolerated_ms)


def weights(borrowed: Mapping[Client, float]) -> dict[Client, float]:
    """Return weights in proportion to what clients may borrow in bytes/s, from 1 to 100.

    >>> weights({("", "a"): 2e6, ("", "b"): 5.2e6, ("", "c"): 0.0})
    {('', 'a'): 1.0, ('', 'b'): 3.0, ('', 'c'): 1.0}
    """
    least = min((one for one in borrowed.values() if one > 0), default=1.0)
    return {name: min(_WEIGHTS_MAX, max(1.0, float(round(one / least)))) for name, one in borrowed.items()}


def better(with_ms: int, without_ms: int, tolerated_ms: float) -> bool:
    """Whether clients wait for clearly less time with weights than without."""
    return with_ms < min(without_ms * _BETTER, without_ms - tolerated_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The advised terms of one client in one direction.

    Attributes:
        wanted: what it should be promised, in bytes/s; more than its rate if the capacity does not have it.
        waited_ms: how long it would wait in the recorded time.
        alone_ms: without borrowing.
        today_ms: with the quotas in force.
        lent: the bytes that it would borrow.
        replaces: whether the quotas in force state a ceiling for it.
    """

    client: Client
    wanted: float
    terms: Terms
    waited_ms: int
    alone_ms: int
    today_ms: int
    lent: int
    confidence: str
    replaces: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A capacity as it is advised to be shared in one direction; rates are in bytes/s.

    Attributes:
        where: whose capacity it is, in words.
        kept: what entries are promised that stay as they are.
        rest: the default's terms, and how long all clients below it would wait together.
        rest_clients: how many these are.
        throttled: how many clients would wait for longer than is tolerated.
        together_ms: how long all clients would wait together.
        left: what the busiest broker's capacity would have left on average.
        left_always: the same, in `ALWAYS` of the recorded time at least.
        seconds: the recorded time.
        peak_before, peak_after: the busiest ten seconds, as recorded and with the advice.
    """

    direction: str
    capacity: float
    where: str
    shares: Sequence[Share]
    kept: float
    rest: Share
    rest_clients: int
    throttled: int
    together_ms: int
    left: float
    left_always: float
    seconds: int
    peak_before: float
    peak_after: float

    @property
    def promised(self) -> float:
        """What clients with an entry are promised together."""
        return self.kept + sum(one.terms.rate for one in self.shares)

    @property
    def wanted(self) -> float:
        """What they should be promised."""
        return self.kept + sum(one.wanted for one in self.shares)


def lines(whole: Whole) -> list[Line]:
    """Return the lines on a capacity: itself, the default, and the rate and ceiling of each client."""
    key = KEYS[whole.direction]
    clients = "1 client" if whole.rest_clients == 1 else f"{whole.rest_clients:,} clients"
    found = [
        Line(
            kind="capacity",
            key=key,
            value=whole.capacity,
            reason=f"stated for {whole.where}; {_promised(whole)}",
            effect=(
                f"{rate(whole.left)} more could have been carried on average, and {rate(whole.left_always)} more in "
                f"{ALWAYS:.0%} of the time"
            ),
            confidence=whole.rest.confidence,
            peak_before=whole.peak_before,
            peak_after=whole.peak_after,
        ),
        *_lines(
            "default",
            key,
            whole.rest,
            whole,
            f"{clients} without an entry of their own need no more; they borrow nothing"
            if whole.rest_clients
            else "each recorded client has an entry of its own; this lets one request of 1 MiB through",
        ),
    ]
    # All clients together, as the default of other recommendations has it.
    found[1] = replace(
        found[1],
        clients_throttled=whole.throttled,
        throttle_ms=whole.together_ms,
        peak_before=whole.peak_before,
        peak_after=whole.peak_after,
    )
    for one in whole.shares:
        cut = (
            f"; {rate(one.wanted)}, cut since the capacity has no more" if one.terms.rate < one.wanted else ""
        )
        reason = f"what it needs in {ALWAYS:.0%} of the minutes, with its margin{cut}"
        found += _lines("override", key, one, whole, reason)
    return found


def _lines(kind: str, key: str, one: Share, whole: Whole, reason: str) -> list[Line]:
    """Return the line on a rate, and that on its ceiling if there is to be one."""
    user, client_id = one.client
    rate_line = Line(
        kind=kind,
        user=user,
        client_id=client_id,
        key=key,
        value=one.terms.rate,
        reason=reason,
        effect=_waits(one, whole.seconds),
        confidence=one.confidence,
        throttle_ms=one.waited_ms,
    )
    if one.terms.ceiling > one.terms.rate:
        reason = (
            f"without borrowing it would wait for {duration(one.alone_ms / 1000)}; "
            "a higher ceiling shortens its waits no further"
            if one.alone_ms
            else f"it would not wait without borrowing; up to {BURST:.0f} times its peak, since it may change"
        )
    elif one.replaces:
        reason = "in place of the ceiling in force: it borrows nothing"
    else:
        return [rate_line]
    return [rate_line, replace(rate_line, key=CEILINGS[key], value=one.terms.ceiling, reason=reason)]


def weight_lines(found: Mapping[Client, float], confidences: Mapping[Client, str]) -> list[Line]:
    """Return a line for each of these weights, which hold in both directions."""
    return [
        Line(
            kind="override",
            user=user,
            client_id=client_id,
            key=WEIGHT,
            value=weight,
            reason="in proportion to what it may borrow"
            if weight != 1
            else "in place of the weight in force",
            effect="its part of what others leave",
            confidence=confidences[user, client_id],
        )
        for (user, client_id), weight in found.items()
    ]


def _promised(whole: Whole) -> str:
    if whole.wanted > whole.promised:
        return (
            f"the rates that clients need nearly always are {rate(whole.wanted)} together, more than that, "
            f"so the larger ones are cut: {rate(whole.promised)} are promised"
        )
    over = ", more than that" if whole.promised > whole.capacity else ""
    return f"{rate(whole.promised)} of it are promised{over}"


def _waits(one: Share, seconds: int) -> str:
    said = (
        f"waits for {duration(one.waited_ms / 1000)} in {duration(seconds)}"
        if one.waited_ms
        else "does not wait"
    )
    return f"{said}; with the quotas in force {duration(one.today_ms / 1000)}"
