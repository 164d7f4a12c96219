"""The time that would have passed if quotas were enforced (`observe`, or enforcement switched off).

Nothing waits while quotas are only observed, so what is over a quota would add up without limit. Clients that wait for
their responses would have sent it later. So a wait is counted, and then it is over: connection and budget are as if
that time had passed. A budget's records are moved back by it (`Limiter.elapse`), which leaves them in real time;
nothing is left to translate when enforcement begins.

- Each connection has its own *lag*: how much later it would be now. Its mutes run while the client does what it does
  until its next request; only the rest of a mute is added to the lag.
- A budget's lag is how much time has passed for it beyond real time. A connection that charges it again brings along
  its own lag since its last charge; what others have brought already is not counted again. So waits that several
  connections share are counted once.
- Where requests pass in turn, a connection waits for what others have brought meanwhile, at most for one to two
  requests of each of them: a round ends with the second request of any connection.

Nothing here is read while quotas are enforced, and a budget's part is dropped when that begins. Lags are whole numbers
of any size, and only their differences are used.
"""

from collections import deque
from collections.abc import Sized
from math import ceil
from typing import Final, Protocol

from quotas.limiters.backlog import Backlog

__all__ = ["BudgetTime", "ConnectionTime", "WouldWait"]

# Waits are counted at the longest after this time: as the share that they have of it, with the lag.
COUNT_MS: Final = 10_000
_IN_FLIGHT_MAX: Final = 16  # further requests of one connection count as the first of them
_DEPTH_DECAY: Final = 0.01  # for each request
_PLACES_MAX: Final = 16  # budgets of one connection: two directions, request time, topics
_UNBOUNDED_MS: Final = 1 << 40


class WouldWait(Protocol):
    """A throttle's counters."""

    would_throttle_ms_total: int


class BudgetTime:
    """One budget's lag.

    Attributes:
        lag_ms: the time that has passed for it beyond real time.
        backlog: of clients that do not wait; None where it is not counted.
        charged_last: the connection of the last charge.
    """

    __slots__ = (
        "_before_lag_ms",
        "_before_ms",
        "_began_lag_ms",
        "_began_ms",
        "_round",
        "backlog",
        "charged_last",
        "lag_ms",
    )

    def __init__(self, backlog: Backlog | None = None) -> None:
        self.backlog = backlog
        self.charged_last: ConnectionTime | None = None
        self.lag_ms = 0
        self._round = 0
        self._began_lag_ms = self._began_ms = 0  # of the present round
        self._before_lag_ms = self._before_ms = 0  # of the round before

    def turn(self, last: int, now_ms: int) -> int:
        """Return the round that a connection takes its turn in, whose last turn was in round `last`."""
        if last == self._round:
            self._round += 1
            self._before_lag_ms, self._before_ms = self._began_lag_ms, self._began_ms
            self._began_lag_ms, self._began_ms = self.lag_ms, now_ms + self.lag_ms
        return self._round

    def behind_ms(self, lag_ms: int) -> int:
        """Return how long a connection waits for what others have brought since its last charge.

        Args:
            lag_ms: the budget's lag after the connection's last charge.
        """
        return self.lag_ms - max(lag_ms, self._before_lag_ms)

    def rounds_ms(self, now_ms: int) -> int:
        """Return how long this and the last round have taken."""
        return now_ms + self.lag_ms - self._before_ms


class ConnectionTime:
    """One connection's lag, and its waits.

    A client with several requests in flight has sent one when the response to an earlier one had come: it would come
    as much later as that one, or when the mute is over.

    Args:
        owed: the responses that are owed to the client.

    Attributes:
        lag_ms: how much later it would be for it now.
        waited_ms: how long it would have been held and muted, in time with the lag.
        mute_ms_max: the longest mute that its group or session allows.
        waiting_for: the throttle of the last wait; None before the first.

    >>> connection = ConnectionTime()
    >>> connection.mute(1000, now_ms=0)
    >>> connection.arrive(400)  # it would have waited for another 600 ms
    >>> connection.lag_ms, connection.waited_ms
    (600, 1000)
    """

    __slots__ = (
        "_arrived",
        "_charged_ms",
        "_counted_lag_ms",
        "_counted_ms",
        "_depth",
        "_owed",
        "_part_ms",
        "_past",
        "_places",
        "_seen_ms",
        "_slack_ms",
        "_uncounted",
        "_until_ms",
        "lag_ms",
        "mute_ms_max",
        "waited_ms",
        "waiting_for",
    )

    def __init__(self, owed: Sized = ()) -> None:
        self._owed = owed
        self.lag_ms = 0
        self.waited_ms = 0
        self.mute_ms_max = _UNBOUNDED_MS
        self.waiting_for: WouldWait | None = None
        self._arrived = False  # whether a request was seen since the last charge
        self._charged_ms = -1  # when a request was charged last, at its header or at its response
        self._part_ms = -1  # the same when a part was charged last
        self._until_ms = 0  # the end of its mute, with the lag
        self._slack_ms = -1  # how long before this request the mute was over; -1: there was none
        # The difference of the lags, the budget's lag, and the round.
        self._places: dict[BudgetTime, tuple[int, int, int]] = {}
        self._past: deque[int] = deque((0,), _IN_FLIGHT_MAX)  # the lag of the last requests
        self._depth = 0.0  # how many earlier requests are without a response when one arrives, at most
        self._seen_ms = 0  # when the last one arrived
        self._uncounted: dict[WouldWait, int] = {}
        self._counted_ms, self._counted_lag_ms = -COUNT_MS, 0

    def arrive(self, now_ms: int) -> None:
        """Note that a request has arrived: it would have waited until the mute ends."""
        self._arrived = True
        past, owed = self._past, len(self._owed)
        self._depth = max(owed, self._depth - _DEPTH_DECAY)
        caused_ms = past[max(-1 - ceil(self._depth), -len(past))]
        # Later than the one before, and not before the mute is over.
        earliest_ms = max(caused_ms, self.lag_ms - max(0, now_ms - self._seen_ms))
        muted_ms = self._until_ms - now_ms
        self.lag_ms = max(earliest_ms, muted_ms)
        self._slack_ms = max(0, earliest_ms - muted_ms) if self._until_ms else -1
        self._seen_ms = now_ms

    def weigh(self, now_ms: int) -> None:
        """Note the charge of a request, which has arrived now unless that was noted before."""
        if not self._arrived:
            self.arrive(now_ms)
        self._weighed(now_ms)

    def weigh_again(self, sent_ms: int, now_ms: int) -> None:
        """Note a charge for the time of a request that has arrived at `sent_ms`; its bytes may be charged already."""
        if sent_ms > self._charged_ms:
            self.arrive(sent_ms)
            self._weighed(now_ms)

    def weigh_part(self, now_ms: int) -> None:
        """Note the charge of a part of a request; all of it may be charged already."""
        if self._charged_ms == self._part_ms:
            self.arrive(now_ms)
            self._weighed(now_ms)
        self._part_ms = self._charged_ms

    def _weighed(self, now_ms: int) -> None:
        self._arrived = False
        self._charged_ms = now_ms
        self._past.append(self.lag_ms)
        if now_ms - self._counted_ms >= COUNT_MS:
            self.settle(now_ms)

    def place(self, budget: BudgetTime) -> tuple[int, int, int] | None:
        """Return the lag that the connection brings to this budget; the budget's lag after its last charge; and its
        round. None before the first charge.
        """
        found = self._places.get(budget)
        return None if found is None else (self.lag_ms + found[0], found[1], found[2])

    def take_place(self, budget: BudgetTime, turn: int) -> None:
        """Note a charge."""
        if len(self._places) >= _PLACES_MAX and budget not in self._places:
            del self._places[next(iter(self._places))]
        found = self._places.get(budget)
        if found is None:
            offset_ms = budget.lag_ms - self.lag_ms
        else:  # what others have brought is theirs; what this connection has made good since stays its own
            offset_ms = found[0]
            offset_ms += max(0, budget.lag_ms - max(self.lag_ms + offset_ms, found[1]))
        self._places[budget] = offset_ms, budget.lag_ms, turn

    def hold(self, ms: int, mute_ms: int = 0) -> None:
        """Wait before a request passes.

        Args:
            mute_ms: the longest time since the last mute for which the connection would have been muted on.
        """
        self.waited_ms += ms
        self.lag_ms += ms
        self._past[-1] = self.lag_ms
        if 0 < self._slack_ms <= mute_ms:
            self.waited_ms += self._slack_ms
        self._slack_ms = -1

    def muted_ms(self, now_ms: int) -> int:
        """The rest of the mute under way."""
        return max(0, self._until_ms - self.lag_ms - now_ms)

    def mute(self, ms: int, now_ms: int) -> None:
        """Begin a mute; the one under way becomes as long at least."""
        begins_ms = now_ms + self.lag_ms
        until_ms = begins_ms + min(ms, self.mute_ms_max)
        if until_ms > self._until_ms:
            self.waited_ms += until_ms - max(begins_ms, self._until_ms)
            self._until_ms = until_ms

    def count(self, throttle: WouldWait, ms: int) -> None:
        """Count a wait of so long for the throttle."""
        self.waiting_for = throttle
        if throttle in self._uncounted or len(self._uncounted) < _PLACES_MAX:
            self._uncounted[throttle] = self._uncounted.get(throttle, 0) + ms

    def settle(self, now_ms: int) -> None:
        """Add the uncounted waits to the throttles' counters, as their part of the real time since the last call."""
        elapsed_ms = now_ms - self._counted_ms
        whole_ms = max(elapsed_ms + self.lag_ms - self._counted_lag_ms, 1)
        waited_ms = max(sum(self._uncounted.values()), whole_ms)
        for throttle, ms in self._uncounted.items():
            throttle.would_throttle_ms_total += ms * elapsed_ms // waited_ms
        self._uncounted.clear()
        self._counted_ms, self._counted_lag_ms = now_ms, self.lag_ms
