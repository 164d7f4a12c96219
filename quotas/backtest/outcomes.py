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
        limit: the candidate, in bytes/s.
        requests: the number of requests in the recording.
        decisions: the calls of the throttle; a held Produce and an emptied Fetch need more than one.
        throttled: the number of requests that had to wait, held or muted.
        throttle_ms: their total wait.
        idle_ms: the part of it for bytes that Fetches at their brokers might have brought: the quota was not used up.
        throttle_ms_p99: the 99th percentile over all requests, nearest rank.
        throttle_ms_max: the longest wait.
        bytes_delayed: the bytes of requests that had to wait.
        bytes_late: the bytes that passed after the last requested second.
        end_us: when the last channel was free again.
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
    """One outcome for each candidate, and the bytes that passed in each second: load[candidate, second]."""

    each: list[Outcome]
    load: Ints


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of the limiter: time, channel, hold or throttle time, and bytes."""

    at_us: int
    channel: int
    hold_until_ms: int
    throttle_ms: int
    size: int


def backtest(
    recording: Recording, limits: Sequence[float], options: EngineOptions, *, start_s: int, seconds: int
) -> Outcomes:
    """Repeat a recording at each limit.

    Args:
        recording: one identity's requests.
        limits: the candidates, in bytes/s, each above 0.
        options: policy, windows, burst and bounds; the mode has no effect.
        start_s: the first second of the load.
        seconds: the number of seconds of the load.

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
    """Return the first decisions at one limit, at most `most`, for comparison with the engine's."""
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
