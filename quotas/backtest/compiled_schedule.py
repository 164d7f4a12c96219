"""`schedule.ScheduledLimiter` on arrays, for the backtest only.

Here no Fetch stays at its broker for FETCH_MS_MAX, no request is announced, no channel leaves, and no size of a batch
is known.

The one permitted second form of a rule: the same arithmetic in the same order, so that every decision equals the
engine's to the millisecond; tests/property/test_backtest.py compares the two, and `schedule` explains the rules. In
addition to the arrays of `compiled_fair_queue`, `clock` has the fractional scalars and `marks` the whole ones.
"""

import math
from typing import Final

from quotas.backtest import compiled_fair_queue as fair
from quotas.backtest.compiler import Floats, Ints, compiled, inlined
from quotas.limiters.limiter import GRACE_MS
from quotas.limiters.schedule import POLL_MS_MIN, SWEEP_MS
from quotas.limiters.under_way import (
    BATCH_BYTES_MIN,
    BATCH_MS,
    CROWDED_MS,
    CROWDED_WAIT_MS,
    EXPOSED_SHARE,
    FETCH_QUANTUM_MS,
    FETCH_WAIT_MS_MAX,
    FIRST_FETCH_BYTES,
    FIRST_FETCH_MS,
    HEAD_BYTES_MAX,
    HEAD_SHARE,
    IDLE_AT_A_TIME,
    IDLE_FETCH_BYTES_MAX,
    IDLE_FETCH_MS,
    ROOM_USED_PERCENT,
)

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
"""clock, marks, queue, places, flows."""


@compiled
def begin(state: State, limit: float, now_ms: int, burst_ms: int, mute_ms_max: int) -> None:
    """Initialize the state of an identity whose first request arrives at `now_ms`.

    Args:
        limit: the quota in bytes/s.
        burst_ms: the burst, as the time in ms in which the quota allows its bytes.
        mute_ms_max: the longest mute.
    """
    clock, marks, queue, _, flows = state
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
    flows[:] = 0
    for channel in range(flows.shape[0]):
        flows[channel, ADMITTED] = -1
        flows[channel, HELD_SINCE_MS] = -1


@inlined
def produce(state: State, channel: int, size: int, now_ms: int) -> tuple[int, int]:
    """Decide on a Produce (`ScheduledLimiter.produce`); here a hold may last for any time.

    Returns: the time in ms until which it is held, 0 if it passes; and its throttle time in ms, 0 if it is not
    throttled.
    """
    _, marks, queue, places, flows = state
    flow = flows[channel]
    burst_ms = marks[BURST_MS]
    if (
        flow[PASSED]
        and flow[HELD_SINCE_MS] < 0
        and _pass_if_alone(state, channel, flow[TAG], size, now_ms, burst_ms)
    ):
        return 0, 0
    if now_ms >= marks[SWEEP_AT_MS]:
        _sweep(state, now_ms)
    slot_ms, _ = _slot(state, channel, fair.enter(places, queue, flows, channel), burst_ms)
    if slot_ms <= now_ms:
        return 0, _pass(state, channel, flow[TAG], size, size, now_ms, burst_ms)
    if flow[HELD_SINCE_MS] < 0:
        flow[HELD_SINCE_MS] = now_ms
        flow[WAITED] = 1
    fair.put(places, queue, flows, channel, size)
    poll_ms = max(POLL_MS_MIN, burst_ms // 2, queue[COUNT])
    flow[DUE_MS] = min(math.ceil(slot_ms), now_ms + poll_ms)
    return flow[DUE_MS], 0


@inlined
def fetched_before(first: int, limit: float) -> int:
    """Return the estimated bytes of a channel's last Fetch before the recording began.

    That is `first`, the bytes of its first recorded Fetch, or fewer if this limit grants one Fetch fewer.
    """
    return min(int(first), int(limit / 1000.0 * FETCH_QUANTUM_MS))


@inlined
def fetch(state: State, channel: int, now_ms: int) -> tuple[int, bool]:
    """Decide on a Fetch before it is forwarded (`ScheduledLimiter.fetch`).

    Returns: 0 if it is forwarded, otherwise the throttle time in ms of its empty response; and whether it waits only
    because of other Fetches that wait for data at their brokers.
    """
    clock, marks, queue, places, flows = state
    flow = flows[channel]
    expected = flow[EXPECTED]
    crowded = now_ms < marks[CROWDED_UNTIL_MS]
    if expected and flow[ADMITTED] < 0 and not crowded and not marks[UNDER_WAY] and not queue[COUNT]:
        paid_ms = max(clock[PAID_MS], float(now_ms))
        if paid_ms - marks[FETCH_AHEAD_MS] <= now_ms:
            clock[PAID_MS] = paid_ms + expected / clock[RATE]
            flow[START] = max(flow[TAG], queue[VIRTUAL])
            _expose(state, channel, expected, now_ms)
            return 0, False
    if now_ms >= marks[SWEEP_AT_MS]:
        _sweep(state, now_ms)
    _release(state, channel, now_ms)
    marks[AWAY] -= flow[RESTING]
    flow[RESTING] = 0
    index = fair.enter(places, queue, flows, channel)
    slot_ms, back_ms = _slot(state, channel, index, marks[FETCH_AHEAD_MS])
    known = expected or marks[GUESS]
    expected = known or _first_fetch_bytes(clock, marks, now_ms)
    if slot_ms > now_ms:
        wait_ms = max(back_ms - now_ms, min(slot_ms - now_ms, float(POLL_MS_MIN)))
        place = _place_bytes(state, channel, expected)
        if not known:
            place, wait_ms = 1, min(wait_ms, float(POLL_MS_MIN))
        return _mute(state, channel, place, math.ceil(wait_ms), now_ms), False
    exposed = marks[EXPOSED_BYTES]
    if max(clock[PAID_MS], float(now_ms)) + exposed / clock[RATE] - marks[BURST_MS] > now_ms and exposed:
        marks[CROWDED_UNTIL_MS] = now_ms + CROWDED_MS
        flow[RESTING] = 1
        marks[AWAY] += 1
        return _mute(state, channel, _place_bytes(state, channel, expected), CROWDED_WAIT_MS, now_ms), True
    fair.remove(places, queue, flows, channel)
    clock[PAID_MS] = max(clock[PAID_MS], float(now_ms)) + expected / clock[RATE]
    flow[START] = flow[TAG]
    _expose(state, channel, expected, now_ms)
    return 0, False


@inlined
def fetch_max_bytes(state: State, channel: int, requested: int) -> int:
    """Return the max_bytes with which an admitted Fetch is forwarded (`ScheduledLimiter.fetch_max_bytes`)."""
    _, _, _, _, flows = state
    flow = flows[channel]
    head = min(flow[GRANTED] // HEAD_SHARE, HEAD_BYTES_MAX)
    granted = flow[GRANTED] - head
    if requested < granted:
        granted = requested
        flow[GRANTED] = granted + head
    return int(max(1, granted))


@inlined
def fetched(state: State, channel: int, size: int, now_ms: int) -> tuple[int, bool]:
    """Count the bytes of the response to an admitted Fetch (`ScheduledLimiter.fetched`).

    Returns: the throttle time in ms, 0 for none; and whether the channel is muted only because of other Fetches that
    wait for data at their brokers.
    """
    _, marks, _, _, flows = state
    flow = flows[channel]
    if size > flow[GRANTED]:
        marks[BATCH] = max(marks[BATCH], size)
    _release(state, channel, now_ms)
    flow[EXPECTED] = max(size, flow[EXPECTED] // 2)
    marks[GUESS] = max(size, marks[GUESS] // 2)
    throttle_ms = 0
    ahead_ms = marks[FETCH_AHEAD_MS]
    if not flow[PASSED] or not _pass_if_alone(state, channel, flow[START], size, now_ms, ahead_ms):
        place = _place_bytes(state, channel, size)
        throttle_ms = _pass(state, channel, flow[START], size, place, now_ms, ahead_ms)
    if now_ms < marks[CROWDED_UNTIL_MS]:
        rest_ms = _rest_ms(state, channel, now_ms)
        if rest_ms > throttle_ms:
            return _rest(state, channel, rest_ms, now_ms), True
    return throttle_ms, False


@compiled
def _rest_ms(state: State, channel: int, now_ms: int) -> int:
    clock, marks, _, _, flows = state
    room = int((marks[BURST_MS] - max(0.0, clock[PAID_MS] - now_ms) / 2) * clock[RATE])
    each = max(marks[EXPOSED_BYTES] // marks[UNDER_WAY] if marks[UNDER_WAY] else 0, _floor(clock, marks), 1)
    concurrent_max = max(1, room * ROOM_USED_PERCENT // 100 // each)
    beyond = marks[UNDER_WAY] + marks[AWAY] - concurrent_max
    if beyond <= 0:
        return 0
    marks[CROWDED_UNTIL_MS] = now_ms + CROWDED_MS
    return int(min((now_ms - flows[channel, FORWARDED_MS]) * beyond // concurrent_max, FETCH_WAIT_MS_MAX))


@compiled
def _rest(state: State, channel: int, rest_ms: int, now_ms: int) -> int:
    _, marks, queue, places, flows = state
    rest_ms = min(rest_ms, marks[MUTE_MS_MAX])
    fair.remove(places, queue, flows, channel)
    flows[channel, RESTING] = 1
    marks[AWAY] += 1
    flows[channel, DUE_MS] = now_ms + rest_ms
    return int(rest_ms)


@compiled
def _expose(state: State, channel: int, expected: int, now_ms: int) -> None:
    clock, marks, queue, _, flows = state
    flow = flows[channel]
    flow[ADMITTED] = expected
    flow[FORWARDED_MS] = now_ms
    flow[UNTIL_MS] = int(clock[PAID_MS])
    flow[fair.RETURNED_MS] = int(clock[RETURNED_MS])
    if flow[EXPECTED] or marks[GUESS]:
        quantum = int(clock[RATE] * FETCH_QUANTUM_MS) // (queue[COUNT] + 1)
        shared = int(clock[RATE] * marks[BURST_MS]) // EXPOSED_SHARE // (marks[UNDER_WAY] + 1 + queue[COUNT])
        idle = min(_idle(clock), max(shared, _floor(clock, marks)))
        flow[GRANTED] = max(1, min(quantum, max(2 * expected, idle)))
    else:
        flow[GRANTED] = max(1, expected)
    flow[EXPOSED] = max(_beyond(marks, flow, expected), _floor(clock, marks) - expected)
    marks[EXPOSED_BYTES] += flow[EXPOSED]
    marks[UNDER_WAY] += 1


@inlined
def _place_bytes(state: State, channel: int, expected: int) -> int:
    clock, marks, queue, _, flows = state
    waiting = queue[COUNT] - flows[channel, fair.QUEUED]
    share = int(clock[RATE] * FETCH_QUANTUM_MS) // (waiting + 1)
    return int(min(expected, max(share, marks[BATCH], marks[BATCH_BEFORE])))


@inlined
def _idle(clock: Floats) -> int:
    return min(int(clock[RATE] * IDLE_FETCH_MS), IDLE_FETCH_BYTES_MAX)


@inlined
def _floor(clock: Floats, marks: Ints) -> int:
    return min(_idle(clock), BATCH_BYTES_MIN, int(clock[RATE] * marks[BURST_MS]) // IDLE_AT_A_TIME)


@inlined
def _beyond(marks: Ints, flow: Ints, expected: int) -> int:
    return int(max(flow[GRANTED], marks[BATCH], marks[BATCH_BEFORE], expected) - expected)


@inlined
def _release(state: State, channel: int, now_ms: int) -> None:
    clock, marks, _, _, flows = state
    flow = flows[channel]
    if flow[ADMITTED] >= 0:
        left_ms = flow[UNTIL_MS] - (math.ceil(clock[RETURNED_MS]) - flow[fair.RETURNED_MS]) - now_ms
        if left_ms > 0:
            returned_ms = min(flow[ADMITTED] / clock[RATE], float(left_ms))
            clock[PAID_MS] -= returned_ms
            clock[RETURNED_MS] += returned_ms
        marks[EXPOSED_BYTES] -= flow[EXPOSED]
        marks[UNDER_WAY] -= 1
        flow[EXPOSED] = 0
        flow[ADMITTED] = -1


@compiled
def _sweep(state: State, now_ms: int) -> None:
    clock, marks, queue, places, flows = state
    marks[SWEEP_AT_MS] = now_ms + SWEEP_MS
    fair.sweep(places, queue, flows, now_ms, marks[BURST_MS])
    if marks[UNDER_WAY]:
        _paid(clock, marks, flows, now_ms)
    if marks[AWAY]:
        for flow in flows:
            if flow[RESTING] and now_ms > flow[DUE_MS] + GRACE_MS:
                flow[RESTING] = 0
                marks[AWAY] -= 1
    if now_ms >= marks[BATCH_UNTIL_MS]:
        marks[BATCH_UNTIL_MS] = now_ms + BATCH_MS
        marks[BATCH_BEFORE] = marks[BATCH]
        marks[BATCH] = 0


@compiled
def _paid(clock: Floats, marks: Ints, flows: Ints, now_ms: int) -> None:
    returned_ms = math.ceil(clock[RETURNED_MS])
    for flow in flows:
        if flow[ADMITTED] > 0:
            left_ms = flow[UNTIL_MS] + 1 - (returned_ms - flow[fair.RETURNED_MS]) - now_ms
            unpaid = int(left_ms * clock[RATE]) if left_ms > 0 else 0
            if unpaid < flow[ADMITTED]:
                flow[EXPOSED] += flow[ADMITTED] - unpaid
                marks[EXPOSED_BYTES] += flow[ADMITTED] - unpaid
                flow[ADMITTED] = unpaid


@compiled
def _first_fetch_bytes(clock: Floats, marks: Ints, now_ms: int) -> int:
    left_ms = now_ms + marks[BURST_MS] - max(float(now_ms), clock[PAID_MS])
    most_ms = min(max(FIRST_FETCH_BYTES / clock[RATE], float(IDLE_FETCH_MS)), float(FETCH_QUANTUM_MS))
    guess: int = math.ceil(min(max(left_ms, float(FIRST_FETCH_MS)), most_ms) * clock[RATE])
    return guess


@inlined
def _slot(state: State, channel: int, index: int, ahead_ms: int) -> tuple[float, float]:
    clock, _, queue, places, flows = state
    free_ms = clock[PAID_MS] - ahead_ms
    if not index:
        return free_ms, free_ms
    once, due = fair.bytes_ahead(places, flows[channel], index)
    soonest_ms = free_ms + once / clock[RATE]
    if due == once:
        return soonest_ms, soonest_ms
    slot_ms = free_ms + min(due, once + queue[fair.LAG_BYTES]) / clock[RATE]
    half_way_ms = free_ms + (once + due) / 2 / clock[RATE]
    return slot_ms, min(half_way_ms, slot_ms)


@inlined
def _pass_if_alone(state: State, channel: int, start: int, size: int, now_ms: int, ahead_ms: int) -> bool:
    clock, _, queue, _, flows = state
    if queue[COUNT]:
        return False
    paid_ms = max(clock[PAID_MS], float(now_ms)) + size / clock[RATE]
    if paid_ms - ahead_ms > now_ms:
        return False
    clock[PAID_MS] = paid_ms
    queue[VIRTUAL] = max(start, queue[VIRTUAL])
    flows[channel, TAG] = queue[VIRTUAL] + size
    flows[channel, WAITED] = 0
    return True


@inlined
def _pass(state: State, channel: int, start: int, size: int, place: int, now_ms: int, ahead_ms: int) -> int:
    clock, _, queue, places, flows = state
    flow = flows[channel]
    fair.remove(places, queue, flows, channel)
    flow[HELD_SINCE_MS] = -1
    clock[PAID_MS] = max(clock[PAID_MS], float(now_ms)) + size / clock[RATE]
    fair.record_passed(places, queue, flows, channel, start, size)
    _, back_ms = _slot(state, channel, fair.index_after(places, queue, flows, channel), ahead_ms)
    wait_ms = math.ceil(back_ms - now_ms)
    if wait_ms > 0:
        return _mute(state, channel, place, wait_ms, now_ms)
    flow[WAITED] = 0
    if queue[COUNT]:
        fair.put(places, queue, flows, channel, place)
        flow[DUE_MS] = now_ms
    return 0


@inlined
def _mute(state: State, channel: int, expected: int, wait_ms: int, now_ms: int) -> int:
    _, marks, queue, places, flows = state
    throttle_ms = min(wait_ms, marks[MUTE_MS_MAX])
    fair.put(places, queue, flows, channel, expected)
    flows[channel, WAITED] = 1
    flows[channel, DUE_MS] = now_ms + throttle_ms
    return int(throttle_ms)
