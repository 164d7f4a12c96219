"""Predicts the effect of a quota that is not enforced.

Counted are the waits of clients that wait for their responses (*closed loop*), and the backlog of clients that keep
their rate although they are throttled (*open loop*). Requests are charged in the same order as with enforcement, in
virtual time (`limiters.virtual_time`):

    kip13 Produce    passes and is recorded; the excess, with that of other connections, mutes its connection
    kip13 Fetch      waits until there is room for it (empty responses), then passes
    schedule         waits for its slot; its connection is muted until its next slot, after those of others
    topics           pass, are charged, and mute the connection, under both policies
    request time     as topics

This module is not used while quotas are enforced.
"""

from collections.abc import Callable
from typing import Final

from quotas.limiters.limiter import Flow, Limiter
from quotas.limiters.sampled import SampledLimit
from quotas.limiters.virtual_time import BudgetTime, ConnectionTime
from quotas.throttles.figures import ThrottleCounters

# Old windows expire one by one while a Fetch waits, so its wait is computed again, at most this many times.
_LOOKS_MAX: Final = 4


Budget = Limiter | SampledLimit
"""A limiter of any kind; that of request time is no `Limiter`, as it decides on nothing."""


def predict(
    limiter: Limiter, flow: Flow, throttle: ThrottleCounters, size: int, now_ms: int, consumes: bool
) -> int:
    """Charge a Produce, or a Fetch (`consumes`); count and return the ms that it would have waited with enforcement."""
    connection = flow.connection
    if connection is None:
        connection = flow.connection = ConnectionTime()
    connection.weigh(now_ms)
    before_ms = connection.waited_ms
    held_ms, budget, turn = _catch_up(limiter, connection, now_ms)
    alone = budget.charged_last is connection
    for _ in range(_LOOKS_MAX if consumes else 1):
        wait_ms = limiter.room_in_ms(size, now_ms, consumes, alone)
        if wait_ms <= 0:
            break
        _elapse(limiter, budget, wait_ms)
        held_ms += wait_ms
    if held_ms:
        connection.hold(held_ms, budget.rounds_ms(now_ms) if limiter.muted_until_next(consumes) else 0)
    mute_ms = limiter.observe(flow, size, now_ms, consumes)
    connection.mute(mute_ms, now_ms)
    connection.take_place(budget, turn)
    budget.charged_last = connection
    if budget.backlog is None:
        budget.backlog = limiter.new_backlog()
    budget.backlog.add(size, limiter.rate, now_ms)
    waited_ms = connection.waited_ms - before_ms
    _count(throttle, connection, waited_ms)
    return waited_ms


def predict_afterwards(
    limiter: Budget,
    connection: ConnectionTime,
    throttle: ThrottleCounters,
    charge: Callable[[], int],
    now_ms: int,
) -> None:
    """Charge a topic's bytes or a request's time, and count the mute that would have begun if quotas were enforced.

    Args:
        charge: records the charge, and returns the mute in ms.
    """
    before_ms = connection.waited_ms
    behind_ms, budget, turn = _catch_up(limiter, connection, now_ms)
    mute_ms = charge()
    connection.mute(_mute_ms(limiter, mute_ms, behind_ms, now_ms), now_ms)
    connection.take_place(budget, turn)
    _count(throttle, connection, connection.waited_ms - before_ms)


def _catch_up(limiter: Budget, connection: ConnectionTime, now_ms: int) -> tuple[int, BudgetTime, int]:
    """Move the budget on to the connection's time if that is later.

    Returns:
        The time in ms by which the connection is behind others, the budget's time, and the round of its turn.
    """
    budget = limiter.virtual_time
    if budget is None:
        budget = limiter.virtual_time = BudgetTime()
    place = connection.place(budget)
    if place is None:
        return 0, budget, budget.turn(-1, now_ms)
    lag_ms, last_ms, turn = place
    if lag_ms > budget.lag_ms:
        _elapse(limiter, budget, lag_ms - budget.lag_ms)
    turn = budget.turn(turn, now_ms)
    return budget.behind_ms(max(lag_ms, last_ms)), budget, turn


def _elapse(limiter: Budget, budget: BudgetTime, ms: int) -> None:
    limiter.elapse(ms)
    budget.lag_ms += ms


def _mute_ms(limiter: Budget, mute_ms: int, behind_ms: int, now_ms: int) -> int:
    """Return the mute in ms of a connection whose time is `behind_ms` before that of the budget that it has charged.

    The mute begins earlier by `behind_ms`, and so is longer by it, to end at the same time.
    """
    if behind_ms and not mute_ms:
        return max(0, behind_ms - limiter.free_ms(now_ms))
    return mute_ms + behind_ms


def _count(throttle: ThrottleCounters, connection: ConnectionTime, waited_ms: int) -> None:
    if waited_ms > 0:
        throttle.would_throttled_total += 1
        connection.count(throttle, waited_ms)
