"""The time that would have passed if quotas were enforced (`observe`, or enforcement switched off).

While quotas are only observed, nothing waits, and the excess over a quota would grow without limit. With enforcement,
clients that wait for their responses would have sent it later. So each wait is counted, and then connection and budget
act as if its time had passed. A budget's records are moved back by the wait (`Limiter.elapse`): they stay in real time,
and need no conversion when enforcement begins.

- The *lag* of a connection is how much later it would be now. A mute runs while the client prepares its next request;
  only the rest of the mute is added to the lag.
- The lag of a budget is the time that has passed for it beyond real time. A connection that charges the budget again
  brings its own lag since its last charge; the lag that other connections have brought since then is not added again.
  So a wait that several connections share is counted once.
- If requests pass in turn, a connection waits for the lag that others have brought since its last charge, at most for
  one to two requests of each of them: a *round* ends with the second request of any connection.

This module is not used while quotas are enforced; a budget's lag is dropped when enforcement begins. Lags are integers
of any size, and only their differences are used.
"""

from collections.abc import Sized
from dataclasses import dataclass, field
from math import ceil
from typing import Final, Protocol

from quotas.limiters.rate import NEVER_MS, SampledRate

# ----------------------------------------------------------------------------------------------------
# The backlog of a budget that is only observed: the bytes that clients would have left to send with enforcement.
#
# The clients are taken to keep their rate although they are throttled (an *open loop*). In real time, the quota lets a
# part of their bytes pass; the rest is the backlog.


class SampledBacklog:
    """The backlog of a budget with Kafka's sampled windows (policy `kip13`), while its quota is only observed.

    It is hypothetical: the bytes that have in fact passed, but would still wait at their clients if the quota had been
    enforced and the clients had kept their rate.

    >>> backlog = SampledBacklog(11, 1000)
    >>> backlog.add(12_000, 1_000, 0)
    >>> backlog.bytes(1_000, 0), backlog.bytes(1_000, 11_000)  # the windows hold 10 s
    (2000.0, 0.0)
    """

    __slots__ = ("_left", "_passed")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._left = 0
        self._passed = SampledRate(samples, sample_ms)

    def add(self, size: int, limit: float, now_ms: int) -> None:
        """Add bytes that were sent; `limit` is in bytes/s."""
        self._left += size
        passing = min(self._left, max(0, self._passed.left(limit, now_ms)))
        if passing:
            self._passed.record(passing, now_ms)
            self._left -= passing

    def bytes(self, limit: float, now_ms: int) -> float:
        """Return the backlog in bytes; `limit` is in bytes/s."""
        self.add(0, limit, now_ms)
        return float(self._left)


class PacedBacklog:
    """The backlog of a budget with a virtual schedule (policy `schedule`), while its quota is only observed.

    It is hypothetical, as that of `SampledBacklog`: bytes that would still wait if the quota had been enforced.

    >>> backlog = PacedBacklog(burst_ms=2000)
    >>> backlog.add(5_000, 1_000, 0)
    >>> backlog.bytes(1_000, 0), backlog.bytes(1_000, 1_000), backlog.bytes(1_000, 9_000)
    (3000.0, 2000.0, 0.0)
    """

    __slots__ = ("_burst_ms", "_level", "_level_ms")

    def __init__(self, burst_ms: int) -> None:
        self._burst_ms = burst_ms
        self._level = 0.0  # bytes beyond the rate; below 0: what is left of the burst
        self._level_ms = NEVER_MS

    def add(self, size: int, limit: float, now_ms: int) -> None:
        """Add bytes that were sent; `limit` is in bytes/s."""
        paid = limit * (now_ms - self._level_ms) / 1000
        self._level = max(self._level - paid, -limit * self._burst_ms / 1000) + size
        self._level_ms = now_ms

    def bytes(self, limit: float, now_ms: int) -> float:
        """Return the backlog in bytes; `limit` is in bytes/s."""
        return max(0.0, self._level - limit * (now_ms - self._level_ms) / 1000)


Backlog = SampledBacklog | PacedBacklog
"""The bytes that the clients of one budget would have left to send with enforcement, if they kept their rate."""

# Waits are added to the counters at least this often, scaled to real time.
COUNT_MS: Final = 10_000
# Shared by all connections without a past, places or counts, and never written to: each would take 64 bytes.
_NO_PAST: Final = [0]
_NO_PLACES: Final[dict["BudgetTime", tuple[int, int, int]]] = {}
_NOTHING_COUNTED: Final[dict["WouldWait", int]] = {}
_IN_FLIGHT_MAX: Final = 16  # further requests of one connection count as the first of them
_DEPTH_DECAY: Final = 0.01  # for each request
_PLACES_MAX: Final = 16  # budgets of one connection: two directions, request time, topics
TOLD_MS_MAX: Final = 1_000  # longer ones are pauses of the client
_UNBOUNDED_MS: Final = 1 << 40


class WouldWait(Protocol):
    """A throttle's counter of the time that requests would have waited if quotas were enforced."""

    would_throttle_ms_total: int


@dataclass(slots=True, eq=False)
class BudgetTime:
    """The time of one budget, to which predicted waits are added; its *lag* is how far it is ahead of real time.

    In a *round* each connection charges the budget at most once: a second charge begins the next round.

    Attributes:
        lag_ms: the lag: the sum of the added waits.
        backlog: the bytes that clients would have left to send with enforcement; None before the first request.
        charged_last: the connection of the last charge.
    """

    backlog: Backlog | None = None
    charged_last: "ConnectionTime | None" = None
    lag_ms: int = 0
    _round: int = 0
    # Of the present round, and of the one before.
    _began_lag_ms: int = 0
    _began_ms: int = 0
    _before_lag_ms: int = 0
    _before_ms: int = 0

    def turn(self, last: int, now_ms: int) -> int:
        """Return the number of the round in which a connection charges the budget now.

        If it has already charged in the present round, a new round begins.

        Args:
            last: the round of the connection's last charge; -1 for none.
        """
        if last == self._round:
            self._round += 1
            self._before_lag_ms, self._before_ms = self._began_lag_ms, self._began_ms
            self._began_lag_ms, self._began_ms = self.lag_ms, now_ms + self.lag_ms
        return self._round

    def behind_ms(self, lag_ms: int) -> int:
        """Return how long in ms a connection waits for others: by how much the lag has grown since its last charge.

        Growth before the last two rounds is not counted.

        Args:
            lag_ms: the budget's lag after the connection's last charge.
        """
        return self.lag_ms - max(lag_ms, self._before_lag_ms)

    def rounds_ms(self, now_ms: int) -> int:
        """Return how long the present round and the one before have lasted together, in ms of the budget's time."""
        return now_ms + self.lag_ms - self._before_ms


@dataclass(slots=True, eq=False)
class ConnectionTime:
    """How long one connection would have waited if quotas were enforced, and its lag: how much later it would be now.

    A client with several requests in flight sends a request when the response to an earlier one has arrived. So a
    request would arrive later by the lag of that earlier request, and not before the mute is over.

    Args:
        owed: the responses that are owed to the client.

    Attributes:
        lag_ms: how much later it would be for this connection now.
        waited_ms: how long it would have been held and muted, in its own time (real time plus lag).
        mute_ms_max: the longest mute that its group or session allows.
        waiting_for: the throttle of the last wait; None before the first.
        told_ms: with enforcement, the total time from the end of each mute that an empty Fetch response reported to
            the client's next Fetch; each such time counts with TOLD_MS_MAX at most.

    >>> connection = ConnectionTime()
    >>> connection.mute(1000, now_ms=0)
    >>> connection.arrive(400)  # it would have waited for another 600 ms
    >>> connection.lag_ms, connection.waited_ms
    (600, 1000)
    """

    owed: Sized = ()
    lag_ms: int = 0
    told_ms: int = 0
    waited_ms: int = 0
    mute_ms_max: int = _UNBOUNDED_MS
    waiting_for: WouldWait | None = None
    _arrived: bool = False  # whether a request was seen since the last charge
    _charged_ms: int = -1  # when a request was charged last, at its header or at its response
    _part_ms: int = -1  # the same when a part was charged last
    _until_ms: int = 0  # the end of its mute, with the lag
    _slack_ms: int = -1  # how long before this request the mute was over; -1: there was none
    # The difference of the lags, the budget's lag, and the round.
    _places: dict[BudgetTime, tuple[int, int, int]] = field(default_factory=lambda: _NO_PLACES)
    # The lag of the last requests; a deque begins with 600 bytes.
    _past: list[int] = field(default_factory=lambda: _NO_PAST)
    _depth: float = 0.0  # how many earlier requests are without a response when one arrives, at most
    _seen_ms: int = 0  # when the last one arrived
    _uncounted: dict[WouldWait, int] = field(default_factory=lambda: _NOTHING_COUNTED)
    _counted_ms: int = -COUNT_MS
    _counted_lag_ms: int = 0

    def arrive(self, now_ms: int) -> None:
        """Set `lag_ms` when a request arrives: how much later it would have arrived if quotas were enforced.

        This is the lag of the earlier request for whose response the client has waited, or the rest of the predicted
        mute if that is longer.
        """
        self._arrived = True
        past, owed = self._past, len(self.owed)
        self._depth = max(owed, self._depth - _DEPTH_DECAY)
        caused_ms = past[max(-1 - ceil(self._depth), -len(past))]
        # Later than the one before, and not before the mute is over.
        earliest_ms = max(caused_ms, self.lag_ms - max(0, now_ms - self._seen_ms))
        muted_ms = self._until_ms - now_ms
        self.lag_ms = max(earliest_ms, muted_ms)
        self._slack_ms = max(0, earliest_ms - muted_ms) if self._until_ms else -1
        self._seen_ms = now_ms

    def weigh(self, now_ms: int) -> None:
        """Store the lag of a request that is charged by its bytes now, for the requests that follow its response.

        If `arrive` was not called for this request, it is called first.
        """
        if not self._arrived:
            self.arrive(now_ms)
        self._weighed(now_ms)

    def weigh_again(self, sent_ms: int, now_ms: int) -> None:
        """Do the same as `weigh` for a request that is charged by its broker time.

        No effect if it was charged by its bytes before.

        Args:
            sent_ms: when the request arrived.
        """
        if sent_ms > self._charged_ms:
            self.arrive(sent_ms)
            self._weighed(now_ms)

    def weigh_part(self, now_ms: int) -> None:
        """Do the same as `weigh` for a request of which a topic is charged.

        No effect if the whole request was charged before.
        """
        if self._charged_ms == self._part_ms:
            self.arrive(now_ms)
            self._weighed(now_ms)
        self._part_ms = self._charged_ms

    def _weighed(self, now_ms: int) -> None:
        self._arrived = False
        self._charged_ms = now_ms
        if self._past is _NO_PAST:
            self._past = [0]
        self._past.append(self.lag_ms)
        if len(self._past) > _IN_FLIGHT_MAX:
            del self._past[0]
        if now_ms - self._counted_ms >= COUNT_MS:
            self.settle(now_ms)

    def place(self, budget: BudgetTime) -> tuple[int, int, int] | None:
        """Return the connection's last charge at a budget, as `take_place` has stored it; None before the first one.

        Returns:
            The lag that the budget would have because of this connection alone; the budget's lag after that charge; the
            round of that charge.
        """
        found = self._places.get(budget)
        return None if found is None else (self.lag_ms + found[0], found[1], found[2])

    def take_place(self, budget: BudgetTime, turn: int) -> None:
        """Store a charge of the budget in round `turn`; `place` returns it at the next charge."""
        if not self._places:
            self._places = {}
        elif len(self._places) >= _PLACES_MAX and budget not in self._places:
            del self._places[next(iter(self._places))]
        found = self._places.get(budget)
        if found is None:
            offset_ms = budget.lag_ms - self.lag_ms
        else:  # what others have brought is theirs; what this connection has made good since stays its own
            offset_ms = found[0]
            offset_ms += max(0, budget.lag_ms - max(self.lag_ms + offset_ms, found[1]))
        self._places[budget] = offset_ms, budget.lag_ms, turn

    def hold(self, ms: int, mute_ms: int = 0) -> None:
        """Add a wait of `ms` before a request passes, to the lag and to `waited_ms`.

        Args:
            mute_ms: the time from the end of the last mute to this request is added to `waited_ms` too, unless it is
                longer than this: with enforcement that mute would have lasted until the request.
        """
        self.waited_ms += ms
        self.lag_ms += ms
        if self._past is _NO_PAST:
            self._past = [0]
        self._past[-1] = self.lag_ms
        if 0 < self._slack_ms <= mute_ms:
            self.waited_ms += self._slack_ms
        self._slack_ms = -1

    def muted_ms(self, now_ms: int) -> int:
        """Return the remaining time in ms of the predicted mute; 0 if there is none now."""
        return max(0, self._until_ms - self.lag_ms - now_ms)

    def mute(self, ms: int, now_ms: int) -> None:
        """Begin a predicted mute of `ms`, at most `mute_ms_max`; a present one that ends later stays as it is."""
        begins_ms = now_ms + self.lag_ms
        until_ms = begins_ms + min(ms, self.mute_ms_max)
        if until_ms > self._until_ms:
            self.waited_ms += until_ms - max(begins_ms, self._until_ms)
            self._until_ms = until_ms

    def count(self, throttle: WouldWait, ms: int) -> None:
        """Count a wait of `ms` for the throttle; `settle` adds it to the throttle's counters."""
        self.waiting_for = throttle
        if not self._uncounted:
            self._uncounted = {}
        if throttle in self._uncounted or len(self._uncounted) < _PLACES_MAX:
            self._uncounted[throttle] = self._uncounted.get(throttle, 0) + ms

    def settle(self, now_ms: int) -> None:
        """Add the counted waits to the throttles' counters.

        They are reduced so that their sum is at most the real time since the last call.
        """
        elapsed_ms = now_ms - self._counted_ms
        whole_ms = max(elapsed_ms + self.lag_ms - self._counted_lag_ms, 1)
        waited_ms = max(sum(self._uncounted.values()), whole_ms)
        for throttle, ms in self._uncounted.items():
            throttle.would_throttle_ms_total += ms * elapsed_ms // waited_ms
        self._uncounted.clear()
        self._counted_ms, self._counted_lag_ms = now_ms, self.lag_ms
