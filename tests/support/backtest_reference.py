"""The proxy's own engine over recorded requests: the reference for `outcomes`, a hundred times as slow.

It runs the same `Engine`, `Throttle` and `Flow` objects in the same closed loop (`recording`); the compiled form must
make the same decisions. It can also be used to follow a single client's throttling step by step.
"""

import heapq
from dataclasses import dataclass, replace
from typing import Final

from quotas.backtest.outcomes import Decided
from quotas.backtest.recording import FETCH_BYTES_REQUESTED, RESPONSE_BYTES_MIN, Recording
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.limiters.limiter import MS_UNBOUNDED, Decision, Flow
from quotas.limiters.under_way import FETCH_QUANTUM_MS
from quotas.options import EngineOptions, capped
from quotas.throttles.bandwidth import Throttle

_HOLD_SECONDS_UNBOUNDED: Final = 1e9


@dataclass(slots=True)
class _Channel:
    """One connection of the client."""

    number: int
    flow: Flow
    request: int
    end: int
    came_us: int
    group_ms: int | None
    left: int = 0  # bytes of a Fetch that are still to come
    response_bytes: int = -1  # bytes of the response that is due; -1 = a request is


def decisions_of_the_engine(recording: Recording, limit: float, options: EngineOptions) -> list[Decided]:
    """Return all decisions of the engine on this recording, in the order of time."""
    return _Client(recording, limit, options).run()


class _Client:
    """One client's channels at one broker."""

    def __init__(self, recording: Recording, limit: float, options: EngineOptions) -> None:
        # A refused request is sent again: beyond the longest hold, the client waits (`recording`).
        options = replace(options, hold_seconds_max=_HOLD_SECONDS_UNBOUNDED)
        self._scheduled = options.policy == "schedule"
        static = StaticQuotas(producer_default=limit, consumer_default=limit)
        quota = Engine(options, Definitions(static=static)).client("", "client", broker=1)
        self._throttle: Throttle = quota.fetch if recording.consumes else quota.produce
        self._recording = recording
        self._quantum = int(limit / 1000.0 * FETCH_QUANTUM_MS)
        self._mute_ms_max = int(options.mute_seconds_max * 1000)
        self._decided: list[Decided] = []
        self._channels = [self._channel(number) for number in range(recording.channels)]

    def run(self) -> list[Decided]:
        """Repeat all requests of all channels."""
        heap = [(channel.came_us, channel.number) for channel in self._channels]
        heapq.heapify(heap)
        step = self._fetch if self._recording.consumes else self._produce
        while heap:
            at_us, number = heapq.heappop(heap)
            next_us = step(self._channels[number], at_us)
            if next_us is not None:
                heapq.heappush(heap, (next_us, number))
        return self._decided

    def _channel(self, number: int) -> _Channel:
        recording = self._recording
        flow = self._throttle.flow()
        group_ms = int(recording.group_ms[number]) or None
        if group_ms is not None and not self._scheduled:
            flow.hold_ms_max = capped(MS_UNBOUNDED, self._mute_ms_max, group_ms)
        offsets = recording.offsets
        if recording.consumes and self._scheduled:
            flow.expected = min(int(recording.sizes[offsets[number]]), self._quantum)
        first_us = int(recording.first_us[number])
        return _Channel(number, flow, int(offsets[number]), int(offsets[number + 1]), first_us, group_ms)

    def _produce(self, channel: _Channel, at_us: int) -> int | None:
        """Handle the arrival or retry of a Produce; returns the time of the channel's next event."""
        recording, now_ms = self._recording, at_us // 1000
        size = int(recording.sizes[channel.request])
        decision = self._throttle.produce(channel.flow, size, now_ms)
        while decision.refused:  # it comes again at once
            decision = self._throttle.produce(channel.flow, size, now_ms)
        self._note(at_us, channel, decision, size)
        if decision.hold_until_ms:
            return decision.hold_until_ms * 1000
        muted_us = self._muted_us(channel, decision, at_us)
        free_us = max(at_us + int(recording.service_us[channel.request]), muted_us)
        return self._next(channel, free_us, muted_us)

    def _fetch(self, channel: _Channel, at_us: int) -> int | None:
        """Handle a Fetch or its response; returns the time of the channel's next event."""
        recording, now_ms = self._recording, at_us // 1000
        if channel.response_bytes >= 0:
            size, channel.response_bytes = channel.response_bytes, -1
            decision = self._throttle.fetched(channel.flow, size, now_ms)
            self._note(at_us, channel, decision, size)
            free_us = self._muted_us(channel, decision, at_us)
            channel.left -= size
            return free_us if channel.left else self._next(channel, free_us, free_us)
        decision = self._throttle.fetch(channel.flow, now_ms)
        self._note(at_us, channel, decision, 0)
        if decision.throttle_ms:
            return self._muted_us(channel, decision, at_us)
        granted = self._throttle.fetch_max_bytes(channel.flow, FETCH_BYTES_REQUESTED, now_ms)
        service_us = 0
        if not channel.left:
            channel.left = int(recording.sizes[channel.request])
            service_us = int(recording.service_us[channel.request])
        channel.response_bytes = min(channel.left, max(granted, RESPONSE_BYTES_MIN))
        return at_us + service_us

    def _muted_us(self, channel: _Channel, decision: Decision, at_us: int) -> int:
        mute_ms = capped(decision.throttle_ms, self._mute_ms_max, channel.group_ms)
        return (at_us // 1000 + mute_ms) * 1000 if mute_ms else at_us

    def _next(self, channel: _Channel, free_us: int, muted_us: int) -> int | None:
        gap_us = int(self._recording.gap_us[channel.request])
        channel.request += 1
        if channel.request == channel.end:
            return None
        channel.came_us = free_us + gap_us if gap_us >= 0 else max(channel.came_us + ~gap_us, muted_us)
        return channel.came_us

    def _note(self, at_us: int, channel: _Channel, decision: Decision, size: int) -> None:
        self._decided.append(
            Decided(at_us, channel.number, decision.hold_until_ms, decision.throttle_ms, size)
        )
