"""`fair_queue.FairQueue` on arrays, for the backtest only: the places of one identity's channels.

The one permitted second form of a rule; tests/property/test_backtest.py compares it with the first, and `fair_queue`
explains it. `places[3, channels]` has the columns tag, size and channel, in order of tags; `queue` has the scalars;
`flows[channel]` has the attributes of `limiters.limiter.Flow`, at the indices below.
"""

from typing import Final

from quotas.backtest.compiler import Ints, compiled, inlined
from quotas.limiters.fair_queue import HELD_GRACE_MS, NEWCOMER_SHARE
from quotas.limiters.limiter import GRACE_MS

# A channel's flow, under either policy.
EXPECTED: Final = 0
ADMITTED: Final = 1
HELD_SINCE_MS: Final = 2
TAG: Final = 3
START: Final = 4
SIZE: Final = 5
QUEUED: Final = 6
DUE_MS: Final = 7
HOLD_END_MS: Final = 8
UNTIL_MS: Final = 9
PASSED: Final = 10
WAITED: Final = 11
HOLD_MS_MAX: Final = 12
GRANTED: Final = 13
EXPOSED: Final = 14
RETURNED_MS: Final = 15
FORWARDED_MS: Final = 16
RESTING: Final = 17
FLOW_FIELDS: Final = 18

# The queue's scalars.
COUNT: Final = 0
LAG_BYTES: Final = 1
VIRTUAL: Final = 2
NEWCOMERS: Final = 3
MARK: Final = 4
MARK_MS: Final = 5
BEFORE: Final = 6
QUEUE_FIELDS: Final = 7

# The columns of `places`.
TAGS: Final = 0
SIZES: Final = 1
CHANNELS: Final = 2


@inlined
def _bisect_right(places: Ints, count: int, tag: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if tag < places[TAGS, middle]:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def _index(places: Ints, count: int, channel: int) -> int:
    for index in range(count):
        if places[CHANNELS, index] == channel:
            return index
    return -1


@inlined
def _move(places: Ints, old: int, new: int) -> None:
    """Move a place element by element: numba makes views of slices, which takes longer than copying three numbers."""
    places[TAGS, new] = places[TAGS, old]
    places[SIZES, new] = places[SIZES, old]
    places[CHANNELS, new] = places[CHANNELS, old]


@inlined
def _virtual_time(places: Ints, queue: Ints) -> int:
    if queue[COUNT] and places[TAGS, 0] < queue[VIRTUAL]:
        return int(places[TAGS, 0])
    return int(queue[VIRTUAL])


@inlined
def enter(places: Ints, queue: Ints, flows: Ints, channel: int) -> int:
    """Return the index of the channel's place in the queue (`FairQueue.enter`).

    If it has no place, update its tag, by which the queue is sorted, and return the index at which `put` inserts it.
    """
    flow = flows[channel]
    if flow[QUEUED]:
        return _index(places, queue[COUNT], channel)
    if flow[HELD_SINCE_MS] < 0:
        flow[TAG] = max(flow[TAG], _virtual_time(places, queue) if flow[PASSED] else queue[BEFORE])
    return _bisect_right(places, queue[COUNT], flow[TAG])


@inlined
def index_after(places: Ints, queue: Ints, flows: Ints, channel: int) -> int:
    """Return the index that a channel would get after its request has passed (`FairQueue.index_after`)."""
    return _bisect_right(places, queue[COUNT], flows[channel, TAG])


@inlined
def bytes_ahead(places: Ints, flow: Ints, index: int) -> tuple[int, int]:
    """Return the least and the most bytes that pass before the channel's place at `index` (`FairQueue.bytes_ahead`)."""
    once = 0
    tags = 0
    for place in range(index):
        once += places[SIZES, place]
        tags += places[TAGS, place]
    return once, max(once, index * flow[TAG] - tags) if index else 0


@inlined
def record_passed(places: Ints, queue: Ints, flows: Ints, channel: int, start: int, size: int) -> None:
    """Register a request that passed, and set the channel's tag: where its next request begins in virtual time.

    See `FairQueue.record_passed`; here all bytes of the request have arrived.

    Args:
        start: the virtual time in bytes at which the request began.
    """
    flow = flows[channel]
    queue[VIRTUAL] = max(queue[VIRTUAL], start)
    if not flow[PASSED]:
        flow[PASSED] = 1
        queue[NEWCOMERS] = max(queue[NEWCOMERS], _virtual_time(places, queue)) + size // (
            queue[COUNT] + NEWCOMER_SHARE
        )
    flow[TAG] = start + size
    if not flow[WAITED]:
        flow[TAG] = max(flow[TAG], queue[VIRTUAL] - queue[LAG_BYTES])


@inlined
def put(places: Ints, queue: Ints, flows: Ints, channel: int, size: int) -> None:
    """Insert a place of `size` bytes for the channel, or change the size of its place (`FairQueue.put`)."""
    flow = flows[channel]
    if flow[QUEUED]:
        if flow[SIZE] != size:
            places[SIZES, _index(places, queue[COUNT], channel)] = size
    else:
        index = _bisect_right(places, queue[COUNT], flow[TAG])
        for place in range(queue[COUNT], index, -1):
            _move(places, place - 1, place)
        places[TAGS, index] = flow[TAG]
        places[SIZES, index] = size
        places[CHANNELS, index] = channel
        queue[COUNT] += 1
        flow[QUEUED] = 1
    flow[SIZE] = size


@inlined
def remove(places: Ints, queue: Ints, flows: Ints, channel: int) -> None:
    """Remove the channel's place from the queue, if it has one (`FairQueue.remove`)."""
    if flows[channel, QUEUED]:
        index = _index(places, queue[COUNT], channel)
        queue[COUNT] -= 1
        for place in range(index, queue[COUNT]):
            _move(places, place + 1, place)
        flows[channel, QUEUED] = 0


@compiled
def sweep(places: Ints, queue: Ints, flows: Ints, now_ms: int, mark_every_ms: int) -> None:
    """Remove the places of channels that did not retry in time (`FairQueue.sweep`).

    Once in `mark_every_ms`, also update the virtual time at which new channels start.
    """
    if now_ms >= queue[MARK_MS]:
        queue[MARK_MS] = now_ms + mark_every_ms
        queue[BEFORE] = queue[MARK]
        queue[MARK] = max(_virtual_time(places, queue), queue[NEWCOMERS])
    kept = 0
    for place in range(queue[COUNT]):
        channel = places[CHANNELS, place]
        flow = flows[channel]
        if now_ms > flow[DUE_MS] + (GRACE_MS if flow[HELD_SINCE_MS] < 0 else HELD_GRACE_MS):
            flow[QUEUED] = 0
        else:
            _move(places, place, kept)
            kept += 1
    queue[COUNT] = kept
