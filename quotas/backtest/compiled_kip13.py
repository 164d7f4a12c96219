"""Policy `kip13` on arrays, for the backtest only: `rate.SampledRate` and `limiters.kip13.SampledLimiter`.

The one permitted second form of a rule: the same arithmetic in the same order, so that every decision equals the
engine's to the millisecond; tests/property/test_backtest.py compares the two. The original modules explain the rules.
State is in arrays, one set for each candidate quota:

    ring[3, N + 1]    starts, last records and sums of the samples
    marks             the scalars of both objects, by the indices below
    flows[channel]    each channel's state, at the indices of `compiled_fair_queue`
"""

import math
from typing import Final

from quotas.backtest import compiled_fair_queue as fair
from quotas.backtest.compiler import Ints, compiled, inlined
from quotas.limiters.kip13 import FETCH_BYTES_MIN, FIRST_FETCH_BYTES
from quotas.limiters.rate import NEVER_MS

STARTS: Final = 0
LASTS: Final = 1
SUMS: Final = 2

CURRENT: Final = 0
COUNT: Final = 1
NEXT_MS: Final = 2
OLDEST_MS: Final = 3
PURGE_AT_MS: Final = 4
TOTAL: Final = 5
IN_FLIGHT: Final = 6
GUESS: Final = 7  # the estimate for a Fetch of a channel without history
SAMPLE_MS: Final = 8
MUTE_MS_MAX: Final = 9
HOLDS: Final = 10  # whether a connection's first Produce waits while its client exceeds the quota
HELD: Final = 11  # bytes of the first requests of new connections that wait
MARK_FIELDS: Final = 12

EXPECTED: Final = fair.EXPECTED
ADMITTED: Final = fair.ADMITTED
HELD_SINCE_MS: Final = fair.HELD_SINCE_MS
HOLD_END_MS: Final = fair.HOLD_END_MS
PASSED: Final = fair.PASSED


@compiled
def begin(
    ring: Ints, marks: Ints, flows: Ints, sample_ms: int, mute_ms_max: int, holds: int, caps: Ints
) -> None:
    """Initialize the arrays `ring`, `marks` and `flows` (see the module) for an identity without requests so far.

    Args:
        sample_ms: the length of a window of the rate.
        mute_ms_max: the longest mute and hold.
        holds: 1 if the first Produce of a new connection is held while the quota is exceeded, otherwise 0.
        caps: by channel, its own longest hold in ms; 0: mute_ms_max.
    """
    ring[:] = 0
    marks[:] = 0
    marks[CURRENT] = -1
    marks[NEXT_MS] = NEVER_MS
    marks[GUESS] = FIRST_FETCH_BYTES
    marks[SAMPLE_MS] = sample_ms
    marks[MUTE_MS_MAX] = mute_ms_max
    marks[HOLDS] = holds
    flows[:] = 0
    for channel in range(flows.shape[0]):
        flows[channel, ADMITTED] = flows[channel, HELD_SINCE_MS] = -1
        flows[channel, fair.HOLD_MS_MAX] = caps[channel] or mute_ms_max


@inlined
def produce(
    ring: Ints, marks: Ints, flow: Ints, limit: float, safe: float, size: int, now_ms: int
) -> tuple[int, int]:
    """Decide on a Produce (`SampledLimiter.produce`).

    Args:
        limit: the quota in bytes/s.
        safe: the bytes that the quota allows in the shortest possible window; up to them nothing is throttled.

    Returns: the time in ms until which it is held, 0 if it passes; and its throttle time in ms, 0 if it is not
    throttled.
    """
    while marks[HOLDS] and not flow[PASSED]:
        if flow[HELD_SINCE_MS] < 0:
            left_ms = _throttle_ms(ring, marks, limit, now_ms, marks[HELD])
            if left_ms <= 0:
                break
            hold_ms_max = min(marks[MUTE_MS_MAX], flow[fair.HOLD_MS_MAX])
            flow[fair.WAITED] = left_ms > hold_ms_max
            flow[HOLD_END_MS] = now_ms + min(left_ms, hold_ms_max)
            flow[HELD_SINCE_MS] = now_ms
            flow[fair.SIZE] = size
            marks[HELD] += size
        if flow[HOLD_END_MS] > now_ms:
            return int(flow[HOLD_END_MS]), 0
        marks[HELD] -= flow[fair.SIZE]
        flow[HELD_SINCE_MS] = -1
        if not flow[fair.WAITED] or _throttle_ms(ring, marks, limit, now_ms, 0) <= 0:
            break  # otherwise it is refused, and is sent again at once
    flow[PASSED] = 1
    return 0, _pass(ring, marks, limit, safe, size, now_ms)


@inlined
def _pass(ring: Ints, marks: Ints, limit: float, safe: float, size: int, now_ms: int) -> int:
    _record(ring, marks, size, now_ms)
    if marks[TOTAL] <= safe and now_ms < marks[PURGE_AT_MS]:
        return 0
    throttle_ms = _throttle_ms(ring, marks, limit, now_ms, 0)
    return min(throttle_ms, marks[MUTE_MS_MAX]) if throttle_ms > 0 else 0


@inlined
def fetch(ring: Ints, marks: Ints, flow: Ints, limit: float, safe: float, now_ms: int) -> int:
    """Decide on a Fetch before it is forwarded (`SampledLimiter.fetch`).

    Args:
        limit, safe: as in `produce`.

    Returns: 0 if it is forwarded, otherwise the throttle time in ms of its empty response.
    """
    if flow[ADMITTED] >= 0:
        marks[IN_FLIGHT] -= flow[ADMITTED]
        flow[ADMITTED] = -1
    expected = flow[EXPECTED] or marks[GUESS]
    throttle_ms = 0
    if marks[TOTAL] + marks[IN_FLIGHT] + expected > safe or now_ms >= marks[PURGE_AT_MS]:
        _record(ring, marks, expected, now_ms)
        throttle_ms = _throttle_ms(ring, marks, limit, now_ms, marks[IN_FLIGHT])
        _record(ring, marks, -expected, now_ms)
    if throttle_ms > 0:
        empty_in_ms = max(_empty_in_ms(ring, marks, now_ms), marks[SAMPLE_MS] if marks[IN_FLIGHT] else 0)
        throttle_ms = min(throttle_ms, empty_in_ms, marks[MUTE_MS_MAX])
        if throttle_ms > 0:
            return int(throttle_ms)
    flow[ADMITTED] = expected
    marks[IN_FLIGHT] += expected
    return 0


@inlined
def fetch_max_bytes(
    ring: Ints, marks: Ints, flow: Ints, limit: float, safe: float, requested: int, now_ms: int
) -> int:
    """Return the max_bytes with which an admitted Fetch is forwarded (`SampledLimiter.fetch_max_bytes`).

    Args:
        limit, safe: as in `produce`.
        requested: the max_bytes of the client's request.
    """
    known = max(2 * flow[EXPECTED], FETCH_BYTES_MIN) if flow[EXPECTED] else requested
    granted = min(requested, int(safe), known)
    others = marks[IN_FLIGHT] - max(flow[ADMITTED], 0)
    if marks[TOTAL] + others + granted > safe or now_ms >= marks[PURGE_AT_MS]:
        window_ms = _window_ms(ring, marks, now_ms)
        left = math.floor(limit * window_ms / 1000.0) - marks[TOTAL]
        granted = max(1, min(granted, left - others))
    if not flow[EXPECTED] and flow[ADMITTED] >= 0:
        marks[IN_FLIGHT] += granted - flow[ADMITTED]
        flow[ADMITTED] = granted
    return granted


@inlined
def fetched(ring: Ints, marks: Ints, flow: Ints, limit: float, safe: float, size: int, now_ms: int) -> int:
    """Count the bytes of a Fetch response (`SampledLimiter.fetched`); returns its throttle time in ms, 0 for none.

    Args:
        limit, safe: as in `produce`.
    """
    if flow[ADMITTED] >= 0:
        marks[IN_FLIGHT] -= flow[ADMITTED]
        flow[ADMITTED] = -1
    flow[EXPECTED] = marks[GUESS] = max(size, flow[EXPECTED] // 2)
    return _pass(ring, marks, limit, safe, size, now_ms)


@inlined
def _record(ring: Ints, marks: Ints, value: int, now_ms: int) -> None:
    if now_ms >= marks[NEXT_MS]:
        _advance(ring, marks, now_ms)
    current = marks[CURRENT]
    ring[SUMS, current] += value
    ring[LASTS, current] = now_ms
    marks[TOTAL] += value


@compiled
def _advance(ring: Ints, marks: Ints, now_ms: int) -> None:
    samples = ring.shape[1]
    marks[NEXT_MS] = now_ms + marks[SAMPLE_MS]
    current = (marks[CURRENT] + 1) % samples
    marks[CURRENT] = current
    if not marks[COUNT]:
        marks[PURGE_AT_MS] = now_ms + (samples - 1) * marks[SAMPLE_MS]
    if current >= marks[COUNT]:
        marks[COUNT] += 1
    else:
        marks[TOTAL] -= ring[SUMS, current]
    ring[STARTS, current] = ring[LASTS, current] = now_ms
    ring[SUMS, current] = 0
    _oldest(ring, marks)


@compiled
def _oldest(ring: Ints, marks: Ints) -> None:
    oldest_ms = ring[STARTS, 0]
    for index in range(1, marks[COUNT]):
        oldest_ms = min(oldest_ms, ring[STARTS, index])
    marks[OLDEST_MS] = oldest_ms


@compiled
def _purge(ring: Ints, marks: Ints, now_ms: int) -> None:
    keep_ms = (ring.shape[1] - 1) * marks[SAMPLE_MS]
    for index in range(marks[COUNT]):
        if now_ms - ring[LASTS, index] >= keep_ms:
            marks[TOTAL] -= ring[SUMS, index]
            ring[SUMS, index] = 0
            ring[STARTS, index] = ring[LASTS, index] = now_ms
    _oldest(ring, marks)
    marks[NEXT_MS] = ring[STARTS, marks[CURRENT]] + marks[SAMPLE_MS]
    last_ms = ring[LASTS, 0]
    for index in range(1, marks[COUNT]):
        last_ms = min(last_ms, ring[LASTS, index])
    marks[PURGE_AT_MS] = last_ms + keep_ms


@inlined
def _window_ms(ring: Ints, marks: Ints, now_ms: int) -> int:
    if not marks[COUNT]:
        _advance(ring, marks, now_ms)
    if now_ms >= marks[PURGE_AT_MS]:
        _purge(ring, marks, now_ms)
    elapsed_ms = now_ms - marks[OLDEST_MS]
    full = ring.shape[1] - 2
    if elapsed_ms < full * marks[SAMPLE_MS]:  # else nothing is missing: no division, which is slow
        elapsed_ms += (full - elapsed_ms // marks[SAMPLE_MS]) * marks[SAMPLE_MS]
    return int(max(1, elapsed_ms))


@inlined
def _throttle_ms(ring: Ints, marks: Ints, limit: float, now_ms: int, also: int) -> int:
    window_ms = _window_ms(ring, marks, now_ms)
    observed = (marks[TOTAL] + also) / (window_ms / 1000.0)
    if observed <= limit:
        return 0
    throttle_ms: int = math.floor((observed - limit) / limit * window_ms + 0.5)
    return throttle_ms


@inlined
def _empty_in_ms(ring: Ints, marks: Ints, now_ms: int) -> int:
    last_ms = NEVER_MS
    for index in range(marks[COUNT]):
        if ring[SUMS, index]:
            last_ms = max(last_ms, ring[LASTS, index])
    return max(0, last_ms + (ring.shape[1] - 1) * marks[SAMPLE_MS] - now_ms) if last_ms > NEVER_MS else 0
