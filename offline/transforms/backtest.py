"""Requests x candidates -> outcomes and loads: the one Python function of the pipeline, which runs `quotas.backtest`.

A limiter is one entity at one broker in one direction; its requests are decided in order, so one task has to see all of
them. What can be divided is the candidates: a heavy limiter's rows go to several tasks, each with a part of the
candidates (`division`; the table `tasks` says what became of it).

A task keeps the requests of one limiter at a time, 16 bytes each, its load (8 bytes for each candidate and second: with
20 candidates 0.6 MB an hour), and the sum of loads at one broker in one direction.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quotas.backtest import Outcome, backtest
from quotas.options import EngineOptions
from quotas.recording import RecordingBuilder, recording_of

__all__ = ["NOBODY", "RAW", "Limiters", "Plan", "compile_for", "raw_outcomes"]

# One row of what the tasks give: outcome, load or task, in one table so that it is made once.
RAW: Final = (
    "kind string, limiter int, heavy boolean, consumes boolean, broker int, quota double, "
    "numbers array<bigint>, start_s bigint, seconds double"
)
_NAMES: Final = ["kind", "limiter", "heavy", "consumes", "broker", "quota", "numbers", "start_s", "seconds"]
_TYPES: Final = [
    pa.string(),
    pa.int32(),
    pa.bool_(),
    pa.bool_(),
    pa.int32(),
    pa.float64(),
    pa.list_(pa.int64()),
    pa.int64(),
    pa.float64(),
]
LOAD_SECONDS: Final = 3600  # in one row
NOBODY: Final = -1
_LOW_BITS: Final = 32  # of a connection's number; as many are left for limiters and their parts
_FIELDS: Final = (
    "limiter",
    "chunk",
    "connection",
    "at_us",
    "bytes",
    "service_us",
    "delay_ms",
    "throttle_ms",
    "group",
)


@dataclass(frozen=True, slots=True)
class Limiters:
    """What tasks have to know of limiters, by number.

    Attributes:
        broker: whose load it is; consumes: fetch. heavy: the number of the heavy entity it belongs to, or NOBODY.
        chunks: in how many parts its candidates are divided.
    """

    broker: npt.NDArray[np.int32]
    consumes: npt.NDArray[np.bool_]
    heavy: npt.NDArray[np.int32]
    chunks: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tried, over which seconds."""

    produce: tuple[float, ...]
    fetch: tuple[float, ...]
    engine: EngineOptions
    start_s: int
    seconds: int
    group_ms: int

    def candidates(self, *, consumes: bool) -> tuple[float, ...]:
        """Of this direction."""
        return self.fetch if consumes else self.produce


def raw_outcomes(rows: DataFrame, plan: Plan, limiters: Limiters, partitions: int) -> DataFrame:
    """Decide everything.

    Args:
        rows: the columns `limiter`, `places` (the partition of each of its parts), `seq`, and what `_FIELDS` names but
            `chunk`.
    """
    # A row of a heavy limiter goes to each of its parts.
    parted = rows.select("*", F.posexplode("places").alias("chunk", "place"))
    # Spark compares eight bytes of the first column quickly and rows slowly: in these eight is all that tells most rows
    # apart. Connections whose low halves are the same are told apart by the column behind.
    part = F.col("limiter").cast("bigint") * int(limiters.chunks.max(initial=1)) + F.col("chunk")
    order = F.shiftleft(part, _LOW_BITS).bitwiseOR(F.col("connection").bitwiseAND((1 << _LOW_BITS) - 1))
    placed = (
        parted.withColumn("order", order)
        .repartitionById(partitions, "place")
        .sortWithinPartitions("order", "connection", "seq")
    )
    return placed.select(*_FIELDS).mapInArrow(_decider(plan, limiters), RAW)


Batches = Iterable[pa.RecordBatch]


def _decider(plan: Plan, limiters: Limiters) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def decide(batches: Batches) -> Iterator[pa.RecordBatch]:
        task = _Task(plan, limiters)
        for (limiter, chunk), pieces in groupby(_pieces(batches), key=lambda piece: piece[0]):
            yield from map(_batch, task.decide(limiter, chunk, (columns for _, columns in pieces)))
        yield from map(_batch, task.rest())

    return decide


Group = list[npt.NDArray[np.int64]]


def _pieces(batches: Batches) -> Iterator[tuple[tuple[int, int], Group]]:
    """Rows of one limiter and part at a time; Spark gives them in this order, in batches that know nothing of it."""
    for batch in batches:
        columns = [column.to_numpy(zero_copy_only=False) for column in batch]
        starts = np.flatnonzero(np.diff(columns[0]) | np.diff(columns[1])) + 1
        for begin, end in pairwise((0, *starts.tolist(), batch.num_rows)):
            if begin < end:
                key = (int(columns[0][begin]), int(columns[1][begin]))
                yield key, [column[begin:end] for column in columns[2:]]


Row = tuple[str, int, bool, bool, int, float, list[int], int, float]
Loads = npt.NDArray[np.int64]  # bytes; [candidate, second]


class _Task:
    """One Spark task: what it has added up so far."""

    def __init__(self, plan: Plan, limiters: Limiters) -> None:
        self._plan = plan
        self._limiters = limiters
        self._whose: tuple[bool, int] | None = None  # direction and broker of the limiters that are added up
        self._load: Loads = np.zeros((0, 0), dtype=np.int64)
        self._decided = 0
        self._spent_s = 0.0
        compile_for(plan.engine)  # or take what is compiled from the disk; no part of what is measured

    def decide(self, limiter: int, chunk: int, pieces: Iterable[Group]) -> Iterator[list[Row]]:
        """One limiter's requests at its part of the candidates."""
        consumes = bool(self._limiters.consumes[limiter])
        parts = int(self._limiters.chunks[limiter])
        candidates = self._plan.candidates(consumes=consumes)
        limits = candidates[chunk::parts]
        if not limits:
            return
        builder = RecordingBuilder(consumes=consumes)
        for columns in pieces:
            _add(builder, columns, self._plan.group_ms)
        recording = builder.build()
        if not len(recording):
            return
        begun_s = time.perf_counter()
        found = backtest(
            recording, limits, self._plan.engine, start_s=self._plan.start_s, seconds=self._plan.seconds
        )
        self._spent_s += time.perf_counter() - begun_s
        self._decided += len(recording) * len(limits)
        yield [self._row(limiter, outcome, builder.end_us) for outcome in found.each]
        whose = (consumes, int(self._limiters.broker[limiter]))
        heavy = int(self._limiters.heavy[limiter])
        if heavy != NOBODY:  # has a load of its own
            yield from self._loads(whose, heavy, limits, found.load)
            return
        if whose != self._whose:
            yield from self._added_up()
            self._whose = whose
            self._load = np.zeros((len(candidates), self._plan.seconds), dtype=np.int64)
        self._load[chunk::parts] += found.load

    def rest(self) -> Iterator[list[Row]]:
        """The last load that was added up, and what this task has done."""
        yield from self._added_up()
        yield [("task", NOBODY, False, False, NOBODY, 0.0, [self._decided], 0, self._spent_s)]

    def _added_up(self) -> Iterator[list[Row]]:
        if self._whose is not None:
            candidates = self._plan.candidates(consumes=self._whose[0])
            yield from self._loads(self._whose, NOBODY, candidates, self._load)

    def _loads(
        self, whose: tuple[bool, int], heavy: int, limits: Sequence[float], load: Loads
    ) -> Iterator[list[Row]]:
        """Rows of a load, by candidate and hour; hours in which nothing passed are left out."""
        consumes, broker = whose
        start_s = self._plan.start_s
        for limit, line in zip(limits, load, strict=True):
            hours = [
                (
                    "load",
                    heavy,
                    heavy != NOBODY,
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
            outcome.throttle_ms_p99,
            outcome.throttle_ms_max,
            outcome.bytes,
            outcome.bytes_delayed,
            outcome.bytes_late,
            max(0, (outcome.end_us - end_us) // 1000),
        ]
        return ("outcome", limiter, False, False, NOBODY, outcome.limit, numbers, 0, 0.0)


def compile_for(engine: EngineOptions) -> None:
    """Decide a request of each kind."""
    one = np.ones(1, dtype=np.int64)
    for consumes in (False, True):
        made = recording_of(connection=one, at_us=one, sizes=one, service_us=one, consumes=consumes)
        backtest(made, [1.0], engine, start_s=0, seconds=1)


def _add(builder: RecordingBuilder, columns: Group, group_ms: int) -> None:
    connection, at_us, size, service_us, delay_ms, throttle_ms, group = columns
    builder.add(
        connection,
        at_us,
        size,
        service_us,
        delay_ms.astype(np.int64) * 1000,
        throttle_ms.astype(np.int64) * 1000,
        group.astype(np.int64) * group_ms,
    )


def _batch(rows: list[Row]) -> pa.RecordBatch:
    arrays = [
        pa.array(values, type=kind) for values, kind in zip(zip(*rows, strict=True), _TYPES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_NAMES)
