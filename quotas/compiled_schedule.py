"""The `schedule` policy once more, for the backtest alone: `schedule.ScheduledThrottle` on arrays.

No Fetch is with its broker for FETCH_MS_MAX here, no request is announced, and no channel leaves.

The one permitted second form of a rule: the same arithmetic in the same order, so that every decision is the engine's
to the millisecond; tests/property/test_backtest.py holds the two together. What it means stands in `schedule`. Beside
the arrays of `compiled_queue` there are `clock`, the scalars that are fractions, and `marks`, the whole ones.
"""

import math
from typing import Final

from quotas import compiled_queue as fair
from quotas.compiled import Floats, Ints, compiled, inlined
from quotas.schedule import POLL_MS_MIN, SWEEP_MS
from quotas.turn import GRACE_MS
from quotas.under_way import (
    BATCH_BYTES_MIN,
    BATCH_MS,
    CROWDED_MS,
    CROWDED_WAIT_MS,
    EXPOSED_SHARE,
    FETCH_QUANTUM_MS,
    FETCH_WAIT_MS_MAX,
    FIRST_FETCH_BYTES,
    FIRST_FETCH_MS,
    IDLE_AT_A_TIME,
    IDLE_FETCH_BYTES_MAX,
    IDLE_FETCH_MS,
    ROOM_USED_PERCENT,
)

__all__ = [
    "CLOCK_FIELDS",
    "MARK_FIELDS",
    "begin",
    "fetch",
    "fetch_max_bytes",
    "fetched",
    "fetched_before",
    "produce",
]

PAID_MS: Final = 0
RATE: Final = 1
RETURNED_MS: Final = 2
CLOCK_FIELDS: Final = 3

GUESS: Final = 0
SWEEP_AT_MS: Final = 1
BURST_MS: Final = 2
MUTE_MS_MAX: Final = 3
FETCH_AHEAD_MS: Final = 4
EXPOSED_BYTES: Final = 5
BATCH: Final = 6
BATCH_BEFORE: Final = 7
BATCH_UNTIL_MS: Final = 8
UNDER_WAY: Final = 9
CROWDED_UNTIL_MS: Final = 10
AWAY: Final = 11
MARK_FIELDS: Final = 12

ADMITTED: Final = fair.ADMITTED
COUNT: Final = fair.COUNT
EXPECTED: Final = fair.EXPECTED
EXPOSED: Final = fair.EXPOSED
FORWARDED_MS: Final = fair.FORWARDED_MS
GRANTED: Final = fair.GRANTED
HELD_SINCE_MS: Final = fair.HELD_SINCE_MS
PASSED: Final = fair.PASSED
RESTING: Final = fair.RESTING
START: Final = fair.START
TAG: Final = fair.TAG
UNTIL_MS: Final = fair.UNTIL_MS
VIRTUAL: Final = fair.VIRTUAL
WAITED: Final = fair.WAITED
DUE_MS: Final = fair.DUE_MS

State = tuple[Floats, Ints, Ints, Ints, Ints]
"""clock, marks, queue, places, turns."""


@compiled
def begin(state: State, limit: float, now_ms: int, burst_ms: int, mute_ms_max: int) -> None:
    """Make it the state of an identity whose first request comes now."""
    clock, marks, queue, _, turns = state
    rate = limit / 1000.0
    clock[PAID_MS] = float(now_ms)
    clock[RATE] = rate
    clock[RETURNED_MS] = 0.0
    marks[:] = 0
    marks[SWEEP_AT_MS] = now_ms
    marks[BURST_MS] = burst_ms
    marks[MUTE_MS_MAX] = mute_ms_max
    marks[FETCH_AHEAD_MS] = burst_ms - burst_ms // EXPOSED_SHARE
    marks[BATCH_UNTIL_MS] = now_ms + BATCH_MS
    marks[CROWDED_UNTIL_MS] = now_ms
    queue[:] = 0
    queue[fair.LAG_BYTES] = int(rate * burst_ms / 2)
    queue[fair.MARK_MS] = -1
    turns[:] = 0
    for channel in range(turns.shape[0]):
        turns[channel, ADMITTED] = -1
        turns[channel, HELD_SINCE_MS] = -1


@inlined
def produce(state: State, channel: int, size: int, now_ms: int) -> tuple[int, int]:
    """`ScheduledThrottle.produce`: hold until, or 0; and the throttle time of what passes. A hold has no end here."""
    _, marks, queue, places, turns = state
    turn = turns[channel]
    burst_ms = marks[BURST_MS]
    if turn[PASSED] and turn[HELD_SINCE_MS] < 0 and _plain(state, channel, turn[TAG], size, now_ms, burst_ms):
        return 0, 0
    if now_ms >= marks[SWEEP_AT_MS]:
        _sweep(state, now_ms)
    slot_ms, _ = _slot(state, channel, fair.enter(places, queue, turns, channel), burst_ms)
    if slot_ms <= now_ms:
        return 0, _pass(state, channel, turn[TAG], size, size, now_ms, burst_ms)
    if turn[HELD_SINCE_MS] < 0:
        turn[HELD_SINCE_MS] = now_ms
        turn[WAITED] = 1
    fair.put(places, queue, turns, channel, size)
    poll_ms = max(POLL_MS_MIN, burst_ms // 2, queue[COUNT])
    turn[DUE_MS] = min(math.ceil(slot_ms), now_ms + poll_ms)
    return turn[DUE_MS], 0


@inlined
def fetched_before(first: int, limit: float) -> int:
    """What a channel's Fetches brought before the recording, as far as it says: the first one's bytes.

    Under this limit a Fetch would not have been granted more than its quantum.
    """
    return min(int(first), int(limit / 1000.0 * FETCH_QUANTUM_MS))


@inlined
def fetch(state: State, channel: int, now_ms: int) -> tuple[int, bool]:
    """`ScheduledThrottle.fetch`: the throttle time of an empty answer, 0 = forwarded; whether it is for idle ones."""
    clock, marks, queue, places, turns = state
    turn = turns[channel]
    expected = turn[EXPECTED]
    crowded = now_ms < marks[CROWDED_UNTIL_MS]
    if expected and turn[ADMITTED] < 0 and not crowded and not marks[UNDER_WAY] and not queue[COUNT]:
        paid_ms = max(clock[PAID_MS], float(now_ms))
        if paid_ms - marks[FETCH_AHEAD_MS] <= now_ms:
            clock[PAID_MS] = paid_ms + expected / clock[RATE]
            turn[START] = max(turn[TAG], queue[VIRTUAL])
            _expose(state, channel, expected, now_ms)
            return 0, False
    if now_ms >= marks[SWEEP_AT_MS]:
        _sweep(state, now_ms)
    _release(state, channel, now_ms)
    marks[AWAY] -= turn[RESTING]
    turn[RESTING] = 0
    index = fair.enter(places, queue, turns, channel)
    slot_ms, back_ms = _slot(state, channel, index, marks[FETCH_AHEAD_MS])
    known = expected or marks[GUESS]
    expected = known or _first_fetch_bytes(clock, marks, now_ms)
    if slot_ms > now_ms:
        wait_ms = max(back_ms - now_ms, min(slot_ms - now_ms, float(POLL_MS_MIN)))
        place = _likely(state, channel, expected)
        if not known:
            place, wait_ms = 1, min(wait_ms, float(POLL_MS_MIN))
        return _mute(state, channel, place, math.ceil(wait_ms), now_ms), False
    exposed = marks[EXPOSED_BYTES]
    if max(clock[PAID_MS], float(now_ms)) + exposed / clock[RATE] - marks[BURST_MS] > now_ms and exposed:
        marks[CROWDED_UNTIL_MS] = now_ms + CROWDED_MS
        turn[RESTING] = 1
        marks[AWAY] += 1
        return _mute(state, channel, _likely(state, channel, expected), CROWDED_WAIT_MS, now_ms), True
    fair.remove(places, queue, turns, channel)
    clock[PAID_MS] = max(clock[PAID_MS], float(now_ms)) + expected / clock[RATE]
    turn[START] = turn[TAG]
    _expose(state, channel, expected, now_ms)
    return 0, False


@inlined
def fetch_max_bytes(state: State, channel: int, requested: int) -> int:
    """`ScheduledThrottle.fetch_max_bytes`."""
    _, _, _, _, turns = state
    turn = turns[channel]
    if requested < turn[GRANTED]:
        turn[GRANTED] = max(1, requested)
    return int(max(1, turn[GRANTED]))


@inlined
def fetched(state: State, channel: int, size: int, now_ms: int) -> tuple[int, bool]:
    """`ScheduledThrottle.fetched`: the throttle time, and whether it is for idle ones. A Fetch was admitted before."""
    _, marks, _, _, turns = state
    turn = turns[channel]
    if size > turn[GRANTED]:
        marks[BATCH] = max(marks[BATCH], size)
    _release(state, channel, now_ms)
    turn[EXPECTED] = max(size, turn[EXPECTED] // 2)
    marks[GUESS] = max(size, marks[GUESS] // 2)
    throttle_ms = 0
    ahead_ms = marks[FETCH_AHEAD_MS]
    if not turn[PASSED] or not _plain(state, channel, turn[START], size, now_ms, ahead_ms):
        place = _likely(state, channel, size)
        throttle_ms = _pass(state, channel, turn[START], size, place, now_ms, ahead_ms)
    if now_ms < marks[CROWDED_UNTIL_MS]:
        rest_ms = _rest_ms(state, channel, now_ms)
        if rest_ms > throttle_ms:
            return _rest(state, channel, rest_ms, now_ms), True
    return throttle_ms, False


@compiled
def _rest_ms(state: State, channel: int, now_ms: int) -> int:
    clock, marks, _, _, turns = state
    room = int((marks[BURST_MS] - max(0.0, clock[PAID_MS] - now_ms) / 2) * clock[RATE])
    each = max(marks[EXPOSED_BYTES] // marks[UNDER_WAY] if marks[UNDER_WAY] else 0, _floor(clock, marks), 1)
    at_a_time = max(1, room * ROOM_USED_PERCENT // 100 // each)
    beyond = marks[UNDER_WAY] + marks[AWAY] - at_a_time
    if beyond <= 0:
        return 0
    marks[CROWDED_UNTIL_MS] = now_ms + CROWDED_MS
    return int(min((now_ms - turns[channel, FORWARDED_MS]) * beyond // at_a_time, FETCH_WAIT_MS_MAX))


@compiled
def _rest(state: State, channel: int, rest_ms: int, now_ms: int) -> int:
    _, marks, queue, places, turns = state
    rest_ms = min(rest_ms, marks[MUTE_MS_MAX])
    fair.remove(places, queue, turns, channel)
    turns[channel, RESTING] = 1
    marks[AWAY] += 1
    turns[channel, DUE_MS] = now_ms + rest_ms
    return int(rest_ms)


@compiled
def _expose(state: State, channel: int, expected: int, now_ms: int) -> None:
    clock, marks, queue, _, turns = state
    turn = turns[channel]
    turn[ADMITTED] = expected
    turn[FORWARDED_MS] = now_ms
    turn[UNTIL_MS] = int(clock[PAID_MS])
    turn[fair.RETURNED_MS] = int(clock[RETURNED_MS])
    if turn[EXPECTED] or marks[GUESS]:
        quantum = int(clock[RATE] * FETCH_QUANTUM_MS) // (queue[COUNT] + 1)
        shared = int(clock[RATE] * marks[BURST_MS]) // EXPOSED_SHARE // (marks[UNDER_WAY] + 1 + queue[COUNT])
        idle = min(_idle(clock), max(shared, _floor(clock, marks)))
        turn[GRANTED] = max(1, min(quantum, max(2 * expected, idle)))
    else:
        turn[GRANTED] = max(1, expected)
    turn[EXPOSED] = max(_beyond(marks, turn, expected), _floor(clock, marks) - expected)
    marks[EXPOSED_BYTES] += turn[EXPOSED]
    marks[UNDER_WAY] += 1


@inlined
def _likely(state: State, channel: int, expected: int) -> int:
    clock, marks, queue, _, turns = state
    waiting = queue[COUNT] - turns[channel, fair.QUEUED]
    share = int(clock[RATE] * FETCH_QUANTUM_MS) // (waiting + 1)
    return int(min(expected, max(share, marks[BATCH], marks[BATCH_BEFORE])))


@inlined
def _idle(clock: Floats) -> int:
    return min(int(clock[RATE] * IDLE_FETCH_MS), IDLE_FETCH_BYTES_MAX)


@inlined
def _floor(clock: Floats, marks: Ints) -> int:
    return min(_idle(clock), BATCH_BYTES_MIN, int(clock[RATE] * marks[BURST_MS]) // IDLE_AT_A_TIME)


@inlined
def _beyond(marks: Ints, turn: Ints, expected: int) -> int:
    return int(max(turn[GRANTED], marks[BATCH], marks[BATCH_BEFORE], expected) - expected)


@inlined
def _release(state: State, channel: int, now_ms: int) -> None:
    clock, marks, _, _, turns = state
    turn = turns[channel]
    if turn[ADMITTED] >= 0:
        left_ms = turn[UNTIL_MS] - (math.ceil(clock[RETURNED_MS]) - turn[fair.RETURNED_MS]) - now_ms
        if left_ms > 0:
            returned_ms = min(turn[ADMITTED] / clock[RATE], float(left_ms))
            clock[PAID_MS] -= returned_ms
            clock[RETURNED_MS] += returned_ms
        marks[EXPOSED_BYTES] -= turn[EXPOSED]
        marks[UNDER_WAY] -= 1
        turn[EXPOSED] = 0
        turn[ADMITTED] = -1


@compiled
def _sweep(state: State, now_ms: int) -> None:
    clock, marks, queue, places, turns = state
    marks[SWEEP_AT_MS] = now_ms + SWEEP_MS
    fair.sweep(places, queue, turns, now_ms, marks[BURST_MS])
    if marks[UNDER_WAY]:
        _paid(clock, marks, turns, now_ms)
    if marks[AWAY]:
        for turn in turns:
            if turn[RESTING] and now_ms > turn[DUE_MS] + GRACE_MS:
                turn[RESTING] = 0
                marks[AWAY] -= 1
    if now_ms >= marks[BATCH_UNTIL_MS]:
        marks[BATCH_UNTIL_MS] = now_ms + BATCH_MS
        marks[BATCH_BEFORE] = marks[BATCH]
        marks[BATCH] = 0


@compiled
def _paid(clock: Floats, marks: Ints, turns: Ints, now_ms: int) -> None:
    returned_ms = math.ceil(clock[RETURNED_MS])
    for turn in turns:
        if turn[ADMITTED] > 0:
            left_ms = turn[UNTIL_MS] + 1 - (returned_ms - turn[fair.RETURNED_MS]) - now_ms
            unpaid = int(left_ms * clock[RATE]) if left_ms > 0 else 0
            if unpaid < turn[ADMITTED]:
                turn[EXPOSED] += turn[ADMITTED] - unpaid
                marks[EXPOSED_BYTES] += turn[ADMITTED] - unpaid
                turn[ADMITTED] = unpaid


@compiled
def _first_fetch_bytes(clock: Floats, marks: Ints, now_ms: int) -> int:
    left_ms = now_ms + marks[BURST_MS] - max(float(now_ms), clock[PAID_MS])
    most_ms = min(max(FIRST_FETCH_BYTES / clock[RATE], float(IDLE_FETCH_MS)), float(FETCH_QUANTUM_MS))
    guess: int = math.ceil(min(max(left_ms, float(FIRST_FETCH_MS)), most_ms) * clock[RATE])
    return guess


@inlined
def _slot(state: State, channel: int, index: int, ahead_ms: int) -> tuple[float, float]:
    clock, _, queue, places, turns = state
    free_ms = clock[PAID_MS] - ahead_ms
    if not index:
        return free_ms, free_ms
    once, due = fair.ahead(places, turns[channel], index)
    soonest_ms = free_ms + once / clock[RATE]
    if due == once:
        return soonest_ms, soonest_ms
    slot_ms = free_ms + min(due, once + queue[fair.LAG_BYTES]) / clock[RATE]
    half_way_ms = free_ms + (once + due) / 2 / clock[RATE]
    return slot_ms, min(half_way_ms, slot_ms)


@inlined
def _plain(state: State, channel: int, start: int, size: int, now_ms: int, ahead_ms: int) -> bool:
    clock, _, queue, _, turns = state
    if queue[COUNT]:
        return False
    paid_ms = max(clock[PAID_MS], float(now_ms)) + size / clock[RATE]
    if paid_ms - ahead_ms > now_ms:
        return False
    clock[PAID_MS] = paid_ms
    queue[VIRTUAL] = max(start, queue[VIRTUAL])
    turns[channel, TAG] = queue[VIRTUAL] + size
    turns[channel, WAITED] = 0
    return True


@inlined
def _pass(state: State, channel: int, start: int, size: int, place: int, now_ms: int, ahead_ms: int) -> int:
    clock, _, queue, places, turns = state
    turn = turns[channel]
    fair.remove(places, queue, turns, channel)
    turn[HELD_SINCE_MS] = -1
    clock[PAID_MS] = max(clock[PAID_MS], float(now_ms)) + size / clock[RATE]
    fair.started(places, queue, turns, channel, start, size)
    _, back_ms = _slot(state, channel, fair.behind(places, queue, turns, channel), ahead_ms)
    wait_ms = math.ceil(back_ms - now_ms)
    if wait_ms > 0:
        return _mute(state, channel, place, wait_ms, now_ms)
    turn[WAITED] = 0
    if queue[COUNT]:
        fair.put(places, queue, turns, channel, place)
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
