"""One Spark task of the backtest: takes the recordings of one limiter after the other, returns outcomes and loads.

It keeps the load of one limiter (8 bytes for each candidate and second: 0.6 MB an hour with 20 candidates), and the sum
of the loads at one broker in one direction.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from quotas.backtest.outcomes import Outcome, backtest
from quotas.backtest.recording import Recording, recording_of
from quotas.options import EngineOptions

LOAD_SECONDS: Final = 3600  # in one row
NO_ID: Final = -1

Row = tuple[str, int, bool, bool, int, float, list[int], int, float]
Loads = npt.NDArray[np.int64]  # bytes; [candidate, second]


@dataclass(frozen=True, slots=True)
class Limiters:
    """The properties of all limiters, as arrays by the limiter's number.

    A limiter is what one quota counts: the requests of one entity at one broker in one direction.

    Attributes:
        broker: the broker that has the load.
        consumes: whether the direction is fetch, not produce.
        heavy: the number of its entity among those whose loads are stored separately (heavy); NO_ID for others.
        chunks: the number of parts into which its candidates are divided.
    """

    broker: npt.NDArray[np.int32]
    consumes: npt.NDArray[np.bool_]
    heavy: npt.NDArray[np.int32]
    chunks: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a backtest tries: the quotas (candidates) in bytes/s, the engine's options, and the time of the recording.

    Attributes:
        start_s, seconds: the first second of the recording, and its length.
    """

    produce: tuple[float, ...]
    fetch: tuple[float, ...]
    engine: EngineOptions
    start_s: int
    seconds: int
    group_ms: int

    def candidates(self, *, consumes: bool) -> tuple[float, ...]:
        """Return the candidates of one direction, in bytes/s."""
        return self.fetch if consumes else self.produce


class Task:
    """One Spark task of the backtest: `decide` each limiter, then `finish`; it adds up the load meanwhile."""

    def __init__(self, plan: Plan, limiters: Limiters) -> None:
        self._plan = plan
        self._limiters = limiters
        self._heavy_number: tuple[bool, int] | None = (
            None  # direction and broker of the limiters that are added up
        )
        self._load: Loads = np.zeros((0, 0), dtype=np.int64)
        self._decided = 0
        self._spent_s = 0.0
        compile_for(plan.engine)  # or take what is compiled from the disk; no part of what is measured

    def decide(self, limiter: int, chunk: int, recording: Recording) -> Iterator[list[Row]]:
        """Run the backtest of one limiter at one part (`chunk`) of its candidates; yield rows of outcomes and loads."""
        consumes = bool(self._limiters.consumes[limiter])
        parts = int(self._limiters.chunks[limiter])
        candidates = self._plan.candidates(consumes=consumes)
        limits = candidates[chunk::parts]
        if not limits or not len(recording):
            return
        begun_s = time.perf_counter()
        found = backtest(
            recording, limits, self._plan.engine, start_s=self._plan.start_s, seconds=self._plan.seconds
        )
        self._spent_s += time.perf_counter() - begun_s
        self._decided += len(recording) * len(limits)
        yield [self._row(limiter, outcome, recording.end_us) for outcome in found.each]
        whose = (consumes, int(self._limiters.broker[limiter]))
        heavy = int(self._limiters.heavy[limiter])
        if heavy != NO_ID:  # has a load of its own
            yield from self._loads(whose, heavy, limits, found.load)
            return
        if whose != self._heavy_number:
            yield from self._last_load()
            self._heavy_number = whose
            self._load = np.zeros((len(candidates), self._plan.seconds), dtype=np.int64)
        self._load[chunk::parts] += found.load

    def finish(self) -> Iterator[list[Row]]:
        """Yield rows of the load that was added up last, and a row with this task's count of decisions and time."""
        yield from self._last_load()
        yield [("task", NO_ID, False, False, NO_ID, 0.0, [self._decided], 0, self._spent_s)]

    def _last_load(self) -> Iterator[list[Row]]:
        if self._heavy_number is not None:
            candidates = self._plan.candidates(consumes=self._heavy_number[0])
            yield from self._loads(self._heavy_number, NO_ID, candidates, self._load)

    def _loads(
        self, whose: tuple[bool, int], heavy: int, limits: Sequence[float], load: Loads
    ) -> Iterator[list[Row]]:
        """Yield rows of a load, by candidate and hour; hours in which nothing passed are left out."""
        consumes, broker = whose
        start_s = self._plan.start_s
        for limit, line in zip(limits, load, strict=True):
            hours = [
                (
                    "load",
                    heavy,
                    heavy != NO_ID,
                    consumes,
                    broker,
                    limit,
                    line[first : first + LOAD_SECONDS].tolist(),
                    start_s + first,
                    0.0,
                )
                for first in range(0, len(line), LOAD_SECONDS)
                if line[first : first + LOAD_SECONDS].any()
            ]
            if hours:
                yield hours

    def _row(self, limiter: int, outcome: Outcome, end_us: int) -> Row:
        numbers = [
            outcome.requests,
            outcome.decisions,
            outcome.throttled,
            outcome.throttle_ms,
            outcome.idle_ms,
            outcome.throttle_ms_p99,
            outcome.throttle_ms_max,
            outcome.bytes,
            outcome.bytes_delayed,
            outcome.bytes_late,
            max(0, (outcome.end_us - end_us) // 1000),
        ]
        return ("outcome", limiter, False, False, NO_ID, outcome.limit, numbers, 0, 0.0)


def compile_for(engine: EngineOptions) -> None:
    """Compile the backtest to machine code for these options, by running it on a request of each kind."""
    one = np.ones(1, dtype=np.int64)
    for consumes in (False, True):
        made = recording_of(connection=one, at_us=one, sizes=one, service_us=one, consumes=consumes)
        backtest(made, [1.0], engine, start_s=0, seconds=1)
