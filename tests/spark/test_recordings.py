"""Nine recordings whose right quotas are known, two at a time through demand, backtest and recommend.

tests/unit/offline/test_recordings.py has what needs no Spark.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from offline.jobs import backtest, demand, recommend
from offline.options import BacktestOptions, Goal
from offline.store import Store
from tests.support.pipeline import write_ingested
from tests.support.recordings import PAIRS, Recording

START_S = 1_767_225_600  # 2026-01-01 00:00 UTC
KEYS = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}


def rows_of(recording: Recording) -> dict[str, list[Any]]:
    """The columns of `ingest/requests`; connections are numbered from 0."""
    produces = recording.direction == "produce"
    columns: dict[str, list[Any]] = defaultdict(list)
    each = [one for one in recording.clients for _ in range(one.connections)]
    for number, one in enumerate(each):
        count = len(one.at_us)
        columns["at_us"] += (START_S * 1_000_000 + one.at_us).tolist()
        columns["connection"] += [number] * count
        columns["seq"] += range(count)
        columns["client_id"] += [one.name] * count
        columns["broker"] += [1] * count
        columns["api_key"] += [int(not produces)] * count
        columns["request_bytes"] += [one.size if produces else 100] * count
        columns["response_bytes"] += [60 if produces else one.size] * count
        columns["service_us"] += [one.service_us] * count
        columns["throttle_ms"] += [one.throttle_ms] * count
    return columns


def measured(
    spark: SparkSession, directory: Path, pair: tuple[Recording, Recording], day: int = 86_400
) -> Store:
    """A work directory in which these two are recorded, measured and tried."""
    store = Store(spark, str(directory))
    produced, fetched = map(rows_of, pair)
    fetched["connection"] = [1000 + number for number in fetched["connection"]]
    rows = {name: produced[name] + fetched[name] for name in produced}
    write_ingested(store, rows, (START_S * 1000, (START_S + pair[0].seconds) * 1000 - 1))
    demand.run(spark, store, store)
    backtest.run(spark, BacktestOptions(engine=pair[0].engine, day=day), store, store)
    return store


def check(recording: Recording, capacity: float | None, lines: list[Row]) -> None:
    """See that the recommendation is right."""
    right = recording.right[capacity]
    own = [line for line in lines if line["key"] == KEYS[recording.direction]]
    (default,) = (line for line in own if line["kind"] == "default")
    overrides = {line["client_id"]: line for line in own if line["kind"] == "override"}
    assert right.default[0] <= default["value"] <= right.default[1], default
    assert set(overrides) == set(right.overrides)
    for name, (low, high) in right.overrides.items():
        assert low <= overrides[name]["value"] <= high, overrides[name]
    for line, bound in zip((default, *overrides.values()), right.bounds, strict=True):
        words = {"request": "the size of a request", "goal": "the goal", "ladder": "the ladder"}
        assert line["reason"].startswith(f"bound by {words.get(bound, bound)}"), line
    assert default["clients_throttled"] == len(right.throttled)
    if capacity is not None:
        assert default["peak_after"] <= capacity


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(one.name for one in pair))
def test_the_right_quotas_are_recommended(
    spark: SparkSession, tmp_path: Path, pair: tuple[Recording, Recording]
) -> None:
    store = measured(spark, tmp_path, pair)
    produced, fetched = pair
    # What more capacities there are is looked at without Spark.
    capacity_in, capacity_out = next(iter(produced.right)), next(iter(fetched.right))
    recommend.run(spark, Goal(capacity_in=capacity_in, capacity_out=capacity_out), store, store)
    lines = store.read("recommend/recommendations").collect()
    # No network, so no replication throttle.
    assert {line["kind"] for line in lines} <= {"default", "override"}
    check(produced, capacity_in, lines)
    check(fetched, capacity_out, lines)
