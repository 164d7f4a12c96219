"""Bytes by second -> what classes of clients would have of a capacity, and how long they would wait, by trial.

A task holds a day of one direction of one broker (with scope `cluster`, of all brokers together): 24 bytes for each
client and second with traffic. The arithmetic is `quotas.backtest.capacity`. A day begins with nothing late.

Several pieces of advice can be worked out at once, each from days of its own: so `evaluate` has every origin in a few
passes over the recording.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from offline.transforms.demand import ENTITY
from offline.transforms.evaluate import MINUTES_A_DAY
from offline.transforms.loads import BLOCK_S
from quotas.backtest.capacity import Classes, shared
from quotas.backtest.compiler import Ints

PEAKS_S: Final = (60, 10, 1)
_DEMANDS: Final = ("steady", *(f"peak_{length_s}s" for length_s in PEAKS_S))
_CLASS: Final = ("waited_ms", "promised", "lent", "late", "wanted_s", "kept_s")
_CARRIED: Final = {
    **dict.fromkeys(("trial", "owner", "broker", "day", "block"), pa.int32()),
    **dict.fromkeys((*_CLASS, "possible"), pa.int64()),
}
_TYPES: Final = {pa.int32(): "int", pa.int64(): "bigint"}


class Seen(NamedTuple):
    """The days that one piece of advice is made from.

    Args:
        days: counted from the recording's first second.
        recorded_s: how many of their seconds were recorded.
    """

    days: range
    recorded_s: int


class Trial(NamedTuple):
    """Terms that are tried on some days: by direction, those of all classes."""

    days: range
    classes: Mapping[str, Classes]


def budgets(per_second: DataFrame, *, by_broker: bool) -> DataFrame:
    """Return the bytes of each client's budgets by second.

    Args:
        per_second: the table `demand/per_second`.
        by_broker: whether each broker has a budget by itself.
    """
    broker = F.col("broker") if by_broker else F.lit(-1)
    return (
        per_second.filter(F.col("bytes") > 0)
        .groupBy(*ENTITY, broker.alias("broker"), "second")
        .agg(F.sum("bytes").alias("bytes"))
    )


def demands(seconds: DataFrame, seen: Sequence[Seen], start_s: int, day_s: int, always: float) -> DataFrame:
    """Return each client's peaks in bytes/s, and `steady`: what it needs in the share `always` of the recorded minutes.

    With scope `broker` these are of the broker at which it needs most.

    Args:
        seconds: the result of `budgets`.
        day_s: the length of a day, of which a minute is a 1440th.

    Returns:
        direction, user, client_id, and `seen`, the index of the days; no row for days without traffic of the client.
    """

    def measure(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        rows = _demands(table, seen, start_s, day_s, always)
        columns = {
            **{name: pa.array([part.as_py()] * len(rows)) for name, part in zip(ENTITY, key, strict=True)},
            "seen": pa.array([number for number, _ in rows], pa.int32()),
        }
        for place, name in enumerate(_DEMANDS):
            columns[name] = pa.array([values[place] for _, values in rows], pa.float64())
        return pa.table(columns)

    schema = "direction string, user string, client_id string, seen int, "
    return seconds.groupBy(*ENTITY).applyInArrow(
        measure, schema + ", ".join(f"{name} double" for name in _DEMANDS)
    )


def _demands(
    table: pa.Table, seen: Sequence[Seen], start_s: int, day_s: int, always: float
) -> list[tuple[int, list[float]]]:
    """Return the index of the days, and `_DEMANDS`, of one client."""
    second, broker, size = (table[name].to_numpy() for name in ("second", "broker", "bytes"))
    minute_s = max(1, day_s // MINUTES_A_DAY)
    found: dict[int, list[float]] = {}
    for each in np.unique(broker):
        own = np.flatnonzero(broker == each)
        own = own[np.argsort(second[own], kind="stable")]
        at, day = second[own], (second[own] - start_s) // day_s
        total = np.concatenate(([0], np.cumsum(size[own])))
        first = np.flatnonzero(np.diff(at // minute_s, prepend=-1))
        minutes = np.add.reduceat(size[own], first)
        windows = [
            (total[1:] - total[np.searchsorted(at, at - length_s, side="right")]) / length_s
            for length_s in PEAKS_S
        ]
        for number, one in enumerate(seen):
            begin, end = np.searchsorted(day, (one.days.start, one.days.stop))
            if begin == end:
                continue
            inside = minutes[slice(*np.searchsorted(first, (begin, end)))]
            rank = int(round((1 - always) * (one.recorded_s // minute_s), 6))
            steady = np.sort(inside)[-1 - rank] / minute_s if rank < len(inside) else 0.0
            values = [float(steady), *(float(means[begin:end].max()) for means in windows)]
            found[number] = [max(pair) for pair in zip(values, found.get(number, values), strict=True)]
    return list(found.items())


def carried(
    seconds: DataFrame,
    owners: DataFrame,
    trials: Sequence[Trial],
    capacities: Mapping[str, float],
    start_s: int,
    day_s: int,
    block_s: int = BLOCK_S,
) -> DataFrame:
    """Return what classes have of a capacity, and how long they wait.

    Args:
        seconds: the result of `budgets`.
        owners: direction, user, client_id, and `owner`, the number of its class in each trial.
        capacities: by direction, in bytes/s.
        block_s: the length of a block of time.

    Returns:
        Rows of classes, whose `block` is -1: trial, owner, broker, day, waited_ms, promised and lent (bytes, of their
        rates and beyond them), late (of these bytes, what passes after the day), wanted_s and kept_s (seconds in which
        it wanted something, and in which it had its rate, or what it wanted). And rows of blocks, whose owner is -1:
        trial, broker, day, block, promised, lent and possible (what is wanted in each second, up to the capacity).
    """
    day = F.floor((F.col("second") - start_s) / day_s).cast("int").alias("day")
    rows = (
        seconds.join(F.broadcast(owners), on=list(ENTITY), how="inner")
        .select("direction", "broker", day, F.col("second") - start_s, "owner", "bytes")
        .toDF("direction", "broker", "day", "second", "owner", "bytes")
    )

    def share(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        direction, broker, day = (part.as_py() for part in key)
        tried = [(number, each.classes[direction]) for number, each in enumerate(trials) if day in each.days]
        found = _carried(table, tried, capacities[direction], broker, day, day_s, block_s)
        return found.add_column(0, "direction", pa.repeat(pa.scalar(direction), found.num_rows))

    schema = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in _CARRIED.items())
    return rows.groupBy("direction", "broker", "day").applyInArrow(share, f"direction string, {schema}")


def totals(found: DataFrame) -> DataFrame:
    """Return the sums of the rows of classes, over all brokers and days: direction, trial, owner, and the rest."""
    classes = found.filter(F.col("block") < 0).groupBy("direction", "trial", "owner")
    return classes.agg(*(F.sum(name).alias(name) for name in ("waited_ms", "promised", "lent")))


def blocks(found: DataFrame, trial: int, count: int) -> DataFrame:
    """Return the bytes of each block with one trial: direction, broker, block, promised and lent.

    Args:
        count: the number of blocks in the recording; what passes later is left out.
    """
    inside: Column = (F.col("trial") == trial) & F.col("block").between(0, count - 1)
    rows = found.filter(inside).groupBy("direction", "broker", "block")
    return rows.agg(*(F.sum(name).alias(name) for name in ("promised", "lent")))


def _carried(
    table: pa.Table,
    trials: Sequence[tuple[int, Classes]],
    capacity: float,
    broker: int,
    day: int,
    day_s: int,
    block_s: int,
) -> pa.Table:
    second, owner, size = (table[name].to_numpy() for name in ("second", "owner", "bytes"))
    order = np.lexsort((owner, second))
    second, owner, size = second[order] - day * day_s, owner[order], size[order]
    count = -(-day_s // block_s)
    own = np.unique(owner)
    parts: dict[str, list[Ints]] = {name: [np.zeros(0, np.int64)] for name in _CARRIED}
    for trial, classes in trials:
        found = shared(second, owner, size, classes, capacity, count, block_s)
        used = np.flatnonzero(found.possible)
        none, nothing = np.zeros(len(own)), np.zeros(len(used))
        whole = np.bincount(owner, weights=size, minlength=len(classes.rates))[own]
        rows = {
            "trial": np.full(len(own) + len(used), trial),
            "owner": np.concatenate([own, np.full(len(used), -1)]),
            "broker": np.full(len(own) + len(used), broker),
            "day": np.full(len(own) + len(used), day),
            "block": np.concatenate([np.full(len(own), -1), used + day * day_s // block_s]),
            # Whole numbers, whose sums depend on no order.
            "waited_ms": np.concatenate([np.rint(found.waited_s[own] * 1000), nothing]),
            "promised": np.rint(np.concatenate([whole - found.lent[own], found.carried[0, used]])),
            "lent": np.rint(np.concatenate([found.lent[own], found.carried[1, used]])),
            "late": np.concatenate([np.rint(found.late[own]), nothing]),
            "wanted_s": np.concatenate([found.wanted_s[own], nothing]),
            "kept_s": np.concatenate([found.kept_s[own], nothing]),
            "possible": np.concatenate([none, np.rint(found.possible[used])]),
        }
        for name, values in rows.items():
            parts[name].append(values.astype(np.int64))
    return pa.table(
        {name: pa.array(np.concatenate(parts[name])).cast(kind) for name, kind in _CARRIED.items()}
    )
