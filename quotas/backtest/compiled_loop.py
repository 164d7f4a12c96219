"""The closed loop of `recording`, compiled: one identity's requests in time order, for one candidate after another.

A candidate's state is a few kilobytes and stays in the processor's cache while the requests are read in sequence; so
the loop over candidates is the outer one. A channel's requests depend only on its own earlier ones, so a heap holds
each channel's next event; equal times are in order of channels, as in the engine.
"""

from typing import Final

from quotas.backtest import compiled_kip13 as sampled
from quotas.backtest import compiled_schedule as schedule
from quotas.backtest.compiler import Floats, Ints, Numbers, compiled, inlined, kept
from quotas.backtest.recording import FETCH_BYTES_REQUESTED, RESPONSE_BYTES_MIN

# The results of each candidate, in the order of `outcomes.Outcome`; then the number of rows of the trace.
REQUESTS: Final = 0
CALLS: Final = 1  # calls of the throttle: a held or emptied request needs more than one
THROTTLED: Final = 2  # requests that were held, muted behind, or got an empty response
THROTTLE_MS: Final = 3
IDLE_MS: Final = (
    4  # of THROTTLE_MS: for what other Fetches, which waited at their brokers, might have brought
)
THROTTLE_MS_P99: Final = 5
THROTTLE_MS_MAX: Final = 6
BYTES: Final = 7
BYTES_DELAYED: Final = 8
BYTES_LATE: Final = 9  # that passed after the end of the requested seconds
END_US: Final = 10  # when the last channel was free
TRACED: Final = 11
OUT_FIELDS: Final = 12

# The options, as whole numbers.
SCHEDULED: Final = 0
SAMPLES: Final = 1
SAMPLE_MS: Final = 2
BURST_MS: Final = 3
HOLDS_NEW: Final = 4  # kip13: whether the first Produce of a connection may have to wait
MUTE_MS_MAX: Final = 5
START_S: Final = 6  # the second at which `load` begins

# A row of the trace: one decision (at_us, channel, hold_until_ms, throttle_ms, bytes).
TRACE_FIELDS: Final = 5

# The state of a channel.
DUE_US: Final = 0  # when its next event is
CAME_US: Final = 1  # when the current request first arrived
WAITED_MS: Final = 2  # how long it had to wait
LEFT: Final = 3  # bytes of a Fetch that are still to come; 0 = none was forwarded yet
RESPONSE: Final = 4  # one more than the bytes of the response that is due; 0 = a request is
REQUEST: Final = 5  # its number
CAP_MS: Final = 6  # the longest mute
MUTED_US: Final = 7  # until when it is muted
CHANNEL_FIELDS: Final = 8

_UNDER_WAY: Final = -1
_WAIT_MS_MAX: Final = 2**31 - 1

Requests = tuple[Ints, Ints, Ints, Numbers, Numbers, Ints]
"""offsets, first_us, group_caps, sizes, service_us, gap_us."""
Rule = tuple[int, float, float]
"""Whether it is a schedule; the limit; and how much kip13's smallest window allows."""
Limiter = tuple[Ints, Ints, Ints, schedule.State]
"""Ring, marks and flows of kip13; the schedule's state."""


@kept
def repeat(
    requests: Requests,
    consumes: bool,
    limits: Floats,
    options: Ints,
    limiter: Limiter,
    channels: Ints,
    heap: Ints,
    order: Ints,
    waits: Numbers,
    out: Ints,
    load: Ints,
    trace: Ints,
) -> None:
    """Repeat the recorded requests once with each limit, and write the results to `out`, `load` and `trace`.

    Args:
        requests: the arrays of a `Recording`, with `group_caps`: by channel, the longest mute and hold in ms, 0 for
            that of the options.
        consumes: whether the requests are Fetches; otherwise they are Produces.
        limits: the limits in bytes/s.
        options: the limiter's options at the indices above (SCHEDULED, SAMPLES, ...).
        limiter: arrays for one limiter's state; their contents do not matter, as for `channels`, `heap` and `waits`.
        channels: an array for the channels' state, [channels, CHANNEL_FIELDS].
        heap: an array for one number of each channel.
        order: the channels in the order of their first requests.
        waits: an array for one number of each request.
        out: the results, [limits, OUT_FIELDS].
        load: the bytes that passed in each second, [limits, seconds].
        trace: the first decisions, [limits, rows, TRACE_FIELDS]; with no rows none is kept.
    """
    _, first_us, group_caps, _, _, _ = requests
    ring, marks, flows, state = limiter
    for candidate in range(limits.shape[0]):
        limit = limits[candidate]
        if options[SCHEDULED]:
            begin_ms = first_us[order[0]] // 1000
            schedule.begin(state, limit, begin_ms, options[BURST_MS], options[MUTE_MS_MAX])
        else:
            sampled.begin(
                ring, marks, flows, options[SAMPLE_MS], options[MUTE_MS_MAX], options[HOLDS_NEW], group_caps
            )
        for place in range(order.shape[0]):
            heap[place] = order[place]  # a sorted list is a heap
        rule = (options[SCHEDULED], limit, limit * (options[SAMPLES] - 1) * options[SAMPLE_MS] / 1000.0)
        _repeat_one(
            requests,
            consumes,
            rule,
            limiter,
            options,
            channels,
            heap,
            waits,
            out[candidate],
            load[candidate],
            trace[candidate],
        )


@inlined
def _repeat_one(
    requests: Requests,
    consumes: bool,
    rule: Rule,
    limiter: Limiter,
    options: Ints,
    channels: Ints,
    heap: Ints,
    waits: Numbers,
    out: Ints,
    load: Ints,
    trace: Ints,
) -> None:
    offsets, first_us, group_caps, sizes, _, _ = requests
    alive = first_us.shape[0]
    channels[:] = 0
    for number in range(alive):
        channels[number, DUE_US] = channels[number, CAME_US] = first_us[number]
        channels[number, REQUEST] = offsets[number]
        channels[number, CAP_MS] = group_caps[number] or options[MUTE_MS_MAX]
        if consumes and rule[0]:
            limiter[2][number, schedule.EXPECTED] = schedule.fetched_before(sizes[offsets[number]], rule[1])
    while alive:
        number = heap[0]
        channel = channels[number]
        at_us = channel[DUE_US]
        if not consumes:
            free_us, moved = _produce(requests, rule, limiter, channel, number, out, trace)
        elif channel[RESPONSE]:
            free_us, moved = _response(rule, limiter, channel, number, out, trace)
        else:
            free_us, moved = _fetch(requests, rule, limiter, channel, number, out, trace), 0
        if moved:
            second = at_us // 1_000_000 - options[START_S]
            if 0 <= second < load.shape[0]:
                load[second] += moved
            else:
                out[BYTES_LATE] += moved
        if free_us != _UNDER_WAY and _complete_request(requests, channel, number, free_us, out, waits):
            alive -= 1
            heap[0] = heap[alive]
        _sift(heap, channels, alive)
    out[REQUESTS] = sizes.shape[0]
    out[THROTTLE_MS_P99] = _p99(waits, out[THROTTLED], sizes.shape[0])


@inlined
def _produce(
    requests: Requests, rule: Rule, limiter: Limiter, channel: Ints, number: int, out: Ints, trace: Ints
) -> tuple[int, int]:
    """Process the arrival or retry of a Produce; returns when its channel is free (us), and the bytes if it passes."""
    _, _, _, sizes, service_us, _ = requests
    scheduled, limit, safe = rule
    ring, marks, flows, state = limiter
    at_us = channel[DUE_US]
    now_ms = at_us // 1000
    size = int(sizes[channel[REQUEST]])
    if scheduled:
        hold_until_ms, throttle_ms = schedule.produce(state, number, size, now_ms)
    else:
        hold_until_ms, throttle_ms = sampled.produce(ring, marks, flows[number], limit, safe, size, now_ms)
    out[CALLS] += 1
    _note(out, trace, at_us, number, hold_until_ms, throttle_ms, size)
    if hold_until_ms:
        channel[DUE_US] = hold_until_ms * 1000
        return _UNDER_WAY, 0
    mute_ms = min(throttle_ms, channel[CAP_MS])
    channel[WAITED_MS] = mute_ms + (at_us - channel[CAME_US]) // 1000
    channel[MUTED_US] = (now_ms + mute_ms) * 1000 if mute_ms else at_us
    return max(at_us + int(service_us[channel[REQUEST]]), channel[MUTED_US]), size


@inlined
def _fetch(
    requests: Requests, rule: Rule, limiter: Limiter, channel: Ints, number: int, out: Ints, trace: Ints
) -> int:
    """Process the arrival or retry of a Fetch; returns when its channel is free (us)."""
    _, _, _, sizes, service_us, _ = requests
    scheduled, limit, safe = rule
    ring, marks, flows, state = limiter
    at_us = channel[DUE_US]
    now_ms = at_us // 1000
    for_idle = False
    if scheduled:
        throttle_ms, for_idle = schedule.fetch(state, number, now_ms)
    else:
        throttle_ms = sampled.fetch(ring, marks, flows[number], limit, safe, now_ms)
    out[CALLS] += 1
    _note(out, trace, at_us, number, 0, throttle_ms, 0)
    mute_ms = min(throttle_ms, channel[CAP_MS])
    if mute_ms:  # an empty response; it is sent again when the mute is over
        if for_idle:
            out[IDLE_MS] += mute_ms
        channel[WAITED_MS] += mute_ms
        channel[DUE_US] = (now_ms + mute_ms) * 1000
        return _UNDER_WAY
    if scheduled:
        granted = schedule.fetch_max_bytes(state, number, FETCH_BYTES_REQUESTED)
    else:
        granted = sampled.fetch_max_bytes(
            ring, marks, flows[number], limit, safe, FETCH_BYTES_REQUESTED, now_ms
        )
    service = 0
    if not channel[LEFT]:
        channel[LEFT] = sizes[channel[REQUEST]]
        service = int(service_us[channel[REQUEST]])
    channel[RESPONSE] = 1 + min(channel[LEFT], max(granted, RESPONSE_BYTES_MIN))
    channel[DUE_US] = at_us + service
    return _UNDER_WAY


@inlined
def _response(
    rule: Rule, limiter: Limiter, channel: Ints, number: int, out: Ints, trace: Ints
) -> tuple[int, int]:
    """Process a Fetch response; returns when its channel is free (us) if the Fetch is complete, and the bytes."""
    scheduled, limit, safe = rule
    ring, marks, flows, state = limiter
    at_us = channel[DUE_US]
    now_ms = at_us // 1000
    size = channel[RESPONSE] - 1
    for_idle = False
    if scheduled:
        throttle_ms, for_idle = schedule.fetched(state, number, size, now_ms)
    else:
        throttle_ms = sampled.fetched(ring, marks, flows[number], limit, safe, size, now_ms)
    _note(out, trace, at_us, number, 0, throttle_ms, size)
    mute_ms = min(throttle_ms, channel[CAP_MS])
    if for_idle:
        out[IDLE_MS] += mute_ms
    channel[WAITED_MS] += mute_ms
    free_us = (now_ms + mute_ms) * 1000 if mute_ms else at_us
    channel[LEFT] -= size
    channel[RESPONSE] = 0
    channel[DUE_US] = free_us
    return _UNDER_WAY if channel[LEFT] else free_us, size


@inlined
def _complete_request(
    requests: Requests, channel: Ints, number: int, free_us: int, out: Ints, waits: Numbers
) -> bool:
    """Count a completed request and schedule the channel's next one; returns whether it was the last."""
    offsets, _, _, sizes, _, gap_us = requests
    size = sizes[channel[REQUEST]]
    waited_ms = channel[WAITED_MS]
    out[BYTES] += size
    if waited_ms:
        waits[out[THROTTLED]] = min(waited_ms, _WAIT_MS_MAX)
        out[THROTTLED] += 1
        out[THROTTLE_MS] += waited_ms
        out[THROTTLE_MS_MAX] = max(out[THROTTLE_MS_MAX], waited_ms)
        out[BYTES_DELAYED] += size
        channel[WAITED_MS] = 0
    out[END_US] = max(out[END_US], free_us)
    index = channel[REQUEST]
    if index + 1 == offsets[number + 1]:
        return True
    gap = gap_us[index]
    # A pipelined request is sent the recorded time after this one, and read when the mute is over.
    next_us = free_us + gap if gap >= 0 else max(channel[CAME_US] + ~gap, channel[MUTED_US])
    channel[REQUEST] = index + 1
    channel[CAME_US] = channel[DUE_US] = next_us
    return False


@inlined
def _note(
    out: Ints, trace: Ints, at_us: int, number: int, hold_until_ms: int, throttle_ms: int, size: int
) -> None:
    row = out[TRACED]
    if row < trace.shape[0]:
        trace[row, 0] = at_us
        trace[row, 1] = number
        trace[row, 2] = hold_until_ms
        trace[row, 3] = throttle_ms
        trace[row, 4] = size
        out[TRACED] = row + 1


@inlined
def _sift(heap: Ints, channels: Ints, count: int) -> None:
    """Restore the heap after a change of the first channel's event."""
    number = heap[0]
    at_us = channels[number, DUE_US]
    place = 0
    while 2 * place + 1 < count:
        child = 2 * place + 1
        lowest = heap[child]
        lowest_us = channels[lowest, DUE_US]
        if child + 1 < count:
            other = heap[child + 1]
            other_us = channels[other, DUE_US]
            if other_us < lowest_us or (other_us == lowest_us and other < lowest):
                child, lowest, lowest_us = child + 1, other, other_us
        if at_us < lowest_us or (at_us == lowest_us and number < lowest):
            break
        heap[place] = lowest
        place = child
    heap[place] = number


@compiled
def _p99(waits: Numbers, count: int, requests: int) -> int:
    """Return the 99th percentile of the waits of all `requests`, of which `count` had to wait; nearest rank.
    Reorders `waits`.
    """
    beyond = requests - (99 * requests + 99) // 100
    rank = count - 1 - beyond
    if rank < 0:
        return 0
    low, high = 0, count - 1
    while low < high:  # quickselect: the number of this rank moves to its place
        pivot = waits[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while waits[left] < pivot:
                left += 1
            while waits[right] > pivot:
                right -= 1
            if left <= right:
                waits[left], waits[right] = waits[right], waits[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return int(waits[rank])
