"""The effect of candidate quotas on recorded requests: the compiled path of the offline pipeline.

This module runs the compiled form of the proxy's engine, the only permitted second form of a rule, which makes the same
decisions (tests/property/test_backtest.py) a hundred times as fast. The closed loop is described in `recording`. A call
is for one identity, broker and direction, which share a limiter. Files and Spark are not used here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quotas.backtest import compiled_fair_queue, compiled_kip13, compiled_loop, compiled_schedule
from quotas.backtest.compiler import Ints
from quotas.backtest.recording import Recording
from quotas.options import GROUP_MUTE_SHARE, EngineOptions


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of one candidate quota on a recording.

    Attributes:
        limit: the candidate quota, in bytes/s.
        requests: the number of requests in the recording.
        decisions: the number of the limiter's decisions; a request that is held or gets an empty response needs
            several.
        throttled: the number of requests that had to wait, because they were held or their channel was muted.
        throttle_ms: the sum of the waits of these requests.
        idle_ms: the part of `throttle_ms` in which the quota was not used up, as other Fetches waited for data.
        throttle_ms_p99: the 99th percentile of the waits of all requests (nearest rank).
        throttle_ms_max: the longest wait.
        bytes: the bytes of all requests.
        bytes_delayed: the bytes of the requests that had to wait.
        bytes_late: the bytes that passed after the last second of `Outcomes.load`.
        end_us: when the last request was done and no channel was muted any more.
    """

    limit: float
    requests: int
    decisions: int
    throttled: int
    throttle_ms: int
    idle_ms: int
    throttle_ms_p99: int
    throttle_ms_max: int
    bytes: int
    bytes_delayed: int
    bytes_late: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The result of `backtest`.

    Attributes:
        each: one outcome for each candidate quota.
        load: the bytes that passed in each second, [candidate, second].
    """

    each: list[Outcome]
    load: Ints


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of the limiter on a request.

    Attributes:
        at_us: the time of the decision.
        channel: the index of the channel in the recording.
        hold_until_ms: until when the request is held; 0 for no hold.
        throttle_ms: the throttle time of the response; 0 for none.
        size: the bytes of the request or response.
    """

    at_us: int
    channel: int
    hold_until_ms: int
    throttle_ms: int
    size: int


def backtest(
    recording: Recording, limits: Sequence[float], options: EngineOptions, *, start_s: int, seconds: int
) -> Outcomes:
    """Repeat recorded requests as if each of several quotas had been in force; returns the effect of each.

    Args:
        recording: one identity's requests.
        limits: the candidates, in bytes/s, each above 0.
        options: policy, windows, burst and bounds; the mode has no effect.
        start_s: the first second of `Outcomes.load`, on the recording's clock.
        seconds: the number of seconds of `Outcomes.load`.

    >>> from quotas.backtest.recording import recording_of
    >>> second = np.arange(4) * 1_000_000
    >>> made = recording_of(connection=np.zeros(4, np.int64), at_us=second, sizes=np.full(4, 6_000_000),
    ...     service_us=np.zeros(4, np.int64), consumes=False)
    >>> found = backtest(made, [2e6, 4e6], EngineOptions(), start_s=0, seconds=4)
    >>> [(outcome.throttled, outcome.throttle_ms) for outcome in found.each]  # 24 MB / 2 MB/s - 10 s
    [(1, 2000), (0, 0)]
    """
    out, load, _ = _run(recording, limits, options, start_s, seconds, 0)
    rows = out[:, : compiled_loop.TRACED].tolist()
    return Outcomes([Outcome(limit, *row) for limit, row in zip(limits, rows, strict=True)], load)


def decisions(recording: Recording, limit: float, options: EngineOptions, *, most: int) -> list[Decided]:
    """Return the first `most` decisions of `backtest` with one quota, for tests that compare them with the engine's."""
    out, _, trace = _run(recording, [limit], options, 0, 0, most)
    return [Decided(*row) for row in trace[0, : out[0, compiled_loop.TRACED]].tolist()]


def _run(
    recording: Recording,
    limits: Sequence[float],
    options: EngineOptions,
    start_s: int,
    seconds: int,
    most: int,
) -> tuple[Ints, Ints, Ints]:
    assert all(limit > 0 for limit in limits), "a definition checks this"
    out = np.zeros((len(limits), compiled_loop.OUT_FIELDS), dtype=np.int64)
    load = np.zeros((len(limits), seconds), dtype=np.int64)
    trace = np.zeros((len(limits), most, compiled_loop.TRACE_FIELDS), dtype=np.int64)
    if not len(recording):
        return out, load, trace
    mute_ms_max = int(options.mute_seconds_max * 1000)
    group_caps = np.where(
        recording.group_ms > 0, np.minimum(recording.group_ms // GROUP_MUTE_SHARE, mute_ms_max), 0
    )
    compiled_loop.repeat(
        (
            recording.offsets,
            recording.first_us,
            group_caps.astype(np.int64),
            recording.sizes,
            recording.service_us,
            recording.gap_us,
        ),
        recording.consumes,
        np.asarray(limits, dtype=np.float64),
        np.array(
            [
                options.policy == "schedule",
                options.window_samples,
                int(options.window_seconds * 1000),
                int(options.burst_seconds * 1000),
                options.new_connections == "held",
                mute_ms_max,
                start_s,
            ],
            dtype=np.int64,
        ),
        _room(recording.channels, options.window_samples),
        np.empty((recording.channels, compiled_loop.CHANNEL_FIELDS), dtype=np.int64),
        np.empty(recording.channels, dtype=np.int64),
        np.argsort(recording.first_us, kind="stable"),
        np.empty(len(recording), dtype=np.int32),
        out,
        load,
        trace,
    )
    return out, load, trace


def _room(channels: int, samples: int) -> compiled_loop.Limiter:
    """Allocate the arrays for one limiter's state, whatever the policy."""
    flows = np.zeros((channels, compiled_fair_queue.FLOW_FIELDS), dtype=np.int64)
    return (
        np.zeros((3, samples + 1), dtype=np.int64),
        np.zeros(compiled_kip13.MARK_FIELDS, dtype=np.int64),
        flows,
        (
            np.zeros(compiled_schedule.CLOCK_FIELDS, dtype=np.float64),
            np.zeros(compiled_schedule.MARK_FIELDS, dtype=np.int64),
            np.zeros(compiled_fair_queue.QUEUE_FIELDS, dtype=np.int64),
            np.zeros((3, channels + 1), dtype=np.int64),
            flows,
        ),
    )
