"""Nine recordings whose right quotas are known, two at a time through demand, backtest and recommend.

tests/unit/offline/test_recordings.py has what needs no Spark.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from offline.jobs import backtest, demand, recommend
from offline.options import BacktestOptions, Goal
from offline.schemas import TABLES, ddl
from offline.store import Store
from tests.support.recordings import PAIRS, Recording

START_S = 1_767_225_600  # 2026-01-01 00:00 UTC
KEYS = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}


def rows_of(recording: Recording, first_connection: int) -> pa.Table:
    """The table `ingest/requests`."""
    produces = recording.direction == "produce"
    parts = []
    each = [one for one in recording.clients for _ in range(one.connections)]
    for number, one in enumerate(each):
        count = len(one.at_us)
        columns = {
            "at_us": START_S * 1_000_000 + one.at_us,
            "connection": np.full(count, first_connection + number),
            "seq": np.arange(count),
            "user": [""] * count,
            "client_id": [one.name] * count,
            "broker": np.ones(count, np.int32),
            "api_key": np.full(count, not produces, np.int16),
            "request_bytes": np.full(count, one.size if produces else 100),
            "response_bytes": np.full(count, 60 if produces else one.size),
            "service_us": np.full(count, one.service_us),
            "delay_ms": np.zeros(count, np.int32),
            "throttle_ms": np.full(count, one.throttle_ms, np.int32),
            "mutations": np.zeros(count, np.int32),
        }
        parts.append(pa.table({column.name: columns[column.name] for column in TABLES["ingest/requests"]}))
    return pa.concat_tables(parts)


def measured(spark: SparkSession, directory: Path, pair: tuple[Recording, Recording]) -> Store:
    """A work directory in which these two are recorded, measured and tried."""
    store = Store(spark, str(directory))
    rows = pa.concat_tables([rows_of(pair[0], 0), rows_of(pair[1], 1000)])
    with store.writing("ingest") as writer:
        writer.table("requests", spark.createDataFrame(rows))
        clock = [("p", 0, rows.num_rows, START_S * 1000, (START_S + pair[0].seconds) * 1000 - 1, 0, 0)]
        writer.table("processes", spark.createDataFrame(clock, ddl(TABLES["ingest/processes"])))
        writer.put("settings.json", json.dumps({"by": "client-id"}))
    demand.run(spark, store, store)
    backtest.run(spark, BacktestOptions(engine=pair[0].engine), store, store)
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
    assert {line["kind"] for line in lines} <= {
        "default",
        "override",
    }  # no network, so no replication throttle
    check(produced, capacity_in, lines)
    check(fetched, capacity_out, lines)
