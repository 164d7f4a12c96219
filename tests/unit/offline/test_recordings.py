"""Nine recordings whose right quotas are known: candidates, backtest and advice, without Spark.

tests/spark/test_recordings.py brings the same ones through the whole pipeline.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from offline.advice.limits import DEFAULT_MIN, Client, Limits, limits, need_of
from offline.options import Goal
from offline.transforms.candidates import ladder
from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import recording_of
from tests.support.recordings import RECORDINGS, Recorded, Recording

BLOCK_S = 10
TOLERANCE = Goal().tolerance


class Tried:
    """Every client at every candidate, and `advice.limits.Loads` of that: all clients are at one broker, and heavy."""

    def __init__(self, recording: Recording) -> None:
        seconds = {one.name: _seconds(one, recording) for one in recording.clients}
        peaks = [
            float(np.convolve(counted, np.ones(BLOCK_S)).max() / BLOCK_S) for counted in seconds.values()
        ]
        held = max(1 / (1 - one.throttle_ms / 400) for one in recording.clients)  # told in each 400 ms
        highest = held * max(float(counted.max()) for counted in seconds.values())
        self.candidates = ladder(peaks, highest, 20, headroom=Goal().headroom, least=DEFAULT_MIN)
        self.needs: dict[Client, int] = {}
        self._blocks: dict[Client, npt.NDArray[np.float64]] = {}
        for one in recording.clients:
            self._try(one, recording)

    def _try(self, one: Recorded, recording: Recording) -> None:
        count = len(one.at_us) * one.connections
        made = recording_of(
            connection=np.repeat(np.arange(one.connections), len(one.at_us)),
            at_us=np.tile(one.at_us, one.connections),
            sizes=np.full(count, one.size),
            service_us=np.full(count, one.service_us),
            throttle_us=np.full(count, one.throttle_ms * 1000),
            consumes=recording.direction == "fetch",
        )
        found = backtest(made, self.candidates, recording.engine, start_s=0, seconds=recording.seconds)
        allowed_ms = TOLERANCE * recording.seconds * 1000
        waited = [outcome.throttle_ms - outcome.idle_ms > allowed_ms for outcome in found.each]
        self.needs["", one.name] = need_of(waited)
        blocks = found.load.reshape(len(self.candidates), -1, BLOCK_S).sum(axis=2) / BLOCK_S
        self._blocks["", one.name] = blocks

    @property
    def heavy(self) -> Sequence[Client]:
        return list(self._blocks)

    def alone(self) -> list[float]:
        return [self.peaks(index, [{}])[0] for index in range(len(self.candidates))]

    def peaks(self, default: int, levels: Sequence[Mapping[Client, int]]) -> list[float]:
        return [
            float(sum(blocks[given.get(name, default)] for name, blocks in self._blocks.items()).max())
            for given in levels
        ]


def _seconds(one: Recorded, recording: Recording) -> npt.NDArray[np.int64]:
    moved_us = one.at_us + (one.service_us if recording.direction == "fetch" else 0)
    return np.bincount(moved_us // 1_000_000, minlength=recording.seconds) * one.size * one.connections


def advised(tried: Tried, recording: Recording, capacity: float | None) -> Limits:
    goal = Goal(capacity_in=capacity, capacity_out=capacity)
    return limits(tried.candidates, tried.needs, tried, goal, recording.direction)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_the_right_quotas_are_recommended(recording: Recording) -> None:
    tried = Tried(recording)
    for capacity, right in recording.right.items():
        found = advised(tried, recording, capacity)
        rates = tried.candidates
        assert right.default[0] <= rates[found.default] <= right.default[1], found
        assert {one.client[1] for one in found.overrides} == set(right.overrides)
        for one in found.overrides:
            low, high = right.overrides[one.client[1]]
            assert low <= rates[one.index] <= high, (one, rates)
        assert [found.bound, *(one.bound for one in found.overrides)] == list(right.bounds)
        assert {client_id for _, client_id in found.throttled} == right.throttled
        assert found.fits
