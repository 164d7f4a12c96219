"""The `schedule` policy once more, for the backtest alone: `schedule.ScheduledThrottle` on arrays.

The one permitted second form of a rule: the same arithmetic in the same order, so that every decision is the engine's
to the millisecond; tests/property/test_backtest.py holds the two together. What it means stands in `schedule`. Beside
the arrays of `compiled_queue` there are `clock`, the scalars that are fractions, and `marks`, the whole ones.
"""

import math
from typing import Final

from quotas import compiled_queue as fair
from quotas.compiled import Floats, Ints, compiled, inlined
from quotas.schedule import DEBT_SHARE, FETCH_QUANTUM_MS, FIRST_FETCH_MS, GOLDEN, POLL_MS_MIN, SWEEP_MS
from quotas.turn import HOLD_MS_UNBOUNDED

__all__ = ["CLOCK_FIELDS", "MARK_FIELDS", "begin", "fetch", "fetch_max_bytes", "fetched", "produce"]

PAID_MS: Final = 0
DEBT: Final = 1
SPREAD: Final = 2
RATE: Final = 3
DEBT_MAX: Final = 4
CLOCK_FIELDS: Final = 5

GUESS: Final = 0
SWEEP_AT_MS: Final = 1
BURST_MS: Final = 2
HOLD_MS_MAX: Final = 3
MUTE_MS_MAX: Final = 4
MARK_FIELDS: Final = 5

ADMITTED: Final = fair.ADMITTED
COUNT: Final = fair.COUNT
EXPECTED: Final = fair.EXPECTED
FORCE_MS: Final = fair.FORCE_MS
HELD_SINCE_MS: Final = fair.HELD_SINCE_MS
PASSED: Final = fair.PASSED
START: Final = fair.START
TAG: Final = fair.TAG
TURN_SPREAD: Final = fair.SPREAD
VIRTUAL: Final = fair.VIRTUAL
WAITED: Final = fair.WAITED
DUE_MS: Final = fair.DUE_MS

State = tuple[Floats, Ints, Ints, Ints, Ints]
"""clock, marks, queue, places, turns."""


@compiled
def begin(
    state: State,
    limit: float,
    now_ms: int,
    burst_ms: int,
    hold_ms_max: int,
    mute_ms_max: int,
    group_caps: Ints,
) -> None:
    """Make it the state of an identity whose first request comes now.

    Args:
        group_caps: each channel's own bound of a hold; 0 = none.
    """
    clock, marks, queue, _, turns = state
    clock[:] = 0.0
    rate = limit / 1000.0
    clock[PAID_MS] = float(now_ms)
    clock[RATE] = rate
    clock[DEBT_MAX] = rate * (hold_ms_max + mute_ms_max)
    marks[:] = 0
    marks[SWEEP_AT_MS] = now_ms
    marks[BURST_MS] = burst_ms
    marks[HOLD_MS_MAX] = hold_ms_max
    marks[MUTE_MS_MAX] = mute_ms_max
    queue[:] = 0
    queue[fair.LAG_BYTES] = int(rate * burst_ms / 2)
    queue[fair.MARK_MS] = -1
    turns[:] = 0
    for channel in range(turns.shape[0]):
        turns[channel, ADMITTED] = -1
        turns[channel, HELD_SINCE_MS] = -1
        turns[channel, fair.HOLD_MS_MAX] = group_caps[channel] or HOLD_MS_UNBOUNDED


@inlined
def produce(state: State, channel: int, size: int, now_ms: int) -> tuple[int, int]:
    """`ScheduledThrottle.produce`: hold until, or 0; and the throttle time of what passes."""
    clock, marks, queue, places, turns = state
    turn = turns[channel]
    if turn[PASSED] and turn[HELD_SINCE_MS] < 0 and _plain(state, channel, turn[TAG], size, now_ms):
        return 0, 0
    if now_ms >= marks[SWEEP_AT_MS]:
        marks[SWEEP_AT_MS] = now_ms + SWEEP_MS
        fair.sweep(places, queue, turns, now_ms, marks[BURST_MS])
    slot_ms, back_ms = _slot(state, channel, fair.enter(places, queue, turns, channel))
    if slot_ms <= now_ms:
        return 0, _pass(state, channel, turn[TAG], size, now_ms)
    if turn[HELD_SINCE_MS] < 0:
        turn[HELD_SINCE_MS] = now_ms
        turn[FORCE_MS] = now_ms + min(marks[HOLD_MS_MAX], turn[fair.HOLD_MS_MAX])
        turn[TURN_SPREAD] = 0
        turn[WAITED] = 1
    if now_ms >= turn[FORCE_MS]:
        return 0, _force(state, channel, size, now_ms)
    if back_ms > turn[FORCE_MS] and not turn[PASSED] and not turn[TURN_SPREAD]:
        clock[SPREAD] = (clock[SPREAD] + GOLDEN) % 1.0
        first_ms = max(now_ms + 1, turn[HELD_SINCE_MS] + min(1000, marks[HOLD_MS_MAX] // 4))
        turn[FORCE_MS] = first_ms + int(clock[SPREAD] * max(0, turn[FORCE_MS] - first_ms))
        turn[TURN_SPREAD] = 1
        fair.remove(places, queue, turns, channel)
    if not turn[TURN_SPREAD]:
        fair.put(places, queue, turns, channel, size)
    poll_ms = max(POLL_MS_MIN, marks[BURST_MS] // 2, queue[COUNT])
    turn[DUE_MS] = min(math.ceil(slot_ms), now_ms + poll_ms, turn[FORCE_MS])
    return turn[DUE_MS], 0


@inlined
def fetch(state: State, channel: int, now_ms: int) -> int:
    """`ScheduledThrottle.fetch`: the throttle time of an empty answer, 0 = forwarded."""
    clock, marks, queue, places, turns = state
    turn = turns[channel]
    expected = turn[EXPECTED]
    if expected and turn[ADMITTED] < 0 and not queue[COUNT]:
        paid_ms = max(clock[PAID_MS], float(now_ms))
        if paid_ms - marks[BURST_MS] <= now_ms:
            clock[PAID_MS] = paid_ms + expected / clock[RATE]
            turn[ADMITTED] = expected
            turn[START] = max(turn[TAG], queue[VIRTUAL])
            return 0
    if now_ms >= marks[SWEEP_AT_MS]:
        marks[SWEEP_AT_MS] = now_ms + SWEEP_MS
        fair.sweep(places, queue, turns, now_ms, marks[BURST_MS])
    if turn[ADMITTED] >= 0:
        clock[PAID_MS] -= turn[ADMITTED] / clock[RATE]
        turn[ADMITTED] = -1
    slot_ms, back_ms = _slot(state, channel, fair.enter(places, queue, turns, channel))
    if not expected:
        expected = marks[GUESS] or _first_fetch_bytes(clock, marks, now_ms)
    if slot_ms > now_ms:
        wait_ms = max(back_ms - now_ms, min(slot_ms - now_ms, float(POLL_MS_MIN)))
        return _mute(state, channel, expected, math.ceil(wait_ms), now_ms)
    fair.remove(places, queue, turns, channel)
    clock[PAID_MS] = max(clock[PAID_MS], float(now_ms)) + expected / clock[RATE]
    turn[ADMITTED] = expected
    turn[START] = turn[TAG]
    return 0


@inlined
def fetch_max_bytes(state: State, channel: int, requested: int) -> int:
    """`ScheduledThrottle.fetch_max_bytes`."""
    clock, marks, queue, _, turns = state
    if not turns[channel, EXPECTED] and not marks[GUESS]:
        return int(max(1, min(requested, turns[channel, ADMITTED])))
    return int(max(1, min(requested, int(clock[RATE] * FETCH_QUANTUM_MS) // (queue[COUNT] + 1))))


@inlined
def fetched(state: State, channel: int, size: int, now_ms: int) -> int:
    """`ScheduledThrottle.fetched`: the throttle time of this answer. A Fetch was always admitted before."""
    clock, marks, _, _, turns = state
    turn = turns[channel]
    clock[PAID_MS] -= turn[ADMITTED] / clock[RATE]
    turn[ADMITTED] = -1
    turn[EXPECTED] = max(size, turn[EXPECTED] // 2)
    marks[GUESS] = max(size, marks[GUESS] // 2)
    if turn[PASSED] and _plain(state, channel, turn[START], size, now_ms):
        return 0
    return _pass(state, channel, turn[START], size, now_ms)


@compiled
def _force(state: State, channel: int, size: int, now_ms: int) -> int:
    clock, marks, _, _, turns = state
    turn = turns[channel]
    if turn[TURN_SPREAD]:
        owed = float(size)
        goes_on_ms = clock[PAID_MS] - size / clock[RATE]
    else:
        goes_on_ms = min(clock[PAID_MS], float(now_ms + marks[BURST_MS]))
        owed = (clock[PAID_MS] - goes_on_ms) * clock[RATE]
    clock[PAID_MS] = goes_on_ms
    throttle_ms = _pass(state, channel, turn[TAG], size, now_ms)
    clock[DEBT] = min(clock[DEBT] + owed, clock[DEBT_MAX])
    return throttle_ms


@compiled
def _first_fetch_bytes(clock: Floats, marks: Ints, now_ms: int) -> int:
    left_ms = now_ms + marks[BURST_MS] - max(float(now_ms), clock[PAID_MS])
    guess: int = math.ceil(min(max(left_ms, float(FIRST_FETCH_MS)), float(FETCH_QUANTUM_MS)) * clock[RATE])
    return guess


@inlined
def _slot(state: State, channel: int, index: int) -> tuple[float, float]:
    clock, marks, queue, places, turns = state
    free_ms = clock[PAID_MS] - marks[BURST_MS]
    if not index:
        return free_ms, free_ms
    once, due = fair.ahead(places, turns[channel], index)
    soonest_ms = free_ms + once / clock[RATE]
    if due == once:
        return soonest_ms, soonest_ms
    slot_ms = free_ms + min(due, once + queue[fair.LAG_BYTES]) / clock[RATE]
    half_way_ms = free_ms + (once + due) / 2 / clock[RATE]
    return slot_ms, min(half_way_ms, soonest_ms + marks[BURST_MS])


@inlined
def _plain(state: State, channel: int, start: int, size: int, now_ms: int) -> bool:
    clock, marks, queue, _, turns = state
    if queue[COUNT] or clock[DEBT] != 0.0:
        return False
    paid_ms = max(clock[PAID_MS], float(now_ms)) + size / clock[RATE]
    if paid_ms - marks[BURST_MS] > now_ms:
        return False
    clock[PAID_MS] = paid_ms
    queue[VIRTUAL] = max(start, queue[VIRTUAL])
    turns[channel, TAG] = queue[VIRTUAL] + size
    turns[channel, WAITED] = 0
    return True


@inlined
def _pass(state: State, channel: int, start: int, size: int, now_ms: int) -> int:
    clock, _, queue, places, turns = state
    turn = turns[channel]
    fair.remove(places, queue, turns, channel)
    turn[HELD_SINCE_MS] = -1
    charged = size
    if clock[DEBT] > 0:
        repaid = min(clock[DEBT], size * DEBT_SHARE)
        clock[DEBT] -= repaid
        charged += math.ceil(repaid)
    clock[PAID_MS] = max(clock[PAID_MS], float(now_ms)) + charged / clock[RATE]
    fair.started(places, queue, turns, channel, start, size)
    _, back_ms = _slot(state, channel, fair.behind(places, queue, turns, channel))
    wait_ms = math.ceil(back_ms - now_ms)
    if wait_ms > 0:
        return _mute(state, channel, size, wait_ms, now_ms)
    turn[WAITED] = 0
    if queue[COUNT]:
        fair.put(places, queue, turns, channel, size)
        turn[DUE_MS] = now_ms
    return 0


@inlined
def _mute(state: State, channel: int, expected: int, wait_ms: int, now_ms: int) -> int:
    _, marks, queue, places, turns = state
    throttle_ms = min(wait_ms, marks[MUTE_MS_MAX])
    fair.put(places, queue, turns, channel, expected)
    turns[channel, WAITED] = 1
    turns[channel, DUE_MS] = now_ms + throttle_ms
    return int(throttle_ms)
