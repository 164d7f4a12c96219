"""The results of earlier stages that later ones collect on the driver: aggregated, so they are small."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from offline.advice.limits import Client, need_of
from offline.options import BacktestSettings, read_settings
from offline.store import Store
from offline.transforms.loads import BLOCK_S, at_levels, peaks

_WAITS: Final = ("throttle_ms", "idle_ms")


def exactly(fractions: Column) -> Column:
    """Return them as decimals: a sum of fractions depends on their order, which is another in each run on a cluster."""
    return fractions.cast("decimal(28,12)")


@dataclass(frozen=True, slots=True)
class Span:
    """The recorded time of a capture, in seconds.

    Attributes:
        start_s: its first second, since 1970.
        seconds: from the first request to the last, with gaps between captures: the length of every time axis.
        recorded: the seconds in which any process recorded, of which `Goal.tolerance` is a share.
        requests: the number of requests.
    """

    start_s: int
    seconds: int
    recorded: int
    requests: int

    @property
    def blocks(self) -> int:
        """The number of blocks of ten seconds; the last one may be shorter."""
        return -(-self.seconds // BLOCK_S)


@dataclass(frozen=True, slots=True)
class Effects:
    """How long each client would wait with each candidate (a quota that was tried), at all brokers together.

    With 100,000 clients and 20 candidates a direction takes 32 MB (16 bytes each), and half as much for names.

    Attributes:
        clients: user and client id.
        throttle_ms: the wait; a matrix with a row for each client and a column for each candidate.
        idle_ms: the part of that wait during which the quota was not used up; a matrix likewise.
    """

    clients: Sequence[Client]
    throttle_ms: npt.NDArray[np.int64]
    idle_ms: npt.NDArray[np.int64]


def span_of(source: Store) -> Span:
    """Read the table `demand/span`."""
    row = source.read("demand/span").first()
    assert row is not None, "demand writes one row or fails"
    return Span(row["start_s"], row["seconds"], row["recorded_seconds"], row["requests"])


def backtest_settings(source: Store) -> BacktestSettings:
    """Read the settings of the backtest."""
    return read_settings(BacktestSettings, source.text("backtest/settings.json"))


def effects(outcomes: DataFrame, direction: str, count: int) -> Effects:
    """Return the effects of each candidate on every client, from the table `backtest/outcomes`.

    Args:
        count: the number of candidates.
    """
    by_quota = (
        outcomes.filter(F.col("direction") == direction)
        .groupBy("user", "client_id", "quota")
        .agg(*(F.sum(name).alias(name) for name in _WAITS))
    )
    steps = F.sort_array(F.collect_list(F.struct("quota", *_WAITS)))
    found = by_quota.groupBy("user", "client_id").agg(steps.alias("steps"))
    rows = (
        found.select("user", "client_id", *(F.col("steps")[name].alias(name) for name in _WAITS))
        .orderBy("user", "client_id")
        .toArrow()
    )

    def matrix(name: str) -> npt.NDArray[np.int64]:
        pieces = [chunk.flatten().to_numpy() for chunk in rows[name].chunks]
        return np.concatenate([np.zeros(0, np.int64), *pieces]).reshape(rows.num_rows, count)

    return Effects(
        list(zip(rows["user"].to_pylist(), rows["client_id"].to_pylist(), strict=True)),
        *(matrix(name) for name in _WAITS),
    )


def needs_of(found: Effects, span: Span, tolerance: float) -> dict[Client, int]:
    """Return, by client, the index of the smallest candidate that does not throttle it (`need_of`).

    A client counts as throttled if it waits, while the quota is used up, for more than a share of the recorded time.

    Args:
        tolerance: this share, 0 to 1.
    """
    throttled = found.throttle_ms - found.idle_ms > tolerance * span.recorded * 1000
    return dict(zip(found.clients, map(need_of, throttled.tolist()), strict=True))


class MeasuredLoads:
    """`advice.limits.Loads` over the table `backtest/loads`: Spark sums, and only peaks are collected.

    Attributes:
        heavy: the clients whose own loads are known, so that each of them can get an override.
    """

    def __init__(
        self, loads: DataFrame, blocks: DataFrame, alone: DataFrame, candidates: Sequence[float]
    ) -> None:
        """Create the loads of one direction.

        Args:
            loads: the table `backtest/loads`.
            blocks: the result of `transforms.loads.blocks_of`.
            alone: quota and peak_10s: the peak with each candidate as the default.
        """
        names = loads.filter("heavy").select("user", "client_id").distinct().collect()
        self.heavy: Collection[Client] = {(row["user"], row["client_id"]) for row in names}
        self._blocks = blocks
        self._alone = alone
        self._candidates = candidates

    def alone(self) -> list[float]:
        """Return the peak in bytes/s with each candidate as the default, without overrides."""
        found = {row["quota"]: row["peak_10s"] for row in self._alone.collect()}
        return [found.get(quota, 0.0) for quota in self._candidates]

    def peaks(self, default: int, levels: Sequence[Mapping[Client, int]]) -> list[float]:
        """Return the peak in bytes/s for each set of overrides in `levels`, with this default for all others."""
        passed = peaks(self.passed(default, levels), "level").collect()
        found = {row["level"]: row["peak_10s"] for row in passed}
        return [found.get(level, 0.0) for level in range(len(levels))]

    def passed(self, default: int, levels: Sequence[Mapping[Client, int]]) -> DataFrame:
        """Return the load for each set of overrides: level (its index), broker, block of ten seconds, and bytes."""
        quotas = [{name: self._candidates[index] for name, index in given.items()} for given in levels]
        return at_levels(self._blocks, self._candidates[default], quotas)
